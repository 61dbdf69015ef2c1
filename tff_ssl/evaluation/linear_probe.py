"""The linear protocol: a probe on few labels, repeated over draws, always beside its baselines.

An accuracy says little alone. Each result therefore holds that of the same probe, on the same
draws of labels, on other features of the same images: the untrained encoder and raw pixels.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation import lars_probe, logistic_probe
from tff_ssl.evaluation import scaling as feature_scaling

ENCODER = "encoder"  # the feature set that a comparison is about; all others are baselines


class FeatureSet(NamedTuple):
    """One kind of features of the same training and test images.

    Attributes:
      train: [n, d], of training images, labelled or not.
      test: [m, d].
      flipped_train: [n, d], of the training images mirrored left to right, for `lars`; or None.
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
    seed: int,
    labels_per_class: int | None = None,
    labels: int | None = None,
    draws: int = 5,
    drawn: Sequence[np.ndarray] | None = None,
    method: Literal["logistic", "lars"] = "logistic",
    scaling: feature_scaling.Scaling = "global",
) -> dict[str, Any]:
    """Probes every feature set on the same draws of labels and returns an entry of `result.json`.

    Draw i uses the generator seeded with (seed, i), so a draw does not depend on how many there
    are. The scaling is fitted on the training images given, without labels, alike for every set.

    Args:
      feature_sets: By name; `encoder` and any number of baselines, by convention
        `random_encoder` and `raw_pixels`.
      train_labels: Integers [n]; -1 where the label is not known.
      test_labels: Integers [m]; -1 takes no part.
      dataset: The name that the result carries.
      seed: Seeds the draws, and for `lars` the probe, with (seed, i, 1).
      labels_per_class: So many labels of each class, or
      labels: so many in all, split over the classes by their sizes; with neither, all of them.
      draws: The number of draws, >= 1. With all labels and `logistic` they would be equal: one is
        made.
      drawn: The examples whose labels are used, int [labels] for each draw, instead of drawing.
      method: `logistic` (quick) or `lars` (the DCCO paper's).
      scaling: See `scaling.fit_scaler`.

    Returns:
      A dict for JSON: `protocol`, `method`, `dataset`, `labels` (in all), `labels_per_class` (or
      None), `draws`; `accuracy` and `balanced_accuracy`, means over the draws in [0, 1], and each
      with `_std`, the sample standard deviation (n - 1; 0 for one draw); and `baselines`, which
      has these four by name of the feature set.

    Raises:
      ValueError: There is no `encoder`, too few labels, or features do not fit or are not finite;
        the message names the feature set.
    """
    if ENCODER not in feature_sets:
        raise ValueError(f"feature_sets needs {ENCODER!r}, found {sorted(feature_sets)}.")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, found {draws}.")
    if method not in ("logistic", "lars"):
        raise ValueError(f"method must be logistic or lars, found {method!r}.")
    train_labels = np.asarray(train_labels)
    if labels is None and labels_per_class is None:
        labels = int((train_labels != labelling.UNLABELLED).sum())
        draws = 1 if method == "logistic" else draws
    drawn = drawn or [
        labelling.draw_labels(
            train_labels, np.random.default_rng([seed, i]), per_class=labels_per_class, total=labels
        )
        for i in range(draws)
    ]
    summaries = {}
    for name, features in feature_sets.items():
        try:
            scores = [
                _probe(features, train_labels, test_labels, indices, method, scaling, [seed, i, 1])
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
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    indices: np.ndarray,
    method: str,
    scaling: feature_scaling.Scaling,
    seed: list[int],
) -> labelling.Scores:
    """Probes one feature set on one draw of labels."""
    if len(features.train) != len(train_labels):
        raise ValueError(
            f"There are {len(features.train)} training features for {len(train_labels)} labels."
        )
    train = (features.train[indices], train_labels[indices])
    test = (features.test, test_labels)
    if method == "logistic":
        return logistic_probe.logistic_probe(
            *train, *test, reference_features=features.train, scaling=scaling
        )
    flipped = features.flipped_train
    return lars_probe.lars_probe(
        *train,
        *test,
        seed=seed,
        flipped_features=None if flipped is None else flipped[indices],
        reference_features=features.train,
        scaling=scaling,
    )


def summarize(scores: list[labelling.Scores]) -> dict[str, float]:
    """Returns mean and sample standard deviation of each score."""
    summary = {}
    for field in labelling.Scores._fields:
        values = np.array([getattr(s, field) for s in scores])
        summary[field] = float(values.mean())
        summary[f"{field}_std"] = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return summary
