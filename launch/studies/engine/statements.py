"""Statements about the figures of a table, with short ids by which claims of papers name them.

Conditions are conjunctions of contrasts (see `tff_ssl.reporting.experiment.Contrast`): a statement
about several rows or columns has a contrast for each pair.
"""

import itertools
import re
from collections.abc import Iterable

from tff_ssl.reporting.experiment import Claim, Contrast, Table

Condition = tuple[Contrast, ...]
Some = str | Iterable[str]  # One row or column, or several.
ON_CLIENTS = "{row} is above {other} on {column} clients"


def say(tables: Table | Iterable[Table], name: str, text: str, condition: Condition) -> list[Claim]:
    """The statement, for each of some tables, that a condition holds in it; none if it is empty."""
    return [Claim(text, table.title, condition, name) for table in _of(tables) if condition]


def each_above(
    tables: Table | Iterable[Table], name: str, row: str, others: Some,
    text: str = "{row} is above {other}", columns: Some = (),
) -> list[Claim]:  # fmt: skip
    """A statement for each table, other row and column: that `row` is above the other one.

    Ids are `NAME.OTHER.COLUMN`. The sentence has `{row}`, `{other}` and `{column}`. By default, the
    columns are all of the table.
    """
    return [
        Claim(text.format(row=row, other=other, column=column), table.title,
              above(row, other, column), f"{name}.{slug(other)}.{slug(column)}")
        for table in _of(tables)
        for other in _some(others)
        for column in _some(columns) or table.columns
    ]  # fmt: skip


def above(row: str, others: Some, columns: Some, margin: float = 0.0) -> Condition:
    """In each column, `row` is above each of the others by more than a margin.

    A margin of 0.02 is two points. One of -0.02 says that `row` is at most two points below.
    """
    pairs = itertools.product(_some(others), _some(columns))
    return tuple(Contrast({(row, c): 1, (other, c): -1}, margin) for other, c in pairs)


def below(row: str, others: Some, columns: Some) -> Condition:
    """In each column, `row` is below each of the others."""
    pairs = itertools.product(_some(others), _some(columns))
    return tuple(Contrast({(other, c): 1, (row, c): -1}) for other, c in pairs)


def falls(row: str, *columns: str) -> Condition:
    """From each of the columns to the next, `row` falls."""
    return tuple(Contrast({(row, a): 1, (row, b): -1}) for a, b in itertools.pairwise(columns))


def within(distance: float, rows: Some, columns: Some) -> Condition:
    """Any two figures of some rows and columns differ by less than a distance."""
    figures = itertools.product(_some(rows), _some(columns))
    pairs = itertools.permutations(list(figures), 2)
    return tuple(Contrast({one: 1, other: -1}, -distance) for one, other in pairs)


def times_below(factor: float, row: str, other: str, column: str) -> Condition:
    """In a column, `row` is below another one even when multiplied by a factor."""
    return (Contrast({(other, column): 1, (row, column): -factor}),)


def loses_less(row: str, other: str, first: str, last: str) -> Condition:
    """From the first to the last column, another row falls, and `row` loses less than it."""
    fall = {(other, first): 1, (other, last): -1}
    return Contrast(fall), Contrast(fall | {(row, last): 1, (row, first): -1})


def slug(heading: str) -> str:
    """A row or column as a part of an id: `non-IID` is `noniid`."""
    return re.sub(r"\W+", "_", heading.lower().replace("-", "")).strip("_")


def _of(tables: Table | Iterable[Table]) -> Iterable[Table]:
    return [tables] if isinstance(tables, Table) else tables


def _some(names: Some) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
