"""Tables that scripts print."""

import csv
import io
from collections.abc import Mapping, Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Lines with columns of equal width, the first flush left and the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([f"{name:{widths[0]}}", *map(str.rjust, cells, widths[1:])])
        for name, *cells in rows
    )


def as_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """The text of a CSV file with the columns of all rows, in their order; None is left empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
