"""The page of claims: figures and verdicts are as measured; each claim has a run or a reason."""

import json
import re
import shlex
import statistics

import pytest

from launch.experiments import catalog
from tff_ssl.reporting.experiment import Table
from tff_ssl.reporting.measured import Selector, Value


@pytest.fixture(autouse=True)
def _extensions(project_root, monkeypatch):
    """Makes the modules of Sphinx's extensions importable; these here do not need Sphinx."""
    monkeypatch.syspath_prepend(str(project_root / "docs" / "extensions"))


def test_the_page_has_every_paper_and_every_claim_once(project_root):
    import claim_tables
    import paper_claims

    text = (project_root / "docs" / "claims.md").read_text()
    assert re.findall(r"```\{claims\} (\w+)", text) == list(paper_claims.PAPERS)
    for key in paper_claims.PAPERS:
        names = re.findall(r"^\| \*\*(\w+)\*\* ", "\n".join(claim_tables.paper(key)), re.M)
        assert names == [f"{names[0][0]}{i}" for i in range(1, len(names) + 1)]
        assert names == [claim.name for claim in paper_claims.CLAIMS if claim.paper == key]


def test_figures_are_those_of_the_records(project_root):
    """Compares a row with means and deviations that are computed here."""
    import claim_tables

    path = project_root / "measured" / "dec_ssl_figure2-cpu.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]

    def figure(cell: str) -> str:
        found = [
            100 * entry["accuracy"]
            for line in lines
            if line.get("cell") == cell and "seed" in line
            for content in line["results"].values()
            for entry in (content if isinstance(content, list) else [content])
            if entry["protocol"] == "linear" and entry["labels"] == 5000
        ]
        assert len(found) == 3
        return f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}"

    rows = [line for line in claim_tables.paper("dec_ssl") if line.startswith("| **S9** ")]
    (cells,) = (row.split(" | ") for row in rows)
    for alpha in ("5", "0.01"):
        ours = f"alpha {alpha}: Dec-SSL {figure(f'nt_xent_labels_alpha{alpha}')}"
        assert f"{ours}, Dec-SLRep {figure(f'supervised_labels_alpha{alpha}')}" in cells[3]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "not shown"], "not shown"),
        (["holds", "not measured"], "not shown"),
        (["holds", "not shown", "does not hold"], "does not hold"),
        (["not measured", "not measured"], "not run"),
    ],
)
def test_verdicts_on_several_tables_are_one(monkeypatch, found, expected):
    import claim_tables

    monkeypatch.setattr(claim_tables, "checks", lambda trial: [("", "", word) for word in found])
    assert claim_tables.verdict(None) == expected


def test_room_is_counted_in_the_larger_deviation(monkeypatch):
    import claim_tables

    shown = Table("t", Selector("linear"), ("c",), {}, {})
    values = {("a", "c"): Value(0.5, 0.01, 3, 0), ("b", "c"): Value(0.44, 0.02, 3, 0)}
    monkeypatch.setattr(claim_tables, "_table_of", lambda trial: (shown, values))
    ends = (("a", "c"), ("b", "c"))
    trial = claim_tables.Trial("", "", (), (), ends)
    assert claim_tables.room(trial) == "a - b: 6.0 points, 3.0 deviations"
    values["b", "c"] = Value(0.44, 0.0, 1, 0)
    assert claim_tables.room(trial) == "a - b: 6.0 points, one seed"


def test_figures_of_proofs_are_in_the_file_of_noted_figures(project_root):
    import paper_claims

    noted = (project_root / "measured" / "noted.jsonl").read_text()
    proofs = [proof for claim in paper_claims.CLAIMS for proof in claim.proofs]
    found = {number for p in proofs for number in re.findall(r"-?\d+\.\d+", p.figures)}
    assert len(found) > 10
    assert {number for number in found if number not in noted} == set()


def test_cells_whose_runs_are_not_kept_are_read(tmp_path):
    """Two cells of one run, and a sweep that is no cell."""
    from paper_claims import records

    cell = {"what": "run", "experiment": "e", "command": "c", "seeds": 3, "table": "T"}
    cells = [
        {**cell, "row": "FedU", "column": column, "value": value}
        for column, value in (("IID", "0.4 ± 0.1"), ("non-IID", "0.3 ± 0.2"))
    ]
    sweep = {"what": "s", "command": None, "seeds": 1, "columns": ["kNN"], "rows": {"a": [0.1]}}
    path = tmp_path / "noted.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (*cells, sweep)))
    figures = {"T": {("FedU", "IID"): "0.4 ± 0.1", ("FedU", "non-IID"): "0.3 ± 0.2"}}
    assert records.read_noted(path) == {"run": records.Noted("e", "c", 3, figures)}


def test_commands_name_experiments_and_cells_that_exist():
    import claim_tables
    import paper_claims

    runs = {trial.run for claim in paper_claims.CLAIMS for trial in claim.trials}
    assert len(runs) > 8
    for run in runs:
        for command in claim_tables.commands(run):
            flags = dict(word[2:].split("=", 1) for word in shlex.split(command)[3:])
            build, _ = catalog.EXPERIMENTS[flags["experiment"]]
            cells = {cell.name for cell in build("cpu", flags.get("dataset"), None).cells}
            assert set(flags.get("only", "").split(",")) - {""} <= cells, command


def test_every_claim_that_does_not_hold_or_has_no_run_says_why():
    import claim_tables
    import paper_claims

    for claim in paper_claims.CLAIMS:
        if claim.trials and claim_tables.main_verdict(claim) != "holds":
            assert any(trial.note for trial in claim.trials), claim.name
        assert bool(claim.untried) == (not claim.trials and not claim.proofs), claim.name
