"""A document that is written as Markdown and as self-contained HTML."""

import pathlib
import urllib.parse
from collections.abc import Sequence

from tff_ssl import whole_files
from tff_ssl.reporting.page import Grid, Page, Picture

# Verdicts of `verdicts.check`, in a report's order -> classes of the page.
_VERDICT_CLASSES = {
    "holds": "yes",
    "does not hold": "no",
    "not shown": "unshown",
    "not measured": "unknown",
}


class Document:
    """Collects the parts of a document, in the order of the calls, and writes them to two files."""

    def __init__(self, title: str, folder: pathlib.Path):
        """Starts a document in the folder, which also has the pictures at any depth."""
        self._folder = folder
        self._markdown = [f"# {title}", ""]
        self._page = Page(title)

    def add_heading(self, text: str) -> None:
        """Adds a heading of the second level, which is in the page's contents list."""
        self._markdown += [f"## {text}", ""]
        self._page.add_section(text)

    def add_paragraph(self, text: str) -> None:
        """Adds a paragraph; the Markdown is not escaped."""
        self._markdown += [text, ""]
        self._page.add_paragraph(text)

    def add_grid(self, grid: Grid, html_class: str) -> None:
        lines = ["| " + " | ".join(row) + " |" for row in grid]
        self._markdown += [lines[0], "|" + "---|" * len(grid[0]), *lines[1:], ""]
        self._page.add_grid(grid, html_class)

    def add_picture(self, caption: str, path: pathlib.Path) -> None:
        """Adds a PNG of the folder; the HTML includes its content."""
        # An address in Markdown may not contain spaces.
        address = urllib.parse.quote(path.relative_to(self._folder).as_posix())
        self._markdown += [f"![{caption}]({address})", ""]
        self._page.add_pictures([Picture(path.read_bytes(), caption)], "wide")

    def add_claims(self, claims: Sequence[tuple[str, str, str]]) -> None:
        """Adds claims by verdict: (title of the table, claim, verdict of `verdicts.check`)."""
        for verdict, html_class in _VERDICT_CLASSES.items():
            items = [(text, f"({title})") for title, text, given in claims if given == verdict]
            if not items:
                continue
            heading = f"{verdict[0].upper()}{verdict[1:]}: {len(items)} of {len(claims)}"
            self._page.add_verdict(heading, html_class)
            self._page.add_list(items)
            lines = [f"- {text} {title}" for text, title in items]
            self._markdown += [f"### {heading}", "", *lines, ""]

    def write(self, name: str) -> tuple[pathlib.Path, pathlib.Path]:
        """Writes `NAME.md` and `NAME.html` to the folder; returns their paths."""
        return (
            whole_files.write(self._folder / f"{name}.md", "\n".join(self._markdown)),
            whole_files.write(self._folder / f"{name}.html", self._page.render()),
        )
