"""The images that a run page shows: augmented views, 2-D maps of encodings, neighbours.

Samples are small and seeded, so that a page of a large data set costs little, and is the same each
time.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

from datasets.image_dataset import ImageDataset, Split
from tff_ssl.analysis import feature_maps
from tff_ssl.evaluation import features, labels
from tff_ssl.reporting.page import Photo
from tff_ssl.views.augmentation import TwoViews

Encode = Callable[[tf.Tensor], tf.Tensor]
VIEWED = 8  # Training images whose views are shown.
MAPPED = 300  # Images whose encodings are on the 2-D map.
_MAP_STEPS = 500  # Steps of t-SNE.
_BANK = 1000  # Largest number of training images among which neighbours are searched.
_BANK_BYTES = 64e6  # Their largest size.
QUERIES, NEIGHBOURS = 12, 5
_SMALLEST, _LARGEST = 48, 96  # Sides of the shown images in pixels.
_STREAM = 0x7A6E  # Separates these draws from those of training.


class Views(NamedTuple):
    """Training images and their two views in round 0, all uint8."""

    images: np.ndarray  # [n, h, w, c].
    first: np.ndarray  # [n, view h, view w, c].
    second: np.ndarray


class Sample(NamedTuple):
    """Images whose encodings are shown, and those among which neighbours are searched."""

    # Test images, evenly over the classes if there are labels; training images if there are no test
    # images.
    mapped: Split
    split: str  # Name of their split, `test` or `training`.
    bank: Split  # Training images that are not mapped.
    # Indices into `mapped` of the images whose neighbours are shown, int64 [at most 12].
    queries: np.ndarray
    class_names: Sequence[str]


class Encodings(NamedTuple):
    """Encodings of a sample by one encoder, float32 [images, features]."""

    mapped: np.ndarray
    bank: np.ndarray


def draw_views(train: Split, make_views: TwoViews, seed: int) -> Views:
    """Draws training images, and computes their views in round 0."""
    rng = np.random.default_rng([seed, _STREAM, 0])
    chosen = np.sort(rng.choice(len(train), min(VIEWED, len(train)), replace=False))
    images = train.images[chosen]
    first, second = make_views(
        tf.constant(images), tf.constant(train.example_ids[chosen]), tf.constant(0, tf.int64)
    )
    return Views(images, _to_uint8(first), _to_uint8(second))


def _to_uint8(views: tf.Tensor) -> np.ndarray:
    """[-1, 1] to 0 ... 255."""
    return np.clip(np.rint((np.asarray(views) + 1) * 127.5), 0, 255).astype(np.uint8)


def draw_sample(dataset: ImageDataset, seed: int) -> Sample:
    """Draws the images whose encodings are shown."""
    rng = np.random.default_rng([seed, _STREAM, 1])
    order = rng.permutation(len(dataset.train))
    if len(dataset.test) >= 3:
        mapped, split = dataset.test.take(evenly_drawn(dataset.test, MAPPED, rng)), "test"
    else:
        count = min(MAPPED, len(order) // 2)
        mapped, split = dataset.train.take(np.sort(order[:count])), "training"
        order = order[count:]
    size = int(min(_BANK, max(NEIGHBOURS, _BANK_BYTES // dataset.train.images[0].nbytes)))
    bank = dataset.train.take(np.sort(order[:size]))
    return Sample(mapped, split, bank, evenly_drawn(mapped, QUERIES, rng), dataset.class_names)


def evenly_drawn(split: Split, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws indices, evenly over the classes if there are enough labels, int64 [<= count]."""
    labelled = np.flatnonzero(split.labels >= 0)
    count = min(count, len(split))
    if len(labelled) >= count >= len(np.unique(split.labels[labelled])) > 0:
        return labels.draw_labels(split.labels, rng, total=count, even=True)
    candidates = labelled if len(labelled) >= count else np.arange(len(split))
    return np.sort(rng.choice(candidates, count, replace=False))


def encode(sample: Sample, encoder: Encode) -> Encodings:
    """Encodes a sample; in one call, because each batch size would be traced separately."""
    images = np.concatenate([sample.mapped.images, sample.bank.images])
    encodings = labels.finite_features("shown", features.extract(encoder, images))
    return Encodings(*np.split(encodings, [len(sample.mapped)]))


def raw_pixels(sample: Sample) -> Encodings:
    """Raw pixels in place of encodings."""
    images = np.concatenate([sample.mapped.images, sample.bank.images])
    return Encodings(*np.split(features.raw_pixels(images), [len(sample.mapped)]))


def place(encodings: Mapping[str, Encodings], seed: int) -> dict[str, np.ndarray]:
    """Places each encoder's mapped encodings in their own plane by t-SNE, float32 [n, 2]."""
    return {
        name: feature_maps.feature_map(of_encoder.mapped, seed, _MAP_STEPS).points
        for name, of_encoder in encodings.items()
    }


def nearest(encodings: Encodings) -> np.ndarray:
    """The bank's images nearest to each mapped image by cosine, int64 [mapped, <= 5]."""
    mapped, bank = (
        part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12) for part in encodings
    )
    return np.argsort(-(mapped @ bank.T), axis=1, kind="stable")[:, :NEIGHBOURS]


def agreement(sample: Sample, encodings: Encodings) -> float | None:
    """Share of labelled neighbours with the class of their image; None without labels."""
    neighbours = sample.bank.labels[nearest(encodings)]
    own = sample.mapped.labels[:, None]
    known = (neighbours >= 0) & (own >= 0)
    return float((neighbours == own)[known].mean()) if known.any() else None


def view_photos(views: Views) -> list[list[Photo]]:
    """A row for each image: the image and its two views."""
    texts = (("image", "first"), ("view 1",), ("view 2",))
    return [
        [Photo(thumbnail(image), *text) for image, text in zip(row, texts, strict=True)]
        for row in zip(*views, strict=True)
    ]


def neighbour_photos(sample: Sample, encodings: Encodings) -> list[list[Photo]]:
    """A row for each query: the image and its nearest training images."""
    neighbours = nearest(encodings)
    rows = []
    for query in sample.queries:
        label = sample.mapped.labels[query]
        row = [Photo(thumbnail(sample.mapped.images[query]), class_name(sample, label), "first")]
        for k in neighbours[query]:
            other = sample.bank.labels[k]
            text = class_name(sample, other)
            row.append(Photo(thumbnail(sample.bank.images[k]), text, frame(label, other)))
        rows.append(row)
    return rows


def frame(label: int, other: int) -> str:
    """The frame of an image that is like another one: by its class, or none without labels."""
    return "" if min(label, other) < 0 else "near" if label == other else "far"


def class_name(sample: Sample, label: int) -> str:
    return sample.class_names[label] if label >= 0 else "no label"


def thumbnail(image: np.ndarray) -> bytes:
    """A small PNG or JPEG of an image, enlarged pixel by pixel or shrunk.

    `image` is uint8 [h, w, c]; of other numbers of channels than 1, 3 and 4, the first is shown.
    """
    shown = picture(image)
    side = max(shown.size)
    if side < _SMALLEST:
        shown = ImageOps.scale(shown, -(-_SMALLEST // side), Image.Resampling.NEAREST)
    elif side > _LARGEST:
        shown.thumbnail((_LARGEST, _LARGEST))
    buffer = io.BytesIO()
    if side < _SMALLEST or shown.mode == "RGBA":
        shown.save(buffer, "png", optimize=True)
    else:
        shown.save(buffer, "jpeg", quality=88)
    return buffer.getvalue()


def small_jpeg(image: np.ndarray, side: int) -> bytes:
    """A JPEG of an image, uint8 [h, w, c], shrunk to `side` pixels; pages enlarge smaller ones."""
    shown = picture(image)
    if shown.mode == "RGBA":
        shown = shown.convert("RGB")
    shown.thumbnail((side, side))
    buffer = io.BytesIO()
    shown.save(buffer, "jpeg", quality=75)
    return buffer.getvalue()


def picture(image: np.ndarray) -> Image.Image:
    """The image as one of Pillow: of other numbers of channels than 3 and 4, the first."""
    if image.shape[-1] not in (3, 4):
        image = image[..., 0]
    return Image.fromarray(image)
