"""Self-contained HTML pages, for runs, comparisons and reports.

A page is one file that needs no network. It has a list of its sections, follows the reader's light
or dark colour scheme, and fits screens of 320 pixels or more: pictures shrink, and wide tables and
wide pictures scroll by themselves.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jinja2

Grid = list[list[str]]  # The cells of a table by rows; the first row is the header.


class Picture(NamedTuple):
    """A chart."""

    content: bytes  #: A PNG or an SVG.
    text: str  #: Description for readers who do not see it.
    caption: str = ""  #: Text below the picture; empty for none.


class Photo(NamedTuple):
    """A small image with a few words below it."""

    content: bytes  #: A PNG or a JPEG.
    text: str  #: Words below the image, and for readers who do not see it.
    #: `near` or `far`, which draws a frame around the image; `first` for the image that a row is
    #: about; empty for none.
    kind: str = ""


class Placed(NamedTuple):
    """A small image on a map."""

    photo: Photo  #: The image.
    x: float  #: Place of its middle from the left, in percent of the map's width.
    y: float  #: Place of its middle from the top, in percent of the map's height.


class Page:
    """Collects the sections of a page, in the order of the calls; `page.html` formats them."""

    def __init__(self, title: str):
        """Starts a page; parts that precede the first section go below the title."""
        self._title = title
        # Heading and parts of each section; a part is a macro of `page.html` and its arguments.
        self._sections: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [("", [])]

    def add_section(self, heading: str) -> None:
        """Starts a section, which is in the contents list."""
        self._sections.append((heading, []))

    def add_heading(self, text: str) -> None:
        """Adds a heading inside a section."""
        self._add("heading", text=text)

    def add_paragraph(self, text: str, html_class: str = "") -> None:
        """Adds a paragraph; `html_class` may be `soft`, or `note` for a warning."""
        self._add("paragraph", text=text, html_class=html_class)

    def add_link(self, text: str, address: str) -> None:
        """Adds a paragraph that ends with a link."""
        self._add("link", text=text, address=address)

    def add_list(self, items: Iterable[tuple[str, str]], html_class: str = "") -> None:
        """Adds a list of (text, softer text after it)."""
        self._add("list", items=list(items), html_class=html_class)

    def add_verdict(self, text: str, html_class: str) -> None:
        """Adds a coloured heading: `yes`, `no`, `unshown` or `unknown`."""
        self._add("verdict", text=text, html_class=html_class)

    def add_grid(self, grid: Grid, html_class: str = "") -> None:
        """Adds a table; the class `words` aligns all its cells to the left."""
        self._add("grid", rows=grid, html_class=html_class)

    def add_command(self, explanation: str, command: str) -> None:
        """Adds a command line with an explanation above it."""
        self._add("command", explanation=explanation, line=command)

    def add_folded(self, summary: str, grid: Grid) -> None:
        """Adds a folded table of words, which the reader can open."""
        self._add("folded", summary=summary, rows=grid)

    def add_pictures(self, pictures: Sequence[Picture], html_class: str = "") -> None:
        """Adds charts, as many side by side as fit.

        `html_class` may be `wide` for one chart a row, which phones scroll, or `one` for charts
        that need little width.
        """
        self._add("figures", pictures=pictures, html_class=html_class)

    def add_photos(self, rows: Sequence[Sequence[Photo]], html_class: str = "") -> None:
        """Adds rows of up to three small images, as many side by side as fit.

        With the class `rows`, a row has up to six. With the class `named`, the words are names of
        files, which are shown in full.
        """
        self._add("photos", rows=rows, html_class=html_class)

    def add_map(self, items: Sequence[Placed], percent: float) -> None:
        """Adds a square map of small images, which are `percent` of its width wide.

        Their words are shown when the pointer is over them. Phones scroll the map.
        """
        self._add("map", items=items, percent=percent)

    def render(self) -> str:
        (_, lead), *sections = self._sections
        names = _anchors([heading for heading, _ in sections])
        parts = [(name, *section) for name, section in zip(names, sections, strict=True)]
        template = _TEMPLATES.get_template("page.html")
        return template.render(title=self._title, lead=lead, sections=parts)

    def _add(self, part: str, **content: Any) -> None:
        self._sections[-1][1].append((part, content))


def data_address(content: bytes) -> str:
    """A PNG, a JPEG or an SVG as an address, so that a page needs no other file."""
    kinds = {b"\x89PNG": "png", b"\xff\xd8": "jpeg"}
    kind = next((name for start, name in kinds.items() if content.startswith(start)), "svg+xml")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("tff_ssl.reporting"), autoescape=True, keep_trailing_newline=True
)
_TEMPLATES.filters["data_address"] = data_address


def _anchors(headings: Sequence[str]) -> list[str]:
    """Unique names of the headings for addresses."""
    names: list[str] = []
    for heading in headings:
        name = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
        names.append(f"{name}-{len(names)}" if name in names else name)
    return names
