"""The monitor: effective rank and nearest neighbours of encodings of training images."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.image_dataset import ImageDataset
from tff_ssl.errors import TrainingError
from tff_ssl.evaluation import effective_rank, features, knn

_MONITOR_EXAMPLES = 2000
_MONITOR_SEED = 0

Encode = Callable[[tf.Tensor], tf.Tensor]


def build_monitor(dataset: ImageDataset, encode, weights_of) -> Callable[[Any], dict[str, float]]:
    """Builds a monitor of the encodings of training images; it uses no test image.

    It computes their effective rank, and classifies each labelled image by its nearest neighbours
    among the others. Balanced accuracy is measured too, because accuracy is high for any encoder if
    most images are of one class.

    Args:
      encode: `saved_model.encoder_function` of the model.
      weights_of: Function from a state to the model's weights.

    Returns:
      Function from a state to `effective_rank` and, if there are labels, `knn_accuracy` and
      `knn_balanced_accuracy`.
    """
    images, classes = dataset.train.images, dataset.train.labels
    chosen = _draw_monitored(np.arange(len(images)))
    labelled = _draw_monitored(np.flatnonzero(classes >= 0))

    def monitor(state: Any) -> dict[str, float]:
        encode_now = functools.partial(encode, weights_of(state))
        h = encodings(encode_now, images[chosen])
        metrics = {"effective_rank": _rounded_rank(h)}
        if len(labelled) < 2:
            return metrics
        if not np.array_equal(labelled, chosen):
            h = encodings(encode_now, images[labelled])
        scores = knn.leave_one_out_knn(h, classes[labelled])
        balanced = scores.balanced_accuracy
        return metrics | {"knn_accuracy": scores.accuracy, "knn_balanced_accuracy": balanced}

    return monitor


def rank_of(dataset: ImageDataset, encode: Encode) -> float:
    """The effective rank of an encoder's encodings of the monitored training images."""
    images = dataset.train.images
    return _rounded_rank(encodings(encode, images[_draw_monitored(np.arange(len(images)))]))


def _draw_monitored(candidates: np.ndarray) -> np.ndarray:
    """Draws the indices of the monitored images, int64 [at most 2000], sorted."""
    rng = np.random.default_rng(_MONITOR_SEED)
    return np.sort(rng.permutation(candidates)[:_MONITOR_EXAMPLES])


def _rounded_rank(h: np.ndarray) -> float:
    """The effective rank to four decimals, which do not depend on the order of summation."""
    return round(effective_rank.effective_rank(h), 4)


def encodings(encode: Encode, images: np.ndarray) -> np.ndarray:
    """Encodings of images, float32 [n, features]; a TrainingError if any is not finite."""
    h = features.extract(encode, images)
    not_finite = np.count_nonzero(~np.isfinite(h).all(1))
    if not_finite:
        raise TrainingError(
            f"the encodings of {not_finite} of {len(h)} images are not finite: training diverged"
        )
    return h
