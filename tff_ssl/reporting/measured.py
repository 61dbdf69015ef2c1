"""What the runs of an experiment gave: results per cell, over seeds, read from their files."""

import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

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


def read_results(run: pathlib.Path) -> list[Mapping[str, Any]]:
    """All entries of `result.json` and `result_*.json` of a run; none where it is not done."""
    entries: list[Mapping[str, Any]] = []
    for path in sorted(run.glob("result*.json")):
        content = json.loads(path.read_text())
        entries += content if isinstance(content, list) else [content]
    return entries


def select(runs: Sequence[pathlib.Path], selector: Selector) -> Value:
    """The figure of one cell over its runs (one a seed)."""
    found = []
    for run in runs:
        for entry in read_results(run):
            same = entry["protocol"] == selector.protocol
            same = same and selector.dataset in (None, entry.get("dataset"))
            if same and selector.labels in (None, entry["labels"]):
                source = entry["baselines"][selector.baseline] if selector.baseline else entry
                found.append(source[selector.metric])
                break
    failed = sum((run / FAILED).exists() for run in runs)
    if not found:
        return Value(math.nan, 0.0, 0, failed)
    std = float(np.std(found, ddof=1)) if len(found) > 1 else 0.0
    return Value(float(np.mean(found)), std, len(found), failed)


def first_extra(runs: Sequence[pathlib.Path], name: str) -> Any:
    """A field such as `seconds` of the first run that has it; None where none has."""
    for run in runs:
        for entry in read_results(run):
            if entry.get(name) is not None:
                return entry[name]
    return None
