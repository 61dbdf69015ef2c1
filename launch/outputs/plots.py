"""Writes pictures, and draws the learning curves of a run."""

import csv
import os
import pathlib

import numpy as np
from matplotlib.figure import Figure

# Panels: title, and the columns of metrics.csv with their labels, drawn in the order of the styles.
_PANELS = (
    ("loss", {"loss": ""}),
    ("spread of the encodings", {"encoding_std": ""}),
    ("effective rank of the encodings", {"effective_rank": ""}),
    ("CKA with the mean kernel", {"cka": ""}),
    ("kNN on training images", {"knn_accuracy": "accuracy", "knn_balanced_accuracy": "balanced"}),
)
_STYLES = ({"color": "#1f5f99"}, {"color": "#b35c00", "linestyle": "--"})


def save(figure: Figure, path: pathlib.Path) -> None:
    """Writes a figure as a PNG; an interrupted write leaves no partial file at `path`."""
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, dpi=110, format="png")
    os.replace(temporary, path)


def draw_curves(metrics_csv: pathlib.Path, path: pathlib.Path) -> None:
    """Draws the curves that a run has logged over rounds, a panel each; writes a PNG.

    They are the loss, the spread and the rank of the encodings, Hetero-SSFL's similarity to the
    mean kernel, and the kNN monitor. What was not logged, such as the monitor's curves with
    `--eval_every=0`, has no panel.
    """
    with open(metrics_csv, newline="") as file:
        rows = list(csv.DictReader(file))
    logged = {name for row in rows for name, value in row.items() if value}
    panels = [panel for panel in _PANELS if logged & panel[1].keys()] or _PANELS[:1]
    figure = Figure(figsize=(3.5 * len(panels), 3), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, columns) in zip(all_axes, panels, strict=True):
        for (column, label), style in zip(columns.items(), _STYLES, strict=False):
            points = [(int(row["round"]), float(row[column])) for row in rows if row.get(column)]
            if points:
                rounds, values = np.array(points).T
                marker = "." if len(points) < 40 else None
                axes.plot(rounds, values, marker=marker, label=label, **style)
        if len(axes.lines) > 1:
            axes.legend(fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("round")
        axes.grid(alpha=0.3)
    save(figure, path)
