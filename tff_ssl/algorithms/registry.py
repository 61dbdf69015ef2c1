"""The algorithms, one line each."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tff_ssl.algorithms import dcco, dcco_one_stage, fedavg, fedprox
from tff_ssl.algorithms.task import Computations, Task
from tff_ssl.errors import ConfigurationError
from tff_ssl.losses.statistics_based import STATISTICS_LOSSES
from tff_ssl.objectives import OBJECTIVES


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An entry of the registry.

    Attributes:
      summary: One line for `--list`.
      hyperparameters: Its frozen dataclass; an instance without arguments has the defaults.
      build: (task, hyperparameters) -> its computations.
      objectives: Losses it can train with.
      folds: Whether clients may be folded into groups, worked on in one call, with the same result.
    """

    summary: str
    hyperparameters: type
    build: Callable[[Task, Any], Computations]
    objectives: tuple[str, ...]
    folds: bool

    def min_samples(self, objective: str, hyperparameters: Any) -> int:
        """The smallest client that a run takes: 1 where clients share statistics."""
        if not hasattr(hyperparameters, "min_samples"):
            return 1
        return hyperparameters.min_samples or OBJECTIVES[objective].stable_samples


ALGORITHMS = {
    "dcco": Algorithm(
        "large batches simulated on tiny clients by sharing encoding statistics",
        dcco.DCCOHyperparameters,
        dcco.build_dcco,
        objectives=tuple(STATISTICS_LOSSES),
        folds=True,
    ),
    "dcco_one_stage": Algorithm(
        "DCCO with one communication a round: the statistics of earlier rounds",
        dcco_one_stage.DCCOOneStageHyperparameters,
        dcco_one_stage.build_dcco_one_stage,
        objectives=tuple(STATISTICS_LOSSES),
        folds=True,
    ),
    "fedavg": Algorithm(
        "federated averaging with a local objective",
        fedavg.FedAvgHyperparameters,
        fedavg.build_fedavg,
        objectives=tuple(OBJECTIVES),
        folds=True,
    ),
    "fedprox": Algorithm(
        "federated averaging with a proximal term",
        fedprox.FedProxHyperparameters,
        fedprox.build_fedprox,
        objectives=tuple(OBJECTIVES),
        folds=True,
    ),
}


def find(name: str, objective: str) -> Algorithm:
    """The algorithm of that name.

    Raises:
      ConfigurationError: If there is none, or it does not train with that objective.
    """
    if name not in ALGORITHMS:
        raise ConfigurationError(
            f"--algorithm must be one of {', '.join(ALGORITHMS)}; got {name!r}"
        )
    algorithm = ALGORITHMS[name]
    if objective not in algorithm.objectives:
        raise ConfigurationError(
            f"--objective of {name} must be one of {', '.join(algorithm.objectives)}; "
            f"got {objective!r}"
        )
    return algorithm
