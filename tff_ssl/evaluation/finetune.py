"""Full fine-tuning: encoder and a linear classifier, trained together on few labels.

DCCO paper, section 4 and Appendix B: Adam with cosine decay, flips as the only augmentation.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_ssl import optimizers
from tff_ssl.evaluation import features
from tff_ssl.evaluation.cases import Cases
from tff_ssl.evaluation.labels import Scores, score
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.views import augmentation


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
    """How the network is trained.

    Attributes:
      steps: Number of steps, over which the rate decays to zero by a cosine.
      batch_size: Labelled cases (or images) a step; all of them, if there are fewer.
      learning_rate: Initial rate of Adam.
    """

    steps: int
    batch_size: int
    learning_rate: float = 5e-3


FINETUNING = {
    "5000_labels": FinetuneConfig(steps=100, batch_size=256),
    "500_labels": FinetuneConfig(steps=40, batch_size=128),
}


def config_for(num_labels: int) -> FinetuneConfig:
    """Returns the paper's settings for 5000 labels, or below 1600 (between the two) for 500."""
    return FINETUNING["5000_labels" if num_labels >= 1600 else "500_labels"]


class Finetuner:
    """Fine-tunes from given encoder weights, any number of times, with one graph."""

    def __init__(
        self,
        encoder: DualEncoder,
        classes: int,
        config: FinetuneConfig,
        policy: str | augmentation.ViewPolicy = "flip",
        view_size: int | None = None,
    ):
        """Prepares.

        Args:
          encoder: The encoder, without heads.
          classes: Number of classes; its classifier starts at zero.
          config: How to train.
          policy: Augmentation of the training images.
          view_size: Side of the images that the encoder sees; None for the images' own.
        """
        self._model = dataclasses.replace(encoder, classes=classes)
        self._config = config
        optimizer = optimizers.build_scheduled_optimizer("adam", config.learning_rate, config.steps)
        self._optimizer = optimizer

        def step(weights, state, images, example_ids, case, labels, number):
            x = augmentation.view(
                policy, images, example_ids, seed=0, round_number=number, view_number=0,
                output_size=view_size,
            )  # fmt: skip
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                outputs = self._model.apply(weights, x, training=True)
                # The classifier is linear: the mean of logits is that of the mean encoding's.
                logits = tf.math.unsorted_segment_mean(outputs.logits, case, tf.shape(labels)[0])
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, weights.trainable)
            state, trainable = optimizer.next(state, weights.trainable, gradients)
            return Weights(tuple(trainable), outputs.non_trainable), state

        def classify(weights, images):
            x = augmentation.to_float(images, output_size=view_size)
            return self._model.apply(weights, x, training=False).logits

        # Cases have different numbers of images: one graph for all sizes.
        self._step = tf.function(step, reduce_retracing=True, autograph=False)
        self._classify = tf.function(classify, autograph=False)

    def train(
        self, encoder_weights: Any, images: np.ndarray, example_ids: np.ndarray, cases: Cases,
        chosen: np.ndarray, seed: Sequence[int],
    ) -> Weights:  # fmt: skip
        """Fine-tunes on some labelled cases.

        Args:
          encoder_weights: `Weights` of the encoder, which are not changed.
          images: uint8 [n, h, w, c].
          example_ids: int64 [n].
          cases: The images' cases.
          chosen: Indices of the labelled cases to train on.
          seed: Of the order of cases and the views.

        Returns:
          Weights of encoder and classifier.
        """
        weights = self._with_classifier(encoder_weights)
        specs = tuple(tf.TensorSpec(spec.shape) for spec in self._model.trainable_specs)
        state = self._optimizer.initialize(specs)
        rng = np.random.default_rng(seed)
        first_view = int(rng.integers(2**40))
        for number, batch in enumerate(self._batches(chosen, rng)):
            of_cases = cases.images_of(batch)
            indices = np.concatenate(of_cases)
            weights, state = self._step(
                weights,
                state,
                tf.constant(images[indices]),
                tf.constant(example_ids[indices]),
                tf.constant(np.repeat(np.arange(len(batch)), [len(i) for i in of_cases])),
                tf.constant(cases.labels[batch]),
                tf.constant(first_view + number, tf.int64),
            )
        return weights

    def scores(self, weights: Weights, images: np.ndarray, cases: Cases) -> Scores:
        """Accuracy per case, without augmentation; cases without a label take no part."""
        logits = features.extract(functools.partial(self._classify, weights), images)
        sums = np.zeros((len(cases.labels), logits.shape[1]))
        np.add.at(sums, cases.of_image, logits)
        known = cases.labels >= 0
        return score(sums.argmax(1)[known], cases.labels[known])

    def _with_classifier(self, encoder_weights: Any) -> Weights:
        start = self._model.init(0)  # Its classifier is zero whatever the seed.
        own = tuple(tf.convert_to_tensor(w) for w in encoder_weights.trainable)
        return Weights(
            own + start.trainable[len(own) :],
            tuple(tf.convert_to_tensor(w) for w in encoder_weights.non_trainable),
        )

    def _batches(self, chosen: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Permutations of the cases one after the other, cut into batches."""
        size = min(self._config.batch_size, len(chosen))
        epochs = -(-self._config.steps * size // len(chosen))
        order = np.concatenate([rng.permutation(chosen) for _ in range(epochs)])
        yield from order[: self._config.steps * size].reshape(self._config.steps, size)
