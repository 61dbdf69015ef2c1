"""The linear probe of the DCCO paper: softmax regression on frozen features, trained with LARS.

Vemulapalli et al., "Federated Training of Dual Encoding Models on Small Non-IID Client Datasets",
2022, Appendix B.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation import scaling
from tff_ssl.evaluation.batches import permuted_batches
from tff_ssl.evaluation.classifier_training import Classifier, build_trainer


@dataclasses.dataclass(frozen=True)
class LarsProbeConfig:
    """Settings of the training; hashable, as one graph is built per configuration and shape.

    Attributes:
      steps: Number of steps; the learning rate decays to zero over them by a cosine.
      batch_size: Number of examples per step; all of them, if there are fewer.
      learning_rate: Initial learning rate.
      momentum: Momentum; 0.9 in the paper.
      trust_coefficient: Trust coefficient eta of LARS. The paper gives none; 0.001 is that of You
        et al.
      initial_stddev: Standard deviation of the normal initial weights; biases start at zero. The
        paper gives none, and the result depends on it: the steps of LARS are proportional to the
        norm of the weights. (From zero weights the first step would be a plain gradient step of
        rate 2.0 or more, and its length would determine that of all later steps.) 0.01 was chosen
        on training images, of which some were held out for the score: with 5000 labels of CIFAR-10
        and 256 PCA features, 0.003, 0.01, 0.03, 0.1 and 0.3 gave 0.373, 0.373, 0.370, 0.360 and
        0.344 (logistic regression 0.364); with 64 PCA features 0.362 to 0.364, and 0.360 with
        0.3. With 500 labels of CIFAR-10 or the digits and 40 to 256 features, 0.01 is within 0.7
        points of the best; 16 features need 0.1 (0.948; 0.01 gives 0.916).
    """

    steps: int
    batch_size: int
    learning_rate: float
    momentum: float = 0.9
    trust_coefficient: float = 0.001
    initial_stddev: float = 0.01

    def build_optimizer(self) -> tff.learning.optimizers.Optimizer:
        lars = optimizers.build_lars(
            self.learning_rate, self.momentum, trust_coefficient=self.trust_coefficient
        )
        schedule = optimizers.cosine_decay(self.learning_rate, self.steps)
        return tff.learning.optimizers.schedule_learning_rate(lars, schedule)


LARS_PROBES = {
    "5000_labels": LarsProbeConfig(steps=1000, batch_size=512, learning_rate=2.0),
    "500_labels": LarsProbeConfig(steps=400, batch_size=128, learning_rate=2.5),
}


def config_for(num_labels: int) -> LarsProbeConfig:
    """Returns the paper's settings for 5000 labels from 1600 labels on, else those for 500."""
    return LARS_PROBES["5000_labels" if num_labels >= 1600 else "500_labels"]


def lars_probe(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    *,
    seed: int | Sequence[int],
    flipped_features: np.ndarray | None = None,
    scaler: scaling.FeatureScaler | None = None,
    config: LarsProbeConfig | None = None,
) -> labelling.Scores:
    """Scores the paper's linear classifier after its last step; no step is selected on test data.

    The features are scaled as `scaling.fit_scaler` says; the paper does not mention scaling.

    Args:
      train_features: Training features, [n, d], finite.
      train_labels: Class labels, integers [n] of at least two classes; examples labelled -1
        (unknown) are ignored.
      test_features: Test features, [m, d], finite, of images without augmentation.
      test_labels: Class labels, integers [m]; examples labelled -1 are ignored.
      seed: Seed of the initial weights, the order of the examples and the flips.
      flipped_features: Features of the training images mirrored left to right, [n, d]. With them,
        each example of each step is the image or its mirror image with equal probability, the
        paper's only augmentation here.
      scaler: Scaling of the features (`scaling.fit_scaler`), by convention that of training images
        with or without labels; None for that of the labelled training features (not flipped).
      config: Settings of the training; None for `config_for` the number of labelled training
        examples.

    Returns:
      Accuracy and balanced accuracy on the test examples.

    Raises:
      ValueError: Shapes do not fit, features are not finite, or there is one class only.
    """
    sets = scaling.prepare(train_features, train_labels, test_features, test_labels, scaler)
    variants = [sets.train_features]  # The original images, then the mirrored ones.
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
    initial = _draw_initial_classifier(rng, size, len(classes), config)
    examples = permuted_batches(np.arange(len(targets)), config.steps, config.batch_size, rng)
    example_variants = rng.integers(len(variants), size=examples.shape, dtype=np.int32)
    train = build_trainer(config, size, len(classes))
    trained = train(
        initial, np.stack(variants), targets, examples.astype(np.int32), example_variants
    )
    return labelling.score(classes[trained.predict(sets.test_features)], sets.test_labels)


def _draw_initial_classifier(
    rng: np.random.Generator, size: int, num_classes: int, config: LarsProbeConfig
) -> Classifier:
    kernel = rng.normal(0.0, config.initial_stddev, (size, num_classes))
    return Classifier(tf.constant(kernel, tf.float32), tf.zeros(num_classes))
