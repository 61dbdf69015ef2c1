"""Full fine-tuning: an encoder and a linear classifier are trained together on few labels.

DCCO paper, section 4 and Appendix B: Adam with cosine decay, flips as the only augmentation.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_ssl import optimizers
from tff_ssl.evaluation import features
from tff_ssl.evaluation.cases import Cases, sum_over_images
from tff_ssl.evaluation.labels import Scores, permuted_batches, score
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.views import augmentation
from tff_ssl.views.policies import ViewPolicy


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
    """Settings of the training."""

    steps: int  #: Number of steps; the learning rate decays to zero over them by a cosine.
    #: Number of labelled cases (or images) per step; all of them, if there are fewer.
    batch_size: int
    learning_rate: float = 5e-3  #: Initial learning rate of Adam.


FINETUNING = {
    "5000_labels": FinetuneConfig(steps=100, batch_size=256),
    "500_labels": FinetuneConfig(steps=40, batch_size=128),
}


def config_for(num_labels: int) -> FinetuneConfig:
    """The paper's settings for 5000 labels from 1600 labels on, otherwise those for 500."""
    return FINETUNING["5000_labels" if num_labels >= 1600 else "500_labels"]


class Finetuner:
    """Fine-tunes encoders of one architecture; the graph is shared by all calls of `train`."""

    def __init__(
        self,
        encoder: DualEncoder,
        classes: int,
        config: FinetuneConfig,
        policy: str | ViewPolicy = "flip",
        view_size: int | None = None,
    ):
        """Builds the training step for an encoder without heads.

        Images are augmented by the policy, with sides of `view_size` pixels; None for the original
        size.
        """
        self._model = dataclasses.replace(encoder, classes=classes)
        self._config = config
        optimizer = optimizers.build_scheduled_optimizer("adam", config.learning_rate, config.steps)
        self._optimizer = optimizer

        def step(weights, state, images, example_ids, case_of_image, labels, round_number):
            x = augmentation.view(
                policy, images, example_ids, seed=0, round_number=round_number,
                view_number=0, output_size=view_size,
            )  # fmt: skip
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                outputs = self._model.apply(weights, x, training=True)
                # The classifier is linear: the mean logits are those of the images' mean encoding.
                logits = tf.math.unsorted_segment_mean(
                    outputs.logits, case_of_image, tf.shape(labels)[0]
                )
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, weights.trainable)
            state, trainable = optimizer.next(state, weights.trainable, gradients)
            return Weights(tuple(trainable), outputs.non_trainable), state

        def classify(weights, images):
            x = augmentation.to_float(images, output_size=view_size)
            return self._model.apply(weights, x, training=False).logits

        # The number of images per batch varies with the cases; one graph serves all sizes.
        self._step = tf.function(step, reduce_retracing=True, autograph=False)
        self._classify = tf.function(classify, autograph=False)

    def train(
        self, encoder_weights: Any, images: np.ndarray, example_ids: np.ndarray, cases: Cases,
        chosen: np.ndarray, seed: Sequence[int],
    ) -> Weights:  # fmt: skip
        """Fine-tunes on some labelled cases: weights of the encoder and the classifier.

        Images are uint8 [n, h, w, c], their ids int64 [n], and the indices of the chosen labelled
        cases integers [labels]. The seed is that of the order of the cases and of the views.
        """
        weights = self._add_classifier(encoder_weights)
        specs = tuple(tf.TensorSpec(spec.shape) for spec in self._model.trainable_specs)
        state = self._optimizer.initialize(specs)
        rng = np.random.default_rng(seed)
        first_round = int(rng.integers(2**40))  # Each seed has its own views.
        batches = permuted_batches(chosen, self._config.steps, self._config.batch_size, rng)
        for step, batch in enumerate(batches):
            indices, batch_cases = cases.take(batch)
            arrays = (images[indices], example_ids[indices], *batch_cases)
            round_number = tf.constant(first_round + step, tf.int64)
            weights, state = self._step(weights, state, *map(tf.constant, arrays), round_number)
        return weights

    def scores(self, weights: Weights, images: np.ndarray, cases: Cases) -> Scores:
        """Scores the predicted classes of the labelled cases of images, without augmentation."""
        logits = features.extract(functools.partial(self._classify, weights), images)
        predicted = sum_over_images(logits, cases).argmax(1)
        known = cases.labels >= 0
        return score(predicted[known], cases.labels[known])

    def _add_classifier(self, encoder_weights: Any) -> Weights:
        """Appends a classifier of zeros to the encoder's weights."""
        initial = self._model.init(0)  # The classifier is zero whatever the seed.
        encoder = tuple(tf.convert_to_tensor(w) for w in encoder_weights.trainable)
        return Weights(
            encoder + initial.trainable[len(encoder) :],
            tuple(tf.convert_to_tensor(w) for w in encoder_weights.non_trainable),
        )
