"""Clusters of features, which a partition then allocates to clients as if they were classes.

Dec-SSL (appendix C.2, "Feature distribution shift") reduces the features of a ResNet-50, trained on
the labels of the same images, to 30 dimensions by PCA and forms 5 clusters. Here, features are
those of any encoder.
"""

import numpy as np
import numpy.typing as npt

from datasets.errors import DatasetError

DEFAULT_CLUSTERS = 5
_DIMENSIONS = 30
_STARTS = 5  # number of k-means runs, of which the best is taken


def cluster(
    features: npt.NDArray[np.floating], rng: np.random.Generator, clusters: int
) -> npt.NDArray[np.int32]:
    """Clusters features, float [n, d], by PCA, then k-means: int32 [n], from the largest, 0, on.

    The components keep their variances, as in the paper's text. The authors' released code also
    scales them to unit variance, so that the thirtieth counts as much as the first. If n or d is
    below 30, there are fewer components.

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
    different = len({row.tobytes() for row in features})
    if different < clusters:
        raise DatasetError(
            f"clusters must be at most {different}, the number of different features, "
            f"not {clusters}"
        )
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    components = min(_DIMENSIONS, *features.shape)
    pca = PCA(components, svd_solver="randomized", random_state=int(rng.integers(2**31)))
    # If all features are the same, the explained share of variance is 0 / 0.
    with np.errstate(invalid="ignore"):
        points = pca.fit_transform(features)
    k_means = KMeans(clusters, n_init=_STARTS, random_state=int(rng.integers(2**31)))
    ids = k_means.fit_predict(points)
    sizes = np.bincount(ids, minlength=clusters)
    rank = np.empty(clusters, np.int32)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(clusters)
    return rank[ids]
