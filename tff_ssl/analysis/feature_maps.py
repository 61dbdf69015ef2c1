"""Maps of features to the plane, for pictures: PCA, then t-SNE (Dec-SSL paper, appendix B.3).

The paper uses UMAP instead of t-SNE (van der Maaten & Hinton 2008). Both keep neighbourhoods, and
neither keeps distances.
"""

from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from tff_ssl.evaluation import labels

PCA_COMPONENTS = 20  # As in the paper.
_PERPLEXITY = 30  # Effective number of neighbours in t-SNE, if there are enough points.


class FeatureMap(NamedTuple):
    """Features mapped to the plane."""

    points: np.ndarray  #: Coordinates of the examples, float32 [n, 2].
    components: int  #: Number of components that PCA kept.
    #: Share of the features' variance in these components, in [0, 1]; 0 if they do not vary.
    explained_variance: float


def feature_map(features: np.ndarray, seed: int, steps: int = 1000) -> FeatureMap:
    """Maps features, float32 [n, d], n >= 3, to the plane: PCA to 20 dimensions, then t-SNE to 2.

    Features of several networks lie in the same plane if they are concatenated before. The steps
    are those of t-SNE, at least 250; 500 are enough for a few hundred points.

    Raises:
      ValueError: The features are not finite, or fewer than three.
    """
    features = labels.finite_features("mapped", features)
    if len(features) < 3:
        raise ValueError(f"A map needs at least 3 examples, found {len(features)}.")
    features = features.astype(np.float64)
    pca = PCA(min(PCA_COMPONENTS, *features.shape), svd_solver="full")
    # t-SNE needs fewer neighbours than points; its authors advise at most a third of them.
    perplexity = min(_PERPLEXITY, (len(features) - 1) / 3)
    # The threads of both synchronize often: on busy cores they took up to 100 times as long as one.
    # scikit-learn divides by the total variance, which may be zero.
    with threadpool_limits(1), np.errstate(invalid="ignore"):
        reduced = pca.fit_transform(features)
        # The first two components, scaled down as t-SNE's first steps need them.
        start = np.zeros((len(reduced), 2), np.float32)
        start[:, : reduced.shape[1]] = reduced[:, :2]
        start = start * np.float32(1e-4) / max(float(np.std(start[:, 0])), 1e-12)
        tsne = TSNE(2, perplexity=perplexity, init=start, random_state=seed, max_iter=steps)
        points = tsne.fit_transform(reduced)
    total = features.var(0).sum()
    explained = float(reduced.var(0).sum() / total) if total else 0.0
    return FeatureMap(points, pca.n_components_, explained)
