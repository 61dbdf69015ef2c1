"""Training of a linear softmax classifier on frozen features, by steps of an optimizer."""

import functools
from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation.scaling import ProbeSets


class Classifier(NamedTuple):
    """A linear classifier: its weights, float32 [d, classes], and biases, float32 [classes]."""

    kernel: tf.Tensor
    bias: tf.Tensor

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Indices of the predicted classes of features [n, d], int64 [n]."""
        return np.argmax(features @ np.asarray(self.kernel) + np.asarray(self.bias), axis=1)


class TrainingConfig(Hashable, Protocol):
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
    features_spec, targets_spec = tf.TensorSpec([None, None, size]), tf.TensorSpec([None], tf.int64)
    batch_spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(
        input_signature=[weights_spec, features_spec, targets_spec, batch_spec, batch_spec]
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


def trained_scores(
    sets: ProbeSets,
    config: TrainingConfig,
    kernel: np.ndarray,
    variants: np.ndarray,
    examples: np.ndarray,
    example_variants: np.ndarray,
) -> labelling.Scores:
    """Scores a classifier after its last step; no step is selected on test data.

    The initial weights are `kernel`, [d, classes], and biases of zero. The training features come
    in several variants, float32 [variants, n, d]; each step has the numbers of its examples and of
    their variants, integers [steps, batch].
    """
    classes, targets = np.unique(sets.train_labels, return_inverse=True)
    initial = Classifier(tf.constant(kernel, tf.float32), tf.zeros(len(classes)))
    trained = build_trainer(config, *kernel.shape)(
        initial, variants, targets, examples.astype(np.int32), example_variants.astype(np.int32)
    )
    return labelling.score(classes[trained.predict(sets.test_features)], sets.test_labels)
