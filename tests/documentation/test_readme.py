"""The README's examples run as they stand."""

import csv
import dataclasses
import os
import re
import subprocess
import sys

import pytest

from launch.experiments import digits_defaults
from tff_ssl.algorithms import registry
from tff_ssl.reporting import report

GUIDE = "### Taking an algorithm into your federated stack"


@pytest.fixture(scope="module")
def blocks(project_root):
    """(language, text) of the guide's examples, in order."""
    guide = (project_root / "README.md").read_text().split(GUIDE)[1]
    guide = re.split(r"^##+ ", guide, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^```(\w*)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)


def run(arguments, folder, root):
    environment = os.environ | {"PYTHONPATH": str(root)}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def metrics(folder, name):
    """A column of the three rounds."""
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["1", "2", "3"]
    return [float(row[name]) for row in rows]


@pytest.mark.slow
def test_lowered_halves_in_a_program(blocks, tmp_path, project_root):
    (command,) = [text for language, text in blocks if language == "bash"]
    (table,) = [text for language, text in blocks if language == ""]
    program, _ = [text for language, text in blocks if language == "python"]
    printed = run(command.split()[1:], tmp_path, project_root)
    for line in table.splitlines()[:-1]:
        assert line in printed
    run(["-c", program], tmp_path, project_root)
    assert len(set(metrics(tmp_path, "loss"))) == 3
    assert (tmp_path / "states" / "program_state_3").is_dir()


@pytest.mark.slow
def test_one_line_swaps_the_process(blocks, tmp_path, project_root):
    _, program = [text for language, text in blocks if language == "python"]
    assert len([line for line in program.splitlines() if line.endswith("# The one line.")]) == 1
    run(["-c", program], tmp_path, project_root)
    assert len(set(metrics(tmp_path, "client_work/loss"))) == 3


def test_the_table_of_algorithms_is_the_registrys(project_root):
    section = (project_root / "README.md").read_text().split("### Algorithms\n")[1]
    section = section.split("\n#### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE)
    assert rows == [(name, entry.summary) for name, entry in registry.ALGORITHMS.items()]


def test_the_defaults_have_the_figures_that_were_measured(project_root):
    experiment = digits_defaults.EXPERIMENTS["digits_defaults"][0]("cpu", None, None)
    section = (project_root / "README.md").read_text().split("#### The default runs\n")[1]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section.split("\n### ")[0], re.MULTILINE)
    assert [name for name, _ in rows] == list(registry.ALGORITHMS)
    values = report.read_values(project_root / "measured" / "digits_defaults-cpu", experiment)
    for name, cells in rows:
        expected = []
        for table in experiment.tables:
            trained, untrained = (
                values[table.title][row, table.columns[0]] for row in (name, f"{name}, untrained")
            )
            assert trained.seeds == untrained.seeds == 3
            expected.append(f"{100 * trained.mean:.1f} ± {100 * trained.std:.1f}")
            expected.append(f"{100 * untrained.mean:.1f}")
        assert cells == " | ".join(expected)


def test_hyperparameters_that_the_readme_names_exist(project_root):
    text = (project_root / "README.md").read_text()
    table = text.split("| algorithm | `--hparam`")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
    assert {name for name, _ in rows} == {"fedu", "fedema", "fedbn", "featarc"}
    for name, cell in rows:
        fields = {
            f.name: f.default for f in dataclasses.fields(registry.ALGORITHMS[name].hyperparameters)
        }
        for assignment in re.findall(r"`(\w+)=([\w.]+)`", cell):
            field, value = assignment
            assert field in fields, (name, field)
            if re.fullmatch(r"[\d.]+", value):
                assert float(value) == fields[field], (name, assignment)
