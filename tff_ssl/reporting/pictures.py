"""The pictures of an experiment's report, as PNGs."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from tff_ssl.reporting.experiment import Table
from tff_ssl.reporting.measured import Value

_LINES = ("-", "--", ":", "-.")
_COLORS = 10
_PUBLISHED: dict[str, Any] = {"color": "#8c564b", "marker": "D", "linestyle": ""}

Figures = Mapping[str, Sequence[tuple[float, float]]]  # Row -> (mean or NaN, deviation) by column.


def draw_curves(curves: Mapping[str, Sequence[tuple[int, float]]]) -> bytes | None:
    """kNN accuracy on training images over rounds.

    Args:
      curves: Name -> (round, accuracy); of one round there is no line.
    """
    lines = {name: points for name, points in curves.items() if len(points) > 1}
    if not lines:
        return None
    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(curves):
        if name in lines:
            axes.plot(*zip(*lines[name], strict=True), label=name, **_line(number))
    axes.set_xlabel("round or step")
    axes.set_ylabel("kNN accuracy (training images)")
    axes.legend(fontsize=8, ncols=2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _png(figure)


def draw_table(table: Table, values: Mapping[tuple[str, str], Value]) -> bytes | None:
    """A table's measured figures with their deviation over seeds, and the published ones.

    A table of one column is drawn as dots, a row for each; one of several as a line for each row,
    measured and published side by side.

    Args:
      table: What to draw.
      values: (row, column) -> figure.

    Returns:
      None where fewer than two rows have been measured.
    """
    scale = 100.0 if table.percent else 1.0
    measured = {
        row: [
            (scale * values[row, column].mean, scale * values[row, column].std)
            for column in table.columns
        ]
        for row in table.rows
    }
    if sum(map(_any_known, measured.values())) < 2:
        return None
    published = {
        row: [
            (float(figure) if isinstance(figure, (int, float)) else math.nan, 0.0)
            for figure in _in_every_column(figures, len(table.columns))
        ]
        for row, figures in table.published.items()
    }
    draw = _draw_dots if len(table.columns) == 1 else _draw_lines
    return draw(table, measured, published)


def draw_against(
    x: Table,
    x_values: Mapping[tuple[str, str], Value],
    y: Table,
    y_values: Mapping[tuple[str, str], Value],
) -> bytes | None:
    """The rows of two tables, first column, as points: what a row costs, and what it gives.

    Args:
      x: Horizontal.
      x_values: Its (row, column) -> figure.
      y: Vertical; with some of the same rows.
      y_values: Its (row, column) -> figure.

    Returns:
      None where fewer than two rows have been measured.
    """
    costs = {row: x_values[row, x.columns[0]].mean for row in x.rows}
    gains = {row: y_values[row, y.columns[0]] for row in y.rows}
    points = {
        row: (costs[row], gain)
        for row, gain in gains.items()
        if not math.isnan(costs.get(row, math.nan)) and not math.isnan(gain.mean)
    }
    if len(points) < 2:
        return None
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    scale = 100.0 if y.percent else 1.0
    for number, (row, (cost, gain)) in enumerate(points.items()):
        axes.errorbar(
            cost, scale * gain.mean, scale * gain.std, fmt="os^v"[number // _COLORS % 4],
            color=f"C{number % _COLORS}", capsize=3, label=row,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel(x.columns[0])
    axes.set_ylabel(_unit(y, y.columns[0]))
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _png(figure)


def _in_every_column(figures, columns):
    return list(figures) * columns if len(figures) == 1 else figures


def _any_known(points: Sequence[tuple[float, float]]) -> bool:
    return not all(math.isnan(mean) for mean, _ in points)


def _draw_dots(table: Table, measured: Figures, published: Figures) -> bytes:
    rows = list(dict.fromkeys([*measured, *published]))
    figure = Figure(figsize=(7, 0.9 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for y, row in enumerate(rows):
        for mean, deviation in measured.get(row, ()):
            axes.errorbar(mean, y, xerr=deviation, fmt="o", color="C0", capsize=3)
        for mean, _ in published.get(row, ()):
            axes.plot(mean, y, **_PUBLISHED)
    if any(map(_any_known, published.values())):
        axes.plot([], [], "o", color="C0", label="measured")
        axes.plot([], [], **_PUBLISHED, label="published")
        axes.legend(fontsize=8)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # The first row on top.
    axes.set_xlabel(_unit(table, table.columns[0]))
    return _png(figure)


def _draw_lines(table: Table, measured: Figures, published: Figures) -> bytes:
    panels = {"measured": measured}
    if any(map(_any_known, published.values())):
        panels["published"] = published
    rows = list(dict.fromkeys([*measured, *published]))
    figure = Figure(figsize=(2.5 + 4.5 * len(panels), 3.8), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        for number, row in enumerate(rows):
            if row in lines:  # A figure that there is not leaves a gap.
                mean, deviation = zip(*lines[row], strict=True)
                axes.errorbar(
                    range(len(mean)), mean, deviation, marker="o", markersize=4, capsize=2,
                    **_line(number),
                )  # fmt: skip
        long = max(map(len, table.columns)) * len(table.columns) > 40
        turned = {"rotation": 30, "ha": "right"} if long else {}
        axes.set_xticks(range(len(table.columns)), table.columns, **turned)
        axes.set_xlim(-0.3, len(table.columns) - 0.7)
        axes.set_title(title, fontsize=10)
    for number, row in enumerate(rows):
        all_axes[-1].plot([], [], label=row, **_line(number))
    all_axes[-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    all_axes[0].set_ylabel(_unit(table, table.selector.metric.replace("_", " ")))
    return _png(figure)


def _line(number: int) -> dict[str, Any]:
    """The look of the line of this number."""
    style = _LINES[number // _COLORS % len(_LINES)]
    return {"linestyle": style, "color": f"C{number % _COLORS}", "linewidth": 1.3}


def _unit(table: Table, name: str) -> str:
    return f"{name} (%)" if table.percent else name


def _png(figure: Figure) -> bytes:
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90, format="png")
    return buffer.getvalue()
