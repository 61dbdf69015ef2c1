"""Renders equations as MathML, which browsers draw without JavaScript or a network."""

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def _visit_math(translator, node):
    _add(translator, node, "inline")


def _visit_displaymath(translator, node):
    _add(translator, node, "block")


def _add(translator, node, display):
    if "&" in node.astext():
        raise ValueError(f"latex2mathml does not align equations: {node.astext()}")
    element = "div" if display == "block" else "span"
    html = convert(node.astext(), display=display)
    translator.body.append(f'<{element} class="equation">{html}</{element}>')
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
