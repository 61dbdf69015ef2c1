"""Folders in COCO's layout with drawn shapes: circles and rectangles on noise."""

import json
import pathlib

import numpy as np
from PIL import Image, ImageDraw

CATEGORIES = [{"id": 7, "name": "circle"}, {"id": 90, "name": "rectangle"}]


def write(folder: pathlib.Path, train: int, validation: int, seed: int = 0) -> pathlib.Path:
    """Writes a folder with this number of images of about 80x64 pixels; returns it.

    Masks of circles are polygons, and those of rectangles are run lengths.
    """
    rng = np.random.default_rng(seed)
    (folder / "annotations").mkdir(parents=True)
    for split, count in (("train2017", train), ("val2017", validation)):
        (folder / split).mkdir()
        images, annotations = [], []
        for number in range(1, count + 1):
            height, width = 64, int(rng.integers(72, 88))
            pixels = rng.integers(0, 60, (height, width, 3), np.uint8)
            picture = Image.fromarray(pixels)
            for category in CATEGORIES:
                box, segmentation = _draw(picture, category["name"], rng)
                annotations.append(
                    {
                        "id": len(annotations) + 1, "image_id": number, "iscrowd": 0,
                        "category_id": category["id"], "bbox": box, "area": box[2] * box[3],
                        "segmentation": segmentation,
                    }
                )  # fmt: skip
            name = f"{number:012}.png"
            picture.save(folder / split / name)
            images.append({"id": number, "file_name": name, "height": height, "width": width})
        content = {
            "info": {}, "images": images, "annotations": annotations, "categories": CATEGORIES,
        }  # fmt: skip
        path = folder / "annotations" / f"instances_{split}.json"
        path.write_text(json.dumps(content))
    return folder


def _draw(picture: Image.Image, kind: str, rng: np.random.Generator):
    """Draws a shape; returns its box (left, top, width, height) and its mask."""
    side = int(rng.integers(20, 32))
    left = int(rng.integers(0, picture.width - side))
    top = int(rng.integers(0, picture.height - side))
    draw = ImageDraw.Draw(picture)
    corners = [left, top, left + side - 1, top + side - 1]
    if kind == "circle":
        draw.ellipse(corners, fill=(230, 60, 60))
        angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        x = left + side / 2 + side / 2 * np.cos(angles)
        y = top + side / 2 + side / 2 * np.sin(angles)
        return [left, top, side, side], [np.stack([x, y], 1).ravel().tolist()]
    draw.rectangle(corners, fill=(60, 90, 230))
    mask = np.zeros((picture.height, picture.width), np.uint8)
    mask[top : top + side, left : left + side] = 1
    flat = mask.ravel(order="F")
    changes = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff([0, *changes, len(flat)]).tolist()
    counts = counts if flat[0] == 0 else [0, *counts]
    return [left, top, side, side], {"size": list(mask.shape), "counts": counts}
