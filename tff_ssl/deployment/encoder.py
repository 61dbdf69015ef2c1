"""Pretrained encoders for other programs: images in, features out, in plain TensorFlow."""

import atexit
import gc
import os
import pathlib
import weakref

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tff_ssl.deployment import encoder_weights
from tff_ssl.deployment.encoder_weights import StoredEncoder
from tff_ssl.errors import ConfigurationError

_BATCH = 256  # Images that are encoded at a time.
_encoders: "weakref.WeakSet[Encoder]" = weakref.WeakSet()


@atexit.register
def _release_functions() -> None:
    """Deletes all encoders' functions before TensorFlow's modules, which would print errors."""
    for encoder in _encoders:
        del encoder._encode
    gc.collect()  # A function is part of reference cycles.


class Encoder:
    """A pretrained encoder: a function from images to features.

    Attributes:
      image_shape: Height, width and channels of the training images.
      features: Number of features of an image.
    """

    def __init__(self, stored: StoredEncoder):
        self.image_shape = stored.image_shape
        self.features = stored.model.features
        *self._size, self._channels = stored.image_shape

        def encode(x):
            if stored.view_size:
                x = tf.image.resize(x, [stored.view_size, stored.view_size])
            return stored.model.apply(stored.weights, x * 2.0 - 1.0, training=False).h

        signature = [tf.TensorSpec([None, *stored.image_shape])]
        self._encode = tf.function(encode, signature, autograph=False)
        _encoders.add(self)

    def __call__(self, images: npt.ArrayLike | tf.Tensor) -> npt.NDArray[np.float32]:
        """The features h, float32 [n, features]; [features] for one image.

        Args:
          images: Images [n, height, width, channels], n >= 0, or one image [height, width,
            channels]. Whole numbers are from 0 to 255, floating-point numbers from 0 to 1. Images
            of another height or width than `image_shape` are resized (bilinear, antialiased).

        Raises:
          ValueError: If the images have another shape, type or range of values.
        """
        batch = np.asarray(images)
        single = batch.ndim == 3 and batch.shape[-1] == self._channels
        batch = batch[np.newaxis] if single else batch
        self._check_shape(batch)
        check_values(batch)
        parts = [self._features_of(batch[i : i + _BATCH]) for i in range(0, len(batch), _BATCH)]
        features = np.concatenate([np.zeros([0, self.features], np.float32), *parts])
        return features[0] if single else features

    def _features_of(self, images: np.ndarray) -> npt.NDArray[np.float32]:
        x = tf.convert_to_tensor(images.astype(np.float32))
        if images.dtype.kind in "iu":
            x = x * (1 / 255)
        if list(images.shape[1:3]) != self._size:
            x = tf.image.resize(x, self._size, antialias=True)
        return self._encode(x).numpy()

    def _check_shape(self, images: np.ndarray) -> None:
        if images.ndim != 4 or images.shape[-1] != self._channels or 0 in images.shape[1:3]:
            raise ValueError(
                f"images must be [n, height, width, {self._channels}] or [height, width, "
                f"{self._channels}], with {self._channels} channels in the last dimension; got "
                f"{list(images.shape)}"
            )


def check_values(images: np.ndarray) -> None:
    """Checks the values of images.

    Raises:
      ValueError: If they are neither whole numbers from 0 to 255 nor floating-point numbers from 0
        to 1.
    """
    if images.dtype.kind not in "iuf":
        raise ValueError(f"images must be whole or floating-point numbers; got {images.dtype}")
    if images.size == 0:
        return
    low, high = images.min(), images.max()
    if images.dtype.kind == "f" and not (low >= 0 and high <= 1):
        raise ValueError(
            f"floating-point images must be from 0 to 1; these are from {low:.4g} to {high:.4g}: "
            "divide by the largest possible value, or give uint8 images"
        )
    if images.dtype.kind in "iu" and not (low >= 0 and high <= 255):
        raise ValueError(
            f"images of whole numbers must be from 0 to 255; these are from {low} to {high}: scale "
            "16-bit images by 255 / 65535, or give floating-point numbers from 0 to 1"
        )


def load_encoder(path: str | os.PathLike[str]) -> Encoder:
    """Reads an encoder from a run, its `encoder/`, or the `weights.npz` in that folder.

    >>> encode = tff_ssl.load_encoder("my_run")
    >>> encode(images).shape  # Images of any size, uint8 or from 0 to 1.
    (240, 64)

    Nothing in the file is run but the graph of a model of its own, whose operations only compute.
    TFF is not imported.

    Raises:
      ConfigurationError: If there is no encoder, or it is damaged or of another format.
    """
    path = pathlib.Path(path)
    for folder in (path / "encoder", path):
        if (folder / encoder_weights.FILE_NAME).is_file():
            return Encoder(encoder_weights.read(folder))
    if path.is_file():
        return Encoder(encoder_weights.read(path))
    raise ConfigurationError(
        f"{path} holds no encoder"
        + (
            encoder_weights.advice(path)
            or ": name the folder of a run or of its encoder/, with a " + encoder_weights.FILE_NAME
        )
    )
