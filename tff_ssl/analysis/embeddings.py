"""A folder of images as an encoder sees it: neighbours, near-duplicates, clusters, a 2-D map.

Everything is computed from features, float32 [n, d]. Their similarity is the cosine. No matrix of
n x n values is made, so that 100,000 images need little more memory than their features.
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from tff_ssl.analysis import feature_maps
from tff_ssl.evaluation import labels

NEIGHBOURS = 5  # Of each image.
MAPPED = 2000  # Largest number of images that t-SNE places.
_MAP_STEPS = 500  # Steps of t-SNE.
_PLACED_BY = 5  # Images placed by t-SNE that place another one.
_REPRESENTATIVES = 6  # Of each cluster.
_STARTS = 3  # Runs of k-means, of which the best is taken.
_BLOCK_BYTES = 2**26  # Largest size of a block of cosines.
_ROUNDING = 1e-6  # Of a cosine in float32.
_GROUP = 256  # Images in a group, of which only the largest cosine is looked at first.

Progress = Callable[[int], object]  # Is called with the number of images that are done.


class Neighbours(NamedTuple):
    """The nearest neighbours of each image, nearest first."""

    indices: npt.NDArray[np.int32]  #: Their numbers, int32 [n, k].
    similarities: npt.NDArray[np.float32]  #: Their cosines, float32 [n, k].


class Duplicates(NamedTuple):
    """Pairs of near-duplicates, most similar first."""

    #: The numbers of both images, the smaller one first, int32 [m, 2].
    pairs: npt.NDArray[np.int32]
    similarities: npt.NDArray[np.float32]  #: Their cosines, float32 [m].
    threshold: float  #: Smallest cosine of near-duplicates.


class Clusters(NamedTuple):
    """Clusters of images, largest first."""

    of_image: npt.NDArray[np.int32]  #: Number of each image's cluster, int32 [n].
    #: For each cluster, its images nearest to its mean, int64 [<= 6].
    representatives: list[npt.NDArray[np.int64]]


@dataclasses.dataclass(frozen=True)
class Embedding:
    """Images as an encoder sees them."""

    features: npt.NDArray[np.float32]  #: The encoder's features, float32 [n, d].
    points: npt.NDArray[np.float32]  #: Places on a 2-D map, float32 [n, 2].
    neighbours: Neighbours
    duplicates: Duplicates
    clusters: Clusters


def embed(
    features: npt.NDArray[np.float32],
    seed: int,
    clusters: int,
    threshold: float,
    progress: Progress = lambda done: None,
) -> Embedding:
    """Computes the neighbours, near-duplicates, clusters and map of n >= 3 images.

    Args:
      features: The encoder's features, float32 [n, d].
      seed: Seed of the clusters and of the map.
      clusters: Number of clusters; there are fewer if there are fewer different features.
      threshold: Smallest cosine of near-duplicates.
      progress: Is called with the number of images whose neighbours are known.

    Raises:
      ValueError: The features are not finite, or fewer than three.
    """
    features = labels.finite_features("embedded", features)
    directions = unit_vectors(features)
    neighbours = nearest(directions, progress=progress)
    return Embedding(
        features,
        place(features, directions, seed),
        neighbours,
        near_duplicates(neighbours, threshold),
        cluster(directions, clusters, seed),
    )


def unit_vectors(features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The features, divided by their lengths; zeros stay zeros."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.maximum(lengths, np.float32(1e-12))


def nearest(
    directions: npt.NDArray[np.float32],
    count: int = NEIGHBOURS,
    block_bytes: int = _BLOCK_BYTES,
    progress: Progress = lambda done: None,
) -> Neighbours:
    """Finds the nearest neighbours of each image by cosine, without the image itself.

    The search is exact, and takes time in proportion to n^2. Of equal cosines, any may be chosen.

    Args:
      directions: Result of `unit_vectors`, float32 [n, d].
      count: Number of neighbours; fewer if there are fewer other images.
      block_bytes: Largest size of a block of cosines, which has a row at least.
      progress: Is called with the number of images that are done.
    """
    n = len(directions)
    count = min(count, n - 1)
    columns = -(-n // _GROUP) * _GROUP
    rows = min(n, max(1, block_bytes // (4 * columns)))
    found = Neighbours(np.empty((n, count), np.int32), np.empty((n, count), np.float32))
    cosines = np.full((rows, columns), -np.inf, np.float32)  # Filled up to whole groups.
    for start in range(0, n, rows):
        end = min(start + rows, n)
        block = cosines[: end - start]
        np.matmul(directions[start:end], directions.T, out=block[:, :n])
        block[np.arange(end - start), np.arange(start, end)] = -np.inf
        found.indices[start:end], found.similarities[start:end] = _largest(block, count)
        progress(end - start)
    return Neighbours(found.indices, np.clip(found.similarities, -1, 1))


def _largest(block: npt.NDArray[np.float32], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values of the largest values of each row, largest first, [rows, count].

    They lie in the `count` groups of columns whose largest values are the largest. This takes a
    twentieth of the time of a partition of whole rows.
    """
    of_groups = block.reshape(len(block), -1, _GROUP).max(2)
    groups = _top(of_groups, min(count, of_groups.shape[1]))
    columns = (groups[:, :, np.newaxis] * _GROUP + np.arange(_GROUP)).reshape(len(block), -1)
    values = np.take_along_axis(block, columns, 1)
    top = _top(values, count)
    columns, values = (np.take_along_axis(array, top, 1) for array in (columns, values))
    order = np.lexsort((columns, -values), axis=1)
    return np.take_along_axis(columns, order, 1), np.take_along_axis(values, order, 1)


def _top(values: np.ndarray, count: int) -> np.ndarray:
    """Columns of the `count` largest values of each row, in any order."""
    first = values.shape[1] - count
    return np.argpartition(values, first, 1)[:, first:] if first else np.argsort(values, 1)


def near_duplicates(neighbours: Neighbours, threshold: float) -> Duplicates:
    """The pairs of an image and one of its nearest neighbours with at least this cosine.

    Of a group of more near-duplicates than an image has neighbours, some pairs are left out.
    """
    rows, columns = np.nonzero(neighbours.similarities >= threshold - _ROUNDING)
    others = neighbours.indices[rows, columns]
    pairs = np.sort(np.stack([rows, others], axis=1), axis=1).astype(np.int32)
    pairs, first = np.unique(pairs.reshape(-1, 2), axis=0, return_index=True)
    similarities = neighbours.similarities[rows, columns][first]
    order = np.argsort(-similarities, kind="stable")
    return Duplicates(pairs[order], similarities[order], threshold)


def cluster(directions: npt.NDArray[np.float32], clusters: int, seed: int) -> Clusters:
    """Clusters images by k-means on unit vectors, float32 [n, d].

    There are at most as many clusters as different vectors.
    """
    k_means = KMeans(min(clusters, len(directions)), n_init=_STARTS, random_state=seed)
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer different vectors than clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        ids = k_means.fit_predict(directions)
    used, ids, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    by_size = np.argsort(-sizes, kind="stable")
    rank = np.empty(len(used), np.int32)
    rank[by_size] = np.arange(len(used))
    of_image = rank[ids]
    representatives = []
    for number, centre in enumerate(k_means.cluster_centers_[used[by_size]]):
        members = np.flatnonzero(of_image == number)
        distances = np.linalg.norm(directions[members] - centre, axis=1)
        representatives.append(members[np.argsort(distances, kind="stable")[:_REPRESENTATIVES]])
    return Clusters(of_image, representatives)


def place(
    features: npt.NDArray[np.float32],
    directions: npt.NDArray[np.float32],
    seed: int,
    mapped: int = MAPPED,
) -> npt.NDArray[np.float32]:
    """Places images on a 2-D map, float32 [n, 2].

    PCA and t-SNE place `mapped` images, drawn at random. Each other image gets the median place of
    the five of these that are nearest to it by cosine.
    """
    drawn = np.sort(np.random.default_rng(seed).permutation(len(features))[:mapped])
    points = np.empty((len(features), 2), np.float32)
    points[drawn] = feature_maps.feature_map(features[drawn], seed, _MAP_STEPS).points
    others = np.setdiff1d(np.arange(len(features)), drawn)
    rows = max(1, _BLOCK_BYTES // (4 * len(drawn)))
    for start in range(0, len(others), rows):
        block = others[start : start + rows]
        near = _top(directions[block] @ directions[drawn].T, min(_PLACED_BY, len(drawn)))
        points[block] = np.median(points[drawn[near]], axis=1)
    return points
