"""The methods of an experiment, with one name and colour in all its pictures."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tff_ssl.reporting.experiment import Experiment, Table

# Matplotlib's default colours except brown and grey, which are for baselines.
COLOURS = ("C0", "C1", "C2", "C3", "C4", "C6", "C8", "C9")
_LINE_STYLES = ("-", "--", ":", "-.")
_BASELINE_COLOURS = {
    "raw_pixels": "C5", "random_encoder": "C7", "pretrained_encoder": "k",
    "imagenet_encoder": "#b8860b",
}  # fmt: skip

Styles = Mapping[str, Mapping[str, Any]]  # Name of a method -> Matplotlib's options of its line.


class Method(NamedTuple):
    """The names of a cell in the tables."""

    name: str  #: Name of the method: that of the cell's row.
    setting: str  #: Name of the cell's column; empty if the row has one cell for all columns.
    #: Panels of learning curves that show the cell: its column, or all columns that its row holds
    #: for; one empty name if the table has only one column.
    panels: tuple[str, ...]

    @property
    def label(self) -> str:
        """The method and, if it has several, the setting."""
        return f"{self.name}, {self.setting}" if self.setting else self.name


def methods_of_cells(
    experiment: Experiment, chosen: Mapping[str, str] | None = None
) -> dict[str, Method]:
    """The method of each cell, from the first table that has the cell; otherwise the cell's name.

    Cells keep their order. Those that lost a choice are left out; `chosen` has the cell of each
    choice that has been made (`report.choose_cells`).
    """
    chosen = chosen or {}
    methods: dict[str, Method] = {}
    for table in experiment.tables:
        for row, cells in _rows_of_methods(table):
            for i, name in enumerate(cells):
                if _columns_are_methods(table, row):
                    method = Method(table.columns[i], "", ("",))
                elif len(table.columns) == 1:
                    method = Method(row, "", ("",))
                elif len(cells) == 1:
                    method = Method(row, "", table.columns)
                else:
                    method = Method(row, table.columns[i], table.columns[i : i + 1])
                for cell in experiment.choices.get(name or "", (name,)):
                    if cell is not None:
                        methods.setdefault(cell, method)
    passed = {
        cell for choice, cells in experiment.choices.items() if choice in chosen for cell in cells
    } - set(chosen.values())
    return {
        cell.name: methods.get(cell.name, Method(cell.name, "", ("",)))
        for cell in experiment.cells
        if cell.name not in passed
    }


def _rows_of_methods(table: Table) -> Iterable[tuple[str, tuple[str | None, ...]]]:
    """The rows of a table that are no baselines, with their cells."""
    for row, cells in table.rows.items():
        if not _baseline_of(table, row):
            yield row, tuple(cells)


def _baseline_of(table: Table, row: str) -> str | None:
    """The baseline that a row shows; None for the row of a method."""
    return table.selectors.get(row, table.selector).baseline


def _columns_are_methods(table: Table, row: str) -> bool:
    """Whether rows show different figures of the same cells, so columns are the methods."""
    cells = tuple(table.rows[row])
    same = [other for _, other in _rows_of_methods(table) if other == cells]
    return len(set(cells)) > 1 and len(same) > 1


def method_styles(experiment: Experiment) -> Styles:
    """A style for each row of the tables and each method.

    Encoders before training and raw pixels have the same colours in every experiment.
    """
    baselines: dict[str, str] = {}
    names: dict[str, None] = {}
    for table in experiment.tables:
        for row in (*table.rows, *table.published):
            baseline = _baseline_of(table, row)
            if baseline:
                baselines.setdefault(row, _BASELINE_COLOURS[baseline])
            else:
                names[row] = None
    names |= dict.fromkeys(method.name for method in methods_of_cells(experiment).values())
    styles = {
        name: {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": _LINE_STYLES[number // len(COLOURS) % len(_LINE_STYLES)],
        }
        for number, name in enumerate(names)
    }
    return styles | {row: {"color": colour, "linestyle": "--"} for row, colour in baselines.items()}
