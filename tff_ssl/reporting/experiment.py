"""The definition of an experiment: cells to run, tables to fill, claims to check."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tff_ssl.reporting.measured import SENT, Selector, TableValues, Value


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


Lookup = Callable[[str, str], float]  # (row, column) -> mean of a figure, perhaps moved


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper, which is checked in a table."""

    text: str  #: The statement.
    table: str  #: Title of the table in which it is checked.
    #: Function from a lookup of the table's means (in [0, 1], or counts) to whether the statement
    #: holds. `check` calls it with moved means, too. A figure that was not measured has the mean
    #: NaN; a claim that looks one up counts as not measured.
    holds: Callable[[Lookup], bool]
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
    #: rates, the tables show the cell with the best kNN accuracy on training images.
    choices: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    #: Columns of `metrics.csv`, by the label of an axis, against whose sums over the rounds
    #: learning curves are drawn, too; `round` stands for the number of rounds.
    costs: Mapping[str, str] = dataclasses.field(default_factory=dict)


def check(claim: Claim, table: Table, values: TableValues) -> str:
    """The verdict on a claim: `holds`, `does not hold`, `not shown`, or `not measured`.

    A verdict needs a margin beyond the deviation and an encoder that has learned. A claim holds, or
    does not, if its function says so for the means, and still does when every figure that it looks
    up is moved by its deviation over seeds, up or down, in any combination. Otherwise it is not
    shown. Nor is it shown if

    - a figure was measured with one seed only, which has no deviation, unless it counts what is
      sent (`measured.SENT`); or
    - the table has an untrained encoder, and no compared figure exceeds that of the untrained
      encoder it started with (`Table.starts`) by both deviations: in every column in which the
      claim compares several rows, or in any column if there is none. A claim that looks up an
      untrained encoder itself is exempt.

    A failed training enters mean and deviation with the lowest possible accuracy, 0. A count is not
    measured if a training failed.
    """
    looked_up: dict[_Figure, None] = {}  # In the order of the lookups.

    def figure(row: str, column: str) -> Value:
        return _with_failures(values[row, column], table.percent)

    def holds(moves: Mapping[_Figure, int]) -> bool:
        def lookup(row: str, column: str) -> float:
            looked_up[row, column] = None
            value = figure(row, column)
            return value.mean + moves.get((row, column), 0) * value.std

        return bool(claim.holds(lookup))

    verdict = holds({})
    changes = any(holds(moves) != verdict for moves in _all_moves(looked_up))
    # A moved claim may be the first to look up a figure that is not measured.
    if any(math.isnan(figure(*key).mean) for key in looked_up):
        return "not measured"
    one_seed = any(figure(*key).seeds == 1 for key in looked_up)
    has_deviation = not one_seed or table.selector.metric in SENT
    if changes or not has_deviation or not _has_learned(table, figure, looked_up):
        return "not shown"
    return "holds" if verdict else "does not hold"


_Figure = tuple[str, str]  # (row, column)
_MOVED_TOGETHER = 12  # So many figures or fewer are moved in all combinations of signs, 4096.


def _with_failures(value: Value, percent: bool) -> Value:
    """The figure with each failed training as a seed: 0 for a share, NaN for a count."""
    if not value.failed:
        return value
    seeds, failed = value.seeds, value.failed
    if not percent:
        return Value(math.nan, 0.0, seeds + failed, 0)
    if not seeds:
        return Value(0.0, 0.0, failed, 0)
    mean = value.mean * seeds / (seeds + failed)
    squares = (seeds - 1) * value.std**2 + seeds * (value.mean - mean) ** 2 + failed * mean**2
    return Value(mean, math.sqrt(squares / (seeds + failed - 1)), seeds + failed, 0)


def _all_moves(looked_up: Mapping[_Figure, None]) -> Iterator[dict[_Figure, int]]:
    """Moves of the figures by their deviations, as signs by figure.

    Figures that only a moved claim looks up are moved, too. More than `_MOVED_TOGETHER` figures are
    moved in pairs, since claims on so many figures compare pairs.
    """
    done = 0
    while done < len(looked_up):
        figures = list(looked_up)
        done = len(figures)
        together = min(done, _MOVED_TOGETHER) if done <= _MOVED_TOGETHER else 2
        for moved in itertools.combinations(figures, together):
            for signs in itertools.product((-1, 1), repeat=together):
                yield dict(zip(moved, signs, strict=True))


def _has_learned(
    table: Table, figure: Callable[[str, str], Value], looked_up: Iterable[_Figure]
) -> bool:
    """Whether a compared encoder is above its untrained one, if the table has one."""
    untrained = [
        row for row, selector in table.selectors.items() if selector.baseline == "random_encoder"
    ]
    by_column: dict[str, list[str]] = {}
    for row, column in looked_up:
        if row in untrained:
            return True
        by_column.setdefault(column, []).append(row)
    if not untrained:
        return True

    def is_above(row: str, column: str) -> bool:
        value, start = figure(row, column), figure(table.starts.get(row, untrained[0]), column)
        # A missing figure of the untrained encoder shows nothing.
        return value.mean - value.std > start.mean + start.std

    learned = {
        column: any(is_above(row, column) for row in rows) for column, rows in by_column.items()
    }
    compared = [column for column, rows in by_column.items() if len(rows) > 1]
    return all(learned[column] for column in compared) if compared else any(learned.values())
