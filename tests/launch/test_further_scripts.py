"""Scripts that no other test runs go to their end with small settings, and write their results."""

import json
import subprocess
import sys

import pytest

from tests import programs

SMALLEST = {
    "benchmark": ("benchmark.json", ["--parts=hetero", "--repetitions=1"]),
    "drift": (
        "drift.json",
        ["--encoder=tiny", "--projector=8", "--local_steps=1", "--learning_rates=0.001",
         "--clients_per_round=2"],
    ),
    "lower": (
        "lowering.json",
        ["--algorithm=fedavg", "--objective=nt_xent", "--encoder=tiny", "--projector=8"],
    ),
    "privacy_audit": ("audit.json", ["--canaries=8", "--rounds=1"]),
    "soak": ("soak.json", ["--rounds=120"]),
}  # fmt: skip
DEFAULT = ("lower", "privacy_audit")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n not in DEFAULT)) for n in SMALLEST]
)
def test_a_script_writes_its_results(project_root, tmp_path, name):
    (path,) = (project_root / "launch").rglob(f"{name}.py")
    module = ".".join(path.relative_to(project_root).with_suffix("").parts)
    written, flags = SMALLEST[name]
    done = programs.run(
        [sys.executable, "-m", module, f"--output_dir={tmp_path / 'out'}", *flags],
        cwd=project_root, stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "out" / written).read_text())
    assert str(tmp_path / "out") in done.stdout
