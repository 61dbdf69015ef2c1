"""Labelled examples for evaluation: which labels are drawn, and how predictions are scored."""

from typing import NamedTuple

import numpy as np

UNLABELLED = -1  # the label of an example whose class is not known


class Scores(NamedTuple):
    """How well predictions agree with the labels, each in [0, 1].

    Attributes:
      accuracy: The share of examples whose class is predicted.
      balanced_accuracy: The same share within each class, averaged over the classes.
    """

    accuracy: float
    balanced_accuracy: float


def score(predicted: np.ndarray, labels: np.ndarray) -> Scores:
    """Scores predicted classes [n] against labels [n], over the classes that are in the labels."""
    correct = predicted == labels
    recalls = [correct[labels == c].mean() for c in np.unique(labels)]
    return Scores(float(correct.mean()), float(np.mean(recalls)))


def draw_labels(
    labels: np.ndarray,
    rng: np.random.Generator,
    *,
    per_class: int | None = None,
    total: int | None = None,
    even: bool = False,
) -> np.ndarray:
    """Draws the examples whose labels a few-label probe may see, without replacement.

    Examples labelled -1 (unknown) are never drawn.

    Args:
      labels: Integers [n].
      rng: The source of all randomness.
      per_class: So many examples of each class. Exactly one of this and `total` is given.
      total: So many examples in all, split over the classes by their sizes, and at least one of
        each; which of the classes with equal claims get one more is drawn too.
      even: Whether `total` is split as evenly as the classes' sizes allow instead.

    Returns:
      int64 indices into `labels`, ascending.

    Raises:
      ValueError: Not exactly one of the two numbers is given, or there are too few examples.
    """
    if (per_class is None) == (total is None):
        raise ValueError("Give exactly one of per_class and total.")
    labels = np.asarray(labels)
    classes, sizes = np.unique(labels[labels != UNLABELLED], return_counts=True)
    if len(classes) == 0:
        raise ValueError("There is no labelled example to draw from.")
    if per_class is not None:
        _check_class_sizes(per_class, classes, sizes)
        counts = np.full(len(classes), per_class)
    else:
        assert total is not None
        _check_total(total, sizes)
        counts = (_even_counts if even else _proportional_counts)(total, sizes, rng)
    drawn = [
        rng.choice(np.flatnonzero(labels == c), size=count, replace=False)
        for c, count in zip(classes, counts, strict=True)
    ]
    return np.sort(np.concatenate(drawn))


def _check_class_sizes(per_class: int, classes: np.ndarray, sizes: np.ndarray) -> None:
    if per_class < 1:
        raise ValueError(f"per_class must be at least 1, found {per_class}.")
    if sizes.min() < per_class:
        short = ", ".join(
            f"class {classes[i]} has {sizes[i]}" for i in np.flatnonzero(sizes < per_class)
        )
        raise ValueError(f"{per_class} labels per class were asked for, but {short}.")


def _check_total(total: int, sizes: np.ndarray) -> None:
    if not len(sizes) <= total <= sizes.sum():
        raise ValueError(
            f"The total number of labels must be from {len(sizes)} (one per class) to "
            f"{sizes.sum()} (all labelled examples), found {total}."
        )


def _proportional_counts(total: int, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One of each class, and the rest by the sizes of what is left (largest remainders)."""
    left, spare = total - len(sizes), sizes - 1
    counts, remainders = np.divmod(left * spare, max(spare.sum(), 1))
    missing = left - counts.sum()
    if missing:
        order = np.lexsort((rng.random(len(sizes)), -remainders))
        counts[order[:missing]] += 1
    return 1 + counts


def _even_counts(total: int, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Splits `total` over classes of the given sizes so that the counts differ least."""
    counts = np.zeros_like(sizes)
    while (left := total - counts.sum()) > 0:
        open_classes = np.flatnonzero(counts < sizes)
        if left < len(open_classes):
            open_classes = rng.choice(open_classes, size=left, replace=False)
        counts[open_classes] += 1
    return counts


def labelled_examples(
    name: str, features: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Checks features [n, d] and their labels [n] and drops the examples labelled -1.

    Args:
      name: What the features are called in an error.
      features: Floating point or integer [n, d], all finite.
      labels: Integers [n].

    Returns:
      The labelled examples' features, float32 [m, d], and labels, int64 [m].

    Raises:
      ValueError: A shape is wrong, a feature is not finite, or no example is labelled.
    """
    features, labels = finite_features(name, features), np.asarray(labels)
    if labels.shape != features.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"The {name} features [{len(features)}, d] need integer labels [{len(features)}], "
            f"found {labels.dtype} {list(labels.shape)}."
        )
    known = labels != UNLABELLED
    if not known.any():
        raise ValueError(f"None of the {len(labels)} {name} examples is labelled.")
    return features[known], labels[known].astype(np.int64)


def finite_features(name: str, features: np.ndarray) -> np.ndarray:
    """Returns features as float32 [n, d], or raises a ValueError that names them and a bad row."""
    features = np.asarray(features, np.float32)
    if features.ndim != 2:
        raise ValueError(f"The {name} features must be [n, d], found {list(features.shape)}.")
    bad_rows = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad_rows):
        raise ValueError(
            f"The {name} features are not finite in {len(bad_rows)} of {len(features)} rows, "
            f"the first of them row {bad_rows[0]}."
        )
    return features
