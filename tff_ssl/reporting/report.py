"""`report.md` and `report.html` of an experiment, from its result files."""

import base64
import html
import math
import os
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from tff_ssl.reporting import measured, pictures
from tff_ssl.reporting.experiment import Cell, Experiment, Table, check
from tff_ssl.reporting.measured import Value

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;
color:#1a1a1a}table{border-collapse:collapse;margin:1rem 0}
td,th{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}.published{color:#777}
img{max-width:100%}.yes{color:#176117}.no{color:#a11616}.unknown{color:#777}"""
_NONE = "-"
_MARKS = {"holds": "yes", "does not hold": "no", "not measured": "unknown"}

Grid = list[list[str]]
AllValues = Mapping[str, Mapping[tuple[str, str], Value]]


def runs_of(folder: pathlib.Path, cell: str) -> list[pathlib.Path]:
    """The runs of a cell, one a seed."""
    return sorted((folder / cell).glob("seed*"))


def values_of(folder: pathlib.Path, table: Table) -> dict[tuple[str, str], Value]:
    """(row, column) -> figure; a row of one cell has it in every column."""
    values = {}
    for row, cells in table.rows.items():
        selector = table.selectors.get(row, table.selector)
        for i, column in enumerate(table.columns):
            cell = cells[i if len(cells) > 1 else 0]
            runs = runs_of(folder, cell) if cell else []
            values[row, column] = measured.select(runs, selector)
    return values


def measured_grid(table: Table, values: Mapping[tuple[str, str], Value]) -> Grid:
    """The measured table, header first; figures of fewer seeds than others say so."""
    seeds = max((value.seeds + value.failed for value in values.values()), default=0)
    grid = [[f"measured{_unit(table)}", *table.columns]]
    for row, cells in table.rows.items():
        shown = [_figure(values[row, column], table.percent, seeds) for column in table.columns]
        for i, cell in enumerate(cells):
            if cell is None:
                shown[i] = _NONE
        grid.append([row, *(_once(shown) if len(cells) == 1 else shown)])
    return grid


def published_grid(table: Table) -> Grid:
    """The paper's table, header first."""
    grid = [[f"published{_unit(table)}", *table.columns]]
    digits = "{:.1f}".format if table.percent else "{:,.5g}".format
    for row, figures in table.published.items():
        shown = [_NONE if f is None else f if isinstance(f, str) else digits(f) for f in figures]
        grid.append([row, *(_once(shown * len(table.columns)) if len(shown) == 1 else shown)])
    return grid


def _once(shown: Sequence[str]) -> list[str]:
    return [shown[0], *[""] * (len(shown) - 1)]


def _unit(table: Table) -> str:
    return " (%)" if table.percent else ""


def _figure(value: Value, percent: bool, seeds: int) -> str:
    if math.isnan(value.mean):
        return "failed" if value.failed else "not run"
    note = f" ({value.failed} failed)" if value.failed else ""
    if value.seeds + value.failed < seeds:
        note += f" ({value.seeds + value.failed} of {seeds} seeds)"
    if not percent:
        deviation = f" ± {value.std:,.0f}" if value.std else ""  # Of most counts there is none.
        return f"{value.mean:,.0f}{deviation}{note}"
    deviation = f" ± {100 * value.std:.1f}" if value.seeds > 1 else ""
    return f"{100 * value.mean:.1f}{deviation}{note}"


def run_grid(folder: pathlib.Path, cells: Sequence[Cell]) -> Grid:
    """What each cell's runs cost."""
    grid = [["run", "seeds", "MB down and up a client and round", "minutes of training"]]
    for cell in cells:
        runs = [r for r in runs_of(folder, cell.name) if measured.read_results(r)]
        down = measured.first_extra(runs, "bytes_down_per_client_and_round")
        up = measured.first_extra(runs, "bytes_up_per_client_and_round")
        size = f"{down / 1e6:.2f} + {up / 1e6:.2f}" if down is not None else _NONE
        minutes = [spent for run in runs if (spent := _training(run).get("training_minutes"))]
        shown = f"{sum(minutes) / len(minutes):.1f}" if minutes else _NONE
        grid.append([cell.name, str(len(runs)), size, shown])
    return grid


def _training(run: pathlib.Path) -> Mapping[str, Any]:
    """Minutes and curve of a run: noted at its end, or as far as it is."""
    noted = measured.read_summary(run)
    return noted if "knn" in noted else measured.summarize_training(run)


def read_values(folder: pathlib.Path, experiment: Experiment) -> AllValues:
    """Title of a table -> its figures."""
    return {table.title: values_of(folder, table) for table in experiment.tables}


def claim_rows(experiment: Experiment, values: AllValues) -> list[tuple[str, str, str]]:
    """(table, claim, `holds` / `does not hold` / `not measured`)."""
    tables = {table.title: table for table in experiment.tables}
    return [
        (claim.table, claim.text, check(claim, tables[claim.table], values[claim.table]))
        for claim in experiment.claims
    ]


def _curves(folder: pathlib.Path, experiment: Experiment) -> dict[str, list[tuple[int, float]]]:
    """Each cell's kNN accuracy on training images over rounds, first seed."""
    return {
        cell.name: [
            (number, accuracy)
            for run in runs_of(folder, cell.name)[:1]
            for number, accuracy in _training(run).get("knn", [])
        ]
        for cell in experiment.cells
    }


def _progress(folder: pathlib.Path, experiment: Experiment) -> list[str]:
    """A note while runs are missing."""
    done = [
        sum(bool(measured.read_results(run)) or (run / measured.FAILED).exists() for run in runs)
        for runs in (runs_of(folder, cell.name) for cell in experiment.cells)
    ]
    total = max(done, default=0) * len(done)
    if sum(done) == total:
        return []
    return [
        f"{sum(done)} of {total} runs are done. Figures and claims are of those; more may change "
        "them."
    ]


def _draw_against(experiment: Experiment, values: AllValues) -> dict[str, bytes | None]:
    """Title -> picture of two tables against one another."""
    tables = {table.title: table for table in experiment.tables}
    return {
        f"{gain}, against {cost[0].lower()}{cost[1:]}": pictures.draw_against(
            tables[cost], values[cost], tables[gain], values[gain]
        )
        for cost, gain in experiment.against
    }


def write(
    folder: pathlib.Path, experiment: Experiment, more_pictures: Mapping[str, pathlib.Path]
) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes `report.md` and the self-contained `report.html`.

    Args:
      folder: Of the experiment; cell C's run of seed s is in `C/seed<s>/`.
      experiment: What was run.
      more_pictures: Caption -> PNG in `folder`, shown after the tables.

    Returns:
      Their paths.
    """
    values = read_values(folder, experiment)
    drawn = _draw_against(experiment, values)
    drawn["Learning curves (first seed)"] = pictures.draw_curves(_curves(folder, experiment))
    shown = {
        caption: _written(folder / f"picture_{number}.png", picture)
        for number, (caption, picture) in enumerate(drawn.items(), 1)
        if picture
    }
    shown |= more_pictures
    markdown, page = [f"# {experiment.title}", ""], [f"<h1>{html.escape(experiment.title)}</h1>"]
    for note in (*_progress(folder, experiment), *experiment.notes):
        markdown += [note, ""]
        page.append(f"<p>{html.escape(note)}</p>")
    for number, table in enumerate(experiment.tables, 1):
        markdown += [f"## {table.title}", ""]
        page.append(f"<h2>{html.escape(table.title)}</h2>")
        for name, grid in (
            ("measured", measured_grid(table, values[table.title])),
            ("published", published_grid(table)),
        ):
            if len(grid) > 1:
                markdown += [*_markdown(grid), ""]
                page.append(_html(grid, name))
        picture = pictures.draw_table(table, values[table.title])
        if picture:
            path = _written(folder / f"table_{number}.png", picture)
            markdown += [f"![{table.title}]({path.name})", ""]
            page.append(_img(table.title, path))
    markdown += ["## Claims, in the measured tables", ""]
    page.append("<h2>Claims, in the measured tables</h2><ul>")
    for title, text, verdict in claim_rows(experiment, values):
        markdown.append(f"- **{verdict}**: {text} ({title})")
        page.append(
            f'<li><b class="{_MARKS[verdict]}">{verdict}</b>: {html.escape(text)} '
            f"({html.escape(title)})</li>"
        )
    page.append("</ul>")
    markdown.append("")
    for caption, path in shown.items():
        # Markdown takes no blanks in an address.
        address = urllib.parse.quote(path.relative_to(folder).as_posix())
        markdown += [f"## {caption}", "", f"![{caption}]({address})", ""]
        page.append(f"<h2>{html.escape(caption)}</h2>{_img(caption, path)}")
    grid = run_grid(folder, experiment.cells)
    markdown += ["## Runs", "", *_markdown(grid), ""]
    page += ["<h2>Runs</h2>", _html(grid, "runs")]
    whole = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{html.escape(experiment.title)}</title><style>{_STYLE}</style>"
        f"<body>{''.join(page)}</body></html>\n"
    )
    _replace(folder / "report.md", "\n".join(markdown).encode())
    _replace(folder / "report.html", whole.encode())
    return folder / "report.md", folder / "report.html"


def _markdown(grid: Grid) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in grid]
    return [lines[0], "|" + "---|" * len(grid[0]), *lines[1:]]


def _img(caption: str, path: pathlib.Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'


def _html(grid: Grid, kind: str) -> str:
    def cells(row, tag):
        return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in grid[1:])
    return f'<table class="{kind}"><tr>{cells(grid[0], "th")}</tr>{body}</table>'


def _written(path: pathlib.Path, content: bytes) -> pathlib.Path:
    _replace(path, content)
    return path


def _replace(path: pathlib.Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.write_bytes(content)
    os.replace(temporary, path)
