"""Parses and prints hyperparameters; the dataclasses have their defaults."""

import dataclasses
import inspect
import math
import re
from collections.abc import Collection, Sequence
from typing import Any

from launch.outputs import tables
from tff_ssl.errors import ConfigurationError, naming

AUTO = "micro_batch_size=auto"  # The default, which is larger on a GPU.
LARGEST_INTEGER = 2**31 - 1  # TensorFlow's sizes and counts are int32.
_LARGEST_FLOAT = 1e12  # Its square is far from overflowing float32.


def parse(cls: type, assignments: Sequence[str]) -> Any:
    """Makes an instance of a hyperparameter dataclass with some of its defaults replaced.

    Args:
      cls: A frozen dataclass whose fields all have defaults of type bool, int, float or str.
      assignments: Texts `name=value`; a name's trailing underscore (`lambda_`) may be left out. The
        last value of a name counts.
    """
    fields = dict(zip(names(cls), dataclasses.fields(cls), strict=True))
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        field = fields.get(name.strip().rstrip("_"))
        if field is None or not equals:
            raise ConfigurationError(
                f"--hparam={assignment}: give name=value with a name of {', '.join(sorted(fields))}"
            )
        if assignment.replace(" ", "") == AUTO:
            values.pop(field.name, None)
            continue
        values[field.name] = _parse_value(field, text.strip(), assignment)
    with naming("--hparam"):
        return cls(**values)


def names(cls: type) -> list[str]:
    """The names of an algorithm's hyperparameters, without the underscore of `lambda_`."""
    return [field.name.rstrip("_") for field in dataclasses.fields(cls)]


def changed(values: Any, unused: Collection[str] = ()) -> list[tuple[str, Any, Any]]:
    """Name, value and default of changed hyperparameters that the objective uses, in order."""
    return [
        (field.name.rstrip("_"), getattr(values, field.name), field.default)
        for field in dataclasses.fields(values)
        if field.name not in unused and getattr(values, field.name) != field.default
    ]


def listed(values: Any, unused: Collection[str] = ()) -> list[str]:
    """A line `name=value  description` for each hyperparameter not in `unused`, for `--list`."""
    lines, texts = [], descriptions(type(values))
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if field.name not in unused:
            default = "" if value == field.default else f" [default {field.default}]"
            lines.append(f"{field.name.rstrip('_')}={value}{default}  {texts[field.name]}")
    return lines


def descriptions(cls: type) -> dict[str, str]:
    """The description of each hyperparameter in one line, with the paper's symbol, by name.

    It is from `Attributes:` in the docstring of the class or of a base class; empty if missing.
    """
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        section = re.split(r"^\S", section, maxsplit=1, flags=re.MULTILINE)[0]
        for name, text in re.findall(r"^  (\w+): (.*(?:\n    .*)*)", section, re.MULTILINE):
            texts[name] = " ".join(text.split())
    return {field.name: texts.get(field.name, "") for field in dataclasses.fields(cls)}


def describe(values: Any, unused: Collection[str]) -> str:
    """A short table of the result of `changed`, or a line if it is empty."""
    rows = [(name, str(value), str(default)) for name, value, default in changed(values, unused)]
    used = [field.name for field in dataclasses.fields(values) if field.name not in unused]
    if not rows:
        return f"hyperparameters: all {len(used)} have their defaults (--list shows them)"
    others = f"({len(used) - len(rows)} more have their defaults; --list shows them)"
    return f"{tables.aligned([('hyperparameter', 'value', 'default'), *rows])}\n{others}"


def _parse_value(field: dataclasses.Field, text: str, assignment: str) -> Any:
    """Converts a text to the type of the field's default; `assignment` is for errors."""
    value_type: type = type(field.default)
    with naming(f"--hparam={assignment}"):
        if value_type is bool:
            if text.lower() not in ("true", "false"):
                raise ValueError("give true or false")
            return text.lower() == "true"
        try:
            value = value_type(text)  # type: ignore[misc]
        except ValueError:
            raise ValueError(f"{text!r} is not of type {value_type.__name__}") from None
        if value_type is float and not math.isfinite(value):
            raise ValueError(f"{text!r} is not a finite number")
        largest = {int: LARGEST_INTEGER, float: _LARGEST_FLOAT}.get(value_type)
        if largest and abs(value) > largest:
            raise ValueError(f"{text!r} is more than {largest:.10g}")
        return value
