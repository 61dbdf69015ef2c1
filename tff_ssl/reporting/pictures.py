"""The pictures of an experiment's report, as PNGs.

Styles (`methods.method_styles`) give a method one colour in all pictures of a report.
"""

import io
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from tff_ssl.reporting.experiment import Table
from tff_ssl.reporting.measured import TableValues, Value
from tff_ssl.reporting.methods import Styles

_MARKERS = {"-": "o", "--": "s", ":": "^", "-.": "v"}  # By the style of a method's line.
_PUBLISHED: dict[str, Any] = {"marker": "D", "linestyle": "", "markerfacecolor": "none"}
_PIXELS: dict[str, Any] = {"color": "0.35", "linestyle": ":", "label": "raw pixels"}
_MAX_COLUMNS = 3  # Panels in a row of panels.

# Row -> mean (NaN if there is none) and deviation in each column.
Figures = Mapping[str, Sequence[tuple[float, float]]]
Points = Sequence[tuple[int, float]]  # (round, accuracy)


def draw_curves(panels: Mapping[str, Sequence[tuple[str, Points]]], styles: Styles) -> bytes | None:
    """Draws the kNN accuracy on training images over rounds; None if there is no line.

    `panels` has lines with the names of their methods, by the title of their panel, which may be
    empty. Lines with fewer than two points are left out, and so are panels without lines.
    """
    shown = {
        title: [(name, points) for name, points in lines if len(points) > 1]
        for title, lines in panels.items()
    }
    shown = {title: lines for title, lines in shown.items() if lines}
    if not shown:
        return None
    columns = min(len(shown), _MAX_COLUMNS)
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(3 + 3.4 * columns, 0.6 + 3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes, (title, lines) in zip(grid.flat, shown.items(), strict=False):
        for name, points in lines:
            axes.plot(*zip(*points, strict=True), linewidth=1.3, **styles[name])
        axes.set_title(title, fontsize=10)
        axes.tick_params(labelbottom=True)
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    figure.supxlabel("round or step", fontsize=10)
    figure.supylabel("kNN accuracy (training images)", fontsize=10)
    names = dict.fromkeys(name for lines in shown.values() for name, _ in lines)
    _add_legend(figure, names, styles)
    return _png(figure)


def draw_curves_against(
    curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]],
    costs: Mapping[str, str],
    styles: Styles,
) -> bytes | None:
    """Draws the kNN accuracy on training images against costs, a panel for each cost.

    A line is the mean over seeds, of the accuracy and of the cost, at each monitored round; the
    band around it is the deviation of the accuracy. `curves` has, by method, a mapping for each
    seed, from `accuracy` and the names of the costs to the values at the monitored rounds, which
    all seeds share. `costs` has the names by the label of their axis. None if fewer than two lines
    have points.
    """
    shown = {name: seeds for name, seeds in curves.items() if seeds}
    if len(shown) < 2:
        return None
    figure = Figure(figsize=(3 + 4.5 * len(costs), 4.5), layout="constrained")
    all_axes = figure.subplots(1, len(costs), sharey=True, squeeze=False)[0]
    for axes, (label, name) in zip(all_axes, costs.items(), strict=True):
        for method, seeds in shown.items():
            cost = np.mean([seed[name] for seed in seeds], axis=0)
            accuracies = np.array([seed["accuracy"] for seed in seeds])
            mean, style = accuracies.mean(axis=0), styles[method]
            axes.plot(cost, mean, marker=".", linewidth=1.3, **style)
            if len(seeds) > 1:
                deviation = accuracies.std(axis=0, ddof=1)
                axes.fill_between(
                    cost, mean - deviation, mean + deviation, color=style["color"], alpha=0.15
                )
        # Clients that train one by one need much more time than clients that train together.
        _make_logarithmic(axes)
        axes.set_xlabel(label)
    all_axes[0].set_ylabel("kNN accuracy (training images)")
    _add_legend(figure, shown, styles)
    return _png(figure)


def draw_table(
    table: Table,
    values: TableValues,
    styles: Styles,
    bound: Mapping[str, Value] = MappingProxyType({}),
) -> bytes | None:
    """Draws a table's measured figures with their deviation over seeds, and the published ones.

    A table of one column has a dot per row. A table of several columns has a line per row, with
    measured and published lines side by side. None if fewer than two rows have been measured.
    `bound` has the figures of raw pixels by column, which are a dotted line.
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
            # The only figure of a row holds for all columns.
            for figure in (figures if len(figures) > 1 else list(figures) * len(table.columns))
        ]
        for row, figures in table.published.items()
    }
    draw = _draw_dots if len(table.columns) == 1 else _draw_lines
    pixels = [scale * bound[c].mean if c in bound else math.nan for c in table.columns]
    return draw(table, measured, published, styles, pixels)


def draw_against(
    x: Table, x_values: TableValues, y: Table, y_values: TableValues, styles: Styles
) -> bytes | None:
    """Draws the cost (x) and the gain (y) of each row that two tables share.

    Tables with the same columns get a panel for each, others one for their first columns. None if
    fewer than two rows have been measured.
    """
    same = x.columns == y.columns
    pairs = [(c, c) for c in x.columns] if same else [(x.columns[0], y.columns[0])]
    measured = {
        (row, panel): (x_values[row, cost].mean, y_values[row, gain])
        for row in y.rows if row in x.rows
        for panel, (cost, gain) in enumerate(pairs)
    }  # fmt: skip
    points = {
        key: (cost, gain)
        for key, (cost, gain) in measured.items()
        if not math.isnan(cost) and not math.isnan(gain.mean)
    }
    if len({row for row, _ in points}) < 2:
        return None
    figure = Figure(figsize=(4 + 5 * len(pairs), 4.5), layout="constrained")
    panels = figure.subplots(1, len(pairs), squeeze=False, sharey=True)[0]
    scale = 100.0 if y.percent else 1.0
    for (row, panel), (cost, gain) in points.items():
        panels[panel].errorbar(
            cost, scale * gain.mean, scale * gain.std, fmt=_MARKERS[styles[row]["linestyle"]],
            color=styles[row]["color"], capsize=3, label=row,
        )  # fmt: skip
    for axes, (column, _) in zip(panels, pairs, strict=True):
        _make_logarithmic(axes)
        axes.set_title(column if same and len(pairs) > 1 else "")
    figure.supxlabel(x.with_unit(x.title), fontsize="medium")
    panels[0].set_ylabel(y.with_unit(y.title))
    drawn: dict[Any, Any] = {}  # A row may have been measured in some panels alone.
    for axes in panels:
        handles, names = axes.get_legend_handles_labels()
        drawn |= dict(zip(names, handles, strict=True))
    beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    panels[-1].legend(drawn.values(), drawn.keys(), fontsize=8, **beside)
    return _png(figure)


def _make_logarithmic(axes: Axes) -> None:
    """Makes a drawn panel's horizontal axis logarithmic, with plain numbers such as 3,000."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    decades = math.log10(high / low)
    steps = (1, 2, 3, 5) if decades < 1 else (1, 3) if decades < 3 else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _any_known(points: Sequence[tuple[float, float]]) -> bool:
    return not all(math.isnan(mean) for mean, _ in points)


def _draw_dots(
    table: Table, measured: Figures, published: Figures, styles: Styles, pixels: Sequence[float]
) -> bytes:
    """Draws a table of one column: measured figures as dots, published ones as empty diamonds."""
    rows = list(dict.fromkeys([*measured, *published]))
    figure = Figure(figsize=(7, 0.9 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for y, row in enumerate(rows):
        colour = styles[row]["color"]
        for mean, deviation in measured.get(row, ()):
            axes.errorbar(mean, y, xerr=deviation, fmt="o", color=colour, capsize=3)
        for mean, _ in published.get(row, ()):
            axes.plot(mean, y, color=colour, **_PUBLISHED)
    if any(map(_any_known, published.values())):
        axes.plot([], [], "o", color="black", label="measured")
        axes.plot([], [], color="black", label="published", **_PUBLISHED)
    if not math.isnan(pixels[0]):
        axes.axvline(pixels[0], **_PIXELS)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # The first row is on top.
    axes.set_xlabel(table.with_unit(table.columns[0]))
    return _png(figure)


def _draw_lines(
    table: Table, measured: Figures, published: Figures, styles: Styles, pixels: Sequence[float]
) -> bytes:
    """Draws a table of several columns: a line per row, measured and published in two panels."""
    panels = {"measured": measured}
    if any(map(_any_known, published.values())):
        panels["published"] = published
    rows = list(dict.fromkeys([*measured, *published]))
    further = [] if all(map(math.isnan, pixels)) else [Line2D([], [], **_PIXELS)]
    figure = Figure(figsize=(2.5 + 4.5 * len(panels), 3.8), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        for row in rows:
            if row in lines:  # A missing figure leaves a gap.
                mean, deviation = zip(*lines[row], strict=True)
                axes.errorbar(
                    range(len(mean)), mean, deviation, marker="o", markersize=4, capsize=2,
                    linewidth=1.3, **styles[row],
                )  # fmt: skip
        if title == "measured" and further:
            axes.plot(range(len(pixels)), pixels, **_PIXELS)
        are_long = max(map(len, table.columns)) * len(table.columns) > 40
        rotation = {"rotation": 30, "ha": "right"} if are_long else {}
        axes.set_xticks(range(len(table.columns)), table.columns, **rotation)
        axes.set_xlim(-0.3, len(table.columns) - 0.7)
        axes.set_title(title, fontsize=10)
        axes.tick_params(labelleft=True)
    _add_legend(figure, rows, styles, further)
    all_axes[0].set_ylabel(table.with_unit(table.selector.metric.replace("_", " ")))
    return _png(figure)


def _add_legend(
    figure: Figure, names: Mapping[str, Any] | Sequence[str], styles: Styles,
    further: Sequence[Line2D] = (),
) -> None:  # fmt: skip
    """Explains the methods' lines to the right of all panels, in a figure that is high enough."""
    lines = [Line2D([], [], label=name, linewidth=1.3, **styles[name]) for name in names]
    lines += further
    figure.set_figheight(max(figure.get_figheight(), 0.4 + 0.17 * len(lines)))
    figure.legend(handles=lines, fontsize=8, loc="outside right center", frameon=False)


def _png(figure: Figure) -> bytes:
    """Adds grids and renders the figure."""
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90, format="png")
    return buffer.getvalue()
