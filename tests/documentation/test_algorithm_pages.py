"""The pages of the algorithms, and what is made from the registry and from `measured/` for them."""

import dataclasses
import json
import re
import statistics
import sys
import types

import pytest
from matplotlib.figure import Figure

from datasets import describe
from tff_ssl.algorithms import registry
from tff_ssl.reporting.experiment import Table
from tff_ssl.reporting.measured import Selector, Value

SECTIONS = [
    "A round", "Equations", "Hyperparameters", "What it sends", "Published and measured",
    "What did not work",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _extensions(project_root, monkeypatch):
    """Makes the modules of Sphinx's extensions importable; these here do not need Sphinx."""
    monkeypatch.syspath_prepend(str(project_root / "docs" / "extensions"))


@pytest.mark.parametrize("name", list(registry.ALGORITHMS))
def test_every_algorithm_has_a_page_with_all_sections(project_root, name):
    text = (project_root / "docs" / "algorithms" / f"{name}.md").read_text()
    found = [title for title in re.findall(r"^## (.*)$", text, re.M) if title in SECTIONS]
    assert found == SECTIONS
    for directive in ("{round} ", "{pseudocode}", f"{{hyperparameters}} {name}\n",
                      f"{{default-run}} {name}\n"):  # fmt: skip
        assert f"```{directive}" in text, directive
    assert f"--algorithm={name}" in text
    assert f"\n{name}\n" in (project_root / "docs" / "algorithms" / "index.md").read_text()


def test_the_threat_model_has_all_algorithms(project_root):
    text = (project_root / "docs" / "privacy.md").read_text()
    table = text.split("## Who sees what\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.M)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(
        registry.ALGORITHMS
    )


@pytest.mark.parametrize("name", list(registry.ALGORITHMS))
def test_options_that_a_page_names_exist(project_root, name):
    text = (project_root / "docs" / "algorithms" / f"{name}.md").read_text()
    known = {
        field.name.rstrip("_"): field.default
        for entry in registry.ALGORITHMS.values()
        for field in dataclasses.fields(entry.hyperparameters)
    }
    for option, value in re.findall(r"`(?:--hparam=)?(\w+)=([\w.]+)`", text):
        assert option in known, option
        assert isinstance(known[option], str) or re.fullmatch(r"[\d.]+|true|false", value)


@pytest.mark.parametrize("name", list(registry.ALGORITHMS))
def test_hyperparameters_are_described_with_the_digits_values(project_root, name):
    import hyperparameter_tables

    cls = registry.ALGORITHMS[name].hyperparameters
    fields = dataclasses.fields(cls)
    header, *rows = hyperparameter_tables.rows(cls, fields, {})
    assert header == ["`--hparam`", "symbol", "default", "meaning"]
    assert len(rows) == len(fields)
    for (option, _, default, meaning), field in zip(rows, fields, strict=True):
        assert option == f"`{field.name.rstrip('_')}`"
        assert default.strip("`") in (str(field.default), str(field.default).lower())
        assert len(meaning) > 10, field.name
    preset = (project_root / "launch" / "presets" / "digits" / f"{name}.flags").read_text()
    values = hyperparameter_tables.preset_values(name)
    for option, value in re.findall(r"^--hparam=(\w+)=(.*)$", preset, re.M):
        assert values[option] == value


def test_symbols_come_from_the_docstrings():
    import hyperparameter_tables

    assert hyperparameter_tables.symbol("Weight mu of FedProx's proximal term.") == r"$\mu$"
    assert hyperparameter_tables.symbol("Number of passes E over a client's examples.") == "$E$"
    assert hyperparameter_tables.symbol("Divergence that mu is compared with.") == ""
    assert hyperparameter_tables.symbol("Momentum of `sgd`; beta_1 of the others.") == ""
    assert hyperparameter_tables.symbol("Name of the optimizer, `sgd` or `E`.") == ""


def test_the_default_runs_have_the_figures_that_were_measured(project_root):
    """Compares the table with means and deviations of the result files."""
    import experiments

    _, *rows = experiments.default_rows(list(registry.ALGORITHMS))
    assert [row[0] for row in rows] == [f"`{name}`" for name in registry.ALGORITHMS]
    path = project_root / "measured" / "digits_defaults-cpu.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for name, *cells in rows:
        runs = [line for line in lines if line.get("cell") == name.strip("`") and "seed" in line]
        expected = []
        for labels in (10, 50):
            entries = [
                entry
                for run in runs
                for entry in run["results"]["result"]
                if entry["protocol"] == "linear" and entry["labels"] == labels
            ]
            own = [100 * entry["accuracy"] for entry in entries]
            start = [100 * entry["baselines"]["random_encoder"]["accuracy"] for entry in entries]
            if not own:
                expected += ["not measured", "not measured"]
                continue
            assert len(own) == 3
            expected.append(f"{statistics.mean(own):.1f} ± {statistics.stdev(own):.1f}")
            expected.append(f"{statistics.mean(start):.1f}")
        assert cells == expected, name


def test_published_figures_stand_beside_the_measured_ones():
    import experiments

    shown = Table(
        "Accuracy", Selector("linear"), ("a", "b"),
        {"ours": ("ours_a", "ours_b"), "other": ("other",)},
        {"ours": (50.0, None), "unknown": (40.0,)},
    )  # fmt: skip
    values = {
        ("ours", "a"): Value(0.5, 0.01, 3, 0),
        ("ours", "b"): Value(0.25, 0.02, 3, 0),
        ("other", "a"): Value(0.125, 0.0, 3, 0),
        ("other", "b"): Value(0.125, 0.0, 3, 0),
    }
    assert experiments.comparison(shown, values) == [
        ["in percent: measured (published)", "a", "b"],
        ["ours", "50.0 ± 1.0 (50.0)", "25.0 ± 2.0"],
        ["other", "12.5 ± 0.0", ""],
        ["unknown", " (40.0)", ""],
    ]


def test_methods_stand_beside_one_of_them_with_intervals_by_seed(monkeypatch):
    """By hand: with three seeds, half an interval is 4.303 deviations over the root of 3."""
    import experiments

    selectors = {"start": Selector("linear", baseline="random_encoder")}
    rows = {row: (row,) for row in ("ours", "other", "third", "start")}
    shown = Table("T", Selector("linear"), ("a",), rows, {}, selectors)
    by_seed = {
        "other": (0.40, 0.41, 0.45), "ours": (0.41, 0.43, 0.48), "third": (0.35, 0.36, 0.40),
        "start": (0.2, 0.2, 0.2),
    }  # fmt: skip
    values = {
        (row, "a"): Value(statistics.mean(found), 0.0, 3, 0, dict(enumerate(found)))
        for row, found in by_seed.items()
    }
    experiment = types.SimpleNamespace(tables=[shown])
    monkeypatch.setattr(experiments, "read", lambda name: (experiment, {"T": values}))
    text = "\n".join(experiments.paired("x", "other"))
    assert "| ours | 2.0 (-0.5 to 4.5) |" in text
    # Differences that are equal by chance have a deviation of a tenth of a point.
    assert "| third | -5.0 (-5.2 to -4.8) |" in text
    assert "| start |" not in text
    assert "- a, the whole interval is above other: none." in text
    assert "- a, the whole interval is below other: third." in text


@pytest.mark.parametrize("name", list(registry.ALGORITHMS))
def test_a_page_has_the_algorithms_figures_of_the_comparison(name):
    import experiments

    page = experiments.default_run(name)
    compared = {
        line for text in (experiments.measured, lambda file: experiments.paired(file, "FedAvg"))
        for line in text("all_methods-cpu")
    }  # fmt: skip
    _, _, there = "\n".join(page).partition("comparison of all methods")
    assert bool(there) == (registry.ALGORITHMS[name].kind.kind != "decentralized")
    row = ""
    lines = [line for line in there.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        _, first, rest = line.split("|", 2)
        if first.startswith(" points above"):
            assert f"|{row}|{rest}" in compared
        elif first != " raw pixels ":
            row = first
            assert line in compared
    assert bool(row) == bool(there)


@pytest.mark.slow
def test_the_gallery_has_every_claim_of_every_experiment(tmp_path, monkeypatch):
    import experiments

    # To draw all pictures takes a minute, and the site draws them.
    monkeypatch.setattr(describe, "draw", lambda picture: Figure())
    monkeypatch.setattr(experiments, "_report_pictures", lambda name: {"Curves": b"", "no": None})
    experiments.write_gallery(tmp_path / "gallery")
    for name in experiments.names():
        text = (tmp_path / "gallery" / f"{name}.md").read_text()
        claims = experiments.verdicts(name)
        for _, statement, verdict in claims:
            assert f"*{statement}.*" in text
            assert f"## Verdict: {verdict}" in text
        assert text.count("<svg") == len(claims)
        pictures = re.findall(r"```\{image\} (.*)", text)
        assert len(pictures) == 1 + len(experiments.records(name).partitions)
        assert all((tmp_path / "gallery" / picture).exists() for picture in pictures)


def test_a_picture_of_a_round():
    import round_pictures

    svg = round_pictures.draw(["server", "client k"], ["server -> client k: a < b", "client k: c"])
    assert svg.count("<rect") == 1
    assert svg.count("<polygon") == 1
    assert "a &lt; b" in svg
    for wrong in ("client j: c", "server sends", "server -> client j: x"):
        with pytest.raises(ValueError, match="write `A: text`"):
            round_pictures.draw(["server", "client k"], [wrong])


def test_docstrings_become_restructuredtext():
    import docstrings

    lines = [
        "Adds x*y to `a|b`s and n_k, for |w|.", "", "Then", "  w = u_*", "and so on:", "",
        "- first,", "  continued", "- second", "", "Args:", "  x: Text *here*.", "    more",
    ]  # fmt: skip
    assert docstrings.to_restructuredtext(lines) == [
        r"Adds x\*y to ``a|b``\ s and n_k, for \|w\|.", "", "Then", "", "::", "",
        "     w = u_*", "", "and so on:", "", "- first,", "  continued", "- second", "",
        "Args:", r"  x: Text \*here\*.", "    more",
    ]  # fmt: skip


def test_fenced_lines_of_docstrings_become_literal():
    import docstrings

    lines = ["Starts at zero:", "", "```", "w = |g|", "```", "", "Then."]
    docstrings._process(None, "function", "f", None, None, lines)
    assert [line for line in lines if line] == ["Starts at zero:", "::", "     w = |g|", "Then."]


def test_sphinx_gets_every_module(project_root):
    import docstrings

    names = set(docstrings.modules("tff_ssl")) | set(docstrings.modules("datasets"))
    need_extras = {
        "tff_ssl.evaluation.detection.average_precision",
        "tff_ssl.evaluation.detection.mask_rcnn",
        "tff_ssl.runtime.ray_actor",
    }
    for package in ("tff_ssl", "datasets"):
        for path in (project_root / package).rglob("*.py"):
            parts = path.relative_to(project_root).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            assert name in names or name in need_extras
    assert "tff_ssl.algorithms.fedu" in names
    assert "sphinx" not in sys.modules
