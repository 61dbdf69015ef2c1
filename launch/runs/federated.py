"""Simulates a pretraining run, from its configuration to its results."""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from datasets import client_store
from datasets.image_dataset import ImageDataset, Split
from launch.options import (
    adapting,
    data,
    heterogeneous_clients,
    hyperparameters,
    network,
    pretrained,
    settings,
)
from launch.options import algorithm as algorithm_options
from launch.options import clients as client_options
from launch.options import model as model_options
from launch.options.aggregation import Aggregation, choose_aggregation
from launch.options.algorithm import Chosen
from launch.options.image_config import ClientsConfig
from launch.options.participation import build_participation
from launch.options.run_config import RunConfig, RuntimeConfig
from launch.outputs import output_folder, partition_record, run_folder
from launch.probes import probing
from launch.runs import final_evaluation, micro_batches, runtimes, training
from tff_ssl import whole_files
from tff_ssl.errors import ConfigurationError, OutOfMemoryError
from tff_ssl.kinds.protocol import FederatedAlgorithm, Need, PlannedRun, RunSetting
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.registry import OBJECTIVES, unused_hyperparameters
from tff_ssl.runtime import ray_cluster, ray_nodes, start
from tff_ssl.runtime.sliced_rounds import Slicing
from tff_ssl.runtime.slices import InThisProcess
from tff_ssl.simulation import cohort, dropouts
from tff_ssl.simulation.participation import Participation
from tff_ssl.simulation.training_loop import Simulation
from tff_ssl.templates.task import Population

_DEFAULT_SLICES = 16  # With `--ray`.
# Flags of a run whose rounds are not computed again.
ALONE = {
    "ray": None, "slices": None, "round_timeout": None, "runtime": "auto", "xla": False,
}  # fmt: skip


class Clients(NamedTuple):
    """The clients of a run and their images.

    Attributes:
      dataset: Data set without the server's images.
      indices: Indices of each client's training images.
      images: Training images with their clients' input shifts.
      skipped: Number of clients that are left out because they have too few images.
      server_images: Images of the server, uint8 [n, h, w, c]; None if it has none.
      population: Clients and their models if architectures differ; otherwise None.
    """

    dataset: ImageDataset
    indices: list[np.ndarray]
    images: Split
    skipped: int
    server_images: np.ndarray | None
    population: Population | None


class Built(NamedTuple):
    """The parts of a run, before anything is written.

    Attributes:
      chosen: The algorithm, with the configuration that fits the clients.
      model: The model, or that of the client that stands for the run.
    """

    chosen: Chosen
    clients: Clients
    setting: RunSetting
    aggregation: Aggregation
    model: Model
    algorithm: FederatedAlgorithm


Train = Callable[[Built, PlannedRun, ImageDataset, pathlib.Path, runtimes.Chosen], None]


def pretrain(config: RunConfig) -> None:
    """Pretrains and evaluates an encoder, and writes the results."""
    run(config, _train_and_evaluate)


def run(config: RunConfig, train: Train, dataset: ImageDataset | None = None) -> None:
    """Plans a run, opens its folder and trains; again with smaller micro-batches if it has to.

    Args:
      config: The configuration, whose `output_dir` is None for a folder with a new name.
      train: Trains from the last checkpoint in the folder, or from the start, by `simulate`.
      dataset: The images; None for those that the configuration names.
    """
    runtime = runtimes.choose(config.runtime, config.participation.round_timeout)
    chosen = algorithm_options.choose(config)
    dataset = load(chosen.config, dataset)
    config = adapting.fit_evaluation(dataset, chosen.config)
    chosen = micro_batches.fit(chosen._replace(config=config), dataset, runtime.gpu)
    built = build(chosen, dataset)
    config, clients = built.chosen.config, built.clients
    _check_client_models(built)
    planned = built.algorithm.plan_run(built.setting)
    probing.check_labels(dataset, config.evaluation)
    if config.runtime.ray is not None:
        ray_cluster.check(config.runtime.ray)
    # The whole configuration has been checked; files are written from here on.
    folder = output_folder.choose(config.output.output_dir, f"pretrain-{config.data.dataset}")
    run_folder.open_run(
        folder, settings.to_json(config), config.given, config.output.resume,
        partition_record.data_digests(dataset, clients.indices, clients.server_images),
    )  # fmt: skip
    indices, classes = clients.indices, clients.dataset.class_names
    # The run's page draws the clients from this file.
    record = partition_record.describe_clients(clients.dataset.train, indices, classes)
    run_folder.write_json(folder / "partition.json", record)
    while True:
        try:
            return train(built, planned, dataset, folder, runtime)
        except OutOfMemoryError as error:
            built = build(micro_batches.halve(built.chosen, error), dataset)
            planned = built.algorithm.plan_run(built.setting)


def _train_and_evaluate(
    built: Built,
    run: PlannedRun,
    dataset: ImageDataset,
    folder: pathlib.Path,
    runtime: runtimes.Chosen,
) -> None:
    config, clients = built.chosen.config, built.clients
    client_models = final_evaluation.ClientModels(
        len(clients.indices), run.client_models, run.evaluated_client,
        run.untrained_clients_have_models, clients.indices,
    )  # fmt: skip
    _announce(built, run, folder, runtime)
    pictures = run.draw(folder, config.algorithm.algorithm)
    with simulate(built, run, folder, runtime) as simulation:
        images = sum(map(len, clients.indices))
        fields = {
            "algorithm": config.algorithm.algorithm,
            "objective": config.objective,
            "rounds": config.rounds,
            "clients": len(clients.indices),
            "skipped_clients": clients.skipped,
            "train_images": images,
            "examples_left_out": len(clients.dataset.train) - images,
        }
        fields |= run.result_fields() | built.aggregation.result
        training.train_and_probe(
            simulation, built.model, dataset, folder, config, fields, run.summary(), pictures,
            client_models, clients.images,
        )  # fmt: skip


def load(config: RunConfig, given: ImageDataset | None = None) -> ImageDataset:
    """Loads the data set if none is given, and checks that it has the labels the objective needs.

    Without this check, clients with an unlabelled image would fail and be dropped in every round.
    """
    dataset = given or data.load_dataset(config.data, pretrained.largest_photo(config))
    unlabelled = np.count_nonzero(dataset.train.labels < 0)
    if OBJECTIVES[config.objective].supervised and unlabelled:
        raise ConfigurationError(
            f"--objective={config.objective} needs a label for every training image of "
            f"--dataset={dataset.name}: {unlabelled:,} of {len(dataset.train):,} have none"
        )
    return dataset


def build(chosen: Chosen, dataset: ImageDataset, batched: bool = True) -> Built:
    """Builds the clients, the rounds, the model and the algorithm of a run.

    A simulation reads the images of a client as batches; `batched=False` expects examples.

    Raises:
      DatasetError: If the partition or the shift is impossible.
    """
    clients = partition(chosen, dataset)
    sizes, needs = [len(indices) for indices in clients.indices], chosen.entry.kind.needs
    config = chosen.config
    if Need.COHORTS in needs:
        config = adapting.fit_cohort(sizes, config)
    graph = network.build_network(config, sizes) if Need.NETWORK in needs else None
    participation = None
    if Need.COHORTS in needs:
        participation = build_participation(len(sizes), config.participation, config.seed)
    invited = participation.invited if participation else len(sizes)
    aggregation = choose_aggregation(config, chosen.entry, chosen.values, len(sizes), invited)
    groups = config.runtime.fold if aggregation.folds else 0
    if participation and not participation.varies:
        # An impossible --fold fails here, and not in the first round.
        cohort.fold(participation.cohorts(0), groups)
    # Needed without a global model alone, and the cohorts of many rounds take a while.
    evaluated = functools.cache(
        functools.partial(_choose_evaluated_client, clients, participation, config.rounds)
    )
    setting = RunSetting(
        sizes, config.rounds, participation, graph, clients.server_images, groups,
        aggregation.epsilon, evaluated,
    )  # fmt: skip
    if clients.population:
        # `evaluate` builds the model of the client that stands for the run.
        of_run = clients.population.models[clients.population.model_of_client[evaluated()]]
        config = settings.replace(config, encoder=of_run.encoder)
    chosen = chosen._replace(config=config)
    part = _participation(setting)
    model, algorithm = algorithm_options.build(
        chosen, dataset, aggregation.arguments, clients.population, part, sizes, batched
    )
    return Built(chosen, clients, setting, aggregation, model, algorithm)


def partition(chosen: Chosen, dataset: ImageDataset) -> Clients:
    """Divides the training images among the clients, and the server if it needs images.

    Raises:
      DatasetError: If the partition or the shift is impossible.
    """
    config, entry, values = chosen
    clients_dataset, server_images, population = dataset, None, None
    if Need.POPULATION in entry.kind.needs:
        clients_dataset, server_images = heterogeneous_clients.take_out_rad(
            dataset, config.clients.rad_size, config.seed
        )
    least = entry.min_samples(config.objective, values)
    if 0 < getattr(values, "batch_size", 0) < least:
        raise ConfigurationError(
            f"--hparam=batch_size={values.batch_size}: --objective={config.objective} with "
            f"{config.algorithm.algorithm} needs batches of at least {least} examples"
        )
    indices = client_options.partition_dataset(clients_dataset, config.clients, config.seed)
    indices, skipped = client_options.large_enough(indices, least, config)
    images = client_options.client_images(clients_dataset.train, indices, config.clients)
    if Need.POPULATION in entry.kind.needs:
        population = heterogeneous_clients.build_population(clients_dataset, indices, config)
    return Clients(clients_dataset, indices, images, skipped, server_images, population)


def _choose_evaluated_client(
    clients: Clients, participation: Participation | None, rounds: int
) -> int:
    """The most often invited client among those with the largest model."""
    candidates = list(range(len(clients.indices)))
    if clients.population:
        models = [clients.population.models[m] for m in clients.population.model_of_client]
        largest = max(model.parameter_count for model in models)
        candidates = [k for k in candidates if models[k].parameter_count == largest]
    return participation.most_frequent(rounds, candidates) if participation else 0


def _participation(setting: RunSetting) -> float:
    """Expected fraction of the clients that take part in a round."""
    cohorts = setting.participation
    if cohorts is None:
        return 1.0
    finishing = dropouts.expected_to_finish(cohorts.invited, cohorts.dropouts.dropout)
    return finishing / len(setting.client_sizes)


def _check_client_models(built: Built) -> None:
    """Rejects numbers of personalized clients or clusters that are too large."""
    config, entry, values = built.chosen
    num_clients, wanted = len(built.clients.indices), config.evaluation.personalized_clients
    if wanted and not built.algorithm.has_client_models:
        raise ConfigurationError(
            f"--personalized_clients: clients of {config.algorithm.algorithm} have no models of "
            "their own"
        )
    there_are = f"there are {num_clients} clients"
    if wanted > num_clients:
        raise ConfigurationError(f"--personalized_clients={wanted}: {there_are}")
    if entry.min_clients(values) > num_clients:
        raise ConfigurationError(f"--hparam=clusters={values.clusters}: {there_are}")


@contextlib.contextmanager
def simulate(
    built: Built, run: PlannedRun, folder: pathlib.Path, runtime: runtimes.Chosen
) -> Iterator[Simulation]:
    """Stores the clients' images, starts the runtime and nodes, and yields the simulation."""
    config, store = built.chosen.config, folder / "clients.sqlite"
    # A run that is resumed writes the images again.
    with whole_files.replacing(store, private=True, durable=False) as new:
        client_store.write_store(new, built.clients.images, built.clients.indices)
    supervised = OBJECTIVES[config.objective].supervised
    client_data = client_store.StoredClientData(store, with_labels=supervised)
    calls = config.runtime.max_concurrent_calls or built.algorithm.default_concurrent_calls()
    timeout = config.participation.round_timeout
    with (
        _nodes(config.runtime, calls, timeout, store) as nodes,
        start(runtime.name, calls, timeout),
    ):
        slicing = None
        if nodes is not None:
            slices = config.runtime.slices or _DEFAULT_SLICES
            slicing = Slicing(nodes, client_data.client_sizes(), slices)
            _announce_nodes(nodes, min(run.clients_at_once, slices))
        yield run.simulate(client_data.group_batch_computation, folder, slicing)
    store.unlink()


def _nodes(runtime: RuntimeConfig, calls: int | None, timeout: float | None, store: pathlib.Path):
    """A context manager that starts and yields the nodes; None if rounds are not divided."""
    if runtime.ray is None:
        return contextlib.nullcontext(InThisProcess() if runtime.slices else None)
    print(f"starting nodes: --ray={runtime.ray}", flush=True)
    return ray_nodes.ray_nodes(
        runtime.ray, [store], calls, timeout, runtime.runtime, runtime.deterministic
    )


def _announce_nodes(nodes: InThisProcess | ray_nodes.RayNodes, slices: int) -> None:
    """Prints the nodes, and a note if a round has fewer slices than nodes."""
    in_round = f"{slices} slice{'s' * (slices != 1)} a round"
    if isinstance(nodes, InThisProcess):
        print(f"{in_round}, one after another")
        return
    hosts = [f"{facts.host} ({facts.device})" for facts in nodes.facts()]
    where = ", ".join(sorted(set(hosts)))
    print(f"{len(hosts)} node{'s' * (len(hosts) != 1)}, on {where}; {in_round}")
    idle = len(hosts) - slices
    if idle > 0:
        print(
            f"note: {idle} of them {'has' if idle == 1 else 'have'} nothing to do; more clients at "
            "once, a larger --fold (0: each client alone) or --slices make more slices"
        )


def _announce(
    built: Built, run: PlannedRun, folder: pathlib.Path, runtime: runtimes.Chosen
) -> None:
    config, clients, model = built.chosen.config, built.clients, built.model
    algorithm, objective = config.algorithm.algorithm, config.objective
    images = clients.dataset.train.images
    sizes = np.array([len(indices) for indices in clients.indices])
    low, high = sizes.min(), sizes.max()
    of_sizes = f"{low} images" if low == high else f"{low} to {high} images"
    left_out = f" ({clients.skipped} smaller ones left out)" if clients.skipped else ""
    models = f"{config.model.encoder} encoder and heads, {model.parameter_count:,} parameters"
    if clients.population:
        models = heterogeneous_clients.describe(clients.population)
    rounds = "\n".join([run.describe(), *built.aggregation.summary])
    shown = hyperparameters.describe(built.chosen.values, unused_hyperparameters(objective))
    print(
        f"{algorithm} with {objective} on {clients.dataset.name}: {len(images)} "
        f"images of {'x'.join(map(str, images.shape[1:]))} in {len(sizes)} clients of "
        f"{of_sizes}{left_out}, {config.clients.partition} partition"
        f"{_describe_data_settings(len(images) - sizes.sum(), len(sizes), config.clients)}\n"
        f"model: {models}, "
        f"views {config.model.views} {model.image_shape[0]}x{model.image_shape[1]}\n"
        f"{rounds}\n{shown}\n"
        f"rounds run in {runtime.description}\n"
        f"{model_options.norm_warning(objective, config.model)}"
        f"{model_options.local_norm_warning(algorithm, built.chosen.values, model)}"
        f"{model_options.precision_note(config.model.precision)}"
        f"results go to {folder}/",
        flush=True,
    )


def _describe_data_settings(left_out: int, num_clients: int, config: ClientsConfig) -> str:
    """The smallest client size, the images on no client, and the input shifts, if any."""
    num_shifts = min(num_clients, config.shifts)
    shift = "" if config.shift == "none" else f", {num_shifts} {config.shift} shifts"
    least = config.min_client_size
    smallest = f", at least {least} images each (--min_client_size)" if least > 1 else ""
    return smallest + (f", {left_out} images left out" if left_out else "") + shift
