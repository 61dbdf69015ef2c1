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
    ("kNN on training images", {"knn_accuracy": "accuracy", "knn_balanced_accuracy": "balanced"}),
)
_STYLES = ({"color": "#1f5f99"}, {"color": "#b35c00", "linestyle": "--"})


def save(figure: Figure, path: pathlib.Path) -> None:
    """Writes a figure as a PNG; an interrupted write leaves no partial file at `path`."""
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, dpi=110, format="png")
    os.replace(temporary, path)


def draw_curves(metrics_csv: pathlib.Path, path: pathlib.Path) -> None:
    """Draws loss, spread and rank of the encodings, and kNN monitor over rounds; writes a PNG."""
    with open(metrics_csv, newline="") as file:
        rows = list(csv.DictReader(file))
    figure = Figure(figsize=(14, 3), layout="constrained")
    for axes, (title, columns) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
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
