"""Pictures of a fine-tuning for detection: detections in images, and learning curves."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from datasets import glyphs
from datasets.coco_folder import CocoImages
from launch.outputs import plots
from tff_ssl.reporting import checked_files

_COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000")
_OPACITY = 0.45
_MOST_SHOWN = 8  # Detections of an image.
_SMALLEST_SCORE = 0.3


def draw_detections(
    images: CocoImages,
    detections: Mapping[int, Sequence[Mapping[str, Any]]],
    path: pathlib.Path,
    count: int,
) -> None:
    """Draws annotations and detections of the first `count` images; writes a PNG.

    Of an image's `average_precision.detections_of_image`, by its id, the 8 with the highest scores
    of 0.3 or more are shown.
    """
    count = min(count, len(images))
    figure = Figure(figsize=(3.2 * count, 6.2), layout="constrained")
    panels = figure.subplots(2, count, squeeze=False)
    names = dict(zip(images.category_ids, images.class_names, strict=True))
    for index in range(count):
        image_id, pixels = images.image_ids[index], images.image(index)
        annotated = images.truth.imgToAnns.get(image_id, [])
        found = sorted(detections.get(image_id, []), key=lambda d: -d["score"])[:_MOST_SHOWN]
        found = [d for d in found if d["score"] >= _SMALLEST_SCORE]
        for axes, instances, title in (
            (panels[0][index], annotated, f"annotated: {len(annotated)}"),
            (panels[1][index], found, f"detected: {len(found)}"),
        ):
            _draw_instances(axes, pixels, instances, images.truth, names)
            axes.set_title(f"image {image_id}, {title}", fontsize=8)
    plots.save(figure, path, private=True)


def _draw_instances(axes, pixels, instances, truth, names: Mapping[int, str]) -> None:
    """Draws an image with boxes, masks and names of instances."""
    shown = pixels.astype(np.float32) / 255
    for number, instance in enumerate(instances):
        colour = _COLOURS[number % len(_COLOURS)]
        rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        mask = truth.annToMask(instance).astype(bool)
        shown[mask] = (1 - _OPACITY) * shown[mask] + _OPACITY * rgb
        left, top, width, height = instance["bbox"]
        axes.add_patch(Rectangle((left, top), width, height, fill=False, color=colour))
        score = f" {instance['score']:.2f}" if "score" in instance else ""
        axes.text(
            left, top, glyphs.label(f"{names[instance['category_id']]}{score}"), color="white",
            fontsize=6, va="bottom", bbox={"facecolor": colour, "edgecolor": "none", "pad": 1},
            clip_on=True,
        )  # fmt: skip
    axes.imshow(shown)
    axes.set_axis_off()


def ends_of_loss(metrics_csv: pathlib.Path) -> tuple[float, float]:
    """The mean losses of the first and the last tenth of the steps."""
    losses = [loss for _, loss in _points(metrics_csv, "loss")]
    tenth = max(len(losses) // 10, 1)
    return float(np.mean(losses[:tenth])), float(np.mean(losses[-tenth:]))


def draw_curves(folder: pathlib.Path, starts: Sequence[str], path: pathlib.Path) -> None:
    """Draws losses, and average precisions on training images, of all starts; writes a PNG."""
    columns = {
        "loss (mean of 10 steps)": "loss",
        "box AP on training images": "train_box_ap",
        "mask AP on training images": "train_mask_ap",
    }
    figure = Figure(figsize=(10.5, 3), layout="constrained")
    for axes, (title, column) in zip(figure.subplots(1, 3), columns.items(), strict=True):
        for start, colour in zip(starts, _COLOURS, strict=False):
            points = np.array(_points(folder / start / "metrics.csv", column)).reshape(-1, 2)
            if column == "loss":
                points = points[: len(points) // 10 * 10].reshape(-1, 10, 2).mean(1)
            axes.plot(*points.T, marker=".", color=colour, label=start)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    plots.save(figure, path)


def _points(metrics_csv: pathlib.Path, column: str) -> list[tuple[float, float]]:
    """Step and value of the rows that have a value in a column."""
    rows = checked_files.read_metrics(metrics_csv)
    return [(row["round"], row[column]) for row in rows if column in row]
