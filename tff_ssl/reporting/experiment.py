"""What an experiment is: cells to run, tables to fill, claims to check."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from tff_ssl.reporting.measured import Selector, Value


@dataclasses.dataclass(frozen=True)
class Cell:
    """One training, at each seed.

    Attributes:
      name: Of its folder; unique in the experiment.
      script: `pretrain` or `centralized`.
      flags: Its flags, but for seed, data folder and output folder.
      evaluations: Flags of `evaluate`, one list an evaluation after the training.
      needs: Name of a cell, earlier among the experiment's, that is run before this one at the same
        seed; `{needed}` in the flags stands for the folder of that run.
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
      title: Its heading.
      selector: Which result of a cell it shows.
      columns: Headings.
      rows: Row name -> names of the cells in the order of the columns; None where the paper has
        none. A row of one cell holds for all columns.
      published: Row name -> the paper's figures (in percent), in the same order; None where it has
        none, or a word such as "failed".
      selectors: Rows that show another result than the table's.
      percent: Whether figures are shares of one, shown in percent; else they are counts.
    """

    title: str
    selector: Selector
    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[str | None]]
    published: Mapping[str, Sequence[float | str | None]]
    selectors: Mapping[str, Selector] = dataclasses.field(default_factory=dict)
    percent: bool = True


Lookup = Callable[[str, str], float]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper, and how to see it in a table.

    Attributes:
      text: The statement.
      table: Title of the table that it is about.
      holds: (lookup of (row, column) -> mean in [0, 1]) -> whether it holds. A figure that was not
        measured is NaN; what compares with it counts as not measured.
    """

    text: str
    table: str
    holds: Callable[[Lookup], bool]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment of a paper at one scale.

    Attributes:
      name: For `--experiment`.
      title: What it is.
      cells: What to run.
      tables: What to show.
      claims: What to check.
      notes: What a reader must know, one paragraph each.
      partitions: Name -> a cell whose clients the report shows in a picture.
      against: Pairs of titles of tables, (cost, gain), for a picture of one against the other.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = ()
    partitions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    against: tuple[tuple[str, str], ...] = ()


def check(claim: Claim, table: Table, values: Mapping[tuple[str, str], Value]) -> str:
    """`holds`, `does not hold`, or `not measured`."""
    incomplete = False

    def lookup(row: str, column: str) -> float:
        nonlocal incomplete
        value = values[row, column]
        if math.isnan(value.mean) and not value.failed:
            incomplete = True
        # Training that failed is as bad as can be, not unknown.
        return 0.0 if math.isnan(value.mean) and value.failed else value.mean

    holds = claim.holds(lookup)
    return "not measured" if incomplete else ("holds" if holds else "does not hold")
