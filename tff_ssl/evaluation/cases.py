"""Cases of several images, such as the photographs of one lesion: one label, one prediction a case.

As in the DCCO paper (section 4.2): the classifier sees the mean of a case's image encodings.
"""

from typing import NamedTuple

import numpy as np


class Cases(NamedTuple):
    """Which images belong together.

    Attributes:
      of_image: int64 [n], the case of each image, in [0, k).
      labels: int32 [k], the case's label, -1 where it is not known.
    """

    of_image: np.ndarray
    labels: np.ndarray

    def images_of(self, cases: np.ndarray) -> list[np.ndarray]:
        """The indices of the images of each of some cases."""
        order = np.argsort(self.of_image, kind="stable")
        starts = np.searchsorted(self.of_image[order], np.arange(len(self.labels) + 1))
        return [order[starts[c] : starts[c + 1]] for c in cases]

    def take(self, cases: np.ndarray) -> tuple[np.ndarray, "Cases"]:
        """The indices of the images of some cases, case by case, and these cases by themselves."""
        images = self.images_of(cases)
        of_image = np.repeat(np.arange(len(cases)), [len(indices) for indices in images])
        return np.concatenate(images), Cases(of_image, self.labels[cases])


def each_image(labels: np.ndarray) -> Cases:
    """Every image is a case of its own."""
    return Cases(np.arange(len(labels)), np.asarray(labels, np.int32))


def group(case_ids: np.ndarray, labels: np.ndarray) -> Cases:
    """Groups images by case.

    Args:
      case_ids: [n], of any kind that can be sorted.
      labels: Integers [n].

    Raises:
      ValueError: If two images of a case have different labels; the message names the case.
    """
    names, first, of_image = np.unique(
        np.asarray(case_ids, str), return_index=True, return_inverse=True
    )
    labels = np.asarray(labels, np.int32)
    of_cases = labels[first]
    wrong = np.flatnonzero(of_cases[of_image] != labels)
    if len(wrong):
        raise ValueError(f"the images of case {names[of_image[wrong[0]]]} have different labels")
    return Cases(of_image.astype(np.int64), of_cases)


def average(features: np.ndarray, cases: Cases) -> np.ndarray:
    """Mean over the images of each case, float32 [n, d] -> [k, d]."""
    sums = np.zeros((len(cases.labels), features.shape[1]))
    np.add.at(sums, cases.of_image, features)
    return (sums / np.bincount(cases.of_image)[:, np.newaxis]).astype(np.float32)
