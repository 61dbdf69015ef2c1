"""Trains the centralized baseline, from its configuration to its results."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from datasets.image_dataset import ImageDataset, Split
from launch.options import adapting, choices, data, defaults, hyperparameters, pretrained, settings
from launch.options import clients as client_options
from launch.options import model as model_options
from launch.options.run_config import RunConfig
from launch.outputs import output_folder, partition_record, run_folder
from launch.probes import probing
from launch.runs import runtimes, training
from launch.runs.final_evaluation import Restored
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.evaluation import labels
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.registry import GENERAL_OBJECTIVES, OBJECTIVES, unused_hyperparameters
from tff_ssl.simulation import centralized, cohort
from tff_ssl.simulation.training_loop import last_state

# Flags of clients that change the training images; many presets have them for both scripts.
_OF_CLIENTS = (
    "partition", "num_clients", "samples_per_client", "data_fraction", "clients_per_round",
)  # fmt: skip
Batches = Callable[[int], np.ndarray]  # Step -> indices of its images, int64 [batch].


def train(config: RunConfig) -> None:
    """Trains and evaluates the baseline, and writes the results."""
    config = pretrained.resolve(defaults.resolve(config, config.objective))
    values = hyperparameters.parse(centralized.CentralizedHyperparameters, config.algorithm.hparam)
    dataset = data.load_dataset(config.data, pretrained.largest_photo(config))
    config = adapting.fit_evaluation(dataset, config)
    device = runtimes.this_process(config.runtime)
    config, model, simulation, batches, images = _build(dataset, values, config)
    probing.check_labels(dataset, config.evaluation)
    folder = output_folder.choose(config.output.output_dir, f"centralized-{config.data.dataset}")
    run_folder.open_run(
        folder, settings.to_json(config), config.given, config.output.resume,
        partition_record.data_digests(dataset),
    )  # fmt: skip
    print(
        f"centralized {config.objective} on {dataset.name}: {images} images, "
        f"{config.rounds} steps of {len(batches(0))} ({config.participation.batches})\n"
        f"model: {config.model.encoder} encoder and heads, {model.parameter_count:,} parameters, "
        f"views {config.model.views} {model.image_shape[0]}x{model.image_shape[1]}\n"
        f"{hyperparameters.describe(values, unused_hyperparameters(config.objective))}\n"
        f"{model_options.norm_warning(config.objective, config.model)}"
        f"{model_options.precision_note(config.model.precision)}steps run in {device.description}\n"
        f"results go to {folder}/",
        flush=True,
    )
    fields = {
        "algorithm": "centralized",
        "objective": config.objective,
        "rounds": config.rounds,
        "train_images": images,
    }
    training.train_and_probe(simulation, model, dataset, folder, config, fields)


def restore(config: RunConfig, dataset: ImageDataset, folder: pathlib.Path) -> Restored:
    """Restores the model of a run that was stopped from its last readable checkpoint.

    Raises:
      TrainingError: There is no readable checkpoint.
    """
    config = pretrained.resolve(defaults.resolve(config, config.objective))
    values = hyperparameters.parse(centralized.CentralizedHyperparameters, config.algorithm.hparam)
    config, model, simulation, _, _ = _build(dataset, values, config)
    state, done = last_state(folder, simulation.initialize(config.seed))
    return Restored(model, simulation.encoder_weights(state), config.model.view_size, done)


def _build(
    dataset: ImageDataset, values: Any, config: RunConfig
) -> tuple[RunConfig, Model, centralized.Centralized, Batches, int]:
    """The configuration that fits the images, the model, its training, and the batches.

    The last item is the number of training images.
    """
    train_images = _training_images(dataset, config)
    config, train_images, batches, images = _choose_batches(dataset, train_images, config)
    seed, xla = config.seed, config.runtime.xla
    model = model_options.build_model(dataset, config.model, config.objective, xla=xla, seed=seed)
    model = pretrained.start(model, config.model, seed)
    two_views = model_options.two_views(config.model, seed, xla)
    try:
        simulation = centralized.Centralized(
            config.objective, model, two_views, train_images.images, train_images.example_ids,
            batches, config.rounds, values, train_images.labels, seed,
        )  # fmt: skip
    except ConfigurationError:
        raise
    except ValueError as error:  # Raised by an optimizer or a schedule.
        raise ConfigurationError(f"--hparam: {error}") from error
    return config, model, simulation, batches, images


def print_choices(config: RunConfig) -> None:
    """Prints the objectives, and the hyperparameters of the chosen one; or a topic of `--list`."""
    if isinstance(config.output.list, str):
        choices.print_topic(config.output.list)
        return
    check_objective(config.objective)
    for name in GENERAL_OBJECTIVES:
        print(f"objective {name}  {OBJECTIVES[name].summary}")
    values = hyperparameters.parse(centralized.CentralizedHyperparameters, config.algorithm.hparam)
    for line in hyperparameters.listed(values, unused_hyperparameters(config.objective)):
        print(f"hparam {line}")


def check_objective(objective: str) -> None:
    """Raises ConfigurationError if the objective is unknown, or belongs to one algorithm."""
    if objective not in GENERAL_OBJECTIVES:
        raise ConfigurationError(
            f"--objective must be one of {', '.join(GENERAL_OBJECTIVES)}; got {objective!r}"
        )


def _training_images(dataset: ImageDataset, config: RunConfig) -> Split:
    """The images to train on: all, or the labelled ones for supervised training."""
    count = config.data.train_labels
    check_objective(config.objective)
    if not OBJECTIVES[config.objective].supervised:
        if count:
            raise ConfigurationError("--train_labels needs --objective=supervised")
        return dataset.train
    if config.participation.batches == "cohorts":
        raise ConfigurationError("--objective=supervised needs --batches=shuffled")
    if not count:
        labelled = np.flatnonzero(dataset.train.labels >= 0)
        if len(labelled) == 0:
            raise ConfigurationError(f"--dataset={dataset.name} has no labels to train with")
        return dataset.train.take(labelled)
    with naming("--train_labels"):
        rng = np.random.default_rng([config.seed, 0])
        return dataset.train.take(labels.draw_labels(dataset.train.labels, rng, total=count))


def _choose_batches(
    dataset: ImageDataset, train_images: Split, config: RunConfig
) -> tuple[RunConfig, Split, Batches, int]:
    """Chooses the examples of each step by `--batches`.

    Returns the configuration that fits the images; the images, with the clients' input shift if
    batches are cohorts; the batches; and the number of training images.
    """
    if config.participation.batches == "shuffled":
        if config.clients.shift != "none":
            raise ConfigurationError("--shift needs --batches=cohorts: no clients, no shifts")
        ignored = [f"--{name}" for name in _OF_CLIENTS if name in config.given]
        if ignored:
            print(f"note: --batches=shuffled has no clients; unused: {', '.join(ignored)}")
        count = len(train_images)
        config = adapting.fit_batch(count, config)
        batch_size = config.participation.batch_size
        batches = centralized.shuffled_batches(count, batch_size, config.seed)
        return config, train_images, batches, count
    clients = client_options.partition_dataset(dataset, config.clients, config.seed)
    train_images = client_options.client_images(train_images, clients, config.clients)
    config = adapting.fit_cohort([len(indices) for indices in clients], config)
    clients_per_round = config.participation.clients_per_round
    cohorts = cohort.uniform_cohorts(len(clients), clients_per_round, config.seed)

    def batches_of_cohorts(step: int) -> np.ndarray:
        return np.concatenate([clients[client] for client in np.sort(cohorts(step))])

    return config, train_images, batches_of_cohorts, sum(map(len, clients))
