"""`launch.probes.probing`: the kNN monitor, and encodings that are not finite."""

import numpy as np
import pytest
import tensorflow as tf

from datasets.image_dataset import ImageDataset, Split
from launch.probes import probing
from tff_ssl.errors import TrainingError


def test_encodings_that_are_not_finite_are_a_diverged_training():
    # Images of class k have brightness k, and the encoding 1 / (bad - k).
    labels = np.repeat(np.arange(4, dtype=np.int32), 5)
    images = np.broadcast_to(labels[:, None, None, None], (20, 8, 8, 1)).astype(np.uint8)
    split = Split(images, labels, np.arange(20))
    dataset = ImageDataset("d", split, split, tuple("abcd"))

    @tf.function
    def encode(bad, batch):
        return 1.0 / (bad - tf.reduce_mean(tf.cast(batch, tf.float32), (2, 3)))

    monitor = probing.build_monitor(dataset, encode, lambda state: tf.constant(state))
    assert 0.0 <= monitor(9.0)["knn_accuracy"] <= 1.0
    with pytest.raises(TrainingError, match=r"of 5 of 20 images are not finite: .*diverged"):
        monitor(3.0)


def test_monitor_of_unbalanced_classes():
    # All images are equal, so that any 20 may be nearest; the five of class 1 are always outvoted.
    labels = np.repeat(np.arange(2, dtype=np.int32), [95, 5])
    split = Split(np.ones((100, 8, 8, 1), np.uint8), labels, np.arange(100))

    @tf.function
    def encode(weights, batch):
        return weights + tf.reduce_mean(tf.cast(batch, tf.float32), (2, 3))

    dataset = ImageDataset("d", split, split, ("a", "b"))
    monitor = probing.build_monitor(dataset, encode, lambda state: tf.constant(state))
    assert monitor(0.0) == {"knn_accuracy": 0.95, "knn_balanced_accuracy": 0.5}
