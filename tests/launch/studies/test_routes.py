"""`launch.studies.routes` on few networks: its table, files and errors."""

import json
import sys

from tests import programs
from tests.launch.mistakes import messages
from tff_ssl.algorithms.denav import navigator


def test_table_json_and_picture(project_root, tmp_path):
    done = programs.run(
        [sys.executable, "-m", "launch.studies.routes", "--networks=3", "--num_clients=20",
         "--steps=40", f"--output_dir={tmp_path}"],
        cwd=project_root, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads((tmp_path / "routes.json").read_text())
    assert report["flags"]["selection_limit"] == 3  # 1.5 times 40 / 20.
    assert list(report["formulas"]) == list(navigator.FORMULAS)
    for formula, costs in report["formulas"].items():
        shown = f"{costs['moves']['mean']:.1f} ({costs['moves']['low']:.1f} to "
        (line,) = (text for text in done.stdout.splitlines() if text.startswith(f"{formula}  "))
        assert shown in line
    assert (tmp_path / "routes.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_one_line_and_write_nothing(project_root, tmp_path):
    folder = tmp_path / "out"
    found = messages(
        project_root,
        "studies.routes",
        [
            [f"--output_dir={folder}", "--images=50"],
            [f"--output_dir={folder}", "--networks=1"],
            [f"--output_dir={folder}", "--connectivity=2"],
        ],
    )
    for message, named in zip(found, ("--images=50", "networks", "connectivity"), strict=True):
        assert named in message
    assert not folder.exists()
