"""Tables that scripts print."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Lines with columns of equal width, the first flush left and the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([f"{name:{widths[0]}}", *map(str.rjust, cells, widths[1:])])
        for name, *cells in rows
    )
