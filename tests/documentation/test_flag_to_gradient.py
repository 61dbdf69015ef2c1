"""The page on the way from a flag to a gradient names functions where they are."""

import ast
import re


def test_each_function_is_in_the_file_that_the_page_names(project_root):
    page = (project_root / "docs" / "flag_to_gradient.md").read_text()
    pairs = re.findall(r"`(\w+)` in\s+`([\w/]+\.py)`", page)
    assert len(pairs) > 20
    for name, path in pairs:
        tree = ast.parse((project_root / path).read_text())
        functions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        assert name in functions, (name, path)
