"""Chooses the algorithm of a run with its hyperparameters, and builds its computations."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow_federated as tff

from datasets import client_store
from datasets.image_dataset import ImageDataset
from launch.options import defaults, hyperparameters, pretrained, settings
from launch.options import model as model_options
from launch.options.run_config import RunConfig
from launch.outputs import run_folder
from tff_ssl.algorithms import registry
from tff_ssl.deployment import encoder_weights
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.kinds.protocol import FederatedAlgorithm, Need
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.templates.task import FrozenEncoder, Population, Task

_COHORT_FLAGS = ("clients_per_round", "fold", "sampling", "dropout", "max_dropped")
_NETWORK_FLAGS = ("topology", "connectivity", "unconnected", "edge_list", "leave", "cut")
_POPULATION_FLAGS = ("encoders", "rad_size")
_ABSENCE_FLAGS = ("sampling", "dropout", "max_dropped")


class Chosen(NamedTuple):
    """The algorithm of a run."""

    # The configuration of the run, with the defaults that depend on the algorithm.
    config: RunConfig
    entry: registry.Algorithm  # Registry entry.
    values: Any  # Hyperparameters, an instance of the entry's dataclass.


def choose(config: RunConfig) -> Chosen:
    """Finds the algorithm and its hyperparameters."""
    name, alignment_encoder = config.algorithm.algorithm, config.model.alignment_encoder
    entry = registry.find(name, config.algorithm.objective)
    own = defaults.objective_of(entry, config.model.encoder, config.model.init_from)
    objective = config.algorithm.objective or own
    config = defaults.resolve(settings.replace(config, objective=objective), objective)
    config = pretrained.resolve(config)
    _check_needs(entry.kind.needs, config)
    if alignment_encoder and not entry.base_encoder:
        raise ConfigurationError(
            f"--alignment_encoder: {name} does not align its clients to an encoder"
        )
    values = hyperparameters.parse(entry.hyperparameters, config.algorithm.hparam)
    if alignment_encoder and not values.alignment_weight:
        raise ConfigurationError(
            "--alignment_encoder is not used with a weight of 0: add --hparam=alignment_weight=BETA"
        )
    if config.runtime.deterministic and getattr(values, "statistics_noise", False):
        raise ConfigurationError(
            "--deterministic with --hparam=statistics_noise: its noise is drawn anew in every run; "
            "leave one of the two out"
        )
    return Chosen(config, entry, values)


def _check_needs(needs: frozenset[Need], config: RunConfig) -> None:
    """Rejects flags that this kind of algorithm does not read."""

    def reject(names: tuple[str, ...], reason: str) -> None:
        for name in names:
            if name in config.given:
                raise ConfigurationError(f"--{name}: {reason}")

    name = config.algorithm.algorithm
    if Need.COHORTS not in needs:
        reason = "has no server that chooses clients; all of its network take part"
        reject(_COHORT_FLAGS, f"{name} {reason}")
    if Need.NETWORK not in needs:
        reject(_NETWORK_FLAGS, f"{name} has a server, and no network")
    if Need.POPULATION in needs:
        reason = f"absent clients of {name} count with their last representations"
        reject(_ABSENCE_FLAGS, f"{reason}; --clients_per_round sets how many take part")
    else:
        reject(_POPULATION_FLAGS, f"clients of {name} are all alike")


def build(
    chosen: Chosen,
    dataset: ImageDataset,
    means: Mapping[str, Any],
    population: Population | None = None,
    participation: float = 1.0,
    client_sizes: Sequence[int] = (),
    batched: bool = True,
) -> tuple[Model, FederatedAlgorithm]:
    """Builds the model, and the algorithm's computations for it.

    Args:
      means: Arguments for the algorithm's `build`, see `aggregation.Aggregation.arguments`.
      population: Clients and their models if architectures differ; otherwise None.
      participation: Expected fraction of the clients that take part in a round.
      batched: Whether a client's dataset consists of batches, as in a simulation, or of examples.
    """
    config, entry, values = chosen
    objective = config.objective
    seed, xla = config.seed, config.runtime.xla
    model = model_options.build_model(
        dataset, config.model, objective, predictor=entry.predictor, xla=xla, seed=seed
    )
    model = pretrained.start(model, config.model, seed)
    spec = client_store.element_spec(
        dataset.train.images.shape[1:], OBJECTIVES[objective].supervised, batched=batched
    )
    task = Task(
        model,
        model_options.two_views(config.model, seed, xla),
        tff.types.tensorflow_to_type(spec),
        config.rounds,
        objective,
        seed,
        population,
        participation,
        tuple(client_sizes),
        _base_encoder(config.model.alignment_encoder),
    )
    try:
        return model, entry.build(task, values, **means)
    except ConfigurationError:
        raise
    except ValueError as error:  # Raised by an optimizer or a schedule.
        raise ConfigurationError(f"--hparam: {error}") from error


def _base_encoder(path: str | None) -> FrozenEncoder | None:
    """The encoder of `--alignment_encoder`; None if it is not given."""
    if not path:
        return None
    flag = f"--alignment_encoder={path}"
    with naming(flag):
        stored = encoder_weights.read(run_folder.encoder_of(pathlib.Path(path)))
    if not isinstance(stored.model, DualEncoder):
        raise ConfigurationError(f"{flag} has two networks; the alignment needs one")
    return FrozenEncoder(stored.model, stored.weights)
