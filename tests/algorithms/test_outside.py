"""Algorithms of modules outside the repository, named `package.module:ENTRY`."""

import sys

import pytest

from launch.options import presets
from tff_ssl.algorithms import registry
from tff_ssl.errors import ConfigurationError

MODULE = """
import dataclasses
from tff_ssl.algorithms.registry import ALGORITHMS
ENTRY = dataclasses.replace(ALGORITHMS["fedavg"], summary="a stranger's", objectives=("simsiam",))
LIKE_FEDBN = ALGORITHMS["fedbn"]
NUMBER = 3
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Writes modules of a package `lab`, which is not in this repository."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lab").mkdir()

    def write(name, text):
        (tmp_path / "lab" / f"{name}.py").write_text(text)

    yield write
    for name in [name for name in sys.modules if name.split(".")[0] == "lab"]:
        del sys.modules[name]


def test_an_entry_is_found_with_the_preset_of_its_kind(outside):
    outside("strange", MODULE)
    before = dict(registry.ALGORITHMS)
    entry = registry.find("lab.strange:ENTRY", "simsiam")
    assert entry.summary == "a stranger's"
    kinds = {"ENTRY": "stateless_clients", "LIKE_FEDBN": "stateful_clients"}
    for name, kind in kinds.items():
        path = presets.of_algorithm(f"lab.strange:{name}")
        assert path == presets.FOLDER / "digits" / "kinds" / f"{kind}.flags"
    with pytest.raises(ConfigurationError, match=r"--objective of lab.strange:ENTRY must be one"):
        registry.find("lab.strange:ENTRY", "cco")
    assert before == registry.ALGORITHMS


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("strange", "or package.module:ENTRY for an algorithm of your own; got 'strange'"),
        ("lab.nosuch:ENTRY", "there is no module lab.nosuch; .* on PYTHONPATH"),
        ("nosuch.strange:ENTRY", "there is no module nosuch; "),
        (":ENTRY", "give package.module:ENTRY"),
        ("lab.strange:", "give package.module:ENTRY"),
        ("lab.strange:WRONG", "lab.strange has no 'WRONG', and its entries are ENTRY, LIKE_FEDBN"),
        ("lab.strange:NUMBER", "lab.strange has NUMBER, of another type, and its entries"),
        ("lab.empty:ENTRY", "has no 'ENTRY', and it has none"),
        ("lab.needs:ENTRY", r"imported: ModuleNotFoundError: .*'numpie' .*needs.py, line 2"),
        ("lab.broken:ENTRY", r"cannot be imported: SyntaxError: .*broken.py, line 1"),
        ("lab.fails:ENTRY", r"cannot be imported: ZeroDivisionError: .*fails.py, line 1"),
    ],
)
def test_a_wrong_name_is_answered_in_one_line(outside, name, message):
    outside("strange", MODULE)
    outside("empty", "")
    outside("needs", "\nimport numpie\n")
    outside("broken", "x = (\n")
    outside("fails", "1 / 0\n")
    with pytest.raises(ConfigurationError, match=message) as raised:
        registry.find(name, None)
    assert "\n" not in str(raised.value)
    assert "--algorithm" in str(raised.value)
    assert presets.of_algorithm(name) is None
