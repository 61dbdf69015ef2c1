"""Writes pictures, and draws the learning curves of a run."""

import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from datasets import glyphs
from tff_ssl import whole_files
from tff_ssl.reporting import checked_files

# Panels: title, and the columns of metrics.csv with their labels, drawn in the order of the styles.
_PANELS = (
    ("loss", {"loss": ""}),
    ("spread of the encodings", {"encoding_std": ""}),
    ("effective rank of the encodings", {"effective_rank": ""}),
    ("CKA with the mean kernel", {"cka": ""}),
    ("kNN on training images", {"knn_accuracy": "accuracy", "knn_balanced_accuracy": "balanced"}),
)
_KNN = _PANELS[-1]
# Columns of metrics.csv with costs of a round, by the label of an axis: the kNN monitor is also
# drawn against their sums if a run has them.
_COSTS = {"simulated time": "simulated_time", "samples (images x epochs)": "examples_trained"}
_STYLES = ({"color": "#1f5f99"}, {"color": "#b35c00", "linestyle": "--"})


class Panel(NamedTuple):
    """A panel of a run's learning curves."""

    title: str
    x_label: str
    lines: dict[str, np.ndarray]  # Points (x, y), float64 [n, 2], by label; "" for a single line.


def read_panels(metrics_csv: pathlib.Path) -> list[Panel]:
    """Reads the curves that a run has logged over rounds, a panel each.

    They are the loss, the spread and the rank of the encodings, Hetero-SSFL's similarity to the
    mean kernel, and the kNN monitor, as far as they were logged; the loss always has a panel. The
    kNN monitor of a network without a server also has panels over simulated time and samples.
    """
    rows = checked_files.read_metrics(metrics_csv)
    logged = {name for row in rows for name in row}
    shown = [panel for panel in _PANELS if logged & panel[1].keys()] or _PANELS[:1]
    rounds = [row["round"] for row in rows]
    panels = [(*panel, "round", rounds) for panel in shown]
    for label, cost in _COSTS.items():
        if cost in logged and _KNN in shown:
            panels.append((*_KNN, label, np.cumsum([row.get(cost, 0) for row in rows]).tolist()))
    found = []
    for title, columns, x_label, x in panels:
        pairs = list(zip(x, rows, strict=True))
        lines = {
            label: np.array([(at, row[name]) for at, row in pairs if name in row])
            for name, label in columns.items()
            if name in logged
        }
        found.append(Panel(title, x_label, lines))
    return found


def draw_panel(axes: Any, panel: Panel) -> None:
    """Draws a panel of learning curves."""
    for (label, points), style in zip(panel.lines.items(), _STYLES, strict=False):
        marker = "." if len(points) < 40 else None
        axes.plot(*points.T, marker=marker, label=label, **style)
    if len(axes.lines) > 1:
        axes.legend(fontsize=8)
    fit_axes(axes, panel.x_label, panel.lines.values())
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x_label)
    axes.grid(alpha=0.3)


def fit_axes(axes: Any, x_label: str, lines: Iterable[np.ndarray]) -> None:
    """Gives rounds whole numbers, and shows lines of a single point from the origin on.

    Around a single point, Matplotlib would show thousandths of a unit. Each of `lines` is points
    (x, y), float64 [n, 2].
    """
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=x_label == "round"))
    drawn = [points for points in lines if len(points)]
    if drawn and all(len(points) == 1 for points in drawn):
        axes.set_xlim(0, 1.05 * max(points[0, 0] for points in drawn))
        if min(points[0, 1] for points in drawn) > 0:
            axes.set_ylim(0, 1.1 * axes.dataLim.y1)


def draw_curves(metrics_csv: pathlib.Path, path: pathlib.Path) -> None:
    """Draws the learning curves of a run (`read_panels`) side by side; writes a PNG."""
    panels = read_panels(metrics_csv)
    figure = Figure(figsize=(3.5 * len(panels), 3), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(all_axes, panels, strict=True):
        draw_panel(axes, panel)
    save(figure, path)


def save(figure: Figure, path: pathlib.Path, private: bool = False, dpi: int = 110) -> None:
    """Writes a figure as a PNG; `private`, for images of a data set, as in `whole_files`."""
    glyphs.prepare(figure)
    with whole_files.replacing(path, private) as new:
        figure.savefig(new, dpi=dpi, format="png")
