"""Cases of several images, such as the photographs of one lesion, with one prediction each.

As in the DCCO paper (section 4.2), the classifier sees the mean of a case's image encodings.
"""

from typing import NamedTuple

import numpy as np

from tff_ssl.evaluation.labels import UNLABELLED


class Cases(NamedTuple):
    """The case of each of n images, int64 [n] in [0, k), and the label of each of k cases.

    Labels are int32 [k], -1 if unknown.
    """

    case_of_image: np.ndarray
    labels: np.ndarray

    def image_indices(self, cases: np.ndarray) -> list[np.ndarray]:
        """Indices of the images of each given case, int64 [images of the case]."""
        order = np.argsort(self.case_of_image, kind="stable")
        starts = np.searchsorted(self.case_of_image[order], np.arange(len(self.labels) + 1))
        return [order[starts[c] : starts[c + 1]] for c in cases]

    def take(self, cases: np.ndarray) -> tuple[np.ndarray, "Cases"]:
        """The indices of the images of j cases, case by case, and the grouping of these images."""
        images = self.image_indices(cases)
        case_of_image = np.repeat(np.arange(len(cases)), [len(indices) for indices in images])
        return np.concatenate(images), Cases(case_of_image, self.labels[cases])


def each_image(labels: np.ndarray) -> Cases:
    """The grouping in which every image is a case; labels are integers [n]."""
    return Cases(np.arange(len(labels)), np.asarray(labels, np.int32))


def group(case_ids: np.ndarray, labels: np.ndarray) -> Cases:
    """Groups images by the names or numbers [n] of their cases, with labels, integers [n].

    A case that is labelled in part has the label of its labelled images.

    Raises:
      ValueError: Two images of a case have different labels; the message names the case.
    """
    wrong = several_labels(case_ids, labels)
    if wrong is not None:
        raise ValueError(f"the images of case {wrong} have different labels")
    names, case_of_image = np.unique(np.asarray(case_ids, str), return_inverse=True)
    case_labels = np.full(len(names), UNLABELLED, np.int32)
    np.maximum.at(case_labels, case_of_image, np.asarray(labels, np.int32))
    return Cases(case_of_image.astype(np.int64), case_labels)


def several_labels(case_ids: np.ndarray, labels: np.ndarray) -> str | None:
    """The first case by name whose images have several labels; None if none has.

    -1 (unknown) is no label.
    """
    labels = np.asarray(labels, np.int32)
    known = labels != UNLABELLED
    names, case_of_image = np.unique(np.asarray(case_ids, str)[known], return_inverse=True)
    smallest, largest = (np.full(len(names), value, np.int32) for value in (2**31 - 1, -1))
    np.minimum.at(smallest, case_of_image, labels[known])
    np.maximum.at(largest, case_of_image, labels[known])
    wrong = np.flatnonzero(smallest < largest)
    return str(names[wrong[0]]) if len(wrong) else None


def counted_images(case_ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Indices of the images that count in an evaluation of cases, int64 [m], ascending.

    Left out are the unlabelled images of cases with labelled ones: they may not show what the label
    says.
    """
    case_ids, labels = np.asarray(case_ids, str), np.asarray(labels)
    labelled = np.isin(case_ids, np.unique(case_ids[labels != UNLABELLED]))
    return np.flatnonzero(~labelled | (labels != UNLABELLED))


def sum_over_images(features: np.ndarray, cases: Cases) -> np.ndarray:
    """Sums features [n, d] over the images of each case, float64 [k, d]."""
    sums = np.zeros((len(cases.labels), features.shape[1]))
    np.add.at(sums, cases.case_of_image, features)
    return sums


def average(features: np.ndarray, cases: Cases) -> np.ndarray:
    """Averages features [n, d] over the images of each case, float32 [k, d]."""
    if np.array_equal(cases.case_of_image, np.arange(len(features))):
        return np.asarray(features, np.float32)  # Many images would take much memory otherwise.
    image_counts = np.bincount(cases.case_of_image)[:, np.newaxis]
    return (sum_over_images(features, cases) / image_counts).astype(np.float32)
