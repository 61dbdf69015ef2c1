"""The algorithms, one entry each."""

import dataclasses
import importlib
import traceback
from collections.abc import Callable
from typing import Any

from tff_ssl.aggregation import secure_bounds  # noqa: F401
from tff_ssl.algorithms import (
    fedavg,
    fedbn,
    fedca,
    feddecorr,
    fedema,
    fedprox,
    fedsc,
    fedu,
    fedx,
    gossip,
    hetero_ssfl,
    l_dawa,
    named_code,
    orchestra,
    scaffold,
)
from tff_ssl.algorithms.dcco import one_stage, two_stage
from tff_ssl.algorithms.dcco.parts import DCCOHyperparameters
from tff_ssl.algorithms.denav import algorithm as denav
from tff_ssl.algorithms.featarc import algorithm as featarc
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.decentralized.algorithm import Decentralized
from tff_ssl.kinds.heterogeneous.algorithm import HeterogeneousClients
from tff_ssl.kinds.protocol import FederatedAlgorithm
from tff_ssl.kinds.stateful.algorithm import StatefulClients
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.objectives.registry import GENERAL_OBJECTIVES, OBJECTIVES
from tff_ssl.objectives.statistics import STATISTICS_LOSSES
from tff_ssl.templates.task import Task


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An entry of the registry."""

    summary: str  #: Description of the algorithm in one line.
    kind: type[FederatedAlgorithm]  #: Class of what `build` returns.
    hyperparameters: type  #: Frozen dataclass of the hyperparameters; all have defaults.
    build: Callable[..., FederatedAlgorithm]  #: (task, hyperparameters) -> the algorithm.
    #: Names of the objectives that it can train with, the default first.
    objectives: tuple[str, ...]
    #: Whether clients, which keep no state, may be folded into groups, each computed in one call
    #: with the same result.
    folds: bool = False
    #: Contributions of clients that are averaged, `statistics` and `update` (a model delta):
    #: `build` then takes `statistics_aggregator`, `update_aggregator` and `metric_sum`. Empty where
    #: clients send whole models, which can be neither clipped nor left out.
    aggregates: tuple[str, ...] = ()
    #: Those of `aggregates` that clients send in a stage before the others.
    first_stage: tuple[str, ...] = ()
    #: Whether clients receive the number of clients of their round. With differential privacy,
    #: `build` then takes `expected_clients`, which replaces it.
    counts_clients: bool = False
    predictor: bool = False  #: Whether the model needs a predictor, even if the objective has none.
    #: Rows of single clients that the server reads, which secure sums and differential privacy
    #: cannot hide; empty for none.
    collects: str = ""
    #: Whether clients may align their encodings to those of `Task.base_encoder`.
    base_encoder: bool = False

    def folds_with(self, hyperparameters: Any) -> bool:
        """Whether clients may be folded with these hyperparameters."""
        return self.folds and getattr(hyperparameters, "folds", True)

    def min_samples(self, objective: str, hyperparameters: Any) -> int:
        """Number of examples of the smallest client or batch that a run accepts."""
        if not hasattr(hyperparameters, "min_samples"):
            return 1  # The algorithm's clients share statistics.
        bounds = OBJECTIVES[objective]
        # Below the objective's `min_samples` there is no loss, whatever the hyperparameter says.
        return max(hyperparameters.min_samples or bounds.stable_samples, bounds.min_samples)

    def min_clients(self, hyperparameters: Any) -> int:
        """Smallest number of clients of a run: one for each cluster."""
        return getattr(hyperparameters, "clusters", 1)


def _starting_with(first: str) -> tuple[str, ...]:
    """All general objectives, with this one as the default."""
    return (first, *(name for name in GENERAL_OBJECTIVES if name != first))


ALGORITHMS = {
    "dcco": Algorithm(
        "large batches simulated on tiny clients by sharing encoding statistics",
        StatelessClients, DCCOHyperparameters, two_stage.build_dcco,
        objectives=tuple(STATISTICS_LOSSES), folds=True, aggregates=("statistics", "update"),
        first_stage=("statistics",),
    ),
    "dcco_one_stage": Algorithm(
        "DCCO with one communication a round: the statistics of earlier rounds",
        StatelessClients, one_stage.DCCOOneStageHyperparameters, one_stage.build_dcco_one_stage,
        objectives=tuple(STATISTICS_LOSSES), folds=True, aggregates=("statistics", "update"),
    ),
    "fedsc": Algorithm(
        "spectral contrastive training with the second moments of the other clients",
        StatelessClients, fedsc.FedSCHyperparameters, fedsc.build_fedsc,
        objectives=("spectral",), aggregates=("statistics", "update"), first_stage=("statistics",),
        counts_clients=True,
    ),
    "fedavg": Algorithm(
        "federated averaging with a local objective",
        StatelessClients, fedavg.FedAvgHyperparameters, fedavg.build_fedavg,
        objectives=_starting_with("nt_xent"), folds=True, aggregates=("update",),
    ),
    "fedprox": Algorithm(
        "federated averaging with a proximal term",
        StatelessClients, fedprox.FedProxHyperparameters, fedprox.build_fedprox,
        objectives=_starting_with("nt_xent"), folds=True, aggregates=("update",),
    ),
    "feddecorr": Algorithm(
        "federated averaging whose clients decorrelate the dimensions of their encodings",
        StatelessClients, feddecorr.FedDecorrHyperparameters, feddecorr.build_feddecorr,
        objectives=_starting_with("nt_xent"), folds=True, aggregates=("update",),
    ),
    "l_dawa": Algorithm(
        "federated averaging that weights each layer by its angle to the global model",
        StatelessClients, l_dawa.LDAWAHyperparameters, l_dawa.build_l_dawa,
        objectives=_starting_with("nt_xent"), folds=True, aggregates=("update",),
    ),
    "fedx": Algorithm(
        "contrastive and relational losses, with the global model as a frozen teacher",
        StatelessClients, fedx.FedXHyperparameters, fedx.build_fedx,
        objectives=("nt_xent",), folds=True, aggregates=("update",), predictor=True,
    ),
    "scaffold": Algorithm(
        "federated averaging whose clients correct their drift by control variates",
        StatefulClients, scaffold.ScaffoldHyperparameters, scaffold.build_scaffold,
        objectives=_starting_with("nt_xent"),
    ),
    "fedbn": Algorithm(
        "federated averaging with local batch norm (Dec-SSL); or every client alone",
        StatefulClients, fedbn.FedBNHyperparameters, fedbn.build_fedbn,
        objectives=_starting_with("nt_xent"),
    ),
    "fedu": Algorithm(
        "BYOL whose clients keep their target networks, and predictors where they diverge",
        StatefulClients, fedu.FedUHyperparameters, fedu.build_fedu,
        objectives=("byol",),
    ),
    "fedema": Algorithm(
        "BYOL whose clients mix the global model into their own",
        StatefulClients, fedema.FedEMAHyperparameters, fedema.build_fedema,
        objectives=("byol",),
    ),
    "featarc": Algorithm(
        "clusters of clients by feature alignment, which regularizes their training",
        StatefulClients, featarc.FeatARCHyperparameters, featarc.build_featarc,
        objectives=_starting_with("nt_xent"),
    ),
    "orchestra": Algorithm(
        "clusters of equal size over all clients' images, which clients learn to predict",
        StatefulClients, orchestra.OrchestraHyperparameters, orchestra.build_orchestra,
        objectives=("orchestra",), collects="the centroids",
    ),
    "fedca": Algorithm(
        "SimCLR with a dictionary of all clients' features, aligned to a frozen encoder",
        StatefulClients, fedca.FedCAHyperparameters, fedca.build_fedca,
        objectives=("nt_xent",), collects="the features", base_encoder=True,
    ),
    "denav": Algorithm(
        "models that travel through a network, each led by a training navigator",
        Decentralized, denav.DeNAVHyperparameters, denav.build_denav,
        objectives=_starting_with("mae"),
    ),
    "gossip": Algorithm(
        "gossip learning: clients of a network average with the first neighbour's model, or all",
        Decentralized, gossip.GossipHyperparameters, gossip.build_gossip,
        objectives=_starting_with("mae"),
    ),
    "all_reduce": Algorithm(
        "clients of a network that get the mean of all models after every round",
        Decentralized, gossip.AllReduceHyperparameters, gossip.build_gossip,
        objectives=_starting_with("mae"),
    ),
    "dfedavg": Algorithm(
        "decentralized FedAvg: averages over neighbours, with local batch norm (Dec-SSL)",
        Decentralized, gossip.DFedAvgHyperparameters, gossip.build_gossip,
        objectives=_starting_with("nt_xent"),
    ),
    "hetero_ssfl": Algorithm(
        "clients of different architectures, which align their representations of common images",
        HeterogeneousClients, hetero_ssfl.HeteroSSFLHyperparameters, hetero_ssfl.build_hetero_ssfl,
        objectives=("byol", "simsiam", "nt_xent"),
    ),
}  # fmt: skip


def find(name: str, objective: str | None) -> Algorithm:
    """The algorithm of a name in `ALGORITHMS`, or `package.module:ENTRY` of another module.

    Raises:
      ConfigurationError: If there is none, or it does not train with the objective, if given.
    """
    if name not in ALGORITHMS and ":" not in name:
        raise ConfigurationError(
            f"--algorithm must be one of {', '.join(ALGORITHMS)}, or package.module:ENTRY for an "
            f"algorithm of your own; got {name!r}"
        )
    algorithm = ALGORITHMS[name] if name in ALGORITHMS else _import_entry(name)
    if objective is not None and objective not in algorithm.objectives:
        raise ConfigurationError(
            f"--objective of {name} must be one of {', '.join(algorithm.objectives)}; "
            f"got {objective!r}"
        )
    return algorithm


def adopt(name: str) -> None:
    """Adds `package.module:ENTRY` to `ALGORITHMS`, for experiments that run all; see `find`."""
    ALGORITHMS[name] = find(name, None)


def _import_entry(name: str) -> Algorithm:
    """The entry `package.module:ENTRY`; a ConfigurationError if it cannot be imported."""
    module_name, _, attribute = name.partition(":")
    flag = f"--algorithm={name}"
    if not module_name or not attribute:
        raise ConfigurationError(f"{flag}: give package.module:ENTRY")
    named_code.check("algorithm", name)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):
            raise ConfigurationError(
                f"{flag}: there is no module {missing}; the folder that holds it must be on "
                "PYTHONPATH"
            ) from error
        text = f"{type(error).__name__}: {error}"
        if not isinstance(error, SyntaxError):  # Its text has the place.
            place = traceback.extract_tb(error.__traceback__)[-1]
            text += f" ({place.filename}, line {place.lineno})"
        raise ConfigurationError(f"{flag}: {module_name} cannot be imported: {text}") from error
    entry = getattr(module, attribute, None)
    if not isinstance(entry, Algorithm):
        known = [key for key, value in vars(module).items() if isinstance(value, Algorithm)]
        found = f"has no {attribute!r}" if entry is None else f"has {attribute}, of another type"
        entries = f"its entries are {', '.join(known)}" if known else "it has none"
        raise ConfigurationError(
            f"{flag}: an entry is a tff_ssl.algorithms.registry.Algorithm; {module.__name__} "
            f"{found}, and {entries}"
        )
    return entry


def build_algorithm(name: str, task: Task, **settings: Any) -> FederatedAlgorithm:
    """Builds an algorithm of TFF computations for a task, for programs of one's own.

    >>> model = tff_ssl.DualEncoder("tiny", (8, 8, 1), projector=(32,))
    >>> def two_views(images, ids, round_number):
    ...     return tff_ssl.two_views("affine", images, ids, seed=0, round_number=round_number)
    >>> example = collections.OrderedDict(
    ...     example_id=tf.TensorSpec([], tf.int64), image=tf.TensorSpec([8, 8, 1], tf.uint8)
    ... )
    >>> task = tff_ssl.Task(model, two_views, tff.types.tensorflow_to_type(example), rounds=100)
    >>> algorithm = tff_ssl.build_algorithm("dcco", task, server_learning_rate=0.002)
    >>> isinstance(algorithm.process, tff.learning.templates.LearningProcess)
    True

    Args:
      name: Name of the algorithm, or `package.module:ENTRY`.
      task: What is trained.
      settings: Hyperparameters; those not given have their defaults. Where clients' contributions
        are averaged, also the means as factories of `tff.aggregators`: `update_aggregator` of model
        deltas and, with DCCO and FedSC, `statistics_aggregator`.

    Raises:
      ConfigurationError: If there is no such algorithm, it does not train with the task's
        objective, or has no such hyperparameter or mean.
      ValueError: If a value is out of range, or the algorithm cannot train the task's model.
    """
    algorithm = find(name, task.objective)
    known = [field.name for field in dataclasses.fields(algorithm.hyperparameters)]
    means = [f"{contribution}_aggregator" for contribution in algorithm.aggregates]
    for unknown in settings.keys() - {*known, *means}:
        raise ConfigurationError(
            f"{name} has no hyperparameter {unknown!r}; it has {', '.join([*known, *means])}"
        )
    values = {key: value for key, value in settings.items() if key in known}
    of_means = {key: value for key, value in settings.items() if key in means}
    return algorithm.build(task, algorithm.hyperparameters(**values), **of_means)
