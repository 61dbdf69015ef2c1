"""The pictures of `launch.visualize`: 2-D maps of features, and weight distances by layer."""

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from datasets import describe, glyphs
from launch.outputs import plots

_PANEL = 3.6  # Side of a panel, inches.
_MAX_COLUMNS = 4
_GREY = "#dddddd"
_NO_LABEL = "#1f5f99"


def draw_features(
    points: dict[str, np.ndarray],
    labels: np.ndarray,
    class_names: Sequence[str],
    path: pathlib.Path,
    title: str,
) -> None:
    """Draws a panel for each encoder, coloured by class, and one of all, coloured by encoder.

    All panels show the same part of the plane, with the other encoders' features in grey.

    Args:
      points: Features of the same n images in one plane, float32 [n, 2], by name of the encoder.
      labels: Class labels, int32 [n]; all -1 if there are none.
    """
    all_points = np.concatenate(list(points.values()))
    rows = math.ceil((len(points) + 1) / _MAX_COLUMNS)
    columns = math.ceil((len(points) + 1) / rows)
    size = (_PANEL * columns + 1.4, (_PANEL + 0.3) * rows + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(glyphs.label(title), fontsize=10)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten()
    labelled = np.any(labels >= 0)
    colours = describe.class_colours(len(class_names))
    for axes, (name, encoder_points) in zip(panels, points.items(), strict=False):
        _scatter(axes, all_points, _GREY)
        _scatter(axes, encoder_points, colours[labels] if labelled else _NO_LABEL)
        axes.set_title(glyphs.label(name), fontsize=10)
    _draw_by_encoder(panels[len(points)], points)
    for axes in panels:
        axes.set(xticks=[], yticks=[])
    for axes in panels[len(points) + 1 :]:
        axes.set_axis_off()
    if labelled:
        describe.explain_colours(figure, list(panels), colours, class_names)
    plots.save(figure, path)


def _draw_by_encoder(axes, points: dict[str, np.ndarray]) -> None:
    colours = _encoder_colours(len(points))
    all_points = np.concatenate(list(points.values()))
    encoder_ids = np.repeat(np.arange(len(points)), len(all_points) // len(points))
    # In a random order, no encoder hides the others.
    order = np.random.default_rng(0).permutation(len(all_points))
    _scatter(axes, all_points[order], colours[encoder_ids[order]])
    axes.set_title("all, by encoder", fontsize=10)
    handles = [
        Line2D([], [], marker="o", linestyle="", color=colour, label=glyphs.label(name))
        for name, colour in zip(points, colours, strict=True)
    ]
    axes.legend(handles=handles, fontsize=8, loc="best", framealpha=0.8, handletextpad=0.1)


def _scatter(axes, points: np.ndarray, colours) -> None:
    axes.scatter(*points.T, s=min(14.0, 9000 / len(points)), c=colours, linewidths=0, alpha=0.8)


def _encoder_colours(count: int) -> np.ndarray:
    """Colours of encoders, RGBA [count, 4], which differ from those of the classes."""
    if count <= 8:
        return matplotlib.colormaps["Dark2"](np.arange(count))
    return matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, count))


def draw_distances(pairs: Sequence[dict[str, Any]], path: pathlib.Path) -> None:
    """Draws the distances of each layer's weights and, beside them, of moving averages.

    `pairs` are those of the first encoder with others in `visualize.json`, all with distances. Each
    has a dot in every layer's row.
    """
    kinds = [kind for kind in ("weights", "moving_averages") if pairs[0][kind]["layers"]]
    layers = max(len(pairs[0][kind]["layers"]) for kind in kinds)
    figure = Figure(figsize=(6.5 * len(kinds), 1.6 + 0.17 * layers), layout="constrained")
    first = pairs[0]["encoders"][0]
    title = f"Distance from {first}, l2 norm of the difference in each layer"
    figure.suptitle(glyphs.label(title), fontsize=10)
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        _draw_layers(axes, pairs, kind)
    plots.save(figure, path)


def _draw_layers(axes, pairs: Sequence[dict[str, Any]], kind: str) -> None:
    """Draws the distances of `weights` or `moving_averages`, a row for each layer."""
    names = list(pairs[0][kind]["layers"])
    for pair, colour in zip(pairs, _encoder_colours(len(pairs) + 1)[1:], strict=True):
        values = list(pair[kind]["layers"].values())
        total = pair[kind]["distance"]
        axes.plot(
            values, range(len(values)), "o", markersize=4, alpha=0.8, color=colour,
            label=glyphs.label(f"{pair['encoders'][1]}: sum {total:.4g}"), clip_on=False,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(len(names) - 0.5, -0.5)  # The first layer on top.
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.set_title("weights" if kind == "weights" else "moving averages", fontsize=10)
    axes.legend(fontsize=8, loc="best")
