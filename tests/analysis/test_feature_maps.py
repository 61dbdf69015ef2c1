"""Maps of features to the plane: their neighbourhoods, their seed, and extreme inputs."""

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from tff_ssl.analysis.feature_maps import feature_map

RNG = np.random.default_rng(0)


def clusters(per_cluster=40, d=30):
    centres = 20 * RNG.normal(size=(3, d))
    points = np.repeat(centres, per_cluster, 0) + RNG.normal(size=(3 * per_cluster, d))
    return points.astype(np.float32), np.repeat(np.arange(3), per_cluster)


def test_neighbours_stay_neighbours():
    features, cluster_of_point = clusters()
    result = feature_map(features, seed=0)
    assert result.points.shape == (120, 2)
    nearest = NearestNeighbors(n_neighbors=6).fit(result.points).kneighbors(return_distance=False)
    assert np.all(cluster_of_point[nearest] == cluster_of_point[:, np.newaxis])


def test_explained_variance_is_that_of_the_largest_components():
    features, _ = clusters()
    variances = np.linalg.svd(features - features.mean(0), compute_uv=False) ** 2
    expected = variances[:20].sum() / variances.sum()
    result = feature_map(features, seed=0)
    assert result.components == 20
    assert result.explained_variance == pytest.approx(expected, rel=1e-5)


def test_the_seed_fixes_the_map():
    features, _ = clusters(per_cluster=10)
    first, second = feature_map(features, seed=1), feature_map(features, seed=1)
    np.testing.assert_array_equal(first.points, second.points)


@pytest.mark.parametrize("shape", [(3, 50), (4, 1), (40, 2), (5, 3)])
def test_few_examples_and_few_features(shape):
    result = feature_map(RNG.normal(size=shape).astype(np.float32), seed=0)
    assert result.points.shape == (shape[0], 2)
    assert np.all(np.isfinite(result.points))
    assert result.components == min(20, *shape)


def test_features_without_variance_have_finite_points():
    result = feature_map(np.ones((10, 4), np.float32), seed=0)
    assert np.all(np.isfinite(result.points))
    assert result.explained_variance == 0


def test_features_that_cannot_be_mapped_are_an_error():
    with pytest.raises(ValueError, match="at least 3"):
        feature_map(np.ones((2, 4), np.float32), seed=0)
    with pytest.raises(ValueError, match="not finite"):
        feature_map(np.full((5, 4), np.nan, np.float32), seed=0)
