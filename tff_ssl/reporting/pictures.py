"""The pictures of an experiment's report, as PNGs."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tff_ssl.reporting.experiment import Table
from tff_ssl.reporting.measured import TableValues

_LINE_STYLES = ("-", "--", ":", "-.")
_COLORS = 10
_PUBLISHED: dict[str, Any] = {"color": "#8c564b", "marker": "D", "linestyle": ""}

# For each row, the mean (NaN where there is none) and the deviation in each column.
Figures = Mapping[str, Sequence[tuple[float, float]]]


def draw_curves(curves: Mapping[str, Sequence[tuple[int, float]]]) -> bytes | None:
    """Draws the kNN accuracy on training images over rounds.

    Args:
      curves: Points (round, accuracy) of each line by its name; one point makes no line.

    Returns:
      A PNG; None if there is no line.
    """
    lines = {name: points for name, points in curves.items() if len(points) > 1}
    if not lines:
        return None
    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(curves):
        if name in lines:
            axes.plot(*zip(*lines[name], strict=True), label=name, **_line_style(number))
    axes.set_xlabel("round or step")
    axes.set_ylabel("kNN accuracy (training images)")
    axes.legend(fontsize=8, ncols=2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _png(figure)


def draw_curves_against(
    curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]], costs: Mapping[str, str]
) -> bytes | None:
    """Draws the kNN accuracy on training images against costs, a panel for each cost.

    A line is the mean over seeds at each monitored round, of the accuracy and of the cost; the band
    around it is the deviation of the accuracy.

    Args:
      curves: Lines by name. A line has a mapping for each seed, from `accuracy` and from the names
        of the costs to the values at the monitored rounds, which are the same for all seeds.
      costs: Names of the costs by the label of their axis.

    Returns:
      A PNG; None if fewer than two lines have points.
    """
    if sum(map(bool, curves.values())) < 2:
        return None
    figure = Figure(figsize=(3 + 4.5 * len(costs), 4.5), layout="constrained")
    all_axes = figure.subplots(1, len(costs), sharey=True, squeeze=False)[0]
    for axes, (label, name) in zip(all_axes, costs.items(), strict=True):
        for number, (line, seeds) in enumerate(curves.items()):
            if not seeds:
                continue
            cost = np.mean([seed[name] for seed in seeds], axis=0)
            accuracies = np.array([seed["accuracy"] for seed in seeds])
            mean, style = accuracies.mean(axis=0), _line_style(number)
            axes.plot(cost, mean, marker=".", label=line, **style)
            if len(seeds) > 1:
                deviation = accuracies.std(axis=0, ddof=1)
                axes.fill_between(
                    cost, mean - deviation, mean + deviation, color=style["color"], alpha=0.15
                )
        # Clients that train one after the other need much more time than clients that train at
        # the same time.
        axes.set_xscale("log")
        axes.set_xlabel(label)
    all_axes[0].set_ylabel("kNN accuracy (training images)")
    all_axes[-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _png(figure)


def draw_table(table: Table, values: TableValues) -> bytes | None:
    """Draws a table's measured figures with their deviation over seeds, and the published ones.

    A table of one column is drawn as a dot per row. A table of several columns is drawn as a line
    per row, with measured and published lines side by side.

    Args:
      table: Table to draw.
      values: Measured figures, (row, column) -> figure.

    Returns:
      A PNG; None if fewer than two rows have been measured.
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
            for figure in _expand(figures, len(table.columns))
        ]
        for row, figures in table.published.items()
    }
    draw = _draw_dots if len(table.columns) == 1 else _draw_lines
    return draw(table, measured, published)


def draw_against(
    x: Table,
    x_values: TableValues,
    y: Table,
    y_values: TableValues,
) -> bytes | None:
    """Draws the cost and the gain of each row that two tables share, of their first columns.

    Args:
      x: Table of the costs, on the horizontal axis.
      x_values: Measured costs, (row, column) -> figure.
      y: Table of the gains, on the vertical axis.
      y_values: Measured gains, (row, column) -> figure.

    Returns:
      A PNG; None if fewer than two rows have been measured.
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
    axes.set_ylabel(y.with_unit(y.columns[0]))
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _png(figure)


def _expand(figures: Sequence[float | str | None], columns: int) -> Sequence[float | str | None]:
    """Repeats the figure of a row that has only one, which holds for all columns."""
    return list(figures) * columns if len(figures) == 1 else figures


def _any_known(points: Sequence[tuple[float, float]]) -> bool:
    """Returns whether any mean is not NaN."""
    return not all(math.isnan(mean) for mean, _ in points)


def _draw_dots(table: Table, measured: Figures, published: Figures) -> bytes:
    """Draws a table of one column as a dot per row."""
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
    axes.set_ylim(len(rows) - 0.5, -0.5)  # The first row is on top.
    axes.set_xlabel(table.with_unit(table.columns[0]))
    return _png(figure)


def _draw_lines(table: Table, measured: Figures, published: Figures) -> bytes:
    """Draws a table of several columns as a line per row, in a panel each for both figures."""
    panels = {"measured": measured}
    if any(map(_any_known, published.values())):
        panels["published"] = published
    rows = list(dict.fromkeys([*measured, *published]))
    figure = Figure(figsize=(2.5 + 4.5 * len(panels), 3.8), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        for number, row in enumerate(rows):
            if row in lines:  # A missing figure leaves a gap.
                mean, deviation = zip(*lines[row], strict=True)
                axes.errorbar(
                    range(len(mean)), mean, deviation, marker="o", markersize=4, capsize=2,
                    **_line_style(number),
                )  # fmt: skip
        are_long = max(map(len, table.columns)) * len(table.columns) > 40
        rotation = {"rotation": 30, "ha": "right"} if are_long else {}
        axes.set_xticks(range(len(table.columns)), table.columns, **rotation)
        axes.set_xlim(-0.3, len(table.columns) - 0.7)
        axes.set_title(title, fontsize=10)
    for number, row in enumerate(rows):
        all_axes[-1].plot([], [], label=row, **_line_style(number))
    all_axes[-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    all_axes[0].set_ylabel(table.with_unit(table.selector.metric.replace("_", " ")))
    return _png(figure)


def _line_style(number: int) -> dict[str, Any]:
    """Returns the style and colour of the line with this number."""
    style = _LINE_STYLES[number // _COLORS % len(_LINE_STYLES)]
    return {"linestyle": style, "color": f"C{number % _COLORS}", "linewidth": 1.3}


def _png(figure: Figure) -> bytes:
    """Adds a grid to the axes and renders the figure."""
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90, format="png")
    return buffer.getvalue()
