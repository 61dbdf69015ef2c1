"""The linear protocol: a probe on few labels, repeated over draws of labels, with its baselines.

The baselines are the accuracies of the same probe, on the same draws of labels, on other features
of the same images: those of the untrained encoder, and raw pixels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tff_ssl.evaluation import adam_probe, lars_probe, logistic_probe, scaling
from tff_ssl.evaluation import labels as labelling

_PROBES: dict[str, Callable[[scaling.ProbeSets, list[int]], labelling.Scores]] = {
    "logistic": lambda sets, seed: logistic_probe.logistic_probe(sets),
    "lars": lars_probe.lars_probe,
    "adam": adam_probe.adam_probe,
}
METHODS = tuple(_PROBES)
SCORES = ("accuracy", "balanced_accuracy")  # Names of the scores that have a deviation.
ENCODER = "encoder"  # The feature set that a comparison is about; all others are baselines.


class FeatureSet(NamedTuple):
    """Features of all training images, [n, d], and of the test images, [m, d].

    The `lars` probe also takes those of the mirrored training images, [n, d].
    """

    train: np.ndarray
    test: np.ndarray
    flipped_train: np.ndarray | None = None


def few_label_comparison(
    feature_sets: Mapping[str, FeatureSet],
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    *,
    dataset: str,
    drawn: Sequence[np.ndarray],
    seed: int,
    labels_per_class: int | None = None,
    method: Literal["logistic", "lars", "adam"] = "logistic",
) -> dict[str, Any]:
    """Probes every feature set on the same draws of labels.

    The scaling of each feature set is fitted on all its training features, without labels.

    Args:
      feature_sets: Feature sets by name: `encoder` and baselines, such as `raw_pixels`.
      train_labels: Class labels of the training images, integers [n]; -1 where unknown.
      test_labels: Class labels of the test images, integers [m]; those labelled -1 are ignored.
      dataset: Name of the data set, for the result.
      drawn: Training examples whose labels are used, integers [labels] for each draw
        (`labels.draw_labels`).
      seed: Seed of the `lars` and `adam` probes, which draw i uses as (seed, i, 1).
      labels_per_class: Number of labels drawn of each class, for the result; None for draws of a
        total number.
      method: `logistic` (quick), `lars` (the DCCO paper's probe) or `adam` (Hetero-SSFL's).

    Returns:
      An entry of `result.json`: `protocol`, `method`, `dataset`, `labels` (of all classes),
      `labels_per_class`, `draws` (their number), the encoder's scores as in `summarize`, and
      `baselines`, those of each other feature set by name.

    Raises:
      ValueError: There is no `encoder` or no draw, or features do not fit or are not finite; the
        message names the feature set.
    """
    if ENCODER not in feature_sets:
        raise ValueError(f"feature_sets needs {ENCODER!r}, found {sorted(feature_sets)}.")
    if len(drawn) < 1:
        raise ValueError(f"draws must be at least 1, found {len(drawn)}.")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, found {method!r}.")
    train_labels = np.asarray(train_labels)
    summaries = {}
    for name, features in feature_sets.items():
        try:
            scaler = scaling.fit_scaler(features.train)
            scores = [
                _probe(features, scaler, train_labels, test_labels, indices, method, [seed, i, 1])
                for i, indices in enumerate(drawn)
            ]
        except ValueError as error:
            raise ValueError(f"Feature set {name!r}: {error}") from error
        summaries[name] = summarize(scores)
    return {
        "protocol": "linear",
        "method": method,
        "dataset": dataset,
        "labels": len(drawn[0]),
        "labels_per_class": labels_per_class,
        "draws": len(drawn),
        **summaries.pop(ENCODER),
        "baselines": summaries,
    }


def _probe(
    features: FeatureSet,
    scaler: scaling.FeatureScaler,
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    indices: np.ndarray,
    method: str,
    seed: list[int],
) -> labelling.Scores:
    """Probes one feature set on one draw of labels."""
    if len(features.train) != len(train_labels):
        raise ValueError(
            f"There are {len(features.train)} training features for {len(train_labels)} labels."
        )
    flipped = None if features.flipped_train is None else features.flipped_train[indices]
    sets = scaling.prepare(
        features.train[indices], train_labels[indices], features.test, test_labels, scaler, flipped
    )
    return _PROBES[method](sets, seed)


def summarize(scores: Sequence[labelling.Scores]) -> dict[str, Any]:
    """`mean_and_std` of each score over draws, and mean `class_accuracies`, by class as text."""
    summary: dict[str, Any] = {}
    for field in SCORES:
        summary |= mean_and_std(field, [getattr(s, field) for s in scores])
    summary["class_accuracies"] = {
        str(c): float(np.mean([s.class_accuracies[c] for s in scores]))
        for c in scores[0].class_accuracies
    }
    return summary


def mean_and_std(name: str, values: Sequence[float]) -> dict[str, float]:
    """The mean by the name; and by the name with `_std` the sample deviation, 0 for one value."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {name: float(np.mean(values)), f"{name}_std": std}
