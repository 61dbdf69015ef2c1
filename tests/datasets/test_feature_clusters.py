"""Clusters of features: recovery of separated blobs, dependence on the seed, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets import feature_clusters
from datasets.errors import DatasetError


def blobs(rng, sizes, dimensions):
    """Points around distant centres, and the index of each point's centre."""
    truth = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centres = 50 * np.eye(len(sizes), dimensions)
    return centres[truth] + rng.normal(size=(len(truth), dimensions)), truth


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(5, 40), min_size=1, max_size=6),
    st.integers(6, 60),
    st.integers(0, 2**32 - 1),
)
def test_separated_blobs_are_recovered(sizes, dimensions, seed):
    rng = np.random.default_rng(seed)
    features, truth = blobs(rng, sizes, dimensions)
    ids = feature_clusters.cluster(features.astype(np.float32), rng, len(sizes))
    assert ids.dtype == np.int32
    assert len(set(zip(ids.tolist(), truth.tolist(), strict=True))) == len(sizes)
    # Clusters are numbered from the largest to the smallest.
    assert np.bincount(ids).tolist() == sorted(sizes, reverse=True)


def test_components_are_not_scaled():
    # Two groups are far apart in one direction; scaled, it would count no more than the noise.
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 400)
    features = rng.normal(size=(400, 21))
    features[:, 0] += 20 * truth
    ids = feature_clusters.cluster(features, np.random.default_rng(0), 2)
    assert abs(np.corrcoef(ids, truth)[0, 1]) > 0.99


def test_clusters_depend_on_the_seed():
    features = np.random.default_rng(0).normal(size=(300, 10))
    first, again, other = (
        feature_clusters.cluster(features, np.random.default_rng(seed), 5) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("features", "clusters", "word"),
    [
        (np.zeros((4, 3)), 0, "clusters"),
        (np.zeros((4, 3)), 5, "clusters"),
        (np.repeat(np.eye(2), 5, axis=0), 3, "clusters must be at most 2"),
        (np.full((4, 3), np.nan), 2, "cluster_encoder"),
        (np.zeros(4), 2, "features"),
        (np.zeros((0, 3)), 1, "features"),
    ],
)
def test_impossible_settings_are_named(features, clusters, word):
    with pytest.raises(DatasetError, match=word) as caught:
        feature_clusters.cluster(features, np.random.default_rng(0), clusters)
    assert "\n" not in str(caught.value)
