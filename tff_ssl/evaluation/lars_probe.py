"""The DCCO paper's linear probe: softmax regression on frozen features, trained with LARS.

Vemulapalli et al., "Federated Training of Dual Encoding Models on Small Non-IID Client Datasets",
2022, Appendix B.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation import scaling as feature_scaling


@dataclasses.dataclass(frozen=True)
class LarsProbeConfig:
    """How the classifier is trained. Hashable: one graph is built per configuration and shape.

    Attributes:
      steps: The number of steps, over which the rate decays to zero by a cosine.
      batch_size: The examples per step; all of them, if there are fewer.
      learning_rate: The initial rate.
      momentum: 0.9 in the paper.
      trust_coefficient: LARS's eta. The paper does not say; 0.001 as in You et al.
      initial_stddev: Of the normal initial weights; biases start at zero. The paper does not say.
        LARS's steps are in proportion to the norm of the weights: zero would make the first step a
        plain gradient step of rate 2.0 or more, and its length that of all later ones.
    """

    steps: int
    batch_size: int
    learning_rate: float
    momentum: float = 0.9
    trust_coefficient: float = 0.001
    initial_stddev: float = 0.01


LARS_PROBES = {
    "5000_labels": LarsProbeConfig(steps=1000, batch_size=512, learning_rate=2.0),
    "500_labels": LarsProbeConfig(steps=400, batch_size=128, learning_rate=2.5),
}


def config_for(num_labels: int) -> LarsProbeConfig:
    """Returns the paper's settings for 5000 labels, or below 1600 (between the two) for 500."""
    return LARS_PROBES["5000_labels" if num_labels >= 1600 else "500_labels"]


def lars_probe(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    *,
    seed: int | Sequence[int],
    flipped_features: np.ndarray | None = None,
    reference_features: np.ndarray | None = None,
    scaling: feature_scaling.Scaling = "global",
    config: LarsProbeConfig | None = None,
) -> labelling.Scores:
    """Scores the paper's linear classifier after its last step, never the best one on test data.

    Args:
      train_features: [n, d], finite.
      train_labels: Integers [n] of at least two classes; -1 (unknown) takes no part.
      test_features: [m, d], finite; of images as they are, without augmentation.
      test_labels: Integers [m]; -1 takes no part.
      seed: For `np.random.default_rng`: initial weights, order of the examples, and flips.
      flipped_features: [n, d], the features of the training images mirrored left to right. With
        them each example of each step takes either image with equal chance, the paper's only
        augmentation here.
      reference_features: [r, d], features of training images, which need no labels, to fit the
        scaling on; by default the labelled training features (not flipped).
      scaling: See `scaling.fit_scaler`; the paper does not say.
      config: By default `config_for` the number of labelled training examples.

    Returns:
      Accuracy and balanced accuracy on the test examples.

    Raises:
      ValueError: Shapes do not fit, features are not finite, or there is one class only.
    """
    sets = feature_scaling.prepare(
        train_features, train_labels, test_features, test_labels, reference_features, scaling
    )
    variants = [sets.train_features]  # of the same images: as they are, and mirrored
    if flipped_features is not None:
        flipped, _ = labelling.labelled_examples("flipped", flipped_features, train_labels)
        if flipped.shape != variants[0].shape:
            raise ValueError(
                f"Flipped features must be shaped as the training features, "
                f"{list(variants[0].shape)}, found {list(flipped.shape)}."
            )
        variants.append(sets.scaler(flipped))
    config = config or config_for(len(sets.train_labels))
    classes, targets = np.unique(sets.train_labels, return_inverse=True)
    rng = np.random.default_rng(seed)
    size = sets.train_features.shape[1]
    initial = _initial_classifier(rng, size, len(classes), config)
    examples, chosen = _batches(rng, len(targets), len(variants), config)
    train = _trainer(config, size, len(classes))
    trained = train(initial, np.stack(variants), targets, examples, chosen)
    logits = sets.test_features @ trained.kernel.numpy() + trained.bias.numpy()
    return labelling.score(classes[logits.argmax(axis=1)], sets.test_labels)


class _Classifier(NamedTuple):
    kernel: tf.Tensor  # float32 [d, classes]
    bias: tf.Tensor  # float32 [classes]


def _initial_classifier(
    rng: np.random.Generator, size: int, num_classes: int, config: LarsProbeConfig
) -> _Classifier:
    kernel = rng.normal(0.0, config.initial_stddev, (size, num_classes))
    return _Classifier(tf.constant(kernel, tf.float32), tf.zeros(num_classes))


def _batches(
    rng: np.random.Generator, num_examples: int, num_variants: int, config: LarsProbeConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the examples of each step and the variant of each, int32 [steps, batch].

    The examples are one permutation of all after another, cut into batches.
    """
    shape = (config.steps, min(config.batch_size, num_examples))
    epochs = -(-shape[0] * shape[1] // num_examples)
    order = np.concatenate([rng.permutation(num_examples) for _ in range(epochs)])
    examples = order[: shape[0] * shape[1]].reshape(shape).astype(np.int32)
    return examples, rng.integers(num_variants, size=shape, dtype=np.int32)


@functools.lru_cache(maxsize=16)
def _trainer(config: LarsProbeConfig, size: int, num_classes: int) -> Callable[..., _Classifier]:
    """Returns one graph of all steps, for any number of examples.

    Its arguments: the initial classifier; features, float32 [variants, n, size]; class indices,
    int64 [n]; and `_batches`. Its result: the trained classifier.
    """
    lars = optimizers.build_lars(
        config.learning_rate, config.momentum, trust_coefficient=config.trust_coefficient
    )
    schedule = optimizers.cosine_decay(config.learning_rate, config.steps)
    optimizer = tff.learning.optimizers.schedule_learning_rate(lars, schedule)
    weights_spec = _Classifier(tf.TensorSpec([size, num_classes]), tf.TensorSpec([num_classes]))
    batch_spec = tf.TensorSpec([config.steps, None], tf.int32)

    @tf.function(
        input_signature=[
            weights_spec,
            tf.TensorSpec([None, None, size]),
            tf.TensorSpec([None], tf.int64),
            batch_spec,
            batch_spec,
        ]
    )
    def train(classifier, features, targets, examples, chosen):
        state = optimizer.initialize(weights_spec)
        for step in tf.range(config.steps):
            x = tf.gather_nd(features, tf.stack([chosen[step], examples[step]], axis=1))
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
