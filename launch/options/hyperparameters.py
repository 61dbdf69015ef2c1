"""Hyperparameters from `name=value` texts; the defaults stay in the dataclasses."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from tff_ssl.errors import ConfigurationError


def parse(cls: type, assignments: Sequence[str]) -> Any:
    """An instance of a hyperparameter dataclass, with some of the defaults replaced.

    Args:
      cls: A frozen dataclass whose fields all have defaults of type bool, int, float or str.
      assignments: `name=value`, each naming a field; a trailing underscore of a field (`lambda_`)
        may be left out.

    Raises:
      ConfigurationError: If a name is unknown, or a value is of the wrong kind or out of range.
    """
    fields = {field.name.rstrip("_"): field for field in dataclasses.fields(cls)}
    values = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        field = fields.get(name.strip().rstrip("_"))
        if field is None or not equals:
            raise ConfigurationError(
                f"--hparam={assignment}: give name=value with a name of {', '.join(sorted(fields))}"
            )
        values[field.name] = _parse(field, text.strip(), assignment)
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigurationError(f"--hparam: {error}") from error


def _parse(field: dataclasses.Field, text: str, assignment: str) -> Any:
    kind: type = type(field.default)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"--hparam={assignment}: give true or false")
        return text.lower() == "true"
    try:
        value = kind(text)  # type: ignore[misc]
    except ValueError as error:
        raise ConfigurationError(
            f"--hparam={assignment}: {text!r} is not of type {kind.__name__}"
        ) from error
    if kind is float and not math.isfinite(value):
        raise ConfigurationError(f"--hparam={assignment}: {text!r} is not a finite number")
    return value
