"""A run's pictures for TensorBoard: augmented views, and encodings in the embedding projector."""

import io
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from PIL import Image
from tensorboard.plugins import projector
from tensorboard.plugins.projector import metadata

from launch.pages import image_samples
from launch.pages.run_page import Shown
from tff_ssl import whole_files

_SPRITE = 32  # Side of an image in the projector, pixels.
_FOLDER = "projector"


def write(folder: pathlib.Path, shown: Shown, rounds: int) -> None:
    """Writes the views, at step `rounds`, and the encodings with their classes and images."""
    _write_views(folder, shown, rounds)
    _write_encodings(folder, shown)


def _write_views(folder: pathlib.Path, shown: Shown, rounds: int) -> None:
    """Writes rows of an image and its two views; TensorBoard shows 1, 3 or 4 channels."""
    views = shown.views
    side = views.first.shape[1:3]
    images = tf.image.resize(views.images, side, method="nearest").numpy()
    rows = np.concatenate([images, views.first, views.second], axis=2)
    if rows.shape[-1] not in (1, 3, 4):
        rows = rows[..., :1]
    # TensorBoard's writer lets everybody read its file, and this one has images.
    with tempfile.TemporaryDirectory(".new", ".views.", folder) as scratch:
        writer = tf.summary.create_file_writer(scratch)
        with writer.as_default():
            tf.summary.image("image and its two views", rows, step=rounds, max_outputs=len(rows))
        writer.close()
        for path in pathlib.Path(scratch).iterdir():
            whole_files.write(folder / path.name, path.read_bytes(), private=True)


def _write_encodings(folder: pathlib.Path, shown: Shown) -> None:
    """Writes the encodings of each encoder, their classes and a sprite of their images."""
    inside = folder / _FOLDER
    inside.mkdir(parents=True, exist_ok=True)
    mapped = shown.sample.mapped
    names = [image_samples.class_name(shown.sample, label) for label in mapped.labels]
    # One name a line, without a header; a tab or a line feed would split a name.
    lines = (" ".join(name.split()) for name in names)
    whole_files.write(inside / "classes.tsv", "\n".join(lines) + "\n", private=True)
    whole_files.write(inside / "images.png", _sprite(mapped.images), private=True)
    config = projector.ProjectorConfig()
    for name, encodings in shown.encodings.items():
        path = inside / f"{name.replace(' ', '_')}.tsv"
        table = io.BytesIO()
        np.savetxt(table, encodings.mapped, fmt="%.5g", delimiter="\t")
        whole_files.write(path, table.getvalue(), private=True)
        embedding = config.embeddings.add()
        embedding.tensor_name = name
        embedding.tensor_path = f"{_FOLDER}/{path.name}"
        embedding.metadata_path = f"{_FOLDER}/classes.tsv"
        embedding.sprite.image_path = f"{_FOLDER}/images.png"
        embedding.sprite.single_image_dim.extend([_SPRITE, _SPRITE])
    whole_files.write(folder / metadata.PROJECTOR_FILENAME, str(config))


def _sprite(images: np.ndarray) -> bytes:
    """A PNG of all images in order, in the rows of a square, as the projector expects them."""
    columns = int(np.ceil(np.sqrt(len(images))))
    sheet = Image.new("RGB", (columns * _SPRITE, columns * _SPRITE))
    for number, image in enumerate(images):
        small = image_samples.picture(image).convert("RGB").resize((_SPRITE, _SPRITE))
        sheet.paste(small, (number % columns * _SPRITE, number // columns * _SPRITE))
    buffer = io.BytesIO()
    sheet.save(buffer, "png")
    return buffer.getvalue()
