"""The reference: the examples of its first names run, and fields of named tuples are clean."""

import doctest
import functools
import re
import types
from typing import NamedTuple

import pytest

import tff_ssl
from tests.documentation.pages import blocks

NAMES = (
    "train", "Run", "load_run", "evaluate", "embed", "partition", "load_encoder",
    "models.from_keras", "models.from_tff", "build_algorithm",
    "runtime.start",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _extensions(project_root, monkeypatch):
    """Makes the modules of Sphinx's extensions importable; this one does not need Sphinx."""
    monkeypatch.syspath_prepend(str(project_root / "docs" / "extensions"))


@pytest.mark.slow
def test_the_examples_of_the_first_names_run(project_root, tmp_path, monkeypatch):
    page = (project_root / "docs" / "reference" / "index.md").read_text()
    documented = re.findall(r"^\.\. auto(?:function|class):: tff_ssl\.(.*)$", page, re.MULTILINE)
    assert tuple(documented) == NAMES
    (first_lines,) = (b.text for b in blocks("python") if b.page == "docs/reference/index.md")
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(first_lines, namespace)
    for name in NAMES:
        entry = functools.reduce(getattr, name.split("."), tff_ssl)
        examples = doctest.DocTestParser().get_examples(entry.__doc__)
        assert examples, name
        for example in examples:
            if example.want:  # What a training prints beside it is not shown.
                assert f"{eval(example.source, namespace)!r}\n" == example.want, name
            else:
                exec(example.source, namespace)


def test_named_tuples_show_no_alias():
    import docstrings

    class Point(NamedTuple):
        x: int
        y: int

    Point.y.__doc__ = "Height in pixels."
    assert Point.x.__doc__ == "Alias for field number 0"
    docstrings.drop_aliases(types.SimpleNamespace(Point=Point, text="x", number=1))
    assert (Point.x.__doc__, Point.y.__doc__) == (None, "Height in pixels.")
    assert Point(1, 2).x == 1


def test_examples_of_docstrings_are_left_as_they_are():
    import docstrings

    lines = ["Trains.", "", ">>> f(", "...     *x_, **options", "... )", "a*b", "", "Args: *x*"]
    assert docstrings.to_restructuredtext(lines) == [*lines[:-1], r"Args: \*x\*"]
