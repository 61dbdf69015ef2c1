"""Clusters of features, which a partition then deals out as if they were classes.

Dec-SSL (appendix C.2, "Feature distribution shift"): the features of a trained encoder, reduced to
30 dimensions by PCA, in 5 clusters. The paper's encoder is a ResNet-50 trained on the labels of the
same images; here the features come from outside, of whatever encoder.
"""

import numpy as np
import numpy.typing as npt

from datasets.errors import DatasetError

DEFAULT_CLUSTERS = 5
DIMENSIONS = 30
_STARTS = 5  # of k-means; the best one counts


def cluster(
    features: npt.NDArray[np.floating],
    rng: np.random.Generator,
    clusters: int = DEFAULT_CLUSTERS,
    dimensions: int = DIMENSIONS,
) -> npt.NDArray[np.int32]:
    """PCA, then k-means.

    The components keep their variances, as the paper's text has it (the authors' released code
    also scales them to unit variance, by which the thirtieth counts as much as the first).

    Args:
      features: float [n, d], finite.
      rng: Source of all randomness.
      clusters: From 1 to n.
      dimensions: Of the PCA; fewer where n or d are smaller.

    Returns:
      int32 [n], from 0 for the largest cluster to clusters - 1 for the smallest.

    Raises:
      DatasetError: Features of another shape or not finite; too many clusters for n or for the
        number of different features.
    """
    if features.ndim != 2 or 0 in features.shape:
        raise DatasetError(f"features must have shape [n, d], not {list(features.shape)}")
    if not 1 <= clusters <= len(features):
        raise DatasetError(
            f"clusters must be from 1 to {len(features)}, the number of examples, not {clusters}"
        )
    if not np.isfinite(features).all():
        raise DatasetError("cluster_encoder gives features that are not finite")
    _check_different(features, clusters)
    ids = _k_means(_principal_components(features, rng, dimensions), rng, clusters)
    sizes = np.bincount(ids, minlength=clusters)
    rank = np.empty(clusters, np.int32)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(clusters)
    return rank[ids]


def _check_different(features: npt.NDArray[np.floating], clusters: int) -> None:
    """Raises DatasetError where there are fewer different rows than clusters."""
    seen = set()
    for row in features:
        seen.add(row.tobytes())
        if len(seen) == clusters:
            return
    raise DatasetError(
        f"clusters must be at most {len(seen)}, the number of different features, not {clusters}"
    )


def _principal_components(
    features: npt.NDArray[np.floating], rng: np.random.Generator, dimensions: int
) -> npt.NDArray[np.floating]:
    from sklearn.decomposition import PCA

    dimensions = min(dimensions, *features.shape)
    pca = PCA(dimensions, svd_solver="randomized", random_state=int(rng.integers(2**31)))
    with np.errstate(invalid="ignore"):  # explained shares where all features are the same
        return pca.fit_transform(features)


def _k_means(
    points: npt.NDArray[np.floating], rng: np.random.Generator, clusters: int
) -> npt.NDArray[np.int32]:
    from sklearn.cluster import KMeans

    k_means = KMeans(clusters, n_init=_STARTS, random_state=int(rng.integers(2**31)))
    return k_means.fit_predict(points)
