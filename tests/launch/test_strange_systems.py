"""Runs without a home folder, in the locale C, without asserts, and not as root."""

import shutil
import subprocess
import sys

import pytest

from tests.launch.test_scripts import ENVIRONMENT, ROOT, SHORT, metrics

NOT_ROOT = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]


def strange(*arguments, optimize="1", **more):
    """Runs a script as user 12345, who has no name and no home, where the system allows it."""
    unset = ("HOME", "LANG", "LC_CTYPE", "USER", "LOGNAME", "XDG_CACHE_HOME", "MPLCONFIGDIR")
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in unset}
    command = [sys.executable, "-m", *arguments]
    if shutil.which("unshare") and not subprocess.run([*NOT_ROOT, "true"], check=False).returncode:
        command = [*NOT_ROOT, *command]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"LC_ALL": "C", "PYTHONOPTIMIZE": optimize, **more},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=1200,
        check=False,
    )


@pytest.mark.long
@pytest.mark.slow
def test_a_run_of_a_user_without_a_home(tmp_path):
    flags = ["--encoder=tiny", "--projector=8", "--clients_per_round=4", "--labels_per_class=1"]
    # The accuracies have a plus-minus sign, which the encoding lacks.
    result = strange(
        "launch.pretrain", *SHORT, *flags, f"--output_dir={tmp_path / 'rün'}",
        PYTHONIOENCODING="ascii",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "?" in result.stdout
    assert len(metrics(tmp_path / "rün")) == 6
    assert (tmp_path / "rün" / "run.html").stat().st_size > 10_000
    assert not (ROOT / "~").exists()


@pytest.mark.long
@pytest.mark.slow
def test_mistakes_of_a_user_without_a_home(tmp_path):
    result = strange("launch.pretrain", "--dataset=mnist", f"--output_dir={tmp_path / 'run'}")
    assert result.returncode != 0
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "mnist is not prepared" in line
    assert "Traceback" not in result.stderr
    # TensorFlow cannot be imported without docstrings.
    result = strange("launch.pretrain", f"--output_dir={tmp_path / 'run'}", optimize="2")
    assert result.returncode != 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: PYTHONOPTIMIZE=2")
