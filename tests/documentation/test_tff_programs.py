"""The programs on the page on TFF programs work as they are printed."""

import csv
import math
import os
import subprocess
import sys

import pytest

from tests.documentation.pages import blocks

SWAP, ON_GPU, LOWER = 3, 4, 5  # Places of the programs among the page's blocks.


def of_page(language):
    """The blocks of the page in a language, in order."""
    return [block.text for block in blocks(language) if block.page == "docs/tff_programs.md"]


def run(arguments, folder, root):
    environment = os.environ | {"PYTHONPATH": str(root)}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def metrics(folder, name):
    """A column of the three rounds."""
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["1", "2", "3"]
    return [float(row[name]) for row in rows]


@pytest.mark.long
@pytest.mark.slow
def test_own_data_model_and_aggregator_are_trained_and_lowered(tmp_path, project_root):
    """The first three blocks are one program, which the block on lowering continues."""
    programs = of_page("python")
    printed = run(["-c", "\n".join([*programs[:SWAP], programs[LOWER]])], tmp_path, project_root)
    assert "@CLIENTS" in printed
    assert "['statistics', 'update']" in printed
    assert "statistics ['map_reduce', 'distribute_aggregate', 'mergeable'] {}" in printed
    assert (tmp_path / "lowered" / "update" / "map_reduce" / "work.pb").exists()


@pytest.mark.slow
def test_a_process_of_tff_runs_in_this_process(tmp_path, project_root):
    printed = run(["-c", of_page("python")[ON_GPU]], tmp_path, project_root)
    assert float(printed) == pytest.approx(math.log(3), abs=0.2)  # Three classes, equal at first.


@pytest.mark.long
@pytest.mark.slow
def test_lowered_halves_in_a_program(tmp_path, project_root):
    (command,), (table,) = of_page("bash"), of_page("text")
    *_, program = of_page("python")
    printed = run(command.split()[3:], tmp_path, project_root)
    for line in table.splitlines()[:-1]:
        assert line in printed
    run(["-c", program], tmp_path, project_root)
    assert len(set(metrics(tmp_path, "loss"))) == 3
    assert (tmp_path / "states" / "program_state_3").is_dir()


@pytest.mark.long
@pytest.mark.slow
def test_one_line_swaps_the_process(tmp_path, project_root):
    program = of_page("python")[SWAP]
    assert len([line for line in program.splitlines() if line.endswith("# The one line.")]) == 1
    run(["-c", program], tmp_path, project_root)
    assert len(set(metrics(tmp_path, "client_work/loss"))) == 3
