"""Keeps the encoder of the round with the best kNN accuracy on training images."""

import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_ssl.models.dual_encoder import Weights

Monitor = Callable[[Any], dict[str, float]]  # State -> metrics by name.


class BestEncoder:
    """Wraps a run's monitor, and writes the weights to a file where its accuracy is the best yet.

    Of rounds with equal accuracies, the first one counts. A resumed run finds the file again, also
    one that had ended. If the file is from a round that has to be repeated, the same weights come
    out again.
    """

    def __init__(self, path: pathlib.Path, monitor: Monitor, weights_of: Callable[[Any], Weights]):
        """Wraps a monitor, whose metrics have a `knn_accuracy`."""
        self._path = path
        self._monitor = monitor
        self._weights_of = weights_of

    def monitor(self, state: Any) -> dict[str, float]:
        """The metrics of the wrapped monitor."""
        metrics = self._monitor(state)
        accuracy = metrics["knn_accuracy"]
        if accuracy > self._best_accuracy():
            flat = map(np.asarray, tf.nest.flatten(self._weights_of(state)))
            temporary = self._path.with_name(f"{self._path.name}.new")
            with open(temporary, "wb") as file:
                np.savez(file, *flat, accuracy=accuracy)
            os.replace(temporary, self._path)
        return metrics

    def weights(self, like: Weights) -> Weights:
        """The best weights, in the structure of others of the same model."""
        with np.load(self._path) as file:
            flat = [file[f"arr_{i}"] for i in range(len(tf.nest.flatten(like)))]
        return tf.nest.pack_sequence_as(like, flat)

    def _best_accuracy(self) -> float:
        """The accuracy of the weights in the file; minus infinity if there is none."""
        if not self._path.exists():
            return -math.inf
        with np.load(self._path) as file:
            return float(file["accuracy"])
