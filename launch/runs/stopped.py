"""The encoder of a run that was stopped before its end."""

import pathlib

from datasets.image_dataset import ImageDataset
from launch.options import resuming
from launch.outputs import run_folder
from launch.runs import centralized, federated
from tff_ssl.deployment.encoder_weights import StoredEncoder


def restore_encoder(folder: pathlib.Path, dataset: ImageDataset) -> StoredEncoder:
    """Restores the encoder from the last readable checkpoint, and prints its round.

    The run is built as for `--resume`, because a checkpoint has only the values of the state. No
    round is computed. Until this process ends, no other one can resume the run.

    Args:
      folder: Folder of a run, for which `run_folder.is_stopped` holds.
      dataset: Data set of the run.

    Raises:
      TrainingError: No checkpoint can be read.
      ConfigurationError: Another process resumes the run.
    """
    run_folder.lock(folder, "--run")
    config = resuming.read_run(folder)
    assert config is not None
    is_centralized = config.script == "centralized"
    restore = centralized.restore if is_centralized else federated.restore
    model, weights, view_size, done = restore(config, dataset, folder)
    print(
        f"{folder} was stopped and has no encoder: uses its last readable checkpoint, of "
        f"{'step' if is_centralized else 'round'} {done:,} of {config.rounds:,}",
        flush=True,
    )
    encoder, kept = model.without_heads(weights)
    height, width, channels = dataset.train.images.shape[1:]
    return StoredEncoder(encoder, kept, (height, width, channels), view_size)
