"""`.ci/check_requirements`: files of pins that do not fit pyproject.toml are named."""

import re
import shutil
import subprocess
import sys

import pytest

FILES = (".ci/check_requirements", "pyproject.toml", "requirements.txt", "requirements_extras.txt")


@pytest.fixture
def copy(project_root, tmp_path):
    (tmp_path / ".ci").mkdir()
    for name in FILES:
        shutil.copy(project_root / name, tmp_path / name)
    return tmp_path


def check(root):
    command = [sys.executable, str(root / ".ci" / "check_requirements")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_pins_fit(copy):
    done = check(copy)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("pattern", "replacement", "named"),
    [
        (r"^scipy==", "other==", "requirements.txt has nothing for scipy"),
        (r"^setuptools==[\d.]+", "setuptools==82.0", "has 82.0 for setuptools<81"),
        (r"^jaxlib==[\d.]+", "jaxlib==0.4.14", "has 0.4.14 for jaxlib==0.4.13"),
        (r"^pytest==", "other==", "requirements.txt has nothing for pytest"),
    ],
)
def test_pins_that_do_not_fit_are_named(copy, pattern, replacement, named):
    pins = copy / "requirements.txt"
    text, changed = re.subn(pattern, replacement, pins.read_text(), flags=re.MULTILINE)
    assert changed
    pins.write_text(text)
    done = check(copy)
    assert done.returncode == 1
    assert named in done.stderr
