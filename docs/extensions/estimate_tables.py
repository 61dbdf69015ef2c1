"""What the experiments' runs would take at the paper's scale, from `measured/`."""

import functools
from collections.abc import Sequence

from markdown_tables import ROOT, table

_HEADER = [
    "experiment", "cells", "MB at most", "ms an image", "images times epochs, the longest run",
    "hours, the longest run", "hours, all runs of a seed",
]  # fmt: skip


@functools.cache
def _measured() -> tuple[str, dict]:
    """The machine, and the measured rounds by key."""
    from launch.studies.engine import estimates

    return estimates.read(ROOT / "measured" / "estimates-paper.jsonl")


def paper_scale() -> list[str]:
    """The table of all experiments."""
    from launch.studies import catalog
    from launch.studies.engine import estimates

    machine, rows = _measured()
    grid = [_HEADER]
    for name, (build, _) in catalog.EXPERIMENTS.items():
        cells = build("paper", None, None).cells
        found = estimates.estimates_of(estimates.groups_of(cells), rows)
        grid.append([f"`{name}`", *_figures(found, len(cells))])
    return [f"Measured on {machine}:", *table(grid)]


def _figures(found: Sequence, number: int) -> list[str]:
    """The figures of an experiment's cells, some of which may be missing or failed."""
    from launch.studies.engine.estimates import format_hours

    done = [estimate for estimate in found if not estimate.failed]
    cells = str(number) if len(done) == number else f"{len(done)} of {number}"
    if not done:
        return [cells, *["-"] * (len(_HEADER) - 2)]
    fastest, slowest = (f"{f(one.milliseconds for one in done):.1f}" for f in (min, max))
    known = [estimate for estimate in done if estimate.images is not None]
    hours = ["-"] * 3
    if known:
        longest = max(known, key=lambda estimate: estimate.hours)
        total = sum(estimate.hours for estimate in known)
        least = "at least " if len(known) < number else ""
        hours = [
            f"{longest.images:,.0f}",
            format_hours(longest.hours),
            f"{least}{format_hours(total)}",
        ]
    megabytes = f"{max(estimate.megabytes for estimate in done):,}"
    return [cells, megabytes, fastest if fastest == slowest else f"{fastest} to {slowest}", *hours]
