"""Checks and scaling of features before a probe is trained on them."""

from typing import NamedTuple

import numpy as np

from tff_ssl.evaluation import labels as labelling


class FeatureScaler(NamedTuple):
    """The map `(features - offset) / scale`, with float32 [d] each."""

    offset: np.ndarray
    scale: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return (features - self.offset) / self.scale


def fit_scaler(reference: np.ndarray) -> FeatureScaler:
    """Fits the scaling to features [n, d] of training images, without their labels.

    Each feature is centred, and all of them are divided by the same number, the root of their mean
    variance. This removes only the arbitrary origin and unit of a feature space: distances keep
    their proportions, and the mean squared norm of a scaled example is d. Dividing each feature by
    its own standard deviation would enlarge those that hardly vary (the border pixels of the
    digits), which weakens raw pixels and thus flatters an encoder in comparison.

    Raises:
      ValueError: The shape is wrong, or a feature is not finite.
    """
    reference = labelling.finite_features("reference", reference).astype(np.float64)
    offset, variance = reference.mean(axis=0), reference.var(axis=0)
    common_scale = np.sqrt(variance.mean())
    rounding = 1e-6 * np.abs(offset)  # Rounding errors of a constant feature in float32.
    scale = np.where(common_scale > rounding, common_scale, 1.0)
    return FeatureScaler(offset.astype(np.float32), scale.astype(np.float32))


class ProbeSets(NamedTuple):
    """The labelled examples of a probe: scaled features, float32 [n, d] and [m, d]; int64 labels.

    Flipped features are those of the mirrored training images, float32 [n, d].
    """

    train_features: np.ndarray
    train_labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    flipped_features: np.ndarray | None = None


def prepare(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    scaler: FeatureScaler | None = None,
    flipped_features: np.ndarray | None = None,
) -> ProbeSets:
    """Checks the sets of a probe, drops examples labelled -1 (unknown) and scales the features.

    Features are [n, d] and [m, d], those of test images without augmentation; flipped ones are of
    the mirrored training images, [n, d]. The scaling is by convention that of all training images;
    None is that of the labelled ones, which may be few.

    Raises:
      ValueError: Shapes do not fit, features are not finite, or the training set has one class.
    """
    train, labels = labelling.labelled_examples("training", train_features, train_labels)
    test, test_labels = labelling.labelled_examples("test", test_features, test_labels)
    scaler = scaler or fit_scaler(train)
    if not train.shape[1] == test.shape[1] == len(scaler.offset):
        raise ValueError(
            "Training features, test features and scaling differ in size: "
            f"{train.shape[1]}, {test.shape[1]} and {len(scaler.offset)}."
        )
    if len(np.unique(labels)) < 2:
        raise ValueError(f"A probe needs two classes; all training labels are {labels[0]}.")
    flipped = None
    if flipped_features is not None:
        flipped, _ = labelling.labelled_examples("flipped", flipped_features, train_labels)
        if flipped.shape != train.shape:
            raise ValueError(
                f"Flipped features must be shaped as the training features, {list(train.shape)}, "
                f"found {list(flipped.shape)}."
            )
        flipped = scaler(flipped)
    return ProbeSets(scaler(train), labels, scaler(test), test_labels, flipped)
