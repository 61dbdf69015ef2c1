"""Pretraining in simulation, from flags."""

import numpy as np
import tensorflow_federated as tff
from absl import flags

from datasets import federated
from launch import data, probing, run_folder, training
from tff_ssl import cohort, communication, execution, hyperparameters, simulation
from tff_ssl.algorithms import registry
from tff_ssl.algorithms.task import Task
from tff_ssl.errors import ConfigurationError


def pretrain(args: flags.FlagValues) -> None:
    """The whole of `launch.pretrain`."""
    algorithm = registry.find(args.algorithm, args.objective)
    values = hyperparameters.parse(algorithm.hyperparameters, args.hparam)
    dataset = data.load_dataset(args)
    clients = data.partition_dataset(dataset, args)
    cohorts = cohort.uniform_cohorts(len(clients), args.clients_per_round, args.seed)
    groups = args.fold if algorithm.folds else 0
    cohort.fold(cohorts(0), groups)  # Complains now, not in the first round.
    model = data.build_model(dataset, args)
    two_views = data.two_views(dataset, args)
    element_type = tff.types.tensorflow_to_type(
        federated.element_spec(dataset.train.images.shape[1:])
    )
    try:
        computations = algorithm.build(Task(model, two_views, element_type, args.rounds), values)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    probing.check_labels(dataset, args)
    # All that can be wrong with the flags has been found by now: from here on, files are written.
    folder = data.default_output_dir("pretrain", args)
    run_folder.open_run(folder, run_folder.settings("pretrain", args), args.resume)
    store = folder / "clients.sqlite"
    federated.write_store(store, dataset.train, clients)
    client_data = federated.StoredClientData(store)
    down, up = (
        communication.total_bytes(types) for types in (computations.downloads, computations.uploads)
    )
    _announce(args, dataset, clients, model, values, groups, down, up, folder)
    run = simulation.LearningProcessSimulation(
        computations.process,
        client_data.group_dataset_computation,
        model,
        cohorts,
        groups,
        bytes_per_client=down + up,
    )
    with execution.local_worker(args.max_concurrent_calls):
        training.train_and_probe(
            run,
            model,
            dataset,
            folder,
            args,
            {
                "algorithm": args.algorithm,
                "rounds": args.rounds,
                "clients": len(clients),
                "bytes_down_per_client_and_round": down,
                "bytes_up_per_client_and_round": up,
            },
        )
    store.unlink()  # Only a run that goes on needs it, and would write it again.


def _announce(args, dataset, clients, model, values, groups, down, up, folder) -> None:
    sizes = np.array([len(c) for c in clients])
    print(
        f"{args.algorithm} on {dataset.name}: {len(dataset.train)} images of "
        f"{'x'.join(map(str, dataset.train.images.shape[1:]))} in {len(clients)} clients of "
        f"{_range(sizes)}, {data.partition_name(args)} partition\n"
        f"model: {args.encoder} encoder and projector, {model.parameter_count:,} parameters, "
        f"views {data.view_policy(dataset, args)} {model.image_shape[0]}x{model.image_shape[1]}\n"
        f"{args.rounds} rounds of {args.clients_per_round} clients, "
        f"{f'folded into {groups}' if groups else 'each by itself'}; "
        f"{down / 1e6:.2f} MB down and {up / 1e6:.2f} MB up per client and round\n"
        f"{values}\n"
        f"results go to {folder}/",
        flush=True,
    )


def _range(sizes: np.ndarray) -> str:
    low, high = sizes.min(), sizes.max()
    return f"{low} images" if low == high else f"{low} to {high} images"
