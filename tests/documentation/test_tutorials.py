"""The tutorials run as they stand, in less than a minute each, and print nothing but results."""

import os
import re
import subprocess
import sys

import pytest

from tests.documentation.pages import ROOT

TUTORIALS = sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.py"))


def test_the_site_knows_all_tutorials(project_root):
    listed = (project_root / "docs" / "conf.py").read_text().split("_TUTORIALS = (")[1]
    assert sorted(re.findall(r'"(\w+)"', listed.split(")")[0])) == TUTORIALS


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial(project_root, tmp_path, name):
    # A tutorial leaves its run for the reader to look at.
    environment = os.environ | {"MPLBACKEND": "agg", "TMPDIR": str(tmp_path)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    done = subprocess.run(
        [sys.executable, "-m", f"docs.tutorials.{name}"],
        cwd=project_root, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""
    assert not list(tmp_path.glob("tff_ssl_*"))  # Private folders of the scripts.
