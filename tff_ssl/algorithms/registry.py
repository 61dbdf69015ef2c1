"""The algorithms, one line each."""

import dataclasses
from collections.abc import Callable, Sequence
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


def parse_hyperparameters(algorithm: str, assignments: Sequence[str]) -> Any:
    """An algorithm's hyperparameters, with some of the defaults replaced.

    Args:
      algorithm: A name of `ALGORITHMS`.
      assignments: `name=value`, each naming a field of the algorithm's dataclass; a trailing
        underscore of a field (`lambda_`) may be left out.

    Raises:
      ConfigurationError: If a name is unknown or a value is of the wrong kind.
    """
    cls = ALGORITHMS[algorithm].hyperparameters
    fields = {field.name.rstrip("_"): field for field in dataclasses.fields(cls)}
    values = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        field = fields.get(name.strip().rstrip("_"))
        if field is None or not equals:
            raise ConfigurationError(
                f"--hparam={assignment}: {algorithm} takes name=value with a name of "
                f"{', '.join(sorted(fields))}"
            )
        values[field.name] = _parse(field, text, assignment)
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigurationError(f"--hparam: {error}") from error


def _parse(field: dataclasses.Field, text: str, assignment: str) -> Any:
    kind = type(field.default)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"--hparam={assignment}: give true or false")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError as error:
        raise ConfigurationError(
            f"--hparam={assignment}: {text!r} is not of type {kind.__name__}"
        ) from error
