"""A self-contained HTML page: the frame that run pages, comparisons and reports share.

A page is one file that needs no network. It has a list of its sections, follows the reader's
light or dark colour scheme, and fits screens from 320 pixels on: pictures shrink, and wide tables
and wide pictures scroll by themselves.
"""

import base64
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

Grid = list[list[str]]  # The cells of a table by rows; the first row is the header.

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f23;--soft:#59636e;--line:#d7dce1;--card:#f4f6f8;
--paper:#fff;--link:#0a58b5;--yes:#176117;--no:#a11616;--unshown:#8a5a00;--near:#1a7f37;
--far:#c93c37}
@media (prefers-color-scheme:dark){:root{--ink:#e3e6e9;--soft:#9aa4ae;--line:#343b42;--card:#1c2126;
--paper:#121518;--link:#79b0f5;--yes:#6fce6f;--no:#ff8f87;--unshown:#e0b060;--near:#4cc267;
--far:#ff7b72}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
color:var(--ink);background:var(--paper)}
.frame{max-width:84rem;margin:0 auto;padding:1rem clamp(1rem,3vw,2rem) 3rem}
h1,h2,h3,p,li,figcaption{overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.25rem;line-height:1.3;margin:0 0 .75rem}
h3{font-size:1.02rem;margin:1.25rem 0 .5rem}
section{padding:1.5rem 0 .5rem;border-top:1px solid var(--line);margin-top:1.5rem;
scroll-margin-top:.5rem}
p,ul{max-width:46rem;margin:.6rem 0}
a{color:var(--link)}
nav{font-size:.92rem}
nav ol{list-style:none;margin:.5rem 0;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem}
.scroll,.wide figure{overflow-x:auto;max-width:100%}
.wide img{min-width:min(100%,40rem)}
@media (max-width:40rem){.wide img{min-width:40rem}}
table{border-collapse:collapse;margin:.75rem 0;font-variant-numeric:tabular-nums}
td,th{padding:.28rem .7rem;text-align:right;vertical-align:top;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left;padding-left:0;min-width:7.5rem}
td:not(:first-child){white-space:nowrap}
table.words td,table.words th{text-align:left;white-space:normal;overflow-wrap:anywhere}
table.published,.soft,figcaption{color:var(--soft)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);border-radius:6px;
border:1px solid var(--line);padding:.6rem .8rem;margin:.5rem 0}
pre,code{font:.86rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
img{display:block;max-width:100%;height:auto}
figure{margin:0}
figcaption{font-size:.88rem;margin-top:.35rem}
.figures{display:grid;gap:1.25rem;margin:1rem 0;
grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));align-items:start}
.figures.wide{grid-template-columns:minmax(0,1fr)}
.figures.one>*{max-width:30rem}
.photos{display:grid;gap:.9rem 1.2rem;margin:1rem 0;align-items:end;
grid-template-columns:repeat(auto-fill,minmax(min(100%,10.5rem),1fr))}
.photos.rows{grid-template-columns:repeat(auto-fill,minmax(min(100%,20.5rem),1fr))}
.photo{display:flex;gap:.25rem;flex-wrap:nowrap}
.photo>span{flex:1 1 0;min-width:0;max-width:4.4rem;font-size:.72rem;line-height:1.25;
text-align:center;overflow:hidden;text-overflow:ellipsis}
.photo img{width:100%;border:2px solid transparent;border-radius:3px}
.photo .first{margin-right:.45rem}
.photo .near img{border-color:var(--near)}
.photo .far img{border-color:var(--far);border-style:dashed}
details{margin:.75rem 0}
summary{cursor:pointer;color:var(--link)}
.yes{color:var(--yes)}.no{color:var(--no)}.unshown{color:var(--unshown)}.unknown{color:var(--soft)}
.note{border-left:4px solid var(--unshown);padding:.1rem 0 .1rem .8rem}
@media (prefers-color-scheme:dark){img.chart{filter:invert(1) hue-rotate(180deg)}}
@media (min-width:68rem){.frame{display:grid;grid-template-columns:12.5rem minmax(0,1fr);
gap:0 2.5rem}nav{position:sticky;top:1rem;align-self:start}nav ol{display:block}
nav li{margin:.35rem 0}}
@media print{nav{display:none}.frame{display:block}details>*{display:block}}
"""
_FRAME = Markup(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div class="frame">
<nav aria-label="Contents"><ol>{contents}</ol></nav>
<main>
<h1>{title}</h1>
{lead}
{sections}
</main>
</div>
</body>
</html>
"""
)


class Picture(NamedTuple):
    """A chart.

    Attributes:
      content: A PNG, or an SVG.
      text: Description for readers who do not see it.
      caption: Text below the picture; empty for none.
    """

    content: bytes
    text: str
    caption: str = ""


class Photo(NamedTuple):
    """A small image with a few words below it.

    Attributes:
      content: A PNG or a JPEG.
      text: Words below the image, and for readers who do not see it.
      kind: `near` or `far`, which draws a frame around the image; `first` for the image that a row
        is about; empty for none.
    """

    content: bytes
    text: str
    kind: str = ""


class Page:
    """Collects the sections of a page, in the order of the calls."""

    def __init__(self, title: str):
        """Starts a page; what is added before the first section stands below the title."""
        self._title = title
        self._parts: list[tuple[str, list[Markup]]] = [("", [])]

    def add_section(self, heading: str) -> None:
        """Starts a section, which the contents list names."""
        self._parts.append((heading, []))

    def add_heading(self, text: str) -> None:
        """Adds a heading inside a section."""
        self._add(Markup("<h3>{}</h3>").format(text))

    def add_paragraph(self, text: str, html_class: str = "") -> None:
        """Adds a paragraph; `html_class` may be `soft`, or `note` for a warning."""
        self._add(Markup('<p class="{}">{}</p>').format(html_class, text))

    def add_list(self, items: Iterable[tuple[str, str]], html_class: str = "") -> None:
        """Adds a list of (text, softer text behind it)."""
        shown = Markup("").join(
            Markup('<li>{} <span class="soft">{}</span></li>').format(*item) for item in items
        )
        self._add(Markup('<ul class="{}">{}</ul>').format(html_class, shown))

    def add_verdict(self, text: str, html_class: str) -> None:
        """Adds a heading that is coloured: `yes`, `no`, `unshown` or `unknown`."""
        self._add(Markup('<h3 class="{}">{}</h3>').format(html_class, text))

    def add_grid(self, grid: Grid, html_class: str = "") -> None:
        """Adds a table; with the class `words`, all its cells are aligned to the left."""
        self._add(_table(grid, html_class))

    def add_command(self, explanation: str, command: str) -> None:
        """Adds a command line with an explanation above it."""
        self._add(Markup("<p>{}</p><pre>{}</pre>").format(explanation, command))

    def add_folded(self, summary: str, grid: Grid) -> None:
        """Adds a table of words that is shown when the reader opens it."""
        self._add(
            Markup("<details><summary>{}</summary>{}</details>").format(
                summary, _table(grid, "words")
            )
        )

    def add_pictures(self, pictures: Sequence[Picture], html_class: str = "") -> None:
        """Adds charts, as many beside each other as fit.

        Args:
          pictures: The charts.
          html_class: `wide` for one chart a row, which phones scroll; `one` for charts that need
            little width.
        """
        shown = Markup("").join(map(_figure, pictures))
        self._add(Markup('<div class="figures {}">{}</div>').format(html_class, shown))

    def add_photos(self, rows: Sequence[Sequence[Photo]], html_class: str = "") -> None:
        """Adds rows of small images, as many rows beside each other as fit.

        Args:
          rows: The images of each row.
          html_class: `rows` for rows of six images; else rows have up to three.
        """
        shown = Markup("").join(
            Markup('<div class="photo">{}</div>').format(Markup("").join(map(_photo, row)))
            for row in rows
        )
        self._add(Markup('<div class="photos {}">{}</div>').format(html_class, shown))

    def render(self) -> str:
        """The page."""
        (_, lead), *sections = self._parts
        names = _anchors([heading for heading, _ in sections])
        return _FRAME.format(
            title=self._title,
            style=Markup(_STYLE),
            contents=Markup("").join(
                Markup('<li><a href="#{}">{}</a></li>').format(name, heading)
                for name, (heading, _) in zip(names, sections, strict=True)
            ),
            lead=Markup("\n").join(lead),
            sections=Markup("\n").join(
                Markup('<section id="{}"><h2>{}</h2>\n{}</section>').format(
                    name, heading, Markup("\n").join(parts)
                )
                for name, (heading, parts) in zip(names, sections, strict=True)
            ),
        )

    def _add(self, part: Markup) -> None:
        self._parts[-1][1].append(part)


def _table(grid: Grid, html_class: str) -> Markup:
    rows = [_row(grid[0], "th"), *(_row(row, "td") for row in grid[1:])]
    return Markup('<div class="scroll"><table class="{}">{}</table></div>').format(
        html_class, Markup("").join(rows)
    )


def _row(cells: Sequence[str], tag: str) -> Markup:
    shown = Markup("").join(
        Markup("<{}>{}</{}>").format(Markup(tag), cell, Markup(tag)) for cell in cells
    )
    return Markup("<tr>{}</tr>").format(shown)


def _figure(picture: Picture) -> Markup:
    caption = Markup("<figcaption>{}</figcaption>").format(picture.caption)
    return Markup('<figure><img class="chart" alt="{}" src="{}">{}</figure>').format(
        picture.text, data_address(picture.content), caption if picture.caption else ""
    )


def _photo(photo: Photo) -> Markup:
    image = Markup('<img alt="{}" src="{}">').format(photo.text, data_address(photo.content))
    return Markup('<span class="{}" title="{}">{}{}</span>').format(
        photo.kind, photo.text, image, photo.text
    )


def data_address(content: bytes) -> str:
    """The content of a picture as an address, so that a page needs no other file.

    Args:
      content: A PNG, a JPEG, or an SVG.
    """
    kinds = {b"\x89PNG": "png", b"\xff\xd8": "jpeg"}
    kind = next((name for start, name in kinds.items() if content.startswith(start)), "svg+xml")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _anchors(headings: Sequence[str]) -> list[str]:
    """Names of the headings in addresses, unique."""
    names: list[str] = []
    for heading in headings:
        name = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
        names.append(f"{name}-{len(names)}" if name in names else name)
    return names


def replace_file(path: pathlib.Path, content: bytes) -> pathlib.Path:
    """Writes a file under a temporary name first, so that it is never half-written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.write_bytes(content)
    os.replace(temporary, path)
    return path
