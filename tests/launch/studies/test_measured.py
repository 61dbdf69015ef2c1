"""The files of `measured/`: their reports and verdicts are those that are known.

`measured_digests.json` has digests of each report and of its verdicts, from results that were kept
as a folder for each run. Where a text of an experiment is changed, or runs are added, look at what
changes in its report, and replace its digests by those that the tests name.
"""

import hashlib
import itertools
import json
import pathlib

import numpy as np
import pytest
from scipy import stats

from launch.studies import catalog
from launch.studies.engine import exchange, runner
from tff_ssl.reporting import pictures, records, report
from tff_ssl.reporting.measured import SENT

MEASURED = pathlib.Path(__file__).parents[3] / "measured"
DIGESTS = json.loads(pathlib.Path(__file__).with_name("measured_digests.json").read_text())


def build(found):
    build_experiment, _ = catalog.EXPERIMENTS[found.identity["experiment"]]
    return build_experiment(*(found.identity[key] for key in ("scale", "dataset", "rounds")))


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.fixture(autouse=True)
def at_the_root(project_root, monkeypatch):
    """Changes to the project's root, from which cells name presets."""
    monkeypatch.chdir(project_root)


def test_every_file_with_runs_has_digests_and_the_name_of_its_experiment():
    names = {path.stem for path in MEASURED.glob("*.jsonl")} - {"estimates-paper", "noted"}
    assert names == DIGESTS.keys()
    for name in names:
        identity = records.read_file(MEASURED / f"{name}.jsonl").identity
        assert name == "-".join(str(value) for value in identity.values() if value)


def figure_of(line, selector):
    """The figure of a line of a file, read again from its JSON; None if it has none."""
    if "failed" in line:
        return 0.0
    if selector.protocol == "training":
        curve = [accuracy for _, accuracy in line.get("knn", ())]
        if curve:
            line = line | {"knn_last": curve[-1], "knn_lost": max(curve) - curve[-1]}
        if curve[1:]:
            line = line | {"knn_gained": curve[-1] - curve[(len(curve) - 1) // 2]}
        return line.get(selector.metric)
    contents = [one if type(one) is list else [one] for one in line.get("results", {}).values()]
    for entry in itertools.chain.from_iterable(contents):
        if entry["protocol"] == selector.protocol and (
            selector.labels in (None, entry["labels"])
            and selector.dataset in (None, entry.get("dataset"))
            and selector.baseline in (None, *entry.get("baselines", ()))
        ):
            place = entry["baselines"].get(selector.baseline, {}) if selector.baseline else entry
            return place.get(selector.metric)
    return None


def verdict_again(claim, table, lines, chosen):
    """The verdict on a statement by another code: SciPy's test of one sample, and Holm's rule."""

    def figures(row, column):
        cells = table.rows[row]
        cell = cells[table.columns.index(column) if len(cells) > 1 else 0]
        selector = table.selectors.get(row, table.selector)
        of_cell = (line for line in lines if line["cell"] == chosen.get(cell, cell))
        found = {line["seed"]: figure_of(line, selector) for line in of_cell}
        return {seed: figure for seed, figure in found.items() if figure is not None}

    def numbers(weights, margin):
        of_figures = {figure: figures(*figure) for figure in weights}
        if not all(of_figures.values()):
            return []
        seeds = set.intersection(*map(set, of_figures.values()))
        return [sum(w * of_figures[f][s] for f, w in weights.items()) - margin for s in seeds]

    def p_value(found):
        if len(found) == 1:
            return float(table.selector.metric not in SENT)
        if np.ptp(found) < 1e-9 * max(1, abs(found[0])):
            if table.selector.metric.endswith("accuracy"):  # A deviation of a tenth of a point.
                t = abs(np.mean(found)) / (0.001 / len(found) ** 0.5)
                return 2 * float(stats.t.sf(t, len(found) - 1))
            return float(abs(found[0]) < 1e-12)
        return stats.ttest_1samp(found, 0).pvalue

    def selector_of(row):
        return table.selectors.get(row, table.selector)

    untrained = [
        row for row in table.rows
        if selector_of(row).baseline == "random_encoder" or selector_of(row).protocol == "scratch"
    ]  # fmt: skip

    def nothing_learned(contrast, is_above):
        rows = {row for row, _ in contrast.weights}
        if any(
            row in untrained or selector_of(row).baseline == "pretrained_encoder" for row in rows
        ):
            return False
        if not untrained and "accuracy" not in table.selector.metric:
            return False
        two_rows = len(rows) == len(contrast.weights) == 2 and is_above
        for (row, column), weight in contrast.weights.items():
            if selector_of(row).baseline:
                continue
            # A probe matters where it is larger, a classifier where a probe beats it.
            is_larger = (weight > 0) == is_above
            if selector_of(row).protocol in ("supervised", "scratch"):
                matters = two_rows and not is_larger
            else:
                matters = is_larger
            if matters and not untrained:
                return True
            if matters:
                start = (table.starts.get(row, untrained[0]), column)
                gain = numbers({(row, column): 1, start: -1}, 0)
                if len(gain) < 2 or np.mean(gain) < 0 or p_value(gain) > 0.05:
                    return True
        return False

    found = [numbers(one.weights, one.margin) for one in claim.contrasts]
    p_values = sorted(p_value(one) for one in found if one)
    states = set()
    for one, contrast in zip(found, claim.contrasts, strict=True):
        if not one:
            states.add("not measured")
        elif nothing_learned(contrast, np.mean(one) > 0):
            states.add("not shown")
        else:  # Holm: all smaller p-values pass their level, and this one its own.
            rank = p_values.index(p_value(one))
            passes = all(p < 0.05 / (len(p_values) - i) for i, p in enumerate(p_values[: rank + 1]))
            side = "holds" if np.mean(one) > 0 else "does not hold"
            states.add(side if passes else "not shown")
    order = ("does not hold", "not measured", "not shown", "holds")
    return next(state for state in order if state in states)


@pytest.mark.parametrize("name", DIGESTS)
def test_verdicts_are_those_of_another_code(name):
    path = MEASURED / f"{name}.jsonl"
    kept = records.read_file(path)
    experiment = build(kept)
    lines = [line for line in map(json.loads, path.read_text().splitlines()) if "seed" in line]
    if any("failed" in line for line in lines):
        assert all(table.percent for table in experiment.tables if table.selector.metric in SENT)
    tables = {table.title: table for table in experiment.tables}
    chosen = report.choose_cells(kept, experiment)
    rows = report.claim_rows(experiment, report.read_values(kept, experiment))
    for claim, (title, text, verdict) in zip(experiment.claims, rows, strict=True):
        assert verdict == verdict_again(claim, tables[title], lines, chosen), (title, text)


def test_verdicts_are_those_that_are_known():
    found = {}
    for name in DIGESTS:
        kept = records.read_file(MEASURED / f"{name}.jsonl")
        experiment = build(kept)
        rows = report.claim_rows(experiment, report.read_values(kept, experiment))
        # Claims on an algorithm that was added, and has no runs yet, change nothing.
        found[name] = digest(json.dumps([row for row in rows if row[2] != "not measured"]))
    assert found == {name: known["verdicts"] for name, known in DIGESTS.items()}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", DIGESTS)
def test_a_report_is_that_of_the_results_of_before_to_the_last_character(
    name, tmp_path, monkeypatch
):
    # To draw all pictures takes minutes; the report names them.
    monkeypatch.setattr(pictures, "_png", lambda figure: b"\x89PNG")
    monkeypatch.setattr(exchange.plots, "save", lambda figure, path, **options: path.touch())
    path = MEASURED / f"{name}.jsonl"
    exchange.import_runs(path, tmp_path / "runs")
    markdown, _, found = runner._write_report(build(records.read_file(path)), tmp_path / "runs")
    assert digest(markdown.read_text()) == DIGESTS[name]["report"]
    exchange.export_runs(tmp_path / "runs", tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_text() == path.read_text()
    assert found.partitions == records.read_file(path).partitions
