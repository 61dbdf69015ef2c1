"""Probes of raw pixels, beside which a table of accuracies is read.

They depend on the data set, the probe, and the labels that a seed draws, and not on what was
trained: those of one run count for every other run with the same. Fine-tuning is read beside the
linear probe on as many labels. An encoder below them has learned nothing useful.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tff_ssl.reporting import measured, over_seeds
from tff_ssl.reporting.experiment import Table
from tff_ssl.reporting.measured import Value
from tff_ssl.reporting.records import Records, Run

ROW = "(raw pixels)"  # Row of a table.
_BASELINE = "raw_pixels"
_METRICS = ("accuracy", "balanced_accuracy")


class Setting(NamedTuple):
    """What a probe of raw pixels depends on, apart from its seed."""

    dataset: str  #: Data set of the evaluation.
    size: str  #: `--image_size` of its images; empty for their own.
    labels: int  #: Number of labels.
    probe: str  #: `--probe`, or `knn`.


Scores = Mapping[Setting, Mapping[int, Mapping[str, float]]]  # By seed: accuracies by name.


def collect(reproductions: Iterable[Records]) -> dict[Setting, dict[int, Mapping[str, float]]]:
    """The scores of raw pixels in the runs of some reproductions."""
    found: dict[Setting, dict[int, Mapping[str, float]]] = {}
    for records in reproductions:
        for runs in records.runs.values():
            for seed, run in runs.items():
                for entry in run.entries:
                    scores = entry.get("baselines", {}).get(_BASELINE)
                    if scores:
                        found.setdefault(_setting(run, entry), {}).setdefault(seed, scores)
    return found


def _setting(run: Run, entry: Mapping[str, Any]) -> Setting:
    flags = run.summary.get("flags", {})
    dataset = entry.get("dataset") or flags.get("dataset", "digits")
    probe = flags.get("probe", "logistic")
    if "logistic" in entry["protocol"]:
        probe = "logistic"
    if entry["protocol"] == "knn":
        probe = "knn"
    size = flags.get("image_size", "") if dataset == flags.get("dataset", "digits") else ""
    return Setting(dataset, size, entry["labels"], probe)


def values(
    records: Records, table: Table, scores: Scores, chosen: Mapping[str, str]
) -> dict[str, Value]:
    """The figures of raw pixels for the columns of a table that have them.

    Empty for counts, and for a table that has a row of raw pixels.
    """
    selectors = [table.selectors.get(row, table.selector) for row in table.rows]
    if not table.percent or any(one.baseline == _BASELINE for one in selectors):
        return {}
    found = {}
    for i, column in enumerate(table.columns):
        for selector, cells in zip(selectors, table.rows.values(), strict=True):
            cell = cells[i if len(cells) > 1 else 0]
            if selector.metric not in _METRICS or cell is None:
                continue
            of_seeds = _of_runs(records.runs.get(chosen.get(cell, cell), {}), selector, scores)
            if of_seeds:
                mean, deviation, seeds = over_seeds.spread(of_seeds.values())
                found[column] = Value(mean, deviation or 0.0, seeds, 0, of_seeds)
                break
    return found


def _of_runs(
    runs: Mapping[int, Run], selector: measured.Selector, scores: Scores
) -> dict[int, float]:
    """The scores of raw pixels in the setting of the first result of some runs."""
    for run in runs.values():
        for entry in run.entries:
            if measured.matches(entry, selector) and entry["protocol"] != "supervised":
                of_setting = scores.get(_setting(run, entry), {})
                return {
                    seed: one[selector.metric]
                    for seed, one in sorted(of_setting.items())
                    if selector.metric in one
                }
    return {}
