"""Results of an experiment's runs, read from their files: figures of each cell over seeds."""

import csv
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_ssl.errors import ConfigurationError

# Columns of metrics.csv with costs of a round: what a network of clients without a server takes,
# and what is sent.
COSTS = ("simulated_time", "examples_trained", "bytes")
ROUND = "round"  # Name of the number of rounds among the costs of a curve.
# Protocol of a `Selector` of a field of `summarize_training`; or of `knn_last`, the monitor's last
# accuracy, or `knn_lost`, how far that is below its best one.
TRAINING = "training"
# Figures that results of earlier versions do not have. They count as not measured there.
_LATER_FIGURES = ("effective_rank", "effective_rank_untrained")
# Counts of what is sent, which follow from types and flags, so that one seed tells them.
SENT = ("bytes_up_per_client_and_round", "bytes_down_per_client_and_round", "megabytes")
FAILED = "failed.json"  # File in the folder of a run whose training diverged.


class Value(NamedTuple):
    """A figure over seeds.

    Attributes:
      mean: Mean over seeds, in [0, 1] or a count; NaN where nothing was measured or every run
        failed.
      std: Sample standard deviation over seeds; 0 for one seed.
      seeds: Number of runs that gave a figure.
      failed: Number of runs whose training diverged.
    """

    mean: float
    std: float
    seeds: int
    failed: int


TableValues = Mapping[tuple[str, str], Value]  # (row, column) -> figure


class Selector(NamedTuple):
    """The choice of the figure of a run that a table shows.

    Attributes:
      protocol: Protocol of the result: `linear`, `finetune`, `supervised`...; or `TRAINING`.
      labels: Number of labels; None for any.
      metric: Name of the figure: `accuracy`, `balanced_accuracy`, or another one in the result.
      baseline: Name of one of the result's `baselines`, whose figure is shown instead; or None.
      dataset: Data set of the evaluation; None for any.
    """

    protocol: str
    labels: int | None = None
    metric: str = "accuracy"
    baseline: str | None = None
    dataset: str | None = None


def read_json(path: pathlib.Path) -> Any:
    """Reads a JSON file of a run.

    Raises:
      ConfigurationError: The file cannot be read.
    """
    try:
        return json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error}): put back a whole one, or delete the run's folder"
        ) from error


def read_results(run: pathlib.Path) -> list[Mapping[str, Any]]:
    """Reads all entries of `result.json` and `result_*.json` of a run; none if it is not done.

    Raises:
      ConfigurationError: A file has not the format of a result.
    """
    entries: list[Mapping[str, Any]] = []
    for path in sorted(run.glob("result*.json")):
        content = read_json(path)
        file_entries = content if isinstance(content, list) else [content]
        if not all(isinstance(entry, dict) and {"protocol", "labels"} <= entry.keys()
                   for entry in file_entries):  # fmt: skip
            raise ConfigurationError(
                f"{path} has an entry without protocol or labels: delete the run's folder"
            )
        entries += file_entries
    return entries


def read_summary(run: pathlib.Path) -> dict[str, Any]:
    """Reads `done.json` of a run, its summary; empty if the run or an evaluation is not done."""
    path = run / "done.json"
    return dict(read_json(path)) if path.exists() else {}


def summarize_training(run: pathlib.Path) -> dict[str, Any]:
    """Summarizes `metrics.csv` for the report; the file itself is too large to keep for many runs.

    Returns:
      `training_minutes`, `training_seconds`; `megabytes`, what server and clients have sent in all
      rounds, if the file has it; `knn`, the monitor's [round, accuracy] pairs; and for each column
      of `COSTS` that the file has, a list of its sums over all rounds until each of these pairs.
      Empty if there is no such file.

    Raises:
      ConfigurationError: The file has not the format of a run's metrics.
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
        costs = {
            name: [
                sum(float(row[name] or 0) for row in rows[: int(last["round"])])
                for last in monitored
            ]
            for name in COSTS
            if monitored and name in rows[0]
        }
    except (ValueError, KeyError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read ({error})") from error
    sent = [float(row["bytes"]) for row in rows if row.get("bytes")]
    return {
        "training_minutes": sum(seconds) / 60,
        "training_seconds": sum(seconds),
        **({"megabytes": sum(sent) / 1e6} if sent else {}),
        "knn": knn,
        **costs,
    }


def training_accuracy(runs: Sequence[pathlib.Path]) -> float:
    """The kNN accuracy on training images of a cell's evaluated encoders, the mean over seeds.

    An encoder is that of the last evaluation of the run, or of the best with `--encoder_round=best`
    (see `launch.pretrain`). A training that diverged counts as 0.

    Args:
      runs: Folders of the cell's runs, one per seed.

    Returns:
      The accuracy, in [0, 1]; NaN if no run has one.
    """
    accuracies = []
    for run in runs:
        summary = read_summary(run)
        curve = [accuracy for _, accuracy in summary.get("knn", [])]
        if (run / FAILED).exists():
            accuracies.append(0.0)
        elif curve:
            best = summary.get("flags", {}).get("encoder_round") == "best"
            accuracies.append(max(curve) if best else curve[-1])
    return float(np.mean(accuracies)) if accuracies else math.nan


def select(runs: Sequence[pathlib.Path], selector: Selector) -> Value:
    """Reads the selected figure of one cell.

    Args:
      runs: Folders of the cell's runs, one per seed.
      selector: Selector of the figure; the first matching result of a run counts.

    Raises:
      ConfigurationError: A file cannot be read, or a result has no such figure.
    """
    figures = []
    for run in runs:
        if selector.protocol == TRAINING:
            summary = _with_ends(read_summary(run))
            figures += [summary[selector.metric]] if selector.metric in summary else []
            continue
        for entry in read_results(run):
            if _matches(entry, selector):
                if selector.metric not in _LATER_FIGURES or selector.metric in entry:
                    figures.append(_figure(run, entry, selector))
                break
    failed = sum((run / FAILED).exists() for run in runs)
    if not figures:
        return Value(math.nan, 0.0, 0, failed)
    std = float(np.std(figures, ddof=1)) if len(figures) > 1 else 0.0
    return Value(float(np.mean(figures)), std, len(figures), failed)


def _with_ends(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary of a training with `knn_last` and `knn_lost`, if it was monitored."""
    curve = [accuracy for _, accuracy in summary.get("knn", ())]
    ends = {"knn_last": curve[-1], "knn_lost": max(curve) - curve[-1]} if curve else {}
    return summary | ends


def _matches(entry: Mapping[str, Any], selector: Selector) -> bool:
    return (
        entry["protocol"] == selector.protocol
        and selector.dataset in (None, entry.get("dataset"))
        and selector.labels in (None, entry["labels"])
    )


def _figure(run: pathlib.Path, entry: Mapping[str, Any], selector: Selector) -> float:
    try:
        source = entry["baselines"][selector.baseline] if selector.baseline else entry
        return source[selector.metric]
    except KeyError as error:
        raise ConfigurationError(
            f"{run}: the results of {selector.protocol} have no {error}"
        ) from error


def read_first(runs: Sequence[pathlib.Path], name: str) -> Any:
    """Reads a field such as `seconds` of the first result that has it; None if none has."""
    for run in runs:
        for entry in read_results(run):
            if entry.get(name) is not None:
                return entry[name]
    return None
