"""Training of a linear softmax classifier on frozen features, by steps of an optimizer."""

import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


class Classifier(NamedTuple):
    """A linear classifier.

    Attributes:
      kernel: Weights, float32 [d, classes].
      bias: Biases, float32 [classes].
    """

    kernel: tf.Tensor
    bias: tf.Tensor

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Indices of the predicted classes of features [n, d], int64 [n]."""
        return np.argmax(features @ np.asarray(self.kernel) + np.asarray(self.bias), axis=1)


class TrainingConfig(Protocol):
    """Settings of a training; hashable, as one graph is built per configuration and shape."""

    def build_optimizer(self) -> tff.learning.optimizers.Optimizer:
        """The optimizer, with its schedule."""


@functools.lru_cache(maxsize=16)
def build_trainer(config: TrainingConfig, size: int, num_classes: int) -> Callable[..., Classifier]:
    """Builds one graph of all steps, for any number of steps and examples.

    Returns:
      A function from the initial classifier, the features (float32 [variants, n, size]), the class
      indices (int64 [n]), the examples of each step and the variant of each of them (both int32
      [steps, batch]) to the trained classifier.
    """
    optimizer = config.build_optimizer()
    weights_spec = Classifier(tf.TensorSpec([size, num_classes]), tf.TensorSpec([num_classes]))
    batch_spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(
        input_signature=[
            weights_spec,
            tf.TensorSpec([None, None, size]),
            tf.TensorSpec([None], tf.int64),
            batch_spec,
            batch_spec,
        ]
    )
    def train(classifier, features, targets, examples, variants):
        state = optimizer.initialize(weights_spec)
        for step in tf.range(tf.shape(examples)[0]):
            x = tf.gather_nd(features, tf.stack([variants[step], examples[step]], axis=1))
            y = tf.gather(targets, examples[step])
            with tf.GradientTape() as tape:
                tape.watch(classifier)
                logits = x @ classifier.kernel + classifier.bias  # [batch, num_classes]
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, classifier)
            state, classifier = optimizer.next(state, classifier, gradients)
        return classifier

    return train
