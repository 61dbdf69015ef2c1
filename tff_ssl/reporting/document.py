"""A document that is written both as Markdown and as self-contained HTML."""

import base64
import html
import os
import pathlib
import urllib.parse
from collections.abc import Sequence

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;
color:#1a1a1a}table{border-collapse:collapse;margin:1rem 0}
td,th{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}.published{color:#777}
img{max-width:100%}.yes{color:#176117}.no{color:#a11616}.unshown{color:#8a5a00}
.unknown{color:#777}"""
_VERDICT_CLASSES = {
    "holds": "yes",
    "does not hold": "no",
    "not shown": "unshown",
    "not measured": "unknown",
}

Grid = list[list[str]]  # The cells of a table by rows; the first row is the header.


class Document:
    """Collects the parts of a document, in the order of the calls, and writes them to two files."""

    def __init__(self, title: str, folder: pathlib.Path):
        """Starts a document.

        Args:
          title: Title of the document.
          folder: Folder of the two files and, at any depth, of the pictures.
        """
        self._title = title
        self._folder = folder
        self._markdown = [f"# {title}", ""]
        self._html = [f"<h1>{html.escape(title)}</h1>"]

    def add_heading(self, text: str) -> None:
        """Adds a heading of the second level."""
        self._markdown += [f"## {text}", ""]
        self._html.append(f"<h2>{html.escape(text)}</h2>")

    def add_paragraph(self, text: str) -> None:
        """Adds a paragraph; the Markdown is not escaped."""
        self._markdown += [text, ""]
        self._html.append(f"<p>{html.escape(text)}</p>")

    def add_grid(self, grid: Grid, html_class: str) -> None:
        """Adds a table."""
        lines = ["| " + " | ".join(row) + " |" for row in grid]
        self._markdown += [lines[0], "|" + "---|" * len(grid[0]), *lines[1:], ""]
        rows = [_html_row(grid[0], "th"), *(_html_row(row, "td") for row in grid[1:])]
        self._html.append(f'<table class="{html_class}">{"".join(rows)}</table>')

    def add_picture(self, caption: str, path: pathlib.Path) -> None:
        """Adds a PNG of the folder, in HTML with its content."""
        # An address in Markdown may not contain blanks.
        address = urllib.parse.quote(path.relative_to(self._folder).as_posix())
        self._markdown += [f"![{caption}]({address})", ""]
        data = base64.b64encode(path.read_bytes()).decode()
        self._html.append(f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">')

    def add_claims(self, claims: Sequence[tuple[str, str, str]]) -> None:
        """Adds a list of (title of the table, claim, verdict as of `experiment.check`)."""
        items = []
        for title, text, verdict in claims:
            self._markdown.append(f"- **{verdict}**: {text} ({title})")
            items.append(
                f'<li><b class="{_VERDICT_CLASSES[verdict]}">{verdict}</b>: {html.escape(text)} '
                f"({html.escape(title)})</li>"
            )
        self._markdown.append("")
        self._html.append(f"<ul>{''.join(items)}</ul>")

    def write(self, name: str) -> tuple[pathlib.Path, pathlib.Path]:
        """Writes `NAME.md` and `NAME.html` to the folder; returns their paths."""
        page = (
            '<!doctype html><html lang="en"><meta charset="utf-8">'
            f"<title>{html.escape(self._title)}</title><style>{_STYLE}</style>"
            f"<body>{''.join(self._html)}</body></html>\n"
        )
        return (
            replace_file(self._folder / f"{name}.md", "\n".join(self._markdown).encode()),
            replace_file(self._folder / f"{name}.html", page.encode()),
        )


def _html_row(row: Sequence[str], tag: str) -> str:
    cells = "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row)
    return f"<tr>{cells}</tr>"


def replace_file(path: pathlib.Path, content: bytes) -> pathlib.Path:
    """Writes a file under a temporary name first, so that it is never half-written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.write_bytes(content)
    os.replace(temporary, path)
    return path
