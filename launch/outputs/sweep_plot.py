"""The picture of a sweep: the scores of its trials."""

import math
import pathlib
from collections.abc import Mapping

from matplotlib.figure import Figure

from launch.outputs import plots
from tff_ssl.reporting.methods import COLOURS
from tff_ssl.reporting.over_seeds import Spread

# Hyperparameter -> algorithm -> value -> score.
Panels = Mapping[str, Mapping[str, Mapping[str, Spread]]]
_SCORE = "kNN accuracy on training images (%)"


def draw(panels: Panels, best: Mapping[str, Spread], path: pathlib.Path) -> None:
    """Draws scores by the value of each hyperparameter, or a bar for each algorithm.

    Args:
      panels: Scores by the value of hyperparameters; bars are drawn if there are none.
      best: The best score of each algorithm. It is a horizontal line in the panels of
        hyperparameters that the algorithm does not have.
    """
    plots.save(_draw_panels(panels, best) if panels else _draw_bars(best), path)


def _draw_panels(panels: Panels, best: Mapping[str, Spread]) -> Figure:
    figure = Figure(figsize=(1.2 + 3.4 * len(panels), 3.6), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (parameter, by_algorithm) in zip(all_axes, panels.items(), strict=True):
        values = sorted({v for by_value in by_algorithm.values() for v in by_value}, key=_order)
        places = {value: place for place, value in enumerate(values)}
        for number, (name, score) in enumerate(best.items()):
            colour, shift = COLOURS[number % len(COLOURS)], 0.06 * (number - (len(best) - 1) / 2)
            scores = by_algorithm.get(name)
            if scores is None:
                axes.axhline(100 * score.mean, color=colour, linestyle=":", label=name)
                continue
            points = [(places[v] + shift, scores[v]) for v in values if v in scores]
            axes.errorbar(
                [x for x, _ in points], [100 * score.mean for _, score in points],
                [100 * (score.deviation or 0) for _, score in points],
                color=colour, marker="o", markersize=4, capsize=3, label=name,
            )  # fmt: skip
        axes.set_xticks(range(len(places)), list(places))
        axes.set_xlim(-0.4, len(places) - 0.6)
        axes.set_xlabel(parameter)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].set_ylabel(_SCORE)
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return figure


def _order(value: str) -> tuple[float, str]:
    """Sorts numbers by size, and other values after them."""
    try:
        return float(value), value
    except ValueError:
        return math.inf, value


def _draw_bars(best: Mapping[str, Spread]) -> Figure:
    figure = Figure(figsize=(5.4, 0.9 + 0.42 * len(best)), layout="constrained")
    axes = figure.subplots()
    ends = []
    for number, score in enumerate(best.values()):
        mean, deviation = 100 * score.mean, 100 * (score.deviation or 0)
        colour = COLOURS[number % len(COLOURS)]
        axes.barh(number, mean, 0.6, color=colour, xerr=deviation, error_kw={"elinewidth": 1})
        axes.text(mean + deviation + 1.5, number, score.text(100, 1), va="center", fontsize=9)
        ends.append(mean + deviation)
    axes.set_yticks(range(len(best)), list(best))
    axes.set_ylim(len(best) - 0.4, -0.6)
    axes.set_xlim(0, max(ends) + 22)
    axes.set_xlabel(_SCORE)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
