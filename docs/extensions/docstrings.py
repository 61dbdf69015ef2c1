"""Reference pages from docstrings, which are plain text with single backticks for code.

Before Sphinx reads a docstring as reStructuredText, code becomes literal text, special characters
are escaped, and indented lines outside of sections such as `Args` (equations or examples) become
literal blocks.
"""

import importlib
import pathlib
import pkgutil
import re
from typing import Any

_PACKAGES = ("tff_ssl", "datasets")
_SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields|Example|Examples):$")
_ITEM = re.compile(r"(?:- |\d+\. )")
# Modules that need an extra.
_OPTIONAL = (
    "tff_ssl.evaluation.detection.average_precision",
    "tff_ssl.evaluation.detection.mask_rcnn",
    "tff_ssl.runtime.ray_actor",
)


def to_restructuredtext(lines: list[str]) -> list[str]:
    """Rewrites the lines of a docstring, which share no indentation."""
    result: list[str] = []
    base, in_block, in_section, in_code = 0, False, False, False
    for line in lines:
        indent, text = len(line) - len(line.lstrip()), line.strip()
        # A blank line ends code.
        in_code = bool(text) and (in_code or text.startswith((">>> ", "... ")))
        if in_code or not text:
            result.append(line if text else "")
            continue
        if indent == 0:
            in_section = bool(_SECTION.match(text))
            base = 0
        if in_section:
            result.append(line if _SECTION.match(text) else _escape(line))
            continue
        if indent > base:  # An equation or an example, not a list's continuation.
            if not in_block:
                result += ["", " " * base + "::", ""]
                in_block = True
            result.append(" " * (base + 3) + line[base:])
            continue
        if in_block and result and result[-1]:
            result.append("")
        in_block = False
        base = min(base, indent)
        if item := _ITEM.match(text):
            previous = result[-1] if result else ""
            continues = _ITEM.match(previous.lstrip()) or previous.startswith(" ")
            if previous and base == 0 and not continues:
                result.append("")
            base = indent + len(item[0])
        result.append(_escape(line))
    return result


def _escape(line: str) -> str:
    """Makes code literal text, and escapes the rest."""
    parts = re.split(r"(`[^`]+`)", line)
    for i, part in enumerate(parts):
        if i % 2:
            follows = parts[i + 1][:1]
            parts[i] = f"`{part}`" + ("\\ " if follows.isalnum() or follows == "@" else "")
        else:
            parts[i] = re.sub(r"([*|`]|(?<=\w)_(?!\w))", r"\\\1", part)
    return "".join(parts)


def _process(app, what, name, obj, options, lines):
    lines[:] = to_restructuredtext(_join_code(_without_fences(lines)))


def _without_fences(lines: list[str]) -> list[str]:
    """Drops fences of backticks, and indents what is between them, which makes it literal."""
    fenced, result = False, []
    for line in lines:
        if line.strip().startswith("```"):
            fenced = not fenced
            result.append("")
        else:
            result.append(f"  {line}" if fenced and line.strip() else line)
    return result


def _join_code(lines: list[str]) -> list[str]:
    """Moves code that spans two lines to the first of them."""
    joined: list[str] = []
    for line in lines:
        if joined and joined[-1].count("`") % 2 and line.strip():
            head, tick, rest = line.strip().partition("`")
            joined[-1] += f" {head}{tick}"
            if rest.strip():
                joined.append(" " * (len(line) - len(line.lstrip())) + rest.strip())
        else:
            joined.append(line)
    return joined


def modules(package: str) -> list[str]:
    """Names of all modules of a package, itself included."""
    root = importlib.import_module(package)
    found = pkgutil.walk_packages(root.__path__, f"{package}.")
    return [package, *sorted(module.name for module in found if module.name not in _OPTIONAL)]


def drop_aliases(module: Any) -> None:
    """Removes Python's own texts of fields, "Alias for field number 0", from named tuples."""
    tuples = (v for v in vars(module).values() if isinstance(v, type) and issubclass(v, tuple))
    for value in tuples:
        for name in getattr(value, "_fields", ()):
            field = vars(value).get(name)
            if str(getattr(field, "__doc__", "")).startswith("Alias for field number"):
                field.__doc__ = None


def _write_pages(app):
    """Writes a reference page for each package that has modules."""
    target = pathlib.Path(app.srcdir) / "reference"
    pages: dict[str, list[str]] = {}
    for name in (name for package in _PACKAGES for name in modules(package)):
        parts, module = name.split("."), importlib.import_module(name)
        drop_aliases(module)
        is_package = len(parts) > 2 or hasattr(module, "__path__")
        page = ".".join(parts[:2]) if is_package else parts[0]
        pages.setdefault(page, []).append(name)
    for page, names in pages.items():
        lines = [page, "=" * len(page), ""]
        for name in names:
            if name != page:
                lines += [name, "-" * len(name), ""]
            lines += [f".. automodule:: {name}", "   :members:", "   :ignore-module-all:"]
            lines += ["   :show-inheritance:", ""]
        (target / f"{page}.rst").write_text("\n".join(lines))


def setup(app):
    app.connect("builder-inited", _write_pages)
    app.connect("autodoc-process-docstring", _process, priority=100)  # Before napoleon.
    return {"parallel_read_safe": True, "parallel_write_safe": True}
