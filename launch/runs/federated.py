"""Simulates the pretraining run that the flags describe."""

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from datasets import client_store
from datasets.image_dataset import ImageDataset, Split
from launch.options import adapting, data, defaults, heterogeneous_clients, hyperparameters, network
from launch.options import algorithm as algorithm_options
from launch.options import clients as client_options
from launch.options import model as model_options
from launch.options.aggregation import Aggregation, choose_aggregation
from launch.options.participation import build_participation
from launch.outputs import partition_record, run_folder
from launch.probes import probing
from launch.runs import final_evaluation, training
from tff_ssl.algorithms.registry import Algorithm
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.protocol import FederatedAlgorithm, Need, PlannedRun, RunSetting
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.registry import OBJECTIVES, unused_hyperparameters
from tff_ssl.runtime import local_worker, ray_cluster, ray_nodes
from tff_ssl.runtime.sliced_rounds import Slicing
from tff_ssl.runtime.slices import InThisProcess
from tff_ssl.simulation import cohort, dropouts
from tff_ssl.simulation.participation import Participation
from tff_ssl.simulation.training_loop import Simulation
from tff_ssl.templates.task import Population

_DEFAULT_SLICES = 16  # With `--ray`.


class Clients(NamedTuple):
    """The clients of a run and their images.

    Attributes:
      dataset: Data set without the images that belong to the server.
      indices: Indices of each client's training images.
      images: Training images as their clients see them, with the input shift.
      skipped: Number of clients that are left out because they have too few images.
      server_images: Images of the server, uint8 [n, h, w, c]; None if it has none.
      population: Clients and their models if these have different architectures; else None.
    """

    dataset: ImageDataset
    indices: list[np.ndarray]
    images: Split
    skipped: int
    server_images: np.ndarray | None
    population: Population | None


def pretrain(args: flags.FlagValues) -> None:
    """Pretrains and evaluates an encoder as the flags describe, and writes the results.

    Raises:
      ConfigurationError: If the flags describe no possible run; then nothing has been written.
    """
    entry, values = algorithm_options.choose(args)
    dataset = _load(args)
    adapting.fit_evaluation(dataset, args)
    clients = partition(entry, values, dataset, args)
    setting, aggregation = build_setting(entry, values, clients, args)
    model, algorithm = build_algorithm(entry, values, dataset, clients, setting, aggregation, args)
    _check_client_models(entry, algorithm, values, len(clients.indices), args)
    run = algorithm.plan_run(setting)
    probing.check_labels(dataset, args)
    if args.ray is not None:
        ray_cluster.check(args.ray)
    # The flags have been checked completely. From here on, files are written.
    folder = data.default_output_dir("pretrain", args)
    settings = run_folder.settings("pretrain", args)
    run_folder.open_run(folder, settings, run_folder.given(args), args.resume)
    _record_partition(clients, folder, args.resume)
    client_models = final_evaluation.ClientModels(
        len(clients.indices), run.client_models, run.evaluated_client,
        run.untrained_clients_have_models, clients.indices,
    )  # fmt: skip
    _announce(clients, model, values, [run.describe(), *aggregation.summary], folder, args)
    pictures = run.draw(folder, args.algorithm)
    with _simulate(algorithm, run, clients, folder, args) as simulation:
        fields = _result_fields(clients, args) | run.result_fields() | aggregation.result
        training.train_and_probe(
            simulation, model, dataset, folder, args, fields, run.summary(), pictures,
            client_models, clients.images,
        )  # fmt: skip


def _record_partition(clients: Clients, folder: pathlib.Path, resume: bool) -> None:
    """Writes `partition.json`, from which the run's page draws the clients.

    Raises:
      ConfigurationError: If a resumed run had other images, or divided them otherwise. The states
        that clients keep would else belong to the images of others.
    """
    path, train = folder / "partition.json", clients.dataset.train
    digest = partition_record.digest(train, clients.indices, clients.server_images)
    if resume and path.exists():
        before = json.loads(path.read_text()).get("digest", digest)
        if before != digest:
            raise ConfigurationError(
                f"--resume: the images in --dataset={clients.dataset.name}, or how clients divide "
                f"them, are not those with which {folder} was begun: put them back, or start anew "
                "in another --output_dir"
            )
    record = partition_record.describe_clients(train, clients.indices, clients.dataset.class_names)
    run_folder.write_json(path, record | {"digest": digest})


def _load(args: flags.FlagValues) -> ImageDataset:
    """Loads the data set, and checks that it has the labels that the objective needs."""
    dataset = data.load_dataset(args)
    if OBJECTIVES[args.objective].supervised and np.any(dataset.train.labels < 0):
        raise ConfigurationError(
            f"--objective={args.objective} needs a label for every training image of "
            f"--dataset={args.dataset}"
        )
    return dataset


def partition(
    entry: Algorithm, values: Any, dataset: ImageDataset, args: flags.FlagValues
) -> Clients:
    """Divides the training images between the clients, and the server if it needs images.

    Args:
      entry: Registry entry of the algorithm.
      values: Hyperparameters of the algorithm.
      dataset: The images.
      args: The flags.

    Raises:
      ConfigurationError: If clients or batches are too small for the objective.
      DatasetError: If the partition or the shift is impossible.
    """
    clients_dataset, server_images, population = dataset, None, None
    if Need.POPULATION in entry.kind.needs:
        clients_dataset, server_images = heterogeneous_clients.take_out_rad(dataset, args)
    least = entry.min_samples(args.objective, values)
    if 0 < getattr(values, "batch_size", 0) < least:
        raise ConfigurationError(
            f"--hparam=batch_size={values.batch_size}: --objective={args.objective} with "
            f"{args.algorithm} needs batches of at least {least} examples"
        )
    indices, skipped = client_options.large_enough(
        client_options.partition_dataset(clients_dataset, args), least, args
    )
    images = client_options.client_images(clients_dataset.train, indices, args)
    if Need.POPULATION in entry.kind.needs:
        population = heterogeneous_clients.build_population(clients_dataset, indices, args)
    return Clients(clients_dataset, indices, images, skipped, server_images, population)


def build_setting(
    entry: Algorithm, values: Any, clients: Clients, args: flags.FlagValues
) -> tuple[RunSetting, Aggregation]:
    """Builds the parts of a run that this kind of algorithm needs, and the means of a round."""
    needs, sizes = entry.kind.needs, [len(indices) for indices in clients.indices]
    if Need.COHORTS in needs:
        adapting.fit_cohort(sizes, args)
    graph = network.build_network(args, sizes) if Need.NETWORK in needs else None
    participation = build_participation(len(sizes), args) if Need.COHORTS in needs else None
    invited = participation.invited if participation else len(sizes)
    aggregation = choose_aggregation(args, entry, values, len(sizes), invited)
    groups = args.fold if aggregation.folds else 0
    if participation and not participation.varies:
        # An impossible --fold fails here, and not in the first round.
        cohort.fold(participation.cohorts(0), groups)
    setting = RunSetting(
        sizes, args.rounds, participation, graph, clients.server_images, groups,
        aggregation.epsilon, _choose_evaluated_client(clients, participation, args.rounds),
    )  # fmt: skip
    return setting, aggregation


def build_algorithm(
    entry: Algorithm,
    values: Any,
    dataset: ImageDataset,
    clients: Clients,
    setting: RunSetting,
    aggregation: Aggregation,
    args: flags.FlagValues,
) -> tuple[Model, FederatedAlgorithm]:
    """Builds the model and the algorithm.

    Args:
      entry: Registry entry of the algorithm.
      values: Hyperparameters of the algorithm.
      dataset: The data set.
      clients: Result of `partition`.
      setting: Result of `build_setting`, with the next.
      aggregation: The means of a round.
      args: The flags.
    """
    return algorithm_options.build(
        args, entry, values, dataset, aggregation.arguments, clients.population,
        _participation(setting), setting.evaluated_client, setting.client_sizes,
    )  # fmt: skip


def _choose_evaluated_client(
    clients: Clients, participation: Participation | None, rounds: int
) -> int:
    """The client whose model stands for the run where there is no global model.

    It is the one that is invited most often, of those with the largest model.
    """
    candidates = list(range(len(clients.indices)))
    if clients.population:
        models = [clients.population.models[m] for m in clients.population.model_of_client]
        largest = max(model.parameter_count for model in models)
        candidates = [k for k in candidates if models[k].parameter_count == largest]
    return participation.most_frequent(rounds, candidates) if participation else 0


def _participation(setting: RunSetting) -> float:
    """Fraction of the clients that are expected to take part in a round."""
    cohorts = setting.participation
    if cohorts is None:
        return 1.0
    finishing = dropouts.expected_to_finish(cohorts.invited, cohorts.dropouts.dropout)
    return finishing / len(setting.client_sizes)


def _check_client_models(
    entry: Algorithm,
    algorithm: FederatedAlgorithm,
    values: Any,
    num_clients: int,
    args: flags.FlagValues,
) -> None:
    """Rejects numbers of personalized clients or clusters that the clients do not allow."""
    if args.personalized_clients and not algorithm.has_client_models:
        raise ConfigurationError(
            f"--personalized_clients: clients of {args.algorithm} have no models of their own"
        )
    if args.personalized_clients > num_clients:
        raise ConfigurationError(
            f"--personalized_clients={args.personalized_clients}: there are {num_clients} clients"
        )
    if entry.min_clients(values) > num_clients:
        raise ConfigurationError(
            f"--hparam=clusters={values.clusters}: there are {num_clients} clients"
        )


def _result_fields(clients: Clients, args: flags.FlagValues) -> dict[str, Any]:
    """The fields of `result.json` that all runs have."""
    images = sum(map(len, clients.indices))
    return {
        "algorithm": args.algorithm,
        "objective": args.objective,
        "rounds": args.rounds,
        "clients": len(clients.indices),
        "skipped_clients": clients.skipped,
        "train_images": images,
        "examples_left_out": len(clients.dataset.train) - images,
    }


@contextlib.contextmanager
def _simulate(
    algorithm: FederatedAlgorithm,
    run: PlannedRun,
    clients: Clients,
    folder: pathlib.Path,
    args: flags.FlagValues,
) -> Iterator[Simulation]:
    """Stores the clients' images, starts worker and nodes, and yields the simulation."""
    store = folder / "clients.sqlite"
    client_store.write_store(store, clients.images, clients.indices)
    supervised = OBJECTIVES[args.objective].supervised
    client_data = client_store.StoredClientData(store, with_labels=supervised)
    calls = args.max_concurrent_calls or algorithm.default_concurrent_calls()
    with (
        _nodes(args, calls, store) as nodes,
        local_worker.start(calls, call_seconds=args.round_timeout),
    ):
        slicing = None
        if nodes is not None:
            slices = args.slices or _DEFAULT_SLICES
            slicing = Slicing(nodes, client_data.client_sizes(), slices)
            _announce_nodes(nodes, min(run.clients_at_once, slices))
        yield run.simulate(client_data.group_dataset_computation, folder, slicing)
    store.unlink()  # A run that is resumed writes it again.


def _nodes(args: flags.FlagValues, calls: int | None, store: pathlib.Path):
    """A context manager that starts the nodes, and yields them; None if rounds are not cut."""
    if args.ray is None:
        return contextlib.nullcontext(InThisProcess() if args.slices else None)
    print(f"starting nodes: --ray={args.ray}", flush=True)
    return ray_nodes.ray_nodes(args.ray, [store], calls, args.round_timeout)


def _announce_nodes(nodes: InThisProcess | ray_nodes.RayNodes, slices: int) -> None:
    """Prints the nodes, and a note if there is not enough work for all of them.

    Args:
      nodes: The nodes.
      slices: Largest number of slices of a round.
    """
    if isinstance(nodes, InThisProcess):
        print(f"{slices} slices a round, one after another")
        return
    hosts = [facts.host for facts in nodes.facts()]
    print(f"{len(hosts)} nodes, on {', '.join(sorted(set(hosts)))}; {slices} slices a round")
    if slices < len(hosts):
        print(
            f"note: {len(hosts) - slices} of them have nothing to do; more clients at once, a "
            "larger --fold (0: each client by itself) or --slices make more slices"
        )


def _announce(
    clients: Clients,
    model: Model,
    values: Any,
    lines: list[str],
    folder: pathlib.Path,
    args: flags.FlagValues,
) -> None:
    """Prints the setting of the run before it starts.

    Args:
      clients: The clients.
      model: The model, or the first client's model if clients have different architectures.
      values: Hyperparameters of the algorithm.
      lines: Lines on the rounds and the means.
      folder: Folder of the results.
      args: The flags.
    """
    images = clients.dataset.train.images
    sizes = np.array([len(indices) for indices in clients.indices])
    policy = model_options.view_policy(clients.dataset, args, args.objective)
    left_out = f" ({clients.skipped} smaller ones left out)" if clients.skipped else ""
    models = f"{args.encoder} encoder and heads, {model.parameter_count:,} parameters"
    if clients.population:
        models = heterogeneous_clients.describe(clients.population)
    rounds = "\n".join(lines)
    shown = hyperparameters.describe(values, unused_hyperparameters(args.objective))
    print(
        f"{args.algorithm} with {args.objective} on {clients.dataset.name}: {len(images)} images "
        f"of {'x'.join(map(str, images.shape[1:]))} in {len(sizes)} clients of "
        f"{_format_range(sizes)}{left_out}, {defaults.partition(args)} partition"
        f"{_describe_data_settings(len(images) - sizes.sum(), len(sizes), args)}\n"
        f"model: {models}, "
        f"views {policy} {model.image_shape[0]}x{model.image_shape[1]}\n"
        f"{rounds}\n"
        f"{shown}\n"
        f"{model_options.norm_warning(args.objective, args)}{model_options.precision_note(args)}"
        f"results go to {folder}/",
        flush=True,
    )


def _describe_data_settings(left_out: int, num_clients: int, args: flags.FlagValues) -> str:
    """The smallest client size, the images that no client has, and the input shifts, if any."""
    num_shifts = min(num_clients, args.shifts)
    shift = "" if args.shift == "none" else f", {num_shifts} {args.shift} shifts"
    least = args.min_client_size
    smallest = f", at least {least} images each (--min_client_size)" if least > 1 else ""
    return smallest + (f", {left_out} images left out" if left_out else "") + shift


def _format_range(sizes: np.ndarray) -> str:
    low, high = sizes.min(), sizes.max()
    return f"{low} images" if low == high else f"{low} to {high} images"
