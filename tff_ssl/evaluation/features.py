"""Features for evaluation: the encodings of a frozen encoder, and raw pixels."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Encode = Callable[[tf.Tensor], tf.Tensor]
_TF_FUNCTIONS = (tf.types.experimental.GenericFunction, tf.types.experimental.ConcreteFunction)


def extract(encode: Encode, images: np.ndarray, batch_size: int = 256) -> np.ndarray:
    """The features of all images, float32 [n, d], in the order of the images.

    All batches have one static shape, so that `encode` is traced once: the last batch is filled
    with copies of its last image, whose features are dropped. A plain function is wrapped in a
    `tf.function` for this call. To evaluate many versions of the weights without tracing again,
    pass `functools.partial(f, weights)` with the same `tf.function` `f` each time.

    Images are uint8 [n, h, w, c], n >= 1. The encoder, in inference mode, gives floating point
    features [b, d]; those of an image must not depend on the rest of its batch.

    Raises:
      ValueError: The images or the features do not have these shapes.
    """
    _check_images(images)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, found {batch_size}.")
    compiled = _compiled(encode)
    batch_size = min(batch_size, len(images))
    batches = []
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        padding = np.repeat(batch[-1:], batch_size - len(batch), axis=0)
        encoded = np.asarray(compiled(tf.constant(np.concatenate([batch, padding]))))
        if encoded.ndim != 2 or len(encoded) != batch_size:
            raise ValueError(
                f"The encoder must return features [{batch_size}, d] for {batch_size} images, "
                f"found shape {list(encoded.shape)}."
            )
        batches.append(encoded[: len(batch)].astype(np.float32))
    return np.concatenate(batches)


def raw_pixels(images: np.ndarray) -> np.ndarray:
    """The pixels as features: uint8 [n, h, w, c] to float32 [n, h * w * c] in [0, 1]."""
    _check_images(images)
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255.0)


def _compiled(encode: Any) -> Encode:
    """`encode` if it is a `tf.function` or a partial of one, otherwise a `tf.function` of it."""
    function = encode.func if isinstance(encode, functools.partial) else encode
    return encode if isinstance(function, _TF_FUNCTIONS) else tf.function(encode)


def _check_images(images: np.ndarray) -> None:
    if images.ndim != 4 or images.dtype != np.uint8 or len(images) == 0:
        raise ValueError(
            "Images must be uint8 [n, height, width, channels] with n >= 1, found "
            f"{images.dtype} {list(images.shape)}."
        )
