"""The page of claims: figures and verdicts are as measured; each claim has a run or a reason."""

import json
import math
import re
import shlex
import statistics

import numpy as np
import pytest
from scipy import stats

from launch.studies import catalog
from launch.studies.engine.claims import (
    PAPERS,
    Noted,
    Number,
    PaperClaim,
    Proof,
    Trial,
    read_noted,
)


@pytest.fixture(autouse=True)
def _extensions(project_root, monkeypatch):
    """Makes the modules of Sphinx's extensions importable; these here do not need Sphinx."""
    monkeypatch.syspath_prepend(str(project_root / "docs" / "extensions"))


def test_the_page_has_every_paper_and_every_claim_once(project_root):
    import claim_tables

    text = (project_root / "docs" / "claims.md").read_text()
    assert re.findall(r"```\{claims\} (\w+)", text) == list(PAPERS)
    for key in PAPERS:
        cards = "\n".join(claim_tables.paper(key))
        names = re.findall(r'<p class="claim-head"><b>(\w+)</b>', cards)
        assert names == [f"{names[0][0]}{i}" for i in range(1, len(names) + 1)]
        assert names == [claim.name for claim in catalog.CLAIMS if claim.paper == key]
        assert cards.count("<section") == cards.count("</section>") == len(names)
        assert cards.count("<details>") == cards.count("</details>")


def test_figures_are_those_of_the_records(project_root):
    """Compares a card with means and deviations that are computed here."""
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

    (claim,) = (claim for claim in catalog.CLAIMS if claim.name == "S9")
    card = "\n".join(claim_tables.card(claim))
    for alpha in ("5", "0.01"):
        ours = f"alpha {alpha}: Dec-SSL {figure(f'nt_xent_labels_alpha{alpha}')}"
        assert f"{ours}, Dec-SLRep {figure(f'supervised_labels_alpha{alpha}')}" in card


def test_a_card_has_the_deciding_number_with_its_interval(project_root):
    """D2's: DCCO beside contrastive FedAvg on IID clients of 16 of CIFAR-100."""
    import claim_tables

    path = project_root / "measured" / "dcco_table1-cpu.jsonl"
    found = {"dcco_iid_16": {}, "contrastive_fedavg_iid_16": {}}
    for line in map(json.loads, path.read_text().splitlines()):
        if line.get("cell") in found and "seed" in line:
            for entry in line["results"]["result"]:
                if (entry["protocol"], entry["labels"]) == ("linear", 500):
                    found[line["cell"]][line["seed"]] = 100 * entry["accuracy"]
    ours, other = found.values()
    differences = [ours[seed] - other[seed] for seed in sorted(ours)]
    low, high = stats.t.interval(0.95, 2, np.mean(differences), stats.sem(differences))
    (claim,) = (claim for claim in catalog.CLAIMS if claim.name == "D2")
    sentence, picture = claim_tables.seen(claim.trials[0])
    expected = f"{np.mean(differences):.1f} points** (95 % interval {low:.1f} to {high:.1f}"
    assert expected in sentence
    assert picture.count("<circle") == 1
    assert 'class="interval does-not-hold"' in picture


def test_the_picture_of_an_interval_is_drawn_to_scale():
    import interval_pictures

    svg = interval_pictures.draw(2.0, 1.0, 3.0, 4.0, "not-shown", " points")
    places = {name: float(x) for name, x in re.findall(r'class="(\w+)" x1?="([\d.]+)"', svg)}
    dot = float(re.search(r'cx="([\d.]+)"', svg)[1])
    # From zero to the margin of 4, the mean is in the middle, and the interval a quarter before.
    zero, margin = places["zero"], places["margin"]
    assert dot == pytest.approx((zero + margin) / 2)
    assert places["interval"] == pytest.approx(zero + (margin - zero) / 4)
    assert places["beyond"] == margin
    alone = interval_pictures.draw(2.0, -math.inf, math.inf, 0.0, "not-shown", "")
    assert "one seed" in alone
    assert 'class="interval" x1' not in alone


def test_figures_of_proofs_are_in_the_file_of_noted_figures(project_root):
    noted = (project_root / "measured" / "noted.jsonl").read_text()
    proofs = [trial for claim in catalog.CLAIMS for trial in claim.trials if type(trial) is Proof]
    found = {number for p in proofs for number in re.findall(r"-?\d+\.\d+", p.figures)}
    assert len(found) > 10
    assert {number for number in found if number not in noted} == set()


def test_the_verdict_of_a_proof_follows_from_its_numbers():
    def verdict(*numbers, **options):
        return Proof("", "", numbers, "", **options).verdict

    assert verdict(Number(1.2, 1.4, least=1), Number(0, 0, most=0)) == "holds"
    assert verdict(Number(0.9, 1.4, least=1)) == "not shown"
    assert verdict(Number(1.2, 1.4, least=1), Number(2, 3, most=1)) == "does not hold"
    assert verdict(Number(2, 3, most=1), contradicts=False) == "not shown"
    assert verdict(Number(0, 1, most=1), contradicts=False) == "holds"
    # Holm's correction: the smaller p-value of two has to be below 0.025.
    for p_value, expected in ((0.024, "holds"), (0.026, "not shown")):
        both = Number(1, 2, least=0, p_value=p_value), Number(1, 2, least=0, p_value=0.04)
        assert verdict(*both) == expected
        both = Number(1, 2, most=0, p_value=p_value), Number(1, 2, least=0, p_value=0.04)
        assert verdict(*both) == expected.replace("holds", "does not hold")


def test_numbers_that_decide_a_proof_are_in_its_figures():
    proofs = [trial for claim in catalog.CLAIMS for trial in claim.trials if type(trial) is Proof]
    for proof in proofs:
        printed = {
            float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:e-\d+)?", proof.figures)
        }
        for number in proof.numbers:
            assert {number.low, number.high} <= printed | {0.0}, proof.figures


def test_a_contradicted_size_has_the_verdict_on_its_order(monkeypatch):
    """D1: the order is not shown on CIFAR-100, and is on CIFAR-10 and the digits."""
    import claim_tables

    by_name = {claim.name: claim for claim in catalog.CLAIMS}
    lines = [line for line in claim_tables.card(by_name["D1"]) if "The order alone" in line]
    heads = [line.split(".")[0] for line in lines]
    assert heads == [
        "**The order alone:** not shown",
        "**The order alone, trial 2 (CIFAR-10):** reproduced",
        "**The order alone, trial 3 (Digits):** reproduced",
    ]
    assert "It has to be above 0.0" in lines[0]
    assert claim_tables.main_verdict(by_name["S16"]) == "smaller here"
    # The order of the other ones is reversed, or their statements have no sizes.
    for name in ("U3", "H1", "S1", "D4"):
        assert "The order alone" not in "\n".join(claim_tables.card(by_name[name])), name


def test_counts_are_by_runs_and_by_calculation(monkeypatch):
    import claim_tables

    proofs = [Proof("", "", (Number(0, 0, most=most),), "") for most in (1, -1)]
    claims = [PaperClaim(f"D{i}", "", "", (proof,)) for i, proof in enumerate(proofs)]
    claims.append(PaperClaim("D9", "", "", (), "no data"))
    claims += [claim for claim in catalog.CLAIMS if claim.name in ("S1", "S16", "D1", "U9", "H1")]
    monkeypatch.setattr(catalog, "CLAIMS", claims)
    assert claim_tables.count_sentence() == (
        "3 are reproduced (2 by runs on two cores, 1 by calculation), 1 has the paper's order but "
        "smaller differences, 3 are contradicted at this scale (2 by runs, 1 of them in the size "
        "of differences alone, and 1 by calculation), 0 are not shown at this scale, and 1 were "
        "not tried"
    )
    rows = [line for line in claim_tables.counts_table() if line.startswith(("| by", "| all"))]
    assert rows == [
        "| by runs | 5 | 2 | 1 | 2 | 0 | 0 |",
        "| by calculation | 2 | 1 | 0 | 1 | 0 | 0 |",
        "| all | 8 | 3 | 1 | 3 | 0 | 1 |",
    ]


def test_the_page_lists_bounds_that_are_not_of_an_order(project_root):
    import claim_tables

    rows = dict(
        line.strip("| ").split(" | ") for line in claim_tables.bounds_table() if "|" in line
    )
    assert rows["less than 2 points"] == "D4, D9, S3, H7"
    assert rows["a factor of 9"] == "S16"
    assert {"S1", "D5"} <= set(rows["half of a gain or of a loss"].split(", "))
    listed = {name for of_bound in rows.values() for name in of_bound.split(", ")}
    assert not {"U1", "U9", "H1", "N2"} & listed
    assert "```{claim-bounds}" in (project_root / "docs" / "claims.md").read_text()


def test_cells_whose_runs_are_not_kept_are_read(tmp_path):
    """Two cells of one run, and a sweep that is no cell."""
    cell = {"what": "run", "experiment": "e", "command": "c", "seeds": 3, "table": "T"}
    cells = [
        {**cell, "row": "FedU", "column": column, "value": value}
        for column, value in (("IID", "0.4 ± 0.1"), ("non-IID", "0.3 ± 0.2"))
    ]
    sweep = {"what": "s", "command": None, "seeds": 1, "columns": ["kNN"], "rows": {"a": [0.1]}}
    path = tmp_path / "noted.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (*cells, sweep)))
    figures = {"T": {("FedU", "IID"): "0.4 ± 0.1", ("FedU", "non-IID"): "0.3 ± 0.2"}}
    assert read_noted(path) == {"run": Noted("e", "c", 3, figures)}


def test_ids_of_statements_decide_claims():
    """Compares patterns with the sentences that they stand for."""
    experiment = catalog.EXPERIMENTS["fedu_table1"][0]("cpu", None, None)

    def texts(statements):
        trial = Trial("", "run", statements, (), ())
        return [experiment.claims[i].text for i in trial.decided_by(experiment)]

    single = "FedU is above Single client training on {} clients"
    assert texts("probed.above.single_client_training") == [
        single.format("IID"), single.format("non-IID"),
    ]  # fmt: skip
    # In both tables of Table 2, and by another prefix in that of Table 1, too.
    assert texts("tuned*.above.single_client_training.iid") == [single.format("IID")] * 2
    assert texts("*.above.single_client_training.iid") == [single.format("IID")] * 3
    with pytest.raises(ValueError, match="run has no statement prob"):
        texts("prob")


def test_every_claim_names_statements_that_its_experiment_has(project_root):
    import claim_tables

    for claim in catalog.CLAIMS:
        for trial in claim.trials:
            if isinstance(trial, Trial):
                shown, _ = claim_tables.read(trial.run)
                assert trial.decided_by(shown), claim.name
                _, table, _ = claim_tables.statements(trial)[0]
                assert {row for row, _ in trial.figures} <= table.rows.keys(), claim.name


def test_commands_name_experiments_and_cells_that_exist():
    import claim_tables

    trials = [trial for claim in catalog.CLAIMS for trial in claim.trials]
    runs = {trial.run for trial in trials if isinstance(trial, Trial)}
    assert len(runs) > 8
    for run in runs:
        for command in claim_tables.commands(run):
            flags = dict(word[2:].split("=", 1) for word in shlex.split(command)[3:])
            build, _ = catalog.EXPERIMENTS[flags["experiment"]]
            cells = {cell.name for cell in build("cpu", flags.get("dataset"), None).cells}
            assert set(flags.get("only", "").split(",")) - {""} <= cells, command


def test_every_claim_that_does_not_hold_or_has_no_run_says_why():
    import claim_tables

    for claim in catalog.CLAIMS:
        trials = [trial for trial in claim.trials if isinstance(trial, Trial)]
        if trials and claim_tables.main_verdict(claim) != "holds":
            assert any(trial.note for trial in trials), claim.name
        assert bool(claim.untried) == (not claim.trials), claim.name
