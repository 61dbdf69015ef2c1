"""The encoder of the round with the best kNN accuracy, also where a run is resumed."""

import numpy as np
import tensorflow as tf

from launch.runs.best_encoder import BestEncoder
from tff_ssl.models.dual_encoder import Weights


def weights_of(state):
    return Weights((tf.fill([2, 3], float(state)), tf.fill([3], -float(state))), (tf.ones([1]),))


def test_the_first_round_of_the_best_accuracy_is_kept_also_after_resuming(tmp_path):
    accuracies = [0.3, 0.8, 0.6, 0.8, 0.7]

    def build():
        return BestEncoder(
            tmp_path / "best.npz", lambda s: {"knn_accuracy": accuracies[s], "x": 1.0}, weights_of
        )

    first = build()
    for state in range(4):
        assert first.monitor(state) == {"knn_accuracy": accuracies[state], "x": 1.0}
    resumed = build()
    for state in range(2, 5):  # Rounds after the checkpoint are repeated.
        resumed.monitor(state)
    best = resumed.weights(weights_of(4))
    for found, expected in zip(tf.nest.flatten(best), tf.nest.flatten(weights_of(1)), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert isinstance(best, Weights)
    assert [path.name for path in tmp_path.iterdir()] == ["best.npz"]
