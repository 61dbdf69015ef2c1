"""`report.md` and `report.html` of an experiment, made from the records of its runs."""

import dataclasses
import math
import pathlib
import re
from collections.abc import Mapping, Sequence

from tff_ssl import whole_files
from tff_ssl.reporting import measured, methods, pictures, references, verdicts
from tff_ssl.reporting.document import Document
from tff_ssl.reporting.experiment import Experiment, Table
from tff_ssl.reporting.measured import Selector, TableValues, Value
from tff_ssl.reporting.methods import Method
from tff_ssl.reporting.page import Grid
from tff_ssl.reporting.records import Records

_NONE = "-"
_SMALL_COUNT = 10  # Mean counts below it are shown with a decimal.

AllValues = Mapping[str, TableValues]  # title of a table -> its figures
FurtherRows = Mapping[str, Mapping[str, Value]]  # row -> its figures by column
# title of a panel -> name of the method and (round, accuracy) pairs of each line
Panels = dict[str, list[tuple[str, list[tuple[int, float]]]]]


def choose_cells(records: Records, experiment: Experiment) -> dict[str, str]:
    """The chosen cell of each choice that has one (see `Experiment.choices`).

    A choice has none until all of its cells have a run; before, the first cell to run would win.
    """
    chosen = {}
    for choice, cells in experiment.choices.items():
        accuracies = _training_accuracies(records, experiment, cells)
        if not any(map(math.isnan, accuracies.values())):
            chosen[choice] = max(accuracies, key=accuracies.__getitem__)
    return chosen


def _training_accuracies(
    records: Records, experiment: Experiment, cells: Sequence[str]
) -> dict[str, float]:
    return {
        cell: measured.select(records.runs.get(cell, {}), experiment.chosen_by).with_failures()
        for cell in cells
    }


def choice_grid(records: Records, experiment: Experiment) -> Grid:
    """Formats the choices that have been made: the cells' accuracies, and the chosen cell."""
    probe = "kNN accuracy" if experiment.chosen_by == measured.MONITORED else "linear probe"
    grid = [["choice", f"{probe} on training images (%)", "chosen"]]
    for choice, cell in choose_cells(records, experiment).items():
        accuracies = _training_accuracies(records, experiment, experiment.choices[choice])
        shown = (f"{name} {100 * accuracy:.1f}" for name, accuracy in accuracies.items())
        grid.append([choice, ", ".join(shown), cell])
    return grid


def read_table_values(
    records: Records, table: Table, chosen: Mapping[str, str] | None = None
) -> dict[tuple[str, str], Value]:
    """The figures of a table, where `chosen` is the result of `choose_cells`.

    A row of one cell has its figure in every column.
    """
    chosen = chosen or {}
    values = {}
    for row, cells in table.rows.items():
        selector = table.selectors.get(row, table.selector)
        for i, column in enumerate(table.columns):
            cell = cells[i if len(cells) > 1 else 0]
            runs = records.runs.get(chosen.get(cell, cell), {}) if cell else {}
            values[row, column] = measured.select(runs, selector)
    return values


def measured_grid(
    table: Table,
    values: TableValues,
    further: FurtherRows | None = None,
) -> Grid:
    """Formats a table's measured figures, with notes on missing and failed seeds.

    `further` has more rows, of figures by column (`references.values`).
    """
    seeds = max((value.seeds + value.failed for value in values.values()), default=0)
    grid = [[table.with_unit("measured"), *table.columns]]
    for row, cells in table.rows.items():
        texts = [_format_value(values[row, c], table.percent, seeds) for c in table.columns]
        for i, cell in enumerate(cells):
            if cell is None:
                texts[i] = _NONE
        grid.append([row, *(_keep_first(texts) if len(cells) == 1 else texts)])
    for row, found in (further or {}).items():
        texts = [_format_value(found[c], True, 0) if c in found else _NONE for c in table.columns]
        grid.append([row, *texts])
    return grid


def logistic_table(table: Table) -> Table:
    """The table with logistic regression's figures in place of another linear probe's.

    Other figures, and those of runs without `--also_logistic`, are not measured in it.
    """

    def beside(selector: Selector) -> Selector:
        protocol = re.sub(r"^(linear|transfer)(?!_logistic)", r"\1_logistic", selector.protocol)
        other = "" if protocol == selector.protocol else protocol
        return selector._replace(protocol=other)

    return dataclasses.replace(
        table,
        selector=beside(table.selector),
        selectors={row: beside(selector) for row, selector in table.selectors.items()},
    )


def logistic_grid(records: Records, table: Table, chosen: Mapping[str, str] | None = None) -> Grid:
    """Formats the figures of `logistic_table` that were measured; only a header if none was."""
    beside = logistic_table(table)
    grid = measured_grid(beside, read_table_values(records, beside, chosen))
    grid[0][0] = table.with_unit("by logistic regression")
    return [grid[0], *(row for row in grid[1:] if set(row[1:]) - {_NONE, "not run", "failed", ""})]


def published_grid(table: Table) -> Grid:
    grid = [[table.with_unit("published"), *table.columns]]
    for row, figures in table.published.items():
        texts = [_format_published(figure, table.percent) for figure in figures]
        grid.append([row, *(_keep_first(texts * len(table.columns)) if len(texts) == 1 else texts)])
    return grid


def _keep_first(texts: Sequence[str]) -> list[str]:
    """Blanks all texts but the first, for a row with one figure for all columns."""
    return [texts[0], *[""] * (len(texts) - 1)]


def _format_value(value: Value, percent: bool, seeds: int) -> str:
    if math.isnan(value.mean):
        return "failed" if value.failed else "not run"
    note = f" ({value.failed} failed)" if value.failed else ""
    if value.seeds + value.failed < seeds:
        note += f" ({value.seeds + value.failed} of {seeds} seeds)"
    if not percent:
        # Most counts are the same for all seeds.
        decimals = 1 if abs(value.mean) < _SMALL_COUNT and value.mean % 1 else 0
        deviation = f" ± {value.std:,.{decimals}f}" if value.std else ""
        return f"{value.mean:,.{decimals}f}{deviation}{note}"
    deviation = f" ± {100 * value.std:.1f}" if value.seeds > 1 else ""
    return f"{100 * value.mean:.1f}{deviation}{note}"


def _format_published(figure: float | str | None, percent: bool) -> str:
    if figure is None:
        return _NONE
    if isinstance(figure, str):
        return figure
    return f"{figure:.1f}" if percent else f"{figure:,.5g}"


def run_grid(records: Records, experiment: Experiment) -> Grid:
    """Formats the traffic and the training time of each cell's runs."""
    traffic_header = "MB down and up a client and round"
    grid = [["method", "seeds", traffic_header, "minutes of training", "folder"]]
    labels = {cell: method.label for cell, method in methods.methods_of_cells(experiment).items()}
    for cell in experiment.cells:
        runs = [run for run in records.of_cell(cell.name) if run.entries]
        down = measured.first(runs, "bytes_down_per_client_and_round")
        up = measured.first(runs, "bytes_up_per_client_and_round")
        traffic = f"{down / 1e6:.2f} + {up / 1e6:.2f}" if down is not None else _NONE
        minutes = [m for run in runs if (m := run.training.get("training_minutes"))]
        mean_minutes = f"{sum(minutes) / len(minutes):.1f}" if minutes else _NONE
        grid.append([labels[cell.name], str(len(runs)), traffic, mean_minutes, cell.name])
    return grid


def read_values(records: Records, experiment: Experiment) -> AllValues:
    """The figures of all tables, by title."""
    chosen = choose_cells(records, experiment)
    return {table.title: read_table_values(records, table, chosen) for table in experiment.tables}


def claim_rows(experiment: Experiment, values: AllValues) -> list[tuple[str, str, str]]:
    """For each claim, the title of its table, its text, and its verdict."""
    tables = {table.title: table for table in experiment.tables}
    return [
        (claim.table, claim.text, verdicts.check(claim, tables[claim.table], values[claim.table]))
        for claim in experiment.claims
    ]


def write(
    folder: pathlib.Path,
    records: Records,
    experiment: Experiment,
    more_pictures: Mapping[str, pathlib.Path],
) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes `report.md` and the self-contained `report.html` to a folder; returns their paths.

    `more_pictures` has captions and PNGs in the folder that are shown after the tables.
    """
    values, styles = read_values(records, experiment), methods.method_styles(experiment)
    further = further_rows(records, experiment)
    shown_pictures = {
        caption: whole_files.write(folder / f"picture_{number}.png", picture)
        for number, (caption, picture) in enumerate(
            draw_pictures(records, experiment, values).items(), 1
        )
        if picture
    }
    shown_pictures.update(more_pictures)
    document = Document(experiment.title, folder)
    for note in (*_progress_notes(records, experiment), *experiment.notes):
        document.add_paragraph(note)
    for number, table in enumerate(experiment.tables, 1):
        document.add_heading(table.title)
        own, rows = values[table.title], further[table.title]
        for html_class, grid in grids(records, experiment, table, own, rows):
            document.add_grid(grid, html_class)
        bound = rows.get(references.ROWS["raw_pixels"], {})
        picture = pictures.draw_table(table, own, styles, bound)
        if picture:
            path = whole_files.write(folder / f"table_{number}.png", picture)
            document.add_picture(table.title, path)
    choices = choice_grid(records, experiment)
    if len(choices) > 1:
        document.add_heading("Choices on training images")
        document.add_grid(choices, "choices")
    document.add_heading("Claims, in the measured tables")
    document.add_claims(claim_rows(experiment, values))
    for caption, path in shown_pictures.items():
        document.add_heading(caption)
        document.add_picture(caption, path)
    document.add_heading("Runs")
    document.add_grid(run_grid(records, experiment), "runs")
    return document.write("report")


def further_rows(records: Records, experiment: Experiment) -> dict[str, FurtherRows]:
    """The rows of `references.values` for each table, by its title."""
    chosen, scores = choose_cells(records, experiment), references.of_report(records)
    return {
        table.title: references.values(records, table, scores, chosen)
        for table in experiment.tables
    }


def grids(
    records: Records, experiment: Experiment, table: Table, values: TableValues,
    further: FurtherRows,
) -> list[tuple[str, Grid]]:  # fmt: skip
    """The table's non-empty grids, each as (`measured` or `published`, grid)."""
    found = [
        ("measured", measured_grid(table, values, further)),
        ("measured", logistic_grid(records, table, choose_cells(records, experiment))),
        ("published", published_grid(table)),
    ]
    return [(kind, grid) for kind, grid in found if len(grid) > 1]


def draw_pictures(
    records: Records, experiment: Experiment, values: AllValues
) -> dict[str, bytes | None]:
    """The pictures that belong to no single table: PNGs by caption, None without figures."""
    styles = methods.method_styles(experiment)
    tables = {table.title: table for table in experiment.tables}
    drawn = {
        f"{gain}, against {cost[0].lower()}{cost[1:]}": pictures.draw_against(
            tables[cost], values[cost], tables[gain], values[gain], styles
        )
        for cost, gain in experiment.against
    }
    cells = methods.methods_of_cells(experiment, choose_cells(records, experiment))
    of_labels = {method.label: styles[method.name] for method in cells.values()}
    drawn["Learning curves (first seed)"] = pictures.draw_curves(
        _read_curves(records, experiment, cells), styles
    )
    drawn["Learning curves against costs"] = pictures.draw_curves_against(
        _read_costs(records, experiment, cells), experiment.costs, of_labels
    )
    return drawn


def _read_curves(records: Records, experiment: Experiment, cells: Mapping[str, Method]) -> Panels:
    """The kNN accuracy on training images of each cell's first seed, panels in tables' order."""
    panels: Panels = {column: [] for table in experiment.tables for column in table.columns}
    for cell, method in cells.items():
        points = [
            (number, accuracy)
            for run in records.of_cell(cell)[:1]
            for number, accuracy in run.training.get("knn", [])
        ]
        for panel in method.panels:
            panels.setdefault(panel, []).append((method.name, points))
    return panels


def _read_costs(
    records: Records, experiment: Experiment, cells: Mapping[str, Method]
) -> dict[str, list[dict[str, list[float]]]]:
    """Each cell's kNN accuracies and costs at its longest runs' monitored rounds, by label."""
    curves = {}
    names = [name for name in experiment.costs.values() if name != measured.ROUND]
    for cell, method in cells.items() if experiment.costs else ():
        summaries = [run.training for run in records.of_cell(cell)]
        points = [len(summary.get("knn", ())) for summary in summaries]
        curves[method.label] = [
            {
                "accuracy": [accuracy for _, accuracy in summary["knn"]],
                measured.ROUND: [number for number, _ in summary["knn"]],
                **{name: summary[name] for name in names},
            }
            for summary, count in zip(summaries, points, strict=True)
            # An unfinished run has fewer points; an old summary has no costs.
            if count == max(points) and set(names) <= summary.keys()
        ]
    return curves


def _progress_notes(records: Records, experiment: Experiment) -> list[str]:
    """A note while runs are missing."""
    done = [
        sum(bool(run.entries or run.failure) for run in records.of_cell(cell.name))
        for cell in experiment.cells
    ]
    total = max(done, default=0) * len(done)
    if sum(done) == total:
        return []
    return [
        f"{sum(done)} of {total} runs are done. Figures and claims are of those; more may change "
        "them."
    ]
