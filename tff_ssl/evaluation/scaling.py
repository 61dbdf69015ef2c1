"""What the probes do with features before they train on them: checks and one affine map."""

from typing import Literal, NamedTuple

import numpy as np

from tff_ssl.evaluation import labels as labelling

Scaling = Literal["global", "per_feature"]


class FeatureScaler(NamedTuple):
    """The map `(features - offset) / scale`; both are float32 [d]."""

    offset: np.ndarray
    scale: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return (features - self.offset) / self.scale


def fit_scaler(reference: np.ndarray, scaling: Scaling) -> FeatureScaler:
    """Fits the map to features [n, d] of training images, without their labels.

    `global`, the default of the probes, centres each feature and divides all of them by ONE
    number, the root of their mean variance. It takes away the arbitrary origin and unit of a
    feature space and nothing else: distances keep their proportions. `per_feature` divides each
    feature by its own standard deviation, which blows up those that hardly vary (the border
    pixels of the digits); that weakens raw pixels, and so flatters an encoder beside them.
    Either way the mean squared norm of a scaled example is d. A feature that does not vary is
    centred and not divided.

    Raises:
      ValueError: `scaling` is neither.
    """
    reference = np.asarray(reference, np.float64)
    offset, variance = reference.mean(axis=0), reference.var(axis=0)
    if scaling == "global":
        scale = np.full_like(offset, np.sqrt(variance.mean()))
    elif scaling == "per_feature":
        scale = np.sqrt(variance)
    else:
        raise ValueError(f"scaling must be global or per_feature, found {scaling!r}.")
    rounding = 1e-6 * np.abs(offset)  # what float32 makes of a constant
    scale = np.where(scale > rounding, scale, 1.0)
    return FeatureScaler(offset.astype(np.float32), scale.astype(np.float32))


class ProbeSets(NamedTuple):
    """Scaled features, float32 [n, d] and [m, d], and labels, int64 [n] and [m], all known."""

    train_features: np.ndarray
    train_labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    scaler: FeatureScaler


def prepare(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    reference_features: np.ndarray | None,
    scaling: Scaling,
) -> ProbeSets:
    """Checks the sets of a probe, drops examples labelled -1 and scales the features.

    The scaling is fitted on `reference_features` [r, d], or on the labelled training features.

    Raises:
      ValueError: Shapes do not fit, features are not finite, or the training set has one class.
    """
    train, train_labels = labelling.labelled_examples("training", train_features, train_labels)
    test, test_labels = labelling.labelled_examples("test", test_features, test_labels)
    reference = train
    if reference_features is not None:
        reference = labelling.finite_features("reference", reference_features)
    if not train.shape[1] == test.shape[1] == reference.shape[1]:
        raise ValueError(
            "Training, test and reference features differ in size: "
            f"{train.shape[1]}, {test.shape[1]} and {reference.shape[1]}."
        )
    if len(np.unique(train_labels)) < 2:
        raise ValueError(f"A probe needs two classes; all training labels are {train_labels[0]}.")
    scaler = fit_scaler(reference, scaling)
    return ProbeSets(scaler(train), train_labels, scaler(test), test_labels, scaler)
