"""What the runs of an experiment gave: results per cell, over seeds, read from their files."""

import csv
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_ssl.errors import ConfigurationError

FAILED = "failed.json"  # In a run's folder: the training diverged.


class Value(NamedTuple):
    """A figure over seeds.

    Attributes:
      mean: In [0, 1], or a count; NaN where nothing was measured or every run failed.
      std: Sample standard deviation over seeds; 0 for one.
      seeds: Number of runs that gave a figure.
      failed: Number of runs whose training diverged.
    """

    mean: float
    std: float
    seeds: int
    failed: int


class Selector(NamedTuple):
    """Which result of a run a table shows.

    Attributes:
      protocol: `linear`, `finetune`, `supervised`...
      labels: Number of labels; None for any.
      metric: `accuracy`, `balanced_accuracy`, or another figure that a result has.
      baseline: A name of the result's `baselines`, whose figure it is instead.
      dataset: The data set of the evaluation; None for any.
    """

    protocol: str
    labels: int | None = None
    metric: str = "accuracy"
    baseline: str | None = None
    dataset: str | None = None


def read_json(path: pathlib.Path) -> Any:
    """The content of a file.

    Raises:
      ConfigurationError: If it cannot be read.
    """
    try:
        return json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error}): put back a whole one, or delete the run's folder"
        ) from error


def read_results(run: pathlib.Path) -> list[Mapping[str, Any]]:
    """All entries of `result.json` and `result_*.json` of a run; none where it is not done.

    Raises:
      ConfigurationError: If a file is not one that a run wrote.
    """
    entries: list[Mapping[str, Any]] = []
    for path in sorted(run.glob("result*.json")):
        content = read_json(path)
        found = content if isinstance(content, list) else [content]
        if not all(isinstance(entry, dict) and {"protocol", "labels"} <= entry.keys()
                   for entry in found):  # fmt: skip
            raise ConfigurationError(
                f"{path} has an entry without protocol or labels: delete the run's folder"
            )
        entries += found
    return entries


def read_summary(run: pathlib.Path) -> dict[str, Any]:
    """What is noted in `done.json` of a run when all is done; empty before."""
    path = run / "done.json"
    return dict(read_json(path)) if path.exists() else {}


def summarize_training(run: pathlib.Path) -> dict[str, Any]:
    """What a report shows of `metrics.csv`, which is too large to be kept with many results.

    Returns:
      `training_minutes`, and `knn`, the monitor's [round, accuracy] pairs; empty where there is no
      such file.

    Raises:
      ConfigurationError: If the file is not one that a run wrote.
    """
    path = run / "metrics.csv"
    if not path.exists():
        return {}
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        seconds = [float(row["seconds"]) for row in rows if row.get("seconds")]
        monitored = [row for row in rows if row.get("knn_accuracy")]
        knn = [[int(row["round"]), float(row["knn_accuracy"])] for row in monitored]
    except (ValueError, KeyError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read ({error})") from error
    return {"training_minutes": sum(seconds) / 60, "knn": knn}


def select(runs: Sequence[pathlib.Path], selector: Selector) -> Value:
    """The figure of one cell over its runs (one a seed)."""
    found = []
    for run in runs:
        for entry in read_results(run):
            same = entry["protocol"] == selector.protocol
            same = same and selector.dataset in (None, entry.get("dataset"))
            if same and selector.labels in (None, entry["labels"]):
                found.append(_figure(run, entry, selector))
                break
    failed = sum((run / FAILED).exists() for run in runs)
    if not found:
        return Value(math.nan, 0.0, 0, failed)
    std = float(np.std(found, ddof=1)) if len(found) > 1 else 0.0
    return Value(float(np.mean(found)), std, len(found), failed)


def _figure(run: pathlib.Path, entry: Mapping[str, Any], selector: Selector) -> float:
    try:
        source = entry["baselines"][selector.baseline] if selector.baseline else entry
        return source[selector.metric]
    except KeyError as error:
        raise ConfigurationError(
            f"{run}: the results of {selector.protocol} have no {error}"
        ) from error


def first_extra(runs: Sequence[pathlib.Path], name: str) -> Any:
    """A field such as `seconds` of the first run that has it; None where none has."""
    for run in runs:
        for entry in read_results(run):
            if entry.get(name) is not None:
                return entry[name]
    return None
