"""Parses and prints hyperparameters; their defaults stand in the dataclasses."""

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

from launch.options import numbers
from tff_ssl.errors import ConfigurationError

_LARGEST_FLOAT = 1e12  # Its square is far from overflowing float32.


def parse(cls: type, assignments: Sequence[str]) -> Any:
    """Makes an instance of a hyperparameter dataclass with some of its defaults replaced.

    Args:
      cls: A frozen dataclass whose fields all have defaults of type bool, int, float or str.
      assignments: Texts `name=value` with the name of a field; a trailing underscore of the name
        (`lambda_`) may be left out. The last value of a name counts.

    Raises:
      ConfigurationError: If a name is unknown, or a value is of the wrong type or out of range.
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
        values[field.name] = _parse_value(field, text.strip(), assignment)
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigurationError(f"--hparam: {error}") from error


def describe(values: Any, unused: Collection[str]) -> str:
    """The hyperparameters of a run as one line, `Name(field=value, ...)`.

    Args:
      values: An instance of a hyperparameter dataclass.
      unused: Names of fields that are left out, because the run's objective does not use them.
    """
    fields = [field.name for field in dataclasses.fields(values) if field.name not in unused]
    shown = (f"{name.rstrip('_')}={getattr(values, name)!r}" for name in fields)
    return f"{type(values).__name__}({', '.join(shown)})"


def _parse_value(field: dataclasses.Field, text: str, assignment: str) -> Any:
    """Converts a text to the type of the field's default; `assignment` is for error messages."""
    value_type: type = type(field.default)
    if value_type is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"--hparam={assignment}: give true or false")
        return text.lower() == "true"
    try:
        value = value_type(text)  # type: ignore[misc]
    except ValueError as error:
        raise ConfigurationError(
            f"--hparam={assignment}: {text!r} is not of type {value_type.__name__}"
        ) from error
    if value_type is float and not math.isfinite(value):
        raise ConfigurationError(f"--hparam={assignment}: {text!r} is not a finite number")
    largest = {int: numbers.LARGEST_INTEGER, float: _LARGEST_FLOAT}.get(value_type)
    if largest and abs(value) > largest:
        raise ConfigurationError(f"--hparam={assignment}: {text!r} is more than {largest:.10g}")
    return value
