"""Draws the README's picture from a run of the first command.

    uv run python docs/pictures/draw_first_run.py RUN

Left: a 2-D map of the test images' encodings, each shown by its digit. Right: the accuracy of the
linear probe and its baselines. The texts are legible on a phone, 390 pixels wide.
"""

import json
import pathlib
import sys

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.manifold import TSNE

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from datasets import catalog
from tff_ssl.deployment.encoder import load_encoder

_TARGET = pathlib.Path(__file__).with_name("first_run.png")
_BARS = {"encoder": "#1f6f8b", "raw pixels": "#b8bdc4", "untrained": "#dde1e6"}
_COLOURS = 32  # Of the picture's palette, which keeps it small.


def main() -> None:
    run = pathlib.Path(sys.argv[1])
    test = catalog.load("digits").test
    plt.rcParams |= {"font.size": 25, "font.family": "DejaVu Sans"}
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 5.6), width_ratios=(1, 1.1))
    _draw_map(left, load_encoder(run)(test.images), test.labels)
    _draw_bars(right, json.loads((run / "result.json").read_text()))
    figure.tight_layout(w_pad=2)
    figure.savefig(_TARGET, dpi=100, bbox_inches="tight", pad_inches=0.1)
    picture = Image.open(_TARGET).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    picture.save(_TARGET, optimize=True)


def _draw_map(axes, encodings: np.ndarray, labels: np.ndarray) -> None:
    """Draws the digit of each image, near those with similar encodings."""
    points = TSNE(random_state=0, init="pca").fit_transform(encodings)
    for point, label in zip(points, labels, strict=True):
        axes.text(*point, label, color=plt.cm.tab10(label), size=13, ha="center", va="center")
    axes.set(xlim=_limits(points[:, 0]), ylim=_limits(points[:, 1]), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_title("learned without labels", size=25, pad=24)


def _limits(values: np.ndarray) -> tuple[float, float]:
    return values.min() - 2, values.max() + 2


def _draw_bars(axes, results: list[dict]) -> None:
    """Draws the accuracies with one and with five labels a class."""
    names = []
    for result in results:
        baselines = result["baselines"]
        shown = (result, baselines["raw_pixels"], baselines["random_encoder"])
        for (name, colour), figures in zip(_BARS.items(), shown, strict=True):
            place = -len(names) - len(names) // 3
            percent = 100 * figures["accuracy"]
            axes.barh(place, percent, color=colour, height=0.9)
            text = f"{name} {percent:.0f} %"
            axes.text(2, place, text, color="white" if name == "encoder" else "black", va="center")
            names.append(name)
        count = result["labels_per_class"]
        axes.text(0, place + 2.95, f"{count} label{'s' * (count > 1)} a class:", va="center")
    axes.set(xlim=(0, 100), ylim=(-6.7, 0.9))
    axes.axis("off")
    axes.set_title("test accuracy with", size=25, loc="left", pad=24)


if __name__ == "__main__":
    main()
