"""Pretraining in simulation, from flags."""

import contextlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff
from absl import flags

from datasets import client_store
from datasets.image_dataset import ImageDataset
from launch.options import aggregation, data, hyperparameters, network, unlike_clients
from launch.outputs import run_folder
from launch.probes import probing
from launch.runs import training
from tff_ssl.algorithms import registry
from tff_ssl.algorithms.hetero_ssfl import UnlikeClients
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.runtime import local_worker, ray_cluster, ray_nodes, sliced_rounds, sliced_training
from tff_ssl.simulation import cohort, with_server, without_server
from tff_ssl.simulation.with_unlike_clients import UnlikeClientsSimulation
from tff_ssl.templates import message_sizes
from tff_ssl.templates.serverless import Serverless
from tff_ssl.templates.stateful_clients import StatefulClients
from tff_ssl.templates.task import Computations, Population, Task

# Each of their clients has a model of its own, and trains it for long.
_WITH_OWN_MODELS = (StatefulClients, UnlikeClients, Serverless)
# How their rounds are cut into slices for several nodes; all others are one-model rounds.
_SLICED = {
    StatefulClients: sliced_rounds.SlicedStatefulClients,
    UnlikeClients: sliced_training.SlicedUnlikeClients,
    Serverless: sliced_training.SlicedServerless,
}


class _Prepared(NamedTuple):
    """What the flags have become, for a simulation of any kind of algorithm.

    Attributes:
      computations: The algorithm's.
      model: The first client's, where clients are unlike.
      client_data: The clients' images.
      clients: Their number.
      who: Who takes part in a round; None without a server.
      how: The server's aggregation.
      groups: Into which a round's clients are folded; 0 for none.
      peers: The network; None with a server.
      rad: Images at the server of unlike clients, else None.
      bytes: That a client receives and sends in a round.
      folder: Of the run.
    """

    computations: Any
    model: Model
    client_data: client_store.StoredClientData
    clients: int
    who: aggregation.Participation | None
    how: aggregation.Aggregation
    groups: int
    peers: Any
    rad: np.ndarray | None
    bytes: int
    folder: pathlib.Path


def pretrain(args: flags.FlagValues) -> None:
    """The whole of `launch.pretrain`."""
    algorithm, values = choose(args)
    dataset = data.load_dataset(args)
    supervised = OBJECTIVES[args.objective].supervised
    if supervised and np.any(dataset.train.labels < 0):
        raise ConfigurationError(
            f"--objective={args.objective} needs a label for every training image of "
            f"--dataset={args.dataset}"
        )
    of_clients, rad = dataset, None
    if algorithm.unlike_clients:
        of_clients, rad = unlike_clients.take_out_rad(dataset, args)
    least = algorithm.min_samples(args.objective, values)
    if 0 < getattr(values, "batch_size", 0) < least:
        raise ConfigurationError(
            f"--hparam=batch_size={values.batch_size}: --objective={args.objective} with "
            f"{args.algorithm} needs batches of at least {least} examples"
        )
    clients, skipped = data.large_enough(data.partition_dataset(of_clients, args), least, args)
    seen = data.client_images(of_clients.train, clients, args)
    setting = who = population = None
    if algorithm.decentralized:
        setting = network.build_setting(args, [len(client) for client in clients])
    else:
        who = aggregation.participation(len(clients), args)
    if algorithm.unlike_clients:
        population = unlike_clients.build_population(of_clients, clients, args)
    invited = who.invited if who else len(clients)
    how = aggregation.choose(args, algorithm, values, len(clients), invited)
    groups = args.fold if how.folds else 0
    if who and not who.vary:
        cohort.fold(who.cohorts(0), groups)  # Complains now, not in the first round.
    model, computations = build(args, algorithm, values, dataset, how.arguments, population)
    if args.personalized_clients and not isinstance(computations, _WITH_OWN_MODELS):
        raise ConfigurationError(
            f"--personalized_clients: clients of {args.algorithm} have no models of their own"
        )
    if args.personalized_clients > len(clients):
        raise ConfigurationError(
            f"--personalized_clients={args.personalized_clients}: there are {len(clients)} clients"
        )
    if getattr(values, "clusters", 0) > len(clients):
        raise ConfigurationError(
            f"--hparam=clusters={values.clusters}: there are {len(clients)} clients"
        )
    peers = None
    if isinstance(computations, Serverless):
        assert setting is not None
        peers = network.prepare(computations, setting, model, values, args)
    probing.check_labels(dataset, args)
    if args.ray is not None:
        ray_cluster.check(args.ray)
    # All that can be wrong with the flags has been found by now: from here on, files are written.
    folder = data.default_output_dir("pretrain", args)
    run_folder.open_run(folder, run_folder.settings("pretrain", args), args.resume)
    store = folder / "clients.sqlite"
    client_store.write_store(store, seen, clients)
    client_data = client_store.StoredClientData(store, with_labels=supervised)
    down, up = _bytes(computations)
    if peers:
        costs, what = peers.counted, network.describe(peers, args)
    else:
        assert who is not None
        costs = {"bytes_down_per_client_and_round": down, "bytes_up_per_client_and_round": up}
        what = (
            f"{args.rounds} rounds of {_cohort(who, args)}, "
            f"{f'folded into {groups}' if groups else 'each by itself'}; "
            f"{down / 1e6:.2f} MB down and {up / 1e6:.2f} MB up per client and round"
        )
    networks = unlike_clients.describe(population) if population else _describe(model, args)
    what = "\n".join([what, *how.summary])
    _announce(args, of_clients, clients, skipped, networks, model, values, what, folder)
    pictures = network.draw(folder, peers, args) if peers else []
    calls = _concurrent_calls(computations, args)
    with (
        _nodes(args, computations, store) as nodes,
        local_worker.start(calls, call_seconds=args.round_timeout),
    ):
        prepared = _Prepared(
            computations, model, client_data, len(clients), who, how, groups, peers, rad,
            down + up, folder,
        )  # fmt: skip
        run = _simulation(prepared, _sliced(prepared, nodes, args))
        if nodes is not None:
            at_once = network.at_once(peers) if peers else groups or args.clients_per_round
            _announce_nodes(nodes, at_once, args)
        training.train_and_probe(
            run,
            model,
            dataset,
            folder,
            args,
            {
                "algorithm": args.algorithm,
                "objective": args.objective,
                "rounds": args.rounds,
                "clients": len(clients),
                "skipped_clients": skipped,
                "train_images": sum(map(len, clients)),
                "examples_left_out": len(of_clients.train) - sum(map(len, clients)),
                **costs,
                **(unlike_clients.result_fields(population) if population else {}),
                **how.result,
            },
            network.table(costs) if peers else "",
            pictures,
            unlike_clients.models_of(population) if population else None,
        )
    store.unlink()  # Only a run that goes on needs it, and would write it again.


def choose(args: flags.FlagValues) -> tuple[registry.Algorithm, Any]:
    """The algorithm and its hyperparameters; sets `--objective` where it is not given.

    Raises:
      ConfigurationError: If one of them is not known, or a flag is for other algorithms.
    """
    algorithm = registry.find(args.algorithm, args.objective)
    args.objective = args.objective or algorithm.objectives[0]
    network.check_flags(args, algorithm.decentralized)
    unlike_clients.check_flags(algorithm, args)
    return algorithm, hyperparameters.parse(algorithm.hyperparameters, args.hparam)


def build(
    args: flags.FlagValues,
    algorithm: registry.Algorithm,
    values: Any,
    dataset: ImageDataset,
    means: Mapping[str, Any],
    population: Population | None = None,
) -> tuple[Model, Computations | StatefulClients | UnlikeClients | Serverless]:
    """The model, and the algorithm's computations for it.

    Where clients are unlike, the first one's model stands where there can be only one, and
    `--encoder` becomes its encoder, with which `evaluate` builds it again.

    Args:
      args: The flags.
      algorithm: What to build.
      values: Its hyperparameters.
      dataset: The images.
      means: `aggregation.Aggregation.arguments`, what is not the plain mean.
      population: Of unlike clients.

    Raises:
      ConfigurationError: If they cannot be built with these flags.
    """
    if population:
        args.encoder = population.models[population.model_of_client[0]].encoder
    model = data.build_model(dataset, args, args.objective)
    spec = client_store.element_spec(
        dataset.train.images.shape[1:], with_labels=OBJECTIVES[args.objective].supervised
    )
    task = Task(
        model,
        data.two_views(dataset, args, args.objective),
        tff.types.tensorflow_to_type(spec),
        args.rounds,
        args.objective,
        args.seed,
        population,
    )
    try:
        return model, algorithm.build(task, values, **means)
    except ConfigurationError:
        raise
    except ValueError as error:  # Of an optimizer, or of a schedule.
        raise ConfigurationError(f"--hparam: {error}") from error


def _nodes(args: flags.FlagValues, computations, store):
    """The nodes of `--ray`; none without."""
    if args.ray is None:
        return contextlib.nullcontext()
    print(f"starting nodes: --ray={args.ray}", flush=True)
    calls = _concurrent_calls(computations, args)
    return ray_nodes.ray_nodes(args.ray, [store], calls, args.round_timeout)


def _sliced(prepared: _Prepared, nodes: ray_nodes.RayNodes | None, args: flags.FlagValues):
    """The round on the nodes, if there are any."""
    if nodes is None:
        return None
    kind = _SLICED.get(type(prepared.computations), sliced_rounds.SlicedStatelessClients)
    data = prepared.client_data
    return kind(
        prepared.computations, data.group_dataset_computation, data.client_sizes(), args.slices,
        nodes,
    )  # fmt: skip


def _announce_nodes(nodes: ray_nodes.RayNodes, at_once: int, args: flags.FlagValues) -> None:
    """The nodes, and whether there is work for all of them.

    Args:
      nodes: They.
      at_once: Clients or groups that train at the same time.
      args: The flags.
    """
    hosts = [facts.host for facts in nodes.facts()]
    count = min(at_once, args.slices)
    print(f"{len(hosts)} nodes, on {', '.join(sorted(set(hosts)))}; {count} slices a round")
    if count < len(hosts):
        print(
            f"note: {len(hosts) - count} of them have nothing to do; more clients at once, a "
            "larger --fold (0: each client by itself) or --slices make more slices"
        )


def _simulation(prepared: _Prepared, next_round) -> with_server.Simulation:
    """The simulation for this kind of algorithm.

    Args:
      prepared: What to simulate.
      next_round: Of `_sliced`.
    """
    computations, who = prepared.computations, prepared.who
    group_data = prepared.client_data.group_dataset_computation
    if who is None:
        return without_server.ServerlessSimulation(
            computations, prepared.peers.plan, group_data, prepared.folder, next_round
        )
    if isinstance(computations, UnlikeClients):
        assert prepared.rad is not None
        return UnlikeClientsSimulation(
            computations, group_data, who.cohorts, prepared.rad, prepared.folder, next_round
        )
    if isinstance(computations, StatefulClients):
        return with_server.StatefulClientsSimulation(
            computations, group_data, who.cohorts, prepared.clients, prepared.folder,
            prepared.bytes, faults=who.faults, next_round=next_round,
        )  # fmt: skip
    return with_server.StatelessClientsSimulation(
        computations.process,
        group_data,
        prepared.model,
        computations.initial_weights,
        who.cohorts,
        prepared.groups,
        prepared.bytes,
        stages=list(getattr(computations, "stages", {}).values()),
        faults=who.faults,
        cohorts_vary=who.vary,
        epsilon=prepared.how.epsilon,
        next_round=next_round,
    )


def _bytes(computations) -> tuple[int, int]:
    """What a client receives and sends in a round, as it is encoded."""
    if isinstance(computations, _WITH_OWN_MODELS):
        types = (computations.downloads, computations.uploads)
        return message_sizes.total_bytes(types[0]), message_sizes.total_bytes(types[1])
    return message_sizes.client_bytes(computations.process.next)


def _concurrent_calls(computations, args: flags.FlagValues) -> int | None:
    # Long local training of a few clients: more at a time than there are cores costs half as much
    # again (measured with five clients of a ResNet-18 on two cores).
    default = os.cpu_count() if isinstance(computations, _WITH_OWN_MODELS) else None
    return args.max_concurrent_calls or default


def _describe(model: Model, args: flags.FlagValues) -> str:
    return f"{args.encoder} encoder and heads, {model.parameter_count:,} parameters"


def _announce(args, dataset, clients, skipped, networks, model, values, what, folder) -> None:
    sizes = np.array([len(c) for c in clients])
    policy = data.view_policy(dataset, args, args.objective)
    left_out = f" ({skipped} smaller ones left out)" if skipped else ""
    print(
        f"{args.algorithm} with {args.objective} on {dataset.name}: {len(dataset.train)} images of "
        f"{'x'.join(map(str, dataset.train.images.shape[1:]))} in {len(clients)} clients of "
        f"{_range(sizes)}{left_out}, {data.partition_name(args)} partition"
        f"{_data_settings(len(dataset.train) - sizes.sum(), len(clients), args)}\n"
        f"model: {networks}, "
        f"views {policy} {model.image_shape[0]}x{model.image_shape[1]}\n"
        f"{what}\n"
        f"{values}\n"
        f"results go to {folder}/",
        flush=True,
    )


def _cohort(who: aggregation.Participation, args) -> str:
    """Size of a cohort, and how many of it are expected to drop out."""
    about = "about " if who.vary else ""
    if not args.dropout:
        return f"{about}{args.clients_per_round} clients"
    return (
        f"{about}{who.invited} clients, of which about {args.clients_per_round} finish "
        f"(dropout {args.dropout:g})"
    )


def _data_settings(left_out: int, clients: int, args) -> str:
    """What is said of the clients' images only where it is out of the ordinary."""
    shift = "" if args.shift == "none" else f", {min(clients, args.shifts)} {args.shift} shifts"
    return (f", {left_out} images left out" if left_out else "") + shift


def _range(sizes: np.ndarray) -> str:
    low, high = sizes.min(), sizes.max()
    return f"{low} images" if low == high else f"{low} to {high} images"
