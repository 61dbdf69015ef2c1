"""Tutorials are programs that run wherever tff_ssl can be imported, also as notebooks."""

import ast
import re

import pytest

from tests.documentation.pages import ROOT

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_uses_the_packages_and_no_scripts(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    assert "tff_ssl" in imported
    assert not imported & {"docs", "launch", "subprocess", "tests"}


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_cells_of_its_notebook_are_those_of_the_program(path):
    notebook = pytest.importorskip("sphinx_gallery.notebook")
    parser = pytest.importorskip("sphinx_gallery.py_source_parser")
    from sphinx_gallery import gen_gallery

    _, blocks = parser.split_code_and_text_blocks(str(path))
    cells = notebook.jupyter_notebook(blocks, gen_gallery.DEFAULT_GALLERY_CONF, str(path.parent))
    code = "\n".join("".join(c["source"]) for c in cells["cells"] if c["cell_type"] == "code")
    program = ast.parse(path.read_text())
    program.body = program.body[1:]  # The docstring is a cell of text.
    assert ast.dump(ast.parse(code)) == ast.dump(program)
    assert not re.search(r"^\s*[%!]", code, re.MULTILINE)
