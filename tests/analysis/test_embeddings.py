"""Neighbours, near-duplicates, clusters and the map of images, against brute force."""

import numpy as np
import pytest

from tff_ssl.analysis import embeddings
from tff_ssl.analysis.embeddings import Neighbours

RNG = np.random.default_rng(0)


def brute_force(features, count):
    """All cosines in float64, their `count` largest in each row, and the columns of these."""
    directions = features.astype(np.float64)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    cosines = directions @ directions.T
    np.fill_diagonal(cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return cosines, order, np.take_along_axis(cosines, order, 1)


# 256 images are a group of the search; 4 * 256 and 4 * 768 bytes are a row of a block.
@pytest.mark.parametrize(
    ("n", "block_bytes"), [(7, 1), (256, 4 * 256 * 100), (257, 4 * 512 * 10), (700, 4 * 768 * 33)]
)
def test_neighbours_are_those_of_all_pairs(n, block_bytes):
    features = RNG.normal(size=(n, 6)).astype(np.float32)
    done = []
    directions = embeddings.unit_vectors(features)
    found = embeddings.nearest(directions, 5, block_bytes, done.append)
    _, indices, similarities = brute_force(features, 5)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.similarities, similarities, atol=1e-6)
    assert sum(done) == n
    assert max(done) <= max(1, block_bytes // (4 * n))


def test_three_images_have_two_neighbours_each():
    found = embeddings.nearest(np.eye(3, dtype=np.float32))
    assert sorted(found.indices[1].tolist()) == [0, 2]
    np.testing.assert_array_equal(found.similarities, np.zeros((3, 2)))


def test_near_duplicates_are_the_pairs_above_the_threshold():
    features = RNG.normal(size=(40, 3)).astype(np.float32)
    neighbours = embeddings.nearest(embeddings.unit_vectors(features), count=39)
    pairs, similarities, threshold = embeddings.near_duplicates(neighbours, 0.97)
    cosines, _, _ = brute_force(features, 1)
    expected = np.argwhere(np.triu(cosines, 1) >= 0.97)
    assert threshold == 0.97
    assert len(expected) > 5
    assert {tuple(pair) for pair in pairs.tolist()} == {tuple(pair) for pair in expected.tolist()}
    np.testing.assert_allclose(similarities, cosines[tuple(pairs.T)], atol=1e-6)
    assert np.all(np.diff(similarities) <= 0)


def test_copies_have_a_cosine_of_one_in_spite_of_rounding():
    features = np.repeat(RNG.normal(size=(30, 50)), 2, axis=0).astype(np.float32)
    neighbours = embeddings.nearest(embeddings.unit_vectors(features))
    pairs, _, _ = embeddings.near_duplicates(neighbours, 1.0)
    expected = np.arange(60).reshape(30, 2)
    np.testing.assert_array_equal(pairs[np.argsort(pairs[:, 0])], expected)


def test_no_near_duplicates_are_an_empty_array():
    neighbours = Neighbours(np.array([[1], [0]], np.int32), np.full((2, 1), 0.5, np.float32))
    pairs, similarities, _ = embeddings.near_duplicates(neighbours, 0.9)
    assert pairs.shape == (0, 2)
    assert similarities.shape == (0,)


def test_k_means_finds_clusters_and_their_representatives():
    sizes = np.array([20, 50, 30])
    kinds = RNG.permutation(np.repeat(np.arange(3), sizes))
    features = 10 * np.eye(3)[kinds] + RNG.normal(size=(100, 3)) * 0.3
    directions = embeddings.unit_vectors(features.astype(np.float32))
    of_image, representatives = embeddings.cluster(directions, 3, seed=0)
    # The largest cluster comes first.
    np.testing.assert_array_equal(of_image, np.array([2, 0, 1])[kinds])
    for number, chosen in enumerate(representatives):
        members = np.flatnonzero(of_image == number)
        mean = directions[members].mean(0)
        distances = np.linalg.norm(directions[members] - mean, axis=1)
        np.testing.assert_array_equal(chosen, members[np.argsort(distances)[:6]])


def test_there_are_no_more_clusters_than_different_features(recwarn):
    directions = np.repeat(np.eye(2, dtype=np.float32), [4, 5], axis=0)
    of_image, representatives = embeddings.cluster(directions, 7, seed=0)
    assert of_image.tolist() == [1] * 4 + [0] * 5
    assert [len(chosen) for chosen in representatives] == [5, 4]
    assert not recwarn


def test_images_beyond_the_sample_are_placed_among_those_that_are_similar():
    kinds = np.repeat(np.arange(3), 60)
    features = (10 * np.eye(3)[kinds] + RNG.normal(size=(180, 3)) * 0.1).astype(np.float32)
    points = embeddings.place(features, embeddings.unit_vectors(features), seed=0, mapped=60)
    centres = np.stack([np.median(points[kinds == kind], axis=0) for kind in range(3)])
    distances = np.linalg.norm(points[:, np.newaxis] - centres, axis=2)
    np.testing.assert_array_equal(distances.argmin(1), kinds)


def test_the_embedding_has_all_parts_and_is_repeatable():
    features = np.maximum(RNG.normal(size=(30, 8)), 0).astype(np.float32)
    first, second = (embeddings.embed(features, 1, 4, 0.9) for _ in range(2))
    np.testing.assert_array_equal(first.features, features)
    np.testing.assert_array_equal(first.points, second.points)
    np.testing.assert_array_equal(first.clusters.of_image, second.clusters.of_image)
    assert first.neighbours.indices.shape == (30, 5)
    assert first.duplicates.threshold == 0.9
    with pytest.raises(ValueError, match="not finite in 1 of 30 rows"):
        embeddings.embed(np.where(np.arange(30)[:, None] == 3, np.nan, features), 1, 4, 0.9)
