"""Builds the algorithm, its hyperparameters and its computations from the flags."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow_federated as tff
from absl import flags

from datasets import client_store
from datasets.image_dataset import ImageDataset
from launch.options import hyperparameters
from launch.options import model as model_options
from launch.outputs import run_folder
from tff_ssl.algorithms import registry
from tff_ssl.deployment import encoder_weights
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.protocol import FederatedAlgorithm, Need
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.templates.task import FrozenEncoder, Population, Task

_COHORT_FLAGS = ("clients_per_round", "fold", "sampling", "dropout", "max_dropped")
_NETWORK_FLAGS = ("topology", "connectivity", "unconnected", "edge_list", "leave", "cut")
_POPULATION_FLAGS = ("encoders", "rad_size")
_ABSENCE_FLAGS = ("sampling", "dropout", "max_dropped")


def choose(args: flags.FlagValues) -> tuple[registry.Algorithm, Any]:
    """Finds the algorithm and its hyperparameters; sets `--objective` if it is not given.

    Returns:
      The registry entry of the algorithm, and an instance of its dataclass of hyperparameters.

    Raises:
      ConfigurationError: If the algorithm, the objective or a hyperparameter is unknown, or a flag
        is for other kinds of algorithms.
    """
    algorithm = registry.find(args.algorithm, args.objective)
    args.objective = args.objective or algorithm.objectives[0]
    _check_needs(algorithm.kind.needs, args)
    if args.alignment_encoder and not algorithm.base_encoder:
        raise ConfigurationError(
            f"--alignment_encoder: {args.algorithm} does not align its clients to an encoder"
        )
    values = hyperparameters.parse(algorithm.hyperparameters, args.hparam)
    if args.alignment_encoder and not values.alignment_weight:
        raise ConfigurationError(
            "--alignment_encoder is not used with a weight of 0: add --hparam=alignment_weight=BETA"
        )
    return algorithm, values


def _check_needs(needs: frozenset[Need], args: flags.FlagValues) -> None:
    """Rejects flags that this kind of algorithm does not read."""

    def reject(names: tuple[str, ...], reason: str) -> None:
        for name in names:
            if args[name].present:
                raise ConfigurationError(f"--{name}: {reason}")

    name = args.algorithm
    if Need.COHORTS not in needs:
        reason = "has no server that chooses clients; all of its network take part"
        reject(_COHORT_FLAGS, f"{name} {reason}")
    if Need.NETWORK not in needs:
        reject(_NETWORK_FLAGS, f"{name} has a server, and no network")
    if Need.POPULATION in needs:
        reject(
            _ABSENCE_FLAGS,
            f"clients of {name} that are absent count with their last representations; choose how "
            "many take part by --clients_per_round",
        )
    else:
        reject(_POPULATION_FLAGS, f"clients of {name} are all alike")


def build(
    args: flags.FlagValues,
    algorithm: registry.Algorithm,
    values: Any,
    dataset: ImageDataset,
    means: Mapping[str, Any],
    population: Population | None = None,
    participation: float = 1.0,
    evaluated_client: int = 0,
    client_sizes: Sequence[int] = (),
) -> tuple[Model, FederatedAlgorithm]:
    """Builds the model, and the algorithm's computations for it.

    If clients have different architectures, the model is that of the client which stands for the
    run, and `--encoder` is set to its encoder, so that `evaluate` can build the model again.

    Args:
      args: The flags.
      algorithm: Registry entry of the algorithm.
      values: Hyperparameters of the algorithm.
      dataset: The images.
      means: Arguments for the algorithm's `build`, see `aggregation.Aggregation.arguments`.
      population: Clients and their models if these have different architectures; else None.
      participation: Fraction of the clients that are expected to take part in a round.
      evaluated_client: Client whose model stands for the run where there is no global one.
      client_sizes: Number of examples of each client.

    Raises:
      ConfigurationError: If the algorithm cannot be built with these flags.
    """
    if population:
        args.encoder = population.models[population.model_of_client[evaluated_client]].encoder
    model = model_options.build_model(dataset, args, args.objective, predictor=algorithm.predictor)
    spec = client_store.element_spec(
        dataset.train.images.shape[1:], with_labels=OBJECTIVES[args.objective].supervised
    )
    task = Task(
        model,
        model_options.two_views(dataset, args, args.objective),
        tff.types.tensorflow_to_type(spec),
        args.rounds,
        args.objective,
        args.seed,
        population,
        participation,
        tuple(client_sizes),
        _base_encoder(args),
    )
    try:
        return model, algorithm.build(task, values, **means)
    except ConfigurationError:
        raise
    except ValueError as error:  # Raised by an optimizer or a schedule.
        raise ConfigurationError(f"--hparam: {error}") from error


def _base_encoder(args: flags.FlagValues) -> FrozenEncoder | None:
    """The encoder of `--alignment_encoder`; None if it is not given.

    Raises:
      ConfigurationError: If the folder holds no encoder of a single network.
    """
    if not args.alignment_encoder:
        return None
    flag = f"--alignment_encoder={args.alignment_encoder}"
    folder = run_folder.encoder_of(pathlib.Path(args.alignment_encoder))
    try:
        stored = encoder_weights.read(folder)
    except ConfigurationError as error:
        raise ConfigurationError(f"{flag}: {error}") from error
    if not isinstance(stored.model, DualEncoder):
        raise ConfigurationError(f"{flag} has two networks; the alignment needs one")
    return FrozenEncoder(stored.model, stored.weights)
