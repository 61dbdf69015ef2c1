"""Statements about the figures of a table, with short ids by which claims of papers name them.

Conditions are functions of a lookup of means (see `tff_ssl.reporting.experiment.Claim`).
"""

import itertools
import re
from collections.abc import Callable, Iterable

from launch.studies.engine.study import UNTRAINED
from tff_ssl.reporting.experiment import Claim, Lookup, Table

Condition = Callable[[Lookup], bool]
Some = str | Iterable[str]  # One row or column, or several.
ON_CLIENTS = "{row} is above {other} on {column} clients"


def say(tables: Table | Iterable[Table], name: str, text: str, condition: Condition) -> list[Claim]:
    """The statement, for each of some tables, that a condition holds in it."""
    of_tables = [tables] if isinstance(tables, Table) else tables
    return [Claim(text, table.title, condition, name) for table in of_tables]


def each_above(
    table: Table, name: str, row: str, others: Some, text: str = "{row} is above {other}",
    columns: Some = (),
) -> list[Claim]:  # fmt: skip
    """A statement for each of other rows and each column: that `row` is above it.

    Ids are `NAME.OTHER.COLUMN`. The sentence has `{row}`, `{other}` and `{column}`. By default, the
    columns are all of the table.
    """
    return [
        Claim(text.format(row=row, other=other, column=column), table.title,
              above(row, other, column), f"{name}.{slug(other)}.{slug(column)}")
        for other in _some(others)
        for column in _some(columns) or table.columns
    ]  # fmt: skip


def above(row: str, others: Some, columns: Some, margin: float = 0.0) -> Condition:
    """In each column, `row` is above all others, by more than a margin: 0.02 is two points."""
    others, columns = _some(others), _some(columns)
    return lambda v: all(v(row, c) > max(v(o, c) for o in others) + margin for c in columns)


def not_below(row: str, others: Some, columns: Some, margin: float = 0.0) -> Condition:
    """In each column, `row` is at least as high as all others plus a margin, often negative."""
    others, columns = _some(others), _some(columns)
    return lambda v: all(v(row, c) >= max(v(o, c) for o in others) + margin for c in columns)


def below(row: str, others: Some, columns: Some) -> Condition:
    """In each column, `row` is below all others."""
    others, columns = _some(others), _some(columns)
    return lambda v: all(v(row, c) < min(v(o, c) for o in others) for c in columns)


def falls(row: str, *columns: str) -> Condition:
    """From each of the columns to the next, `row` falls."""
    return lambda v: all(v(row, a) > v(row, b) for a, b in itertools.pairwise(columns))


def more_than(bound: float, row: str, columns: Some) -> Condition:
    """In each column, `row` is above a number."""
    columns = _some(columns)
    return lambda v: all(v(row, c) > bound for c in columns)


def at_most(bound: float, row: str, columns: Some) -> Condition:
    """In each column, `row` is not above a number."""
    columns = _some(columns)
    return lambda v: all(v(row, c) <= bound for c in columns)


def within(distance: float, rows: Some, columns: Some) -> Condition:
    """The highest and the lowest figure of some rows and columns are within a distance."""
    figures = list(itertools.product(_some(rows), _some(columns)))
    return lambda v: max(v(*f) for f in figures) - min(v(*f) for f in figures) <= distance


def times_below(factor: float, row: str, other: str, column: str) -> Condition:
    """In a column, `row` is below another one even when multiplied by a factor."""
    return lambda v: factor * v(row, column) < v(other, column)


def less_below(row: str, other: str, column: str, distance: float) -> Condition:
    """In a column, `row` is less than a distance below another one."""
    return lambda v: v(other, column) - v(row, column) < distance


def loses_less(row: str, other: str, first: str, last: str) -> Condition:
    """From the first to the last column, `row` loses less than another one."""
    return lambda v: v(row, first) - v(row, last) < v(other, first) - v(other, last)


def keeps_most(row: str, first: str, last: str) -> Condition:
    """`row` keeps more than half of its gain over the untrained encoder.

    Papers show curves and give no bound of what is stable; this is the bound here.
    """

    def condition(v: Lookup) -> bool:
        gains = [v(row, column) - v(UNTRAINED, column) for column in (first, last)]
        return gains[1] > max(gains[0], 0) / 2

    return condition


def slug(heading: str) -> str:
    """A row or column as a part of an id: `non-IID` is `noniid`."""
    return re.sub(r"\W+", "_", heading.lower().replace("-", "")).strip("_")


def _some(names: Some) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
