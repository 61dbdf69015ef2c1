"""Draws of labelled examples, their order in training steps, and scores of predicted classes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

UNLABELLED = -1  # The label of an example whose class is not known.


class Scores(NamedTuple):
    """Agreement of predicted classes with the labels."""

    accuracy: float  #: Share of the examples whose class is predicted, in [0, 1].
    balanced_accuracy: float  #: Mean of `class_accuracies`, in [0, 1].
    #: The same share within each class, by class.
    class_accuracies: Mapping[int, float] = MappingProxyType({})


def score(predicted: np.ndarray, labels: np.ndarray) -> Scores:
    """Scores predicted classes [n] against labels [n]; the classes are those of the labels."""
    correct = predicted == labels
    recalls = {int(c): float(correct[labels == c].mean()) for c in np.unique(labels)}
    return Scores(float(correct.mean()), float(np.mean(list(recalls.values()))), recalls)


def draw_labels(
    labels: np.ndarray,
    rng: np.random.Generator,
    *,
    per_class: int | None = None,
    total: int | None = None,
    even: bool = False,
    class_names: Sequence[str] | None = None,
) -> np.ndarray:
    """Draws the examples whose labels a few-label probe may see: indices, int64 [drawn], ascending.

    Args:
      labels: Class labels, integers [n]; examples labelled -1 (unknown) are never drawn.
      rng: Generator of the draw.
      per_class: Number of examples of each class. Exactly one of `per_class` and `total` is given.
      total: Number of examples of all classes together, split in proportion to the classes' sizes,
        with at least one of each class; `rng` decides between classes with equal remainders.
      even: Whether `total` is split as evenly as the classes' sizes allow instead.
      class_names: Name of each class in error messages; None for their numbers.

    Raises:
      ValueError: Both numbers or none are given, or there are too few examples.
    """
    if (per_class is None) == (total is None):
        raise ValueError("Give exactly one of per_class and total.")
    labels = np.asarray(labels)
    classes, sizes = np.unique(labels[labels != UNLABELLED], return_counts=True)
    if len(classes) == 0:
        raise ValueError("There is no labelled example to draw from.")
    if per_class is not None:
        names = [class_names[c] if class_names else str(c) for c in classes]
        _check_class_sizes(per_class, names, sizes)
        counts = np.full(len(classes), per_class)
    else:
        assert total is not None
        if not len(sizes) <= total <= sizes.sum():
            raise ValueError(
                f"The total number of labels must be from {len(sizes)} (one per class) to "
                f"{sizes.sum()} (all labelled examples), found {total}."
            )
        counts = (_even_counts if even else _proportional_counts)(total, sizes, rng)
    drawn = [
        rng.choice(np.flatnonzero(labels == c), size=count, replace=False)
        for c, count in zip(classes, counts, strict=True)
    ]
    return np.sort(np.concatenate(drawn))


def _check_class_sizes(per_class: int, names: Sequence[str], sizes: np.ndarray) -> None:
    if per_class < 1:
        raise ValueError(f"per_class must be at least 1, found {per_class}.")
    if sizes.min() < per_class:
        too_small = ", ".join(
            f"class {names[i]} has {sizes[i]}" for i in np.flatnonzero(sizes < per_class)
        )
        raise ValueError(
            f"{per_class} labels per class were asked for, but {too_small}. Ask for at most "
            f"{sizes.min()}."
        )


def _proportional_counts(total: int, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One example of each class, and the rest in proportion, rounded by largest remainders."""
    rest, other_examples = total - len(sizes), sizes - 1
    counts, remainders = np.divmod(rest * other_examples, max(other_examples.sum(), 1))
    missing = rest - counts.sum()
    if missing:
        order = np.lexsort((rng.random(len(sizes)), -remainders))
        counts[order[:missing]] += 1
    return 1 + counts


def _even_counts(total: int, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Splits `total` over classes of these sizes as evenly as possible."""
    counts = np.zeros_like(sizes)
    while (rest := total - counts.sum()) > 0:
        unexhausted = np.flatnonzero(counts < sizes)
        if rest < len(unexhausted):
            unexhausted = rng.choice(unexhausted, size=rest, replace=False)
        counts[unexhausted] += 1
    return counts


def permuted_batches(
    examples: np.ndarray, steps: int, batch_size: int, rng: np.random.Generator
) -> np.ndarray:
    """The examples of each step, integers [steps, min(batch_size, n)].

    Independent permutations of all n >= 1 examples are cut into batches.
    """
    batch_size = min(batch_size, len(examples))
    epochs = -(-steps * batch_size // len(examples))
    order = np.concatenate([rng.permutation(examples) for _ in range(epochs)])
    return order[: steps * batch_size].reshape(steps, batch_size)


def labelled_examples(
    name: str, features: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Features of the labelled examples, float32 [m, d], and their labels, int64 [m].

    Examples labelled -1 (unknown) are dropped; `name` is that of the features in errors.

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
    """Converts features to float32 [n, d].

    Raises:
      ValueError: The shape is wrong, or a feature is not finite; the message names the first row.
    """
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
