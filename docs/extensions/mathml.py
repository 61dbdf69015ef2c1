"""Renders equations as MathML, which browsers draw without JavaScript or a network."""

import functools

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def _visit(translator, node, display):
    if "&" in node.astext():
        raise ValueError(f"latex2mathml does not align equations: {node.astext()}")
    element = "div" if display == "block" else "span"
    html = convert(node.astext(), display=display)
    translator.body.append(f'<{element} class="equation">{html}</{element}>')
    raise SkipNode


def setup(app):
    inline, block = (functools.partial(_visit, display=one) for one in ("inline", "block"))
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
