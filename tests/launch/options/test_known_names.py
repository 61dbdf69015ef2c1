"""Wrong names are answered with the nearest right one, without slow imports."""

import subprocess
import sys

import pytest

from launch.options import known_names
from tests.launch import configs
from tff_ssl.algorithms.registry import ALGORITHMS
from tff_ssl.errors import ConfigurationError
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.views.policies import POLICIES


@pytest.mark.parametrize(
    ("flag", "registry"),
    [("algorithm", ALGORITHMS), ("algorithms", ALGORITHMS), ("objective", OBJECTIVES),
     ("views", POLICIES)],
)  # fmt: skip
def test_the_names_are_those_of_the_registries(flag, registry):
    # The registries are loaded here; without them, their source is read.
    assert known_names._in_source(*known_names._REGISTRIES[flag]) == tuple(registry)
    assert known_names.names(flag) == tuple(registry)


def test_an_entry_that_a_program_adds_is_a_right_name(monkeypatch):
    with pytest.raises(ConfigurationError, match="did you mean"):
        configs.run("--algorithm=fedavgs")
    monkeypatch.setitem(ALGORITHMS, "fedavgs", ALGORITHMS["fedavg"])
    assert configs.run("--algorithm=fedavgs").algorithm.algorithm == "fedavgs"


@pytest.mark.parametrize(
    ("flag", "near"),
    [("--algorithm=fedAvg", "fedavg"), ("--algorithm=dco", "dcco"), ("--views=bYOL", "byol"),
     ("--objective=nt-xent", "nt_xent")],
)  # fmt: skip
def test_the_nearest_name_is_suggested(flag, near):
    with pytest.raises(ConfigurationError, match=f"{flag}: did you mean {near}[?] All are: "):
        configs.run(flag)


def test_right_names_and_ones_own_are_accepted():
    assert configs.run("--algorithm=fedavg").algorithm.algorithm == "fedavg"
    assert configs.run("--algorithm=fedav:ENTRY").algorithm.algorithm == "fedav:ENTRY"


def test_the_suggestion_comes_before_slow_imports(project_root):
    code = (
        "import runpy, sys; sys.argv = ['pretrain', '--algorithm=fedAvg']\n"
        "try:\n"
        "    runpy.run_module('launch.pretrain', run_name='__main__')\n"
        "finally:\n"
        "    print('slow:', sorted({'tensorflow', 'tensorflow_federated'} & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project_root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --algorithm=fedAvg: did you mean fedavg? ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == "slow: []\n"
