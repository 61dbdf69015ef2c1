"""Reads files of a run that may be damaged, and checks the form of their content."""

import csv
import itertools
import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_ssl.errors import ConfigurationError

_PUT_BACK = "put back a whole one, or delete the run's folder"
# What a value has to be: a type (`float` takes any finite number, `int` no negative ones); `[form]`
# for a list; `{"name": form}` for an object with these entries and perhaps others, `{str: form}`
# for one with any names; or a tuple of forms, of which one holds.
Form = Any


def read_json(path: pathlib.Path, form: Form = object) -> Any:
    """The content of a JSON file.

    Raises:
      ConfigurationError: If the file cannot be read, or does not have this form.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not has_form(content, form):
            raise ValueError("an entry is missing, or is not what it should be")
    except (ValueError, OSError, RecursionError) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}): {_PUT_BACK}") from error
    return content


def has_form(value: Any, form: Form) -> bool:
    """Whether a value has a form."""
    if isinstance(form, tuple):
        return any(has_form(value, one) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(has_form(item, form[0]) for item in value)
    if isinstance(form, Mapping):
        if not isinstance(value, dict):
            return False
        if str in form:
            return all(has_form(item, form[str]) for item in value.values())
        return all(name in value and has_form(value[name], one) for name, one in form.items())
    if form is float:
        return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)
    if form is int:
        return type(value) is int and value >= 0
    return value is None if form is None else isinstance(value, form)


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, float]]:
    """The numbers of each round in `metrics.csv`, by column and without empty cells.

    A file that was stopped before its first line has none.

    Raises:
      ConfigurationError: If the file is damaged.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            header, *rows = [*csv.reader(file, strict=True)] or [[]]
        if (header and "round" not in header) or len(set(header)) < len(header):
            raise ValueError("its first line does not name a column round, or one twice")
        if any(len(row) != len(header) for row in rows):
            raise ValueError("a line has more or fewer cells than the first one")
        numbers = [{k: float(v) for k, v in zip(header, row, strict=True) if v} for row in rows]
        rounds = [row.get("round", 0) for row in numbers]
        if not all(before < after for before, after in itertools.pairwise([0, *rounds])):
            raise ValueError("its rounds do not ascend")
    except (ValueError, csv.Error) as error:
        raise ConfigurationError(f"{path} is damaged ({error}): {_PUT_BACK}") from error
    return numbers
