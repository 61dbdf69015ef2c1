"""Charts of run pages as SVGs, narrow enough for a phone."""

import io
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from datasets import describe, glyphs
from launch.outputs import plots
from tff_ssl.reporting import over_seeds
from tff_ssl.reporting.methods import COLOURS
from tff_ssl.reporting.page import Picture

_WIDTH = 4.4  # Inches, about the width of a phone.
_PIXELS = 200  # Per inch, of parts of an SVG that are pixels.
_MAX_LEGEND = 20  # Classes in a legend.
_LONGEST_LABEL = 36  # Characters of a class name in a legend, about the width of a chart.
_LEGEND_ROW = 0.17  # Height in inches of a row of a legend.
_GREY = "#8a8f98"
_NO_LABEL = "#cccccc"
# What a probe compares: (name in result.json, name in charts, colour); baselines are coloured as in
# the reports.
_FEATURES = (
    ("encoder", "encoder", "C0"),
    ("random_encoder", "untrained encoder", "C7"),
    ("pretrained_encoder", "pretrained encoder", "C4"),
    ("raw_pixels", "raw pixels", "C5"),
    ("imagenet_encoder", "trained on ImageNet", "#b8860b"),
)
_HALO = [withStroke(linewidth=5, foreground="white")]  # Sets marks off from bars of any colour.
_SHOWN_DIFFERENCE = 0.01  # Least difference for which balanced accuracy has bars of its own.


def _picture(figure: Figure, text: str, caption: str = "") -> Picture:
    """The figure as an SVG with a transparent background, the same bytes each time.

    Names in a script that no font here has are left to the fonts of the browser.
    """
    buffer = io.BytesIO()
    kind = "path" if glyphs.prepare(figure, escape=False) else "none"
    with (
        matplotlib.rc_context({"svg.hashsalt": "tff_ssl", "svg.fonttype": kind}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None}, dpi=_PIXELS)
    return Picture(buffer.getvalue(), text, caption)


def _chart(height: float, title: str = "", x_label: str = "") -> tuple[Figure, Any]:
    """A figure and its axes, without a frame at the top and on the right."""
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(glyphs.label(title), fontsize=10)
    axes.set_xlabel(x_label)
    return figure, axes


def _bar(axes: Any, y: float, height: float, colour: str, scores: Mapping[str, Any], score: str):
    """Draws a score and its deviation as a bar; returns both, in percent, and the bar's end."""
    value, deviation = (100 * scores.get(name, 0.0) for name in (score, f"{score}_std"))
    axes.barh(y, value, height, color=colour, xerr=deviation, error_kw={"elinewidth": 1})
    return value, deviation, value + deviation


def results_by_protocol(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The first results of each measurement of a run, by protocol and data set."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one, result in over_seeds.first(results).items():
        groups.setdefault(one.name(), []).append(result)
    return groups


def labels_text(result: Mapping[str, Any]) -> str:
    """The number of labels of a result, such as `5 labels a class`."""
    return over_seeds.measured(result).labels_text()


def probe_charts(results: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """A chart for each protocol: test accuracy, with the baselines'."""
    return [_probe_chart(name, group) for name, group in results_by_protocol(results).items()]


def _probe_chart(protocol: str, results: Sequence[Mapping[str, Any]]) -> Picture:
    """Bars for each number of labels, and for balanced accuracy if it differs."""
    bars: list[tuple[str, str, Mapping[str, Any]]] = []  # (title, score, result)
    for result in results:
        bars.append((labels_text(result), "accuracy", result))
        balanced = result.get("balanced_accuracy", result["accuracy"])
        if abs(balanced - result["accuracy"]) > _SHOWN_DIFFERENCE:
            bars.append((f"{labels_text(result)}, balanced", "balanced_accuracy", result))
    figure, axes = _chart(0.75 + 0.95 * len(bars), protocol, "test accuracy (%)")
    texts, largest, present = [], 0.0, set[str]()
    for group, (title, score, result) in enumerate(bars):
        sources = {"encoder": result, **result.get("baselines", {})}
        present |= sources.keys()
        shown = [feature for feature in _FEATURES if feature[0] in sources]
        spacing = min(0.26, 0.9 / len(shown))
        for number, (key, name, colour) in enumerate(shown):
            y = group + spacing * (number - (len(shown) - 1) / 2)
            value, deviation, end = _bar(axes, y, 0.85 * spacing, colour, sources[key], score)
            axes.text(end + 1, y, f"{value:.1f}", va="center", fontsize=9)
            largest = max(largest, end)
            texts.append(f"{title}, {name}: {value:.1f} % ± {deviation:.1f}")
    axes.set_yticks(range(len(bars)), [title.replace(", ", ",\n") for title, _, _ in bars])
    axes.set_ylim(len(bars) - 0.45, -0.55)
    axes.set_xlim(0, largest + 12)
    handles = [Patch(color=colour, label=name) for key, name, colour in _FEATURES if key in present]
    _add_legend(figure, handles)
    return _picture(figure, f"Test accuracy, {protocol}. {'; '.join(texts)}")


def curve_charts(panels: Sequence[plots.Panel], untrained_rank: float | None) -> list[Picture]:
    """Charts of the panels of `plots.read_panels` that have a line, with the untrained rank."""
    charts = []
    for panel in panels:
        lines = {name: points for name, points in panel.lines.items() if len(points)}
        if not lines:
            continue
        figure, axes = _chart(2.9)
        if untrained_rank is not None and "effective_rank" in panel.title.replace(" ", "_"):
            axes.axhline(untrained_rank, color=_GREY, linestyle=":", label="untrained encoder")
        plots.draw_panel(axes, panel._replace(lines=lines))
        ends = ", ".join(
            f"{name or panel.title} from {points[0, 1]:.4g} to {points[-1, 1]:.4g}"
            for name, points in lines.items()
        )
        charts.append(_picture(figure, f"{panel.title} over {panel.x_label}: {ends}"))
    return charts


def _run_colour(number: int) -> str:
    """Colour of a run in all pictures of a comparison; none is a baseline's."""
    return COLOURS[number % len(COLOURS)]


def compared_curves(curves: Mapping[str, Sequence[plots.Panel]]) -> list[Picture]:
    """Learning curves (`plots.read_panels`) of several runs in common panels, a colour a run."""
    keys = dict.fromkeys((p.title, p.x_label) for panels in curves.values() for p in panels)
    charts = []
    for title, x_label in keys:
        figure, axes = _chart(3.1 + 0.2 * len(curves), title, x_label)
        drawn = []
        for number, (name, panels) in enumerate(curves.items()):
            lines = [line for panel in panels if (panel.title, panel.x_label) == (title, x_label)
                     for line in panel.lines.values() if len(line)]  # fmt: skip
            for points in lines[:1]:
                marker, colour = "." if len(points) < 40 else None, _run_colour(number)
                axes.plot(*points.T, color=colour, marker=marker, label=glyphs.label(name))
                drawn.append(points)
        if not drawn:
            continue
        plots.fit_axes(axes, x_label, drawn)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", fontsize=9, frameon=False)
        charts.append(_picture(figure, f"{title} over {x_label}, of {', '.join(curves)}"))
    return charts


def compared_probes(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Picture]:
    """Charts of runs' test accuracies, one for each protocol and number of labels they share."""
    groups: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for run, entries in results.items():
        for protocol, group in results_by_protocol(entries).items():
            for result in group:
                groups.setdefault((protocol, labels_text(result)), {})[run] = result
    charts = []
    for (protocol, labels), of_runs in groups.items():
        if len(of_runs) < 2:
            continue
        title = f"{protocol}, {labels}"
        figure, axes = _chart(0.9 + 0.42 * len(of_runs), title, "test accuracy (%)")
        texts, largest = [], 0.0
        for y, (run, result) in enumerate(of_runs.items()):
            colour = _run_colour(list(results).index(run))
            value, deviation, end = _bar(axes, y, 0.6, colour, result, "accuracy")
            for key, _, baseline_colour in _FEATURES[1:]:
                baseline = result.get("baselines", {}).get(key)
                if baseline:
                    x = 100 * baseline["accuracy"]
                    axes.plot(
                        [x, x], [y - 0.38, y + 0.38], color=baseline_colour, linewidth=2.5,
                        path_effects=_HALO,
                    )  # fmt: skip
                    end = max(end, x)
            axes.text(end + 1.5, y, f"{value:.1f}", va="center", fontsize=9)
            largest = max(largest, end)
            texts.append(f"{run}: {value:.1f} % ± {deviation:.1f}")
        axes.set_yticks(range(len(of_runs)), list(map(glyphs.label, of_runs)))
        axes.set_ylim(len(of_runs) - 0.4, -0.6)
        axes.set_xlim(0, largest + 12)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        charts.append(_picture(figure, f"{title}. {'; '.join(texts)}"))
    return charts


def partition_chart(record: Mapping[str, Any]) -> Picture:
    """A bar for each recorded client, divided by class (`partition_record.describe_clients`)."""
    names, shown = record["class_names"], record["shown"]
    colours = describe.class_colours(len(names))
    figure, axes = _chart(1.0 + 0.17 * max(len(shown), 6), x_label="training images")
    axes.spines["left"].set_visible(False)
    used = sorted({int(label) for client in shown for label in client["counts"]})
    unlabelled = [max(0, client["size"] - sum(client["counts"].values())) for client in shown]
    for row, (client, rest) in enumerate(zip(shown, unlabelled, strict=True)):
        widths = np.array([*client["counts"].values(), rest])
        shades = [*(colours[int(label)] for label in client["counts"]), _NO_LABEL]
        # A client's bars are one collection, because thousands of single bars take seconds, and
        # pixels if they are many and narrow, because as shapes they take megabytes.
        axes.broken_barh(
            list(zip(np.cumsum(widths) - widths, widths, strict=True)), (row - 0.41, 0.82),
            facecolors=shades, rasterized=len(names) > _MAX_LEGEND,
        )  # fmt: skip
    axes.set_xlim(0, 1.02 * max([1, *(client["size"] for client in shown)]))
    rows = range(0, len(shown), -(-len(shown) // 16))
    axes.set_yticks(rows, [str(shown[row]["client"]) for row in rows], fontsize=8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_ylabel("client")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if len(names) <= _MAX_LEGEND and used:
        handles = _class_handles(colours, names, used)
        if any(unlabelled):
            handles.append(Patch(color=_NO_LABEL, label="no label"))
        _add_legend(figure, handles)
    of_all = "all" if len(shown) == record["clients"] else f"{len(shown)} of"
    return _picture(
        figure, f"Training images of {of_all} {record['clients']} clients by class",
        f"{of_all.capitalize()} {record['clients']:,} clients; a colour for each class."
        if used else "",
    )  # fmt: skip


def map_charts(
    points: Mapping[str, np.ndarray], labels: np.ndarray, class_names: Sequence[str]
) -> list[Picture]:
    """A 2-D map of encodings for each encoder, coloured by class.

    Args:
      points: Places of the same n images, float32 [n, 2], by the name of the encoder.
      labels: Class labels, int32 [n]; -1 for no label.
    """
    colours = describe.class_colours(len(class_names))
    used = np.unique(labels[labels >= 0])
    charts = []
    shades = np.full([len(labels), 4], (0.55, 0.55, 0.6, 1.0))
    shades[labels >= 0] = colours[labels[labels >= 0]]
    handles = _class_handles(colours, class_names, used)
    for name, places in points.items():
        figure = Figure(figsize=(_WIDTH, _WIDTH + 0.2), layout="constrained")
        axes = figure.subplots()
        size, (x, y) = min(16.0, 6000 / len(places)), places.T
        axes.scatter(x, y, s=size, c=shades, linewidths=0, alpha=0.85)
        axes.set(xticks=[], yticks=[])
        axes.set_title(glyphs.label(name), fontsize=10)
        if handles and len(class_names) <= _MAX_LEGEND:
            _add_legend(figure, handles)
        charts.append(_picture(figure, f"2-D map of {len(places)} encodings, {name}"))
    return charts


def _class_handles(colours: np.ndarray, names: Sequence[str], used: Iterable[int]) -> list[Patch]:
    """Entries of a legend for the classes that are used; long names are shortened."""
    handles = []
    for k in used:
        name = names[k]
        if len(name) > _LONGEST_LABEL:
            name = f"{name[: _LONGEST_LABEL - 1]}…"
        handles.append(Patch(color=colours[k], label=glyphs.label(name)))
    return handles


def _add_legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Adds a legend in as many columns as its names allow; the figure grows by its rows."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), 46 // (longest + 5)))
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + _LEGEND_ROW * rows)
    # Matplotlib fills a legend by columns; readers go by rows.
    by_rows = [handle for column in range(columns) for handle in handles[column::columns]]
    figure.legend(
        handles=by_rows, loc="outside lower center", ncols=columns, fontsize=8, frameon=False,
        columnspacing=1.0, handlelength=1.0,
    )  # fmt: skip
