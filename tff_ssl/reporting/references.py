"""Probes of raw pixels and of an encoder from ImageNet, beside which accuracies are read.

They depend on the data set, the probe, and the labels that a seed draws, and not on what was
trained: those of one run count for every other run with the same. Fine-tuning is read beside the
linear probe on as many labels. An encoder below raw pixels has learned nothing useful.
"""

import functools
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tff_ssl.reporting import measured, over_seeds
from tff_ssl.reporting.experiment import Table
from tff_ssl.reporting.measured import Value
from tff_ssl.reporting.records import Records, Run, read_file

# Baseline of a result -> row of a table.
ROWS = {"raw_pixels": "(raw pixels)", "imagenet_encoder": "(encoder from ImageNet)"}
_METRICS = ("accuracy", "balanced_accuracy", "unseen_accuracy", "knn_last")
# The monitor of training images takes the place of a result; its images do not depend on the seed.
_MONITOR = {"protocol": measured.TRAINING, "labels": 0}
_MEASURED = pathlib.Path(__file__).parents[2] / "measured"
_PUBLIC = ("digits", "cifar10", "cifar100")  # Data sets with the same images for every user.


class Setting(NamedTuple):
    """What such a probe depends on, apart from its seed."""

    baseline: str  #: A key of `ROWS`.
    dataset: str  #: Data set of the evaluation.
    size: str  #: `--image_size` of its images; empty for their own.
    labels: int  #: Number of labels; 0 for the monitor.
    probe: str  #: `--probe`, `knn`, `held_out`, or `training` for the monitor.


Scores = Mapping[Setting, Mapping[int, Mapping[str, float]]]  # By seed: accuracies by name.


def collect(reproductions: Iterable[Records]) -> dict[Setting, dict[int, Mapping[str, float]]]:
    """The scores of the baselines in the runs of some reproductions."""
    found: dict[Setting, dict[int, Mapping[str, float]]] = {}
    for records in reproductions:
        for runs in records.runs.values():
            for seed, run in runs.items():
                for entry in run.entries:
                    for baseline in ROWS.keys() & entry.get("baselines", {}).keys():
                        of_setting = found.setdefault(_setting(baseline, run, entry), {})
                        of_setting.setdefault(seed, entry["baselines"][baseline])
    return found


@functools.cache
def kept() -> dict[Setting, dict[int, Mapping[str, float]]]:
    """The scores in `measured/`: those of all runs there, and the seeds that are noted alone.

    Empty if the package is installed without this folder.
    """
    if not _MEASURED.is_dir():
        return {}
    others = ("estimates-paper", "noted")  # Files without runs.
    paths = sorted(path for path in _MEASURED.glob("*.jsonl") if path.stem not in others)
    found = collect(map(read_file, paths))
    baselines = {row.strip("()"): baseline for baseline, row in ROWS.items()}
    for line in (_MEASURED / "noted.jsonl").read_text().splitlines():
        noted = json.loads(line)
        if noted["what"] in baselines:
            fields = ("dataset", "image_size", "labels", "probe")
            setting = Setting(baselines[noted["what"]], *(noted[key] for key in fields))
            of_setting = found.setdefault(setting, {})
            for seed, scores in enumerate(zip(*noted["rows"].values(), strict=True)):
                of_setting.setdefault(seed, dict(zip(noted["rows"], scores, strict=True)))
    return found


def of_report(records: Records) -> Scores:
    """The scores of a reproduction's own runs, and those in `measured/` on public data sets."""
    found = collect([records])
    public = {setting: scores for setting, scores in kept().items() if setting.dataset in _PUBLIC}
    return {
        setting: {**public.get(setting, {}), **found.get(setting, {})}
        for setting in public.keys() | found.keys()
    }


def _setting(baseline: str, run: Run, entry: Mapping[str, Any]) -> Setting:
    flags = run.summary.get("flags", {})
    dataset = entry.get("dataset") or flags.get("dataset", "digits")
    probe = flags.get("probe", "logistic")
    if "logistic" in entry["protocol"]:
        probe = "logistic"
    if entry["protocol"] in ("knn", "held_out", measured.TRAINING):
        probe = entry["protocol"]
    size = flags.get("image_size", "") if dataset == flags.get("dataset", "digits") else ""
    return Setting(baseline, dataset, size, entry["labels"], probe)


def values(
    records: Records, table: Table, scores: Scores, chosen: Mapping[str, str]
) -> dict[str, dict[str, Value]]:
    """The figures of each row of `ROWS` for the columns of a table that have them, by row.

    A row without any is left out, as are those of counts, and the rows that the table has itself.
    """
    rows = {
        row: _of_columns(baseline, records, table, scores, chosen) for baseline, row in ROWS.items()
    }
    return {row: of_columns for row, of_columns in rows.items() if of_columns}


def _of_columns(
    baseline: str, records: Records, table: Table, scores: Scores, chosen: Mapping[str, str]
) -> dict[str, Value]:
    selectors = [table.selectors.get(row, table.selector) for row in table.rows]
    if not table.percent or any(one.baseline == baseline for one in selectors):
        return {}
    found = {}
    for i, column in enumerate(table.columns):
        for selector, cells in zip(selectors, table.rows.values(), strict=True):
            cell = cells[i if len(cells) > 1 else 0]
            if selector.metric not in _METRICS or cell is None:
                continue
            runs = records.runs.get(chosen.get(cell, cell), {})
            of_seeds = _of_runs(baseline, runs, selector, scores)
            if of_seeds:
                mean, deviation, seeds = over_seeds.spread(of_seeds.values())
                found[column] = Value(mean, deviation or 0.0, seeds, 0, of_seeds)
                break
    return found


def _of_runs(
    baseline: str, runs: Mapping[int, Run], selector: measured.Selector, scores: Scores
) -> dict[int, float]:
    """The scores of a baseline in the setting of the first result of some runs."""
    for run in runs.values():
        for entry in (*run.entries, _MONITOR):
            if measured.matches(entry, selector) and entry["protocol"] != "supervised":
                of_setting = scores.get(_setting(baseline, run, entry), {})
                return {
                    seed: one[selector.metric]
                    for seed, one in sorted(of_setting.items())
                    if selector.metric in one
                }
    return {}
