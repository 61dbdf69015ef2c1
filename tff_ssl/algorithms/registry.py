"""The algorithms, one line each."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tff_ssl.algorithms import dcco
from tff_ssl.algorithms.task import Computations, Task
from tff_ssl.errors import ConfigurationError


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An entry of the registry.

    Attributes:
      summary: One line for `--list`.
      hyperparameters: Its frozen dataclass; an instance without arguments has the defaults.
      build: (task, hyperparameters) -> its computations.
      objectives: Losses it can train with.
      folds: Whether a round depends only on the union of the cohort's examples, so that clients
        may be folded into groups.
    """

    summary: str
    hyperparameters: type
    build: Callable[[Task, Any], Computations]
    objectives: tuple[str, ...]
    folds: bool


ALGORITHMS = {
    "dcco": Algorithm(
        "large batches simulated on tiny clients by sharing encoding statistics",
        dcco.DCCOHyperparameters,
        dcco.build,
        objectives=("cco",),
        folds=True,
    ),
}

OBJECTIVES = {"cco": "cross correlation optimization (Barlow Twins), from encoding statistics"}


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
