"""Keeps the encoder of the round with the best kNN accuracy on training images."""

import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_ssl import whole_files
from tff_ssl.models.dual_encoder import Weights

Monitor = Callable[[Any], dict[str, float]]  # State -> metrics by name.


class BestEncoder:
    """Wraps a run's monitor, and saves the weights whenever its accuracy is the best yet.

    Of equal accuracies, the first counts. A resumed run finds the file again, even if it had ended;
    a round that is repeated writes the same weights again.
    """

    def __init__(self, path: pathlib.Path, monitor: Monitor, weights_of: Callable[[Any], Weights]):
        """Wraps a monitor, whose metrics have a `knn_accuracy`."""
        self._path, self._monitor, self._weights_of = path, monitor, weights_of

    def monitor(self, state: Any) -> dict[str, float]:
        """The metrics of the wrapped monitor."""
        metrics = self._monitor(state)
        accuracy = metrics["knn_accuracy"]
        if accuracy > self._best_accuracy():
            flat = map(np.asarray, tf.nest.flatten(self._weights_of(state)))
            with whole_files.replacing(self._path, private=True) as new, open(new, "wb") as file:
                np.savez(file, *flat, accuracy=accuracy)
        return metrics

    def weights(self, like: Weights) -> Weights:
        """The best weights, in the structure of `like`, of the same model."""
        with np.load(self._path) as file:
            flat = [file[f"arr_{i}"] for i in range(len(tf.nest.flatten(like)))]
        return tf.nest.pack_sequence_as(like, flat)

    def _best_accuracy(self) -> float:
        """The accuracy of the weights in the file; minus infinity without a file."""
        if not self._path.exists():
            return -math.inf
        with np.load(self._path) as file:
            return float(file["accuracy"])
