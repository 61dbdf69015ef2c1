"""`launch.studies.linear_theory` in few dimensions: its table, files and errors."""

import json
import sys

import pytest

from tests import programs
from tests.launch.mistakes import messages


def script(project_root, *arguments):
    return programs.run(
        [sys.executable, "-m", "launch.studies.linear_theory", *arguments],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


@pytest.mark.slow
def test_table_json_and_picture(project_root, tmp_path):
    flags = ["--dimensions=128,32", "--sources=2", "--seeds=0,1", f"--output_dir={tmp_path}"]
    done = script(project_root, *flags)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "linear_theory.json").read_text())
    assert report["flags"]["sources"] == 2
    small, large = report["rows"]
    assert (small["dimension"], large["dimension"]) == (32, 128)
    assert large["samples_per_source"] == 2 * 64 + 1
    assert [d["seed"] for d in large["draws"]] == [0, 1]
    drawn = [draw["ssl_local"][k][1 - k] for draw in large["draws"] for k in range(2)]
    assert large["ssl_local_others"]["min"] == min(drawn)
    assert f"{min(drawn):.4f}" in done.stdout
    assert report["exponents"]["1 - ssl_local_others"] < -0.5
    assert (tmp_path / "linear_theory.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_mistakes_are_one_line(project_root, tmp_path):
    folder = tmp_path / "out"
    mistakes = (
        ("--dimensions", ["--dimensions=64,x"]),
        ("--dimensions", ["--dimensions=2"]),
        ("--dimensions", ["--dimensions=100000"]),
        ("--seeds", ["--seeds=-1"]),
        ("--seeds", ["--seeds="]),
        ("sources", ["--sources=1"]),
        ("--features", ["--features=5"]),
        ("--frequent", ["--dimensions=16", "--frequent=3000"]),
        ("--frequent", ["--dimensions=16", "--frequent=100000000"]),
    )
    flags = [[f"--output_dir={folder}", *more] for _, more in mistakes]
    lines = messages(project_root, "studies.linear_theory", flags)
    for (named, _), line in zip(mistakes, lines, strict=True):
        assert named in line
    assert not folder.exists()
