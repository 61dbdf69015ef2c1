"""Markdown tables, and the root of the project."""

import pathlib

ROOT = pathlib.Path(__file__).parent.parent.parent


def table(grid: list[list[str]]) -> list[str]:
    """Formats rows, the header first, as a Markdown table."""
    header, *rows = [[cell.replace("|", "\\|") for cell in row] for row in grid]
    lines = [header, ["---"] * len(header), *rows]
    return ["", *(f"| {' | '.join(cells)} |" for cells in lines), ""]
