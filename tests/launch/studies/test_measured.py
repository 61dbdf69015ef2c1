"""The files of `measured/`: their reports and verdicts are those that are known.

`measured_digests.json` has digests of each report and of its verdicts, from results that were kept
as a folder for each run. Where a text of an experiment is changed, or runs are added, look at what
changes in its report, and replace its digests by those that the tests name.
"""

import hashlib
import json
import pathlib

import pytest

from launch.studies import catalog
from launch.studies.engine import exchange, runner
from tff_ssl.reporting import pictures, records, report

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


def test_verdicts_are_those_of_the_results_of_before():
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
