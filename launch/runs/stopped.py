"""The encoder of a run that was stopped before its end, and the state of any run."""

import pathlib
from typing import Any

from datasets.image_dataset import ImageDataset
from launch.options import algorithm as algorithm_options
from launch.options import resuming, settings
from launch.options.run_config import RunConfig
from launch.outputs import run_folder
from launch.runs import centralized, federated, runtimes
from launch.runs.federated import Built
from launch.runs.final_evaluation import Restored
from tff_ssl.deployment.encoder_weights import StoredEncoder
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.simulation.training_loop import last_state


def restore_encoder(folder: pathlib.Path, dataset: ImageDataset) -> tuple[StoredEncoder, int]:
    """Restores the encoder from the last readable checkpoint, and prints its round.

    Returns the encoder and the number of rounds that it was trained.

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
    restore = centralized.restore if is_centralized else _restore
    model, weights, view_size, done = restore(config, dataset, folder)
    print(
        f"{folder} was stopped and has no encoder: uses its last readable checkpoint, of "
        f"{'step' if is_centralized else 'round'} {done:,} of {config.rounds:,}",
        flush=True,
    )
    encoder, kept = model.without_heads(weights)
    height, width, channels = dataset.train.images.shape[1:]
    return StoredEncoder(encoder, kept, (height, width, channels), view_size), done


def restore_state(built: Built, folder: pathlib.Path) -> tuple[Any, Weights, int]:
    """The state of a run's last readable checkpoint, the model that it evaluates, and its round.

    The folder has to be locked.

    Raises:
      TrainingError: There is no readable checkpoint.
    """
    config = built.chosen.config
    runtime = runtimes.choose(config.runtime, config.participation.round_timeout)
    run = built.algorithm.plan_run(built.setting)
    with federated.simulate(built, run, folder, runtime) as simulation:
        state, done = last_state(folder, simulation.initialize(config.seed))
        return state, simulation.encoder_weights(state), done


def _restore(config: RunConfig, dataset: ImageDataset, folder: pathlib.Path) -> Restored:
    config = settings.replace(config, **federated.ALONE)
    built = federated.build(algorithm_options.choose(config), dataset)
    _, weights, done = restore_state(built, folder)
    return Restored(built.model, weights, built.chosen.config.model.view_size, done)
