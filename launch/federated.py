"""Pretraining in simulation, from flags."""

import contextlib
import os
from typing import Any

import numpy as np
import tensorflow_federated as tff
from absl import flags

from datasets import federated
from datasets.image_dataset import ImageDataset
from launch import data, probing, run_folder, training
from tff_ssl import (
    cohort,
    communication,
    execution,
    hyperparameters,
    ray_nodes,
    simulation,
    sliced_rounds,
)
from tff_ssl.algorithms import registry
from tff_ssl.algorithms.client_memory import ClientMemory
from tff_ssl.algorithms.task import Computations, Task
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives import OBJECTIVES


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
    clients, skipped = _large_enough(
        data.partition_dataset(dataset, args), algorithm.min_samples(args.objective, values), args
    )
    seen = data.client_images(dataset.train, clients, args)
    cohorts = cohort.uniform_cohorts(len(clients), args.clients_per_round, args.seed)
    groups = args.fold if algorithm.folds else 0
    cohort.fold(cohorts(0), groups)  # Complains now, not in the first round.
    model, computations = build(args, algorithm, values, dataset)
    if args.personalized_clients and not isinstance(computations, ClientMemory):
        raise ConfigurationError(
            f"--personalized_clients: clients of {args.algorithm} have no models of their own"
        )
    if args.personalized_clients > len(clients):
        raise ConfigurationError(
            f"--personalized_clients={args.personalized_clients}: there are {len(clients)} clients"
        )
    probing.check_labels(dataset, args)
    if args.ray is not None:
        ray_nodes.check(args.ray)
    # All that can be wrong with the flags has been found by now: from here on, files are written.
    folder = data.default_output_dir("pretrain", args)
    run_folder.open_run(folder, run_folder.settings("pretrain", args), args.resume)
    store = folder / "clients.sqlite"
    federated.write_store(store, seen, clients)
    client_data = federated.StoredClientData(store, with_labels=supervised)
    down, up = (
        communication.total_bytes(types) for types in (computations.downloads, computations.uploads)
    )
    _announce(args, dataset, clients, skipped, model, values, groups, down, up, folder)
    with (
        _nodes(args, computations, store) as nodes,
        execution.local_worker(_concurrent_calls(computations, args)),
    ):
        next_round = _sliced(computations, client_data, nodes, args)
        run = _simulation(
            computations,
            client_data,
            model,
            cohorts,
            groups,
            len(clients),
            folder,
            down + up,
            next_round,
        )
        if nodes is not None:
            _announce_nodes(nodes, groups or args.clients_per_round, args)
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
                "examples_left_out": len(dataset.train) - sum(map(len, clients)),
                "bytes_down_per_client_and_round": down,
                "bytes_up_per_client_and_round": up,
            },
        )
    store.unlink()  # Only a run that goes on needs it, and would write it again.


def choose(args: flags.FlagValues) -> tuple[registry.Algorithm, Any]:
    """The algorithm and its hyperparameters; sets `--objective` where it is not given."""
    algorithm = registry.find(args.algorithm, args.objective)
    args.objective = args.objective or algorithm.objectives[0]
    return algorithm, hyperparameters.parse(algorithm.hyperparameters, args.hparam)


def build(
    args: flags.FlagValues, algorithm: registry.Algorithm, values: Any, dataset: ImageDataset
) -> tuple[Model, Computations | ClientMemory]:
    """The model, and the algorithm's computations for it.

    Raises:
      ConfigurationError: If they cannot be built with these flags.
    """
    model = data.build_model(dataset, args, args.objective)
    spec = federated.element_spec(
        dataset.train.images.shape[1:], with_labels=OBJECTIVES[args.objective].supervised
    )
    task = Task(
        model,
        data.two_views(dataset, args, args.objective),
        tff.types.tensorflow_to_type(spec),
        args.rounds,
        args.objective,
        args.seed,
    )
    try:
        return model, algorithm.build(task, values)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _nodes(args: flags.FlagValues, computations, store):
    """The nodes of `--ray`; none without."""
    if args.ray is None:
        return contextlib.nullcontext()
    print(f"starting nodes: --ray={args.ray}", flush=True)
    return ray_nodes.ray_nodes(args.ray, [store], _concurrent_calls(computations, args))


def _sliced(computations, client_data, nodes, args: flags.FlagValues):
    """The round on the nodes, if there are any."""
    if nodes is None:
        return None
    remembers = isinstance(computations, ClientMemory)
    kind = sliced_rounds.MemoryRound if remembers else sliced_rounds.LearningRound
    data = client_data.group_dataset_computation
    return kind(computations, data, client_data.client_sizes(), args.slices, nodes)


def _announce_nodes(nodes: ray_nodes.RayNodes, groups: int, args: flags.FlagValues) -> None:
    """The nodes, and whether there is work for all of them."""
    hosts = [facts.host for facts in nodes.facts()]
    count = min(groups, args.slices)
    print(f"{len(hosts)} nodes, on {', '.join(sorted(set(hosts)))}; {count} slices a round")
    if count < len(hosts):
        print(
            f"note: {len(hosts) - count} of them have nothing to do; a larger --fold (0: each "
            "client by itself) or --slices makes more slices"
        )


def _simulation(
    computations,
    client_data,
    model,
    cohorts,
    groups,
    num_clients,
    folder,
    bytes_per_client,
    next_round,
) -> simulation.Simulation:
    group_data = client_data.group_dataset_computation
    if isinstance(computations, ClientMemory):
        return simulation.ClientMemorySimulation(
            computations, group_data, cohorts, num_clients, folder, bytes_per_client, next_round
        )
    return simulation.LearningProcessSimulation(
        computations.process,
        group_data,
        model,
        computations.initial_weights,
        cohorts,
        groups,
        bytes_per_client,
        next_round,
    )


def _concurrent_calls(computations, args: flags.FlagValues) -> int | None:
    # Long local training of a few clients: more at a time than there are cores costs half as much
    # again (measured with five clients of a ResNet-18 on two cores).
    default = os.cpu_count() if isinstance(computations, ClientMemory) else None
    return args.max_concurrent_calls or default


def _large_enough(
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
        advice = (
            "leave them out with --skip_small_clients, take larger ones with --samples_per_client"
            if kept
            else "take larger ones with --samples_per_client"
        )
        raise ConfigurationError(
            f"--objective={args.objective} with {args.algorithm} needs clients of at least {least} "
            f"examples, and {small} of {len(clients)} have fewer: {advice}, or lower the bound "
            "with --hparam=min_samples=N"
        )
    return kept, small


def _announce(args, dataset, clients, skipped, model, values, groups, down, up, folder) -> None:
    sizes = np.array([len(c) for c in clients])
    policy = data.view_policy(dataset, args, args.objective)
    left_out = f" ({skipped} smaller ones left out)" if skipped else ""
    print(
        f"{args.algorithm} with {args.objective} on {dataset.name}: {len(dataset.train)} images of "
        f"{'x'.join(map(str, dataset.train.images.shape[1:]))} in {len(clients)} clients of "
        f"{_range(sizes)}{left_out}, {data.partition_name(args)} partition"
        f"{_data_settings(len(dataset.train) - sizes.sum(), len(clients), args)}\n"
        f"model: {args.encoder} encoder and heads, {model.parameter_count:,} parameters, "
        f"views {policy} {model.image_shape[0]}x{model.image_shape[1]}\n"
        f"{args.rounds} rounds of {args.clients_per_round} clients, "
        f"{f'folded into {groups}' if groups else 'each by itself'}; "
        f"{down / 1e6:.2f} MB down and {up / 1e6:.2f} MB up per client and round\n"
        f"{values}\n"
        f"results go to {folder}/",
        flush=True,
    )


def _data_settings(left_out: int, clients: int, args) -> str:
    """What is said of the clients' images only where it is out of the ordinary."""
    shift = "" if args.shift == "none" else f", {min(clients, args.shifts)} {args.shift} shifts"
    return (f", {left_out} images left out" if left_out else "") + shift


def _range(sizes: np.ndarray) -> str:
    low, high = sizes.min(), sizes.max()
    return f"{low} images" if low == high else f"{low} to {high} images"
