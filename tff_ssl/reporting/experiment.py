"""The definition of an experiment: cells to run, tables to fill, claims to check."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from tff_ssl.reporting.measured import Selector, TableValues


@dataclasses.dataclass(frozen=True)
class Cell:
    """A training with its evaluations, which is run at each seed.

    Attributes:
      name: Name of the cell and its folder, unique in the experiment.
      script: Launch script of the training, `pretrain` or `centralized`.
      flags: Flags of the script, without seed, data folder and output folder.
      evaluations: Flags of `evaluate` for each evaluation after the training.
      needs: Name of an earlier cell of the experiment that is run before this one at the same seed;
        `{needed}` in the flags stands for the folder of that run. None if there is no such cell.
    """

    name: str
    script: str
    flags: tuple[str, ...]
    evaluations: tuple[tuple[str, ...], ...] = ()
    needs: str | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
      title: Heading of the table.
      selector: Result of a cell that the table shows.
      columns: Headings of the columns.
      rows: Names of the cells by row name, in the order of the columns; None where the paper has
        none. A row of one cell holds for all columns.
      published: The paper's figures by row name, in the same order, in percent if `percent`; None
        where it has none, or a word such as "failed".
      selectors: Selectors of rows that show another result than `selector`, by row name.
      percent: Whether figures are shares of one, shown in percent; else they are counts.
    """

    title: str
    selector: Selector
    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[str | None]]
    published: Mapping[str, Sequence[float | str | None]]
    selectors: Mapping[str, Selector] = dataclasses.field(default_factory=dict)
    percent: bool = True

    def with_unit(self, text: str) -> str:
        """Returns the text followed by the unit of the figures, if they have one."""
        return f"{text} (%)" if self.percent else text


Lookup = Callable[[str, str], float]  # (row, column) -> mean of a figure


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper, which is checked in a table.

    Attributes:
      text: The statement.
      table: Title of the table in which it is checked.
      holds: Function from a lookup of the table's means (in [0, 1], or counts) to whether the
        statement holds. The mean of a figure that was not measured is NaN; a claim that looks one
        up counts as not measured.
    """

    text: str
    table: str
    holds: Callable[[Lookup], bool]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment of a paper at one scale.

    Attributes:
      name: Value of `--experiment`.
      title: Title of the report.
      cells: Trainings to run.
      tables: Tables to show.
      claims: Claims to check.
      notes: Paragraphs at the beginning of the report.
      partitions: Partitions of which the report shows a picture: the name of each, and the name of
        a cell with this partition.
      against: Pairs of titles of tables (cost, gain) that are drawn against each other.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = ()
    partitions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    against: tuple[tuple[str, str], ...] = ()


def check(claim: Claim, values: TableValues) -> str:
    """Checks a claim.

    Args:
      claim: Claim to check.
      values: Measured figures of its table, (row, column) -> figure.

    Returns:
      `holds`, `does not hold`, or `not measured`.
    """
    incomplete = False

    def lookup(row: str, column: str) -> float:
        nonlocal incomplete
        value = values[row, column]
        if math.isnan(value.mean) and not value.failed:
            incomplete = True
        # The figure of a failed training is not unknown, but the lowest possible.
        return 0.0 if math.isnan(value.mean) and value.failed else value.mean

    holds = claim.holds(lookup)
    return "not measured" if incomplete else ("holds" if holds else "does not hold")
