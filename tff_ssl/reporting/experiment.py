"""The definition of an experiment: cells to run, tables to fill, claims to check."""

import dataclasses
from collections.abc import Mapping, Sequence

from tff_ssl.reporting.measured import MONITORED, Selector


@dataclasses.dataclass(frozen=True)
class Cell:
    """A training with its evaluations, which is run at each seed."""

    name: str  #: Name of the cell and its folder, unique in the experiment.
    script: str  #: Launch script of the training, `pretrain` or `centralized`.
    flags: tuple[str, ...]  #: Flags of the script, without seed, data folder and output folder.
    #: Flags of `evaluate` for each evaluation after the training.
    evaluations: tuple[tuple[str, ...], ...] = ()
    #: Name of an earlier cell that is run before this one at the same seed, or None; `{needed}` in
    #: the flags stands for the folder of that run.
    needs: str | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a paper."""

    title: str  #: Heading of the table.
    selector: Selector  #: Result of a cell that the table shows.
    columns: tuple[str, ...]  #: Headings of the columns.
    #: Names of cells, or of choices of the experiment, by row name, in the order of the columns;
    #: None where the paper has none. A row of one cell holds for all columns.
    rows: Mapping[str, Sequence[str | None]]
    #: The paper's figures by row name, in the same order, in percent if `percent`; None where it
    #: has none, or a word such as "failed".
    published: Mapping[str, Sequence[float | str | None]]
    #: Selectors of rows that show another result than `selector`, by row name.
    selectors: Mapping[str, Selector] = dataclasses.field(default_factory=dict)
    #: Whether figures are shares of one, shown in percent; otherwise they are counts.
    percent: bool = True
    #: In a table with several untrained encoders, the row of the one with which a row's training
    #: started, by row name; rows that are not named started with the first.
    starts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def with_unit(self, text: str) -> str:
        """The text followed by the unit of the figures, if they have one."""
        return f"{text} (%)" if self.percent else text


Figure = tuple[str, str]  # (row, column)


@dataclasses.dataclass(frozen=True)
class Contrast:
    """A number per seed, computed from the figures of that seed, and the margin it has to exceed.

    "DCCO is more than 4 points above FedAvg" is the difference of two figures, and 0.04.
    """

    weights: Mapping[Figure, float]  #: The number is the sum of figures times these weights.
    margin: float = 0.0  #: What the sum has to be above, in the unit of the figures.


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper, which is checked in a table (see `verdicts.check`)."""

    text: str  #: The statement.
    table: str  #: Title of the table in which it is checked.
    contrasts: tuple[Contrast, ...]  #: All of them have to be above their margins.
    id: str = ""  #: Id by which the claims of papers name the statement; statements may share one.


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment of a paper at one scale."""

    name: str  #: Value of `--experiment`.
    title: str  #: Title of the report.
    cells: tuple[Cell, ...]  #: Trainings to run.
    tables: tuple[Table, ...]  #: Tables to show.
    claims: tuple[Claim, ...]  #: Claims to check.
    notes: tuple[str, ...] = ()  #: Paragraphs at the beginning of the report.
    #: Partitions that the report shows in pictures, name -> name of a cell with it.
    partitions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Pairs of titles of tables (cost, gain) that are drawn against each other.
    against: tuple[tuple[str, str], ...] = ()
    #: Names of cells by the name of a choice between them: of one setting at several learning
    #: rates, the tables show the best cell on training images.
    choices: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    #: Figure on training images whose mean over seeds decides the choices.
    chosen_by: Selector = MONITORED
    #: Columns of `metrics.csv`, by the label of an axis, against whose sums over the rounds
    #: learning curves are drawn, too; `round` stands for the number of rounds.
    costs: Mapping[str, str] = dataclasses.field(default_factory=dict)
