"""Figures of an experiment's cells over seeds, from the records of their runs."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting import over_seeds
from tff_ssl.reporting.records import Run

ROUND = "round"  # Name of the number of rounds among the costs of a curve.
# Protocol of a `Selector` of a field of `records.summarize_training`; or of the accuracies of the
# monitor: `knn_last`, the last one, `knn_lost`, the drop to it from the best one, `knn_gained`, the
# gain of their second half, or `knn_encoder` (`MONITORED`).
TRAINING = "training"
# Figures that results of earlier versions lack, where they count as not measured.
_LATER_FIGURES = ("effective_rank", "effective_rank_untrained")
# Differences of accuracies, which are not 0 if a training failed.
DIFFERENCES = ("knn_lost", "knn_gained")
# Counts of what is sent: they follow from types and flags, so one seed is enough.
SENT = ("bytes_up_per_client_and_round", "bytes_down_per_client_and_round", "megabytes")


class Value(NamedTuple):
    """A figure over seeds."""

    #: Mean over seeds, in [0, 1] or a count; NaN if nothing was measured or all runs failed.
    mean: float
    std: float  #: Sample standard deviation over seeds; 0 for one seed.
    seeds: int  #: Number of runs that gave a figure.
    failed: int  #: Number of runs whose training diverged.
    #: The figure of each seed, None where the training diverged; empty if only mean and deviation
    #: are kept.
    by_seed: Mapping[int, float | None] = MappingProxyType({})

    def with_failures(self) -> float:
        """The mean over seeds, in which a training that diverged counts as 0; NaN without any."""
        return float(np.mean([figure or 0.0 for figure in self.by_seed.values() or [math.nan]]))


TableValues = Mapping[tuple[str, str], Value]  # (row, column) -> figure


class Selector(NamedTuple):
    """The choice of a run's figure for a table."""

    protocol: str  #: Protocol of the result: `linear`, `finetune`, `supervised`...; or `TRAINING`.
    labels: int | None = None  #: Number of labels; None for any.
    #: Name of the figure: `accuracy`, `balanced_accuracy`, or another one in the result.
    metric: str = "accuracy"
    #: Name of one of the result's `baselines`, whose figure is shown instead; or None.
    baseline: str | None = None
    dataset: str | None = None  #: Data set of the evaluation; None for any.


#: The kNN accuracy on training images of a run's evaluated encoder: of its last evaluation, or of
#: the best with `--encoder_round=best` (see `launch.pretrain`).
MONITORED = Selector(TRAINING, metric="knn_encoder")


def select(runs: Mapping[int, Run], selector: Selector) -> Value:
    """The figure of a cell, from the first matching result of each of its runs by seed.

    A run that failed has no baselines: they do not depend on its training.

    Raises:
      ConfigurationError: If a result has no such figure.
    """
    by_seed: dict[int, float | None] = {}
    for seed, run in sorted(runs.items()):
        figure = None if run.failure else _figure_of_run(run, selector)
        if figure is not None or (run.failure and not selector.baseline):
            by_seed[seed] = figure
    figures = [figure for figure in by_seed.values() if figure is not None]
    mean, deviation, count = over_seeds.spread(figures)
    return Value(mean, deviation or 0.0, count, len(by_seed) - count, by_seed)


def _figure_of_run(run: Run, selector: Selector) -> float | None:
    if selector.protocol == TRAINING:
        return _with_ends(run.summary).get(selector.metric)
    # A further evaluation may have a baseline that the run has not, and may not be done yet.
    entry = next(
        (one for one in run.entries
         if matches(one, selector) and selector.baseline in (None, *one.get("baselines", ()))),
        None,
    )  # fmt: skip
    if entry is None or (selector.metric in _LATER_FIGURES and selector.metric not in entry):
        return None
    return _figure(run, entry, selector)


def _with_ends(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """The summary of a training, with what follows from its kNN accuracies if it has any."""
    curve = [accuracy for _, accuracy in summary.get("knn", ())]
    if not curve:
        return summary
    best, last = max(curve), curve[-1]
    of_encoder = best if summary.get("flags", {}).get("encoder_round") == "best" else last
    ends = {"knn_last": last, "knn_lost": best - last, "knn_encoder": of_encoder}
    if len(curve) > 1:
        ends["knn_gained"] = last - curve[(len(curve) - 1) // 2]
    return {**summary, **ends}


def matches(entry: Mapping[str, Any], selector: Selector) -> bool:
    """Whether an entry of a result is the one that a selector shows."""
    return (
        entry["protocol"] == selector.protocol
        and selector.dataset in (None, entry.get("dataset"))
        and selector.labels in (None, entry["labels"])
    )


def _figure(run: Run, entry: Mapping[str, Any], selector: Selector) -> float:
    try:
        source = entry["baselines"][selector.baseline] if selector.baseline else entry
        return source[selector.metric]
    except KeyError as error:
        raise ConfigurationError(
            f"{run.source}: the results of {selector.protocol} have no {error}"
        ) from error


def first(runs: Sequence[Run], name: str) -> Any:
    """A field such as `seconds` of the first result that has it; None if none has."""
    found = (entry.get(name) for run in runs for entry in run.entries)
    return next((value for value in found if value is not None), None)
