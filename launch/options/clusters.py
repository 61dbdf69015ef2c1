"""From flags to the feature clusters of `--partition=feature_clusters`."""

import pathlib

import numpy as np
from absl import flags

from datasets import feature_clusters
from datasets.image_dataset import ImageDataset
from tff_ssl.errors import ConfigurationError

PIXELS = "pixels"
_STREAM = 0xC1  # sets the clusters' random stream apart from that of the partition


def cluster_ids(dataset: ImageDataset, args: flags.FlagValues) -> np.ndarray:
    """The feature cluster of each training image, int32 [n]; a pure function of the flags.

    Raises:
      ConfigurationError: No `--cluster_encoder`, a folder without one, or one for other images.
      DatasetError: More clusters than different features.
    """
    rng = np.random.default_rng([args.seed, _STREAM])
    return feature_clusters.cluster(_features(dataset, args), rng, args.clusters)


def _features(dataset: ImageDataset, args: flags.FlagValues) -> np.ndarray:
    """float32 [n, d]."""
    from launch.options import data
    from launch.outputs import run_folder
    from tff_ssl.deployment import saved_model
    from tff_ssl.evaluation import features

    if not args.cluster_encoder:
        raise ConfigurationError(
            "--partition=feature_clusters needs --cluster_encoder=FOLDER, the folder of a run or "
            "of its encoder/; `python -m launch.centralized --objective=supervised "
            f"--dataset={args.dataset} --output_dir=FOLDER` makes one as in the Dec-SSL paper; or "
            f"--cluster_encoder={PIXELS} for the images themselves"
        )
    images = dataset.train.images
    if args.cluster_encoder == PIXELS:
        return features.raw_pixels(images)
    folder = pathlib.Path(args.cluster_encoder)
    try:
        encoder = saved_model.load_encoder(run_folder.encoder_of(folder))
    except ConfigurationError as error:
        raise ConfigurationError(f"--cluster_encoder: {error}") from error
    data.check_image_shape(dataset, encoder.image_shape, f"--cluster_encoder={folder}")
    return features.extract(encoder, images)
