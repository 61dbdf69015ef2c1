"""From flags to images, clients and views."""

import dataclasses
import datetime
import pathlib

import numpy as np
from absl import flags

from datasets import catalog, partition, shift
from datasets.image_dataset import ImageDataset, Split
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import Model, TwoTowers
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.views import augmentation
from tff_ssl.views.augmentation import TwoViews

_DIGITS_VIEW_SIZE = 16  # At 8x8, three stages of a ResNet would see 2x2 pixels.


def load_dataset(args: flags.FlagValues) -> ImageDataset:
    """The data set that the flags name."""
    return catalog.load(args.dataset, args.data_dir, args.image_size)


def check_image_shape(dataset: ImageDataset, image_shape: tuple[int, ...], encoder: str) -> None:
    """Checks that an encoder takes the images of a data set.

    Args:
      dataset: The data set.
      image_shape: Height, width and channels that the encoder takes.
      encoder: What it is called in the error.

    Raises:
      ConfigurationError: If it takes others.
    """
    theirs = dataset.train.images.shape[1:]
    if theirs != image_shape:
        advice = "; --image_size resizes" if theirs[2] == image_shape[2] else ""
        raise ConfigurationError(
            f"{encoder} takes images of {_size(image_shape)}, and those of "
            f"--dataset={dataset.name} are {_size(theirs)}{advice}"
        )


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def partition_name(args: flags.FlagValues) -> str:
    """`--partition`; where it is not given, a case folder has one client per case."""
    if args.dataset == "case_folder" and not args["partition"].present:
        return "per_case"
    return args.partition


def cluster_ids(dataset: ImageDataset, args: flags.FlagValues) -> np.ndarray | None:
    """The feature clusters of the training images, int32 [n]; None for the other partitions."""
    if partition_name(args) != "feature_clusters":
        return None
    from launch.options import clusters

    return clusters.cluster_ids(dataset, args)


def partition_dataset(
    dataset: ImageDataset, args: flags.FlagValues, clusters: np.ndarray | None = None
) -> list[np.ndarray]:
    """The clients that the flags describe.

    Args:
      dataset: The images.
      args: The flags.
      clusters: `cluster_ids` of the same arguments, where the caller has them.
    """
    clients = partition.make(
        partition_name(args),
        dataset.train,
        args.seed,
        alpha=args.alpha,
        beta=args.beta,
        num_clients=args.num_clients,
        samples_per_client=args.samples_per_client,
        classes_per_client=args.classes_per_client,
        balance_sizes=args.balance_sizes,
        random_sizes=args.random_sizes,
        cluster_ids=cluster_ids(dataset, args) if clusters is None else clusters,
        cluster_partition=args.cluster_partition,
    )
    return partition.keep_fraction(clients, args.data_fraction, args.seed)


def large_enough(
    clients: list[np.ndarray], least: int, args: flags.FlagValues
) -> tuple[list[np.ndarray], int]:
    """The clients that the objective can train on, and how many are left out.

    Raises:
      ConfigurationError: If there are smaller ones and `--skip_small_clients` is not given, or if
        no client is left.
    """
    kept = [client for client in clients if len(client) >= least]
    small = len(clients) - len(kept)
    if small and not (args.skip_small_clients and kept):
        ways = ["leave them out with --skip_small_clients"] if kept else []
        if partition_name(args) != "per_case":
            ways.append("take larger ones with --samples_per_client")
        advice = ", ".join(ways) or "take another --partition than per_case"
        if least > OBJECTIVES[args.objective].min_samples:
            advice += ", or lower the bound with --hparam=min_samples=N"
        raise ConfigurationError(
            f"--objective={args.objective} with {args.algorithm} needs clients of at least {least} "
            f"examples, and {small} of {len(clients)} have fewer: {advice}"
        )
    return kept, small


def client_images(split: Split, clients: list[np.ndarray], args: flags.FlagValues) -> Split:
    """The images as the clients see them: `split`, with the flags' shift of the input."""
    if args.shift == "none":
        return split
    shifted = shift.shift_clients(args.shift, split.images, clients, args.shifts)
    return dataclasses.replace(split, images=shifted)


def view_policy(dataset: ImageDataset, args: flags.FlagValues, objective: str) -> str:
    """The name of the augmentation policy."""
    default = {"digits": "affine", "case_folder": "skin"}.get(dataset.name, "byol_no_blur")
    if OBJECTIVES[objective].supervised and dataset.name != "digits":
        default = "flip"
    if OBJECTIVES[objective].decoder and dataset.name != "digits":
        default = "crop_flip"
    name = args.views or default
    if name not in augmentation.POLICIES:
        raise ConfigurationError(
            f"--views must be one of {', '.join(augmentation.POLICIES)}; got {name!r}"
        )
    return name


def view_size(dataset: ImageDataset, args: flags.FlagValues) -> int | None:
    """Side of the views; None for the images' own size."""
    if args.view_size is None and dataset.name == "digits" and args.image_size is None:
        return _DIGITS_VIEW_SIZE
    return args.view_size


def two_views(dataset: ImageDataset, args: flags.FlagValues, objective: str) -> TwoViews:
    """(images, example ids, round) -> two views, with the flags' policy and seed."""
    policy, size, seed = view_policy(dataset, args, objective), view_size(dataset, args), args.seed

    def make(images, example_ids, round_number):
        return augmentation.two_views(
            policy, images, example_ids, seed=seed, round_number=round_number, output_size=size
        )

    return make


def build_model(
    dataset: ImageDataset, args: flags.FlagValues, objective: str, encoder: str | None = None
) -> Model:
    """The model that the flags describe, with the heads that the objective needs.

    Args:
      dataset: The images.
      args: The flags.
      objective: What it is trained with.
      encoder: Instead of `--encoder`.
    """
    height, width, channels = dataset.train.images.shape[1:]
    size = view_size(dataset, args)
    shape = (size, size, channels) if size else (height, width, channels)
    projector, predictor = (
        _widths("projector", args.projector),
        _widths("predictor", args.predictor),
    )
    needs = OBJECTIVES[objective]
    if needs.predictor and not predictor and projector:
        predictor = (projector[0], projector[-1])
    classes = len(dataset.class_names) if needs.supervised else 0
    try:
        model = DualEncoder(
            encoder or args.encoder,
            shape,
            () if needs.supervised or needs.decoder else projector,
            predictor if needs.predictor else (),
            norm=args.norm,
            classes=classes,
            decoder=needs.decoder,
        )
        return model if args.towers == "one" else TwoTowers(model, args.towers)
    except ValueError as error:
        raise ConfigurationError(
            f"--encoder{'s' if encoder else ''}, --projector, --predictor, --towers, --norm or "
            f"--view_size: {error}"
        ) from error


def _widths(flag: str, texts: list[str]) -> tuple[int, ...]:
    try:
        return tuple(int(units) for units in texts)
    except ValueError:
        raise ConfigurationError(
            f"--{flag} must be numbers such as 256,256,256; got {','.join(texts)!r}"
        ) from None


def default_output_dir(script: str, args: flags.FlagValues) -> pathlib.Path:
    """`--output_dir`, or a new folder in results/."""
    if args.output_dir:
        return pathlib.Path(args.output_dir)
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return pathlib.Path("results") / f"{script}-{args.dataset}-{now}"
