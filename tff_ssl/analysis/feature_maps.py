"""Features in the plane, for pictures: PCA, then t-SNE (Dec-SSL paper, appendix B.3).

The paper takes UMAP instead of t-SNE (van der Maaten & Hinton 2008). Both keep neighbourhoods and
neither keeps distances, so only figures of the features themselves say how far apart they are.
"""

from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from tff_ssl.evaluation import labels

PCA_COMPONENTS = 20  # The paper's.
_PERPLEXITY = 30  # Neighbours that t-SNE keeps together, where there are enough points.


class FeatureMap(NamedTuple):
    """Where features lie in the plane.

    Attributes:
      points: float32 [n, 2].
      components: Components that PCA kept.
      explained_variance: The share of the features' variance in these components, in [0, 1].
    """

    points: np.ndarray
    components: int
    explained_variance: float


def feature_map(features: np.ndarray, seed: int) -> FeatureMap:
    """Brings features that share one space to the plane: PCA to 20 dimensions, then t-SNE to 2.

    Args:
      features: float32 [n, d], n >= 3. Those of several networks are concatenated first, so that
        all are seen in the same plane.
      seed: Of t-SNE.

    Raises:
      ValueError: If the features are not finite, or fewer than three.
    """
    features = labels.finite_features("mapped", features)
    if len(features) < 3:
        raise ValueError(f"A map needs at least 3 examples, found {len(features)}.")
    features = features.astype(np.float64)
    pca = PCA(min(PCA_COMPONENTS, *features.shape), svd_solver="full")
    with np.errstate(invalid="ignore"):  # PCA's own share of the variance, where there is none.
        reduced = pca.fit_transform(features)
    # t-SNE wants fewer neighbours than points; its authors advise a third of them at most.
    perplexity = min(_PERPLEXITY, (len(features) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init=_start(reduced), random_state=seed)
    # Its threads wait for each other in each of a thousand steps: on busy cores that took 100 times
    # as long as one thread.
    with threadpool_limits(1):
        points = tsne.fit_transform(reduced)
    return FeatureMap(points, pca.n_components_, _share(reduced, features))


def _share(reduced: np.ndarray, features: np.ndarray) -> float:
    """The share of the features' variance that is left; 0 where they do not vary."""
    total = features.var(0).sum()
    return float(reduced.var(0).sum() / total) if total else 0.0


def _start(reduced: np.ndarray) -> np.ndarray:
    """Where t-SNE starts: the first two components, as small as its early steps need them."""
    start = np.zeros((len(reduced), 2), np.float32)
    start[:, : reduced.shape[1]] = reduced[:, :2]
    return start * np.float32(1e-4) / max(float(np.std(start[:, 0])), 1e-12)
