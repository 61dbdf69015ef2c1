"""Description of a partition: class counts per client, distance from IID, pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from datasets import glyphs
from datasets.errors import DatasetError

Histograms = npt.NDArray[np.int64]
Partition = Sequence[npt.NDArray[np.int64]]  # indices of each client's examples

_MAX_BARS = 50  # clients that are drawn
_MAX_LEGEND = 20  # classes in a legend; more get a colour bar
_MAX_IMAGE_ROWS = 10  # clients whose images are drawn
_IMAGES_PER_ROW = 10


def histograms(
    labels: npt.NDArray[np.integer], partition: Partition, num_classes: int
) -> Histograms:
    """Counts each client's labels: int64 [clients, num_classes].

    The partition has indices into `labels`, int [n]; labels of -1 are not counted.

    Raises:
      DatasetError: A label is not below `num_classes`.
    """
    if labels.max(initial=-1) >= num_classes:
        raise DatasetError(f"num_classes must be above {labels.max()}, not {num_classes}")
    counts = np.zeros((len(partition), num_classes), np.int64)
    if not partition:
        return counts
    clients = np.repeat(np.arange(len(partition)), [len(indices) for indices in partition])
    client_labels = labels[np.concatenate(partition)]
    labelled = client_labels >= 0
    np.add.at(counts, (clients[labelled], client_labels[labelled]), 1)
    return counts


def earth_movers_distances(counts: Histograms) -> npt.NDArray[np.float64]:
    """Distance of each client's class distribution from that of all clients together.

    d_k = sum_c |p_k(c) - p(c)|, float64 [clients with labelled examples], where p is the
    distribution of the union of the clients' examples. This is the earth mover's distance between
    label distributions of Zhao et al. 2018 (arXiv 1806.00582, section 3), from 0 (the same) to 2
    (no class in common). The Dec-SSL paper (appendix C.2, Figure 17) gives no formula, but its
    values agree with this one: 5 clients with two of ten classes each have 1.6 (printed: 1.62), and
    skewness beta has (1 - beta) * 1.6 (printed for 0.7, 0.5 and 0.3: 0.48, 0.79, 1.12).
    """
    counts = counts[counts.sum(axis=1) > 0]
    if len(counts) == 0:
        return np.empty(0)
    total = counts.sum(axis=0) / counts.sum()
    return np.abs(counts / counts.sum(axis=1, keepdims=True) - total).sum(axis=1)


def earth_movers_distance(counts: Histograms) -> float:
    """Mean of `earth_movers_distances` (Figure 17), from 0 (IID) to 2; NaN without labels."""
    distances = earth_movers_distances(counts)
    return float(distances.mean()) if len(distances) else float("nan")


def summary(counts: Histograms, partition: Partition, num_examples: int) -> dict[str, Any]:
    """Statistics of a partition of `num_examples` with these `histograms`, as values for JSON.

    They are the numbers `clients`, `examples` (those of clients), `examples_left_out` and
    `unlabelled`; `client_sizes` and `classes_per_client`, each with min, median and max; and `emd`,
    the earth mover's distance, which is None without labels.
    """
    sizes = np.array([len(indices) for indices in partition], np.int64)
    distance = earth_movers_distance(counts)
    return {
        "clients": len(partition),
        "examples": int(sizes.sum()),
        "examples_left_out": num_examples - int(sizes.sum()),
        "unlabelled": int(sizes.sum() - counts.sum()),
        "client_sizes": spread(sizes),
        "classes_per_client": spread((counts > 0).sum(axis=1)),
        "emd": None if np.isnan(distance) else distance,
    }


def spread(values: npt.NDArray[np.int64]) -> dict[str, float]:
    """Smallest value, median and largest value of an array that is not empty."""
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}


def picture(
    counts: Histograms, class_names: Sequence[str], title: str, partition: Partition | None = None
) -> dict[str, Any]:
    """What `draw` shows of a partition with these `histograms`, as values for JSON.

    They are the first line of the `title`; `clients`, their number; `class_names`; `unlabelled`,
    whether the last class stands for examples that `counts` lacks; and `bars`, the examples by
    class of up to 50 evenly spaced clients.
    """
    names, unlabelled = list(class_names), np.zeros(len(counts), np.int64)
    if partition is not None:
        unlabelled = np.array([len(indices) for indices in partition]) - counts.sum(axis=1)
    if unlabelled.any():
        counts, names = np.column_stack([counts, unlabelled]), [*names, "no label"]
    return {
        "title": title,
        "clients": len(counts),
        "class_names": names,
        "unlabelled": bool(unlabelled.any()),
        "bars": {
            str(client): {str(c): int(counts[client, c]) for c in np.flatnonzero(counts[client])}
            for client in _evenly_spaced(np.arange(len(counts)), _MAX_BARS)
        },
    }


def draw(picture: Mapping[str, Any]) -> Figure:
    """Draws the result of `picture`: a bar per client, as in the Dec-SSL paper's Figure 17.

    Up to 20 classes are in a legend, more beside a colour bar.
    """
    names, bars = picture["class_names"], picture["bars"]
    colours = class_colours(len(names) - picture["unlabelled"])
    if picture["unlabelled"]:
        colours = np.concatenate([colours, [[0.8, 0.8, 0.8, 1.0]]])
    figure = Figure(figsize=(9, 1.6 + 0.16 * max(len(bars), 12)), layout="constrained")
    axes = figure.add_subplot()
    for row, counts in enumerate(bars.values()):
        widths = np.array(list(counts.values()), np.int64)
        # A client's bars are one collection, because thousands of single bars take seconds.
        axes.broken_barh(
            list(zip(np.cumsum(widths) - widths, widths, strict=True)), (row - 0.41, 0.82),
            facecolors=colours[[int(c) for c in counts]], edgecolor="white", linewidth=0.4,
        )  # fmt: skip
    axes.set_xlim(0, 1.01 * max([1, *(sum(counts.values()) for counts in bars.values())]))
    clients = picture["clients"]
    chosen = "" if len(bars) == clients else f", {len(bars)} of them drawn, evenly chosen"
    title = f"{picture['title']}\n{clients:,} clients{chosen}"
    axes.set_title(title, loc="left", fontsize=10, linespacing=1.4)
    _style_axes(axes, list(bars))
    explain_colours(figure, axes, colours, names)
    return figure


def draw_images(images: npt.NDArray[np.uint8], partition: Partition, title: str) -> Figure:
    """Draws images of the first 10 clients: a row for each, with 10 evenly spaced images.

    The images are as the clients see them, uint8 [n, h, w, c] with 1, 3 or 4 channels.
    """
    shown = [_evenly_spaced(indices, _IMAGES_PER_ROW) for indices in partition[:_MAX_IMAGE_ROWS]]
    columns = max(map(len, shown))
    figure = Figure(figsize=(0.9 * columns + 1.2, 0.9 * len(shown) + 0.6), layout="constrained")
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    grid = figure.subplots(len(shown), columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for client, (row, indices) in enumerate(zip(grid, shown, strict=True)):
        at_left = {"ha": "right", "va": "center", "transform": row[0].transAxes}
        row[0].text(-0.15, 0.5, f"client {client}", **at_left)
        for axes, i in zip(row, indices, strict=False):
            # Matplotlib ignores the colour map and its limits if there are several channels.
            axes.imshow(np.squeeze(images[i]), cmap="gray", vmin=0, vmax=255)
    return figure


def _evenly_spaced(indices: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """`count` of the indices, evenly spaced, or all if there are fewer."""
    return indices[np.linspace(0, len(indices) - 1, min(len(indices), count)).astype(int)]


def class_colours(count: int) -> npt.NDArray[np.float64]:
    """RGBA colours of classes, float64 [count, 4]."""
    if count <= _MAX_LEGEND:
        return matplotlib.colormaps["tab10" if count <= 10 else "tab20"](np.arange(count))
    colours = matplotlib.colormaps["turbo"](np.linspace(0, 1, count))
    # Every second class is darker, so that neighbours in a bar can be distinguished.
    colours[1::2, :3] *= 0.7
    return colours


def _style_axes(axes: matplotlib.axes.Axes, shown: Sequence[str]) -> None:
    step = -(-len(shown) // 25)  # more than 25 labels would overlap
    axes.set_yticks(np.arange(len(shown))[::step], shown[::step])
    axes.set_ylim(len(shown) - 0.4, -0.6)  # client 0 on top
    axes.set_ylabel("client")
    axes.set_xlabel("examples")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)


def explain_colours(
    figure: Figure,
    axes: matplotlib.axes.Axes | Sequence[matplotlib.axes.Axes],
    colours: npt.NDArray[np.float64],
    class_names: Sequence[str],
) -> None:
    """Adds a legend or, for more than 20 classes, a colour bar to a figure of constrained layout.

    Colours are RGBA [classes, 4].
    """
    count = len(class_names)
    if count <= _MAX_LEGEND:
        handles = [
            matplotlib.patches.Patch(color=colour, label=glyphs.label(name))
            for colour, name in zip(colours, class_names, strict=True)
        ]
        figure.legend(handles=handles, loc="outside right upper", fontsize=8, frameon=False)
        return
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    ticks = np.linspace(0, count - 1, 10).astype(int)
    bar = figure.colorbar(
        ScalarMappable(norm, ListedColormap(colours)), ax=axes, ticks=ticks, pad=0.02, aspect=40
    )
    bar.ax.set_yticklabels([glyphs.label(f"{i} {class_names[i]}") for i in ticks], fontsize=8)
    bar.ax.minorticks_off()
    bar.set_label("class")
