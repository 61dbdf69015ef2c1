"""Clusters of equal sizes and Orchestra's loss against loops in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.losses import clusters


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def by_hand(similarities, iterations):
    """Sinkhorn's iterations as they are defined, in float64; and their number."""
    n, k = similarities.shape
    p = softmax(25 * similarities)
    a = np.full(n, 1 / n)
    for i in range(iterations):
        b = np.array([1 / k / sum(p[m, j] * a[m] for m in range(n)) for j in range(k)])
        new = np.array([1 / n / sum(p[m, j] * b[j] for j in range(k)) for m in range(n)])
        change, a = np.abs(a / new - 1).sum(), new
        if i % 10 == 0 and change < 1e-2:
            break
    return n * a[:, None] * p * b, i + 1


def random_rows(n, seed=0, d=4):
    return unit(np.random.default_rng(seed).normal(size=(n, d)))


@pytest.mark.parametrize("iterations", [1, 10, 100])
@pytest.mark.parametrize(("n", "k"), [(12, 4), (5, 7)])
def test_sinkhorn_equals_a_plain_loop(n, k, iterations):
    similarities = random_rows(n) @ random_rows(k, 1).T
    expected, _ = by_hand(similarities, iterations)
    actual = clusters.sinkhorn(tf.constant(similarities, tf.float32), iterations)
    np.testing.assert_allclose(actual, expected, rtol=2e-3, atol=1e-5)


def test_sinkhorn_ends_where_the_scales_no_longer_change():
    # All rows are alike to all clusters: the scales are right after one iteration.
    assert by_hand(np.zeros((6, 3)), 100)[1] == 1
    similarities = 0.1 * random_rows(12) @ random_rows(4, 1).T
    expected, needed = by_hand(similarities, 100)
    assert 1 < needed < 100
    similarities = tf.constant(similarities, tf.float32)
    np.testing.assert_array_equal(
        clusters.sinkhorn(similarities), clusters.sinkhorn(similarities, needed)
    )
    assert np.abs(clusters.sinkhorn(similarities, 1) - expected).max() > 1e-2


@pytest.mark.parametrize("seed", range(3))
def test_sinkhorn_is_the_same_in_a_graph_as_tff_builds_it(seed):
    # There, `==` of tensors compares objects.
    similarities = (random_rows(9, seed) @ random_rows(5, seed + 9).T).astype(np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        in_graph = session.run(clusters.sinkhorn(tf.constant(similarities)))
    expected = clusters.sinkhorn(tf.constant(similarities))
    np.testing.assert_allclose(in_graph, expected, rtol=0, atol=1e-6)


def test_assignments_have_equal_shares_where_similarities_have_not():
    # Nine of twelve rows lie near the first centroid.
    centroids = np.eye(3)
    rows = unit(centroids[[0] * 9 + [1, 2, 2]] + 0.1 * random_rows(12, d=3))
    assignments = clusters.sinkhorn(tf.constant(rows @ centroids.T, tf.float32)).numpy()
    np.testing.assert_allclose(assignments.sum(1), 1, rtol=1e-3)
    np.testing.assert_allclose(assignments.sum(0), 4, rtol=2e-2)


def test_local_centroids_equal_a_plain_loop():
    rows, first = random_rows(12), [3, 8, 1, 5]
    spare = np.random.default_rng(1).integers(0, 12, (5, 4))
    expected = rows[first]
    for step in range(5):
        hard = by_hand(rows @ expected.T, 10)[0].argmax(1)
        members = [rows[hard == j] for j in range(4)]
        expected = np.array(
            [unit(m.mean(0)) if len(m) else rows[spare[step, j]] for j, m in enumerate(members)]
        )
    actual = clusters.local_centroids(
        tf.constant(rows, tf.float32), tf.constant(first), tf.constant(spare, tf.int32)
    )
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_an_empty_cluster_gets_the_row_that_was_drawn_for_it():
    # Two rows cannot fill three clusters.
    rows = np.eye(4)[:2].astype(np.float32)
    spare = tf.constant([[1, 1, 1]] * 4 + [[0, 0, 0]])
    centroids = clusters.local_centroids(tf.constant(rows), tf.constant([0, 1, 1]), spare).numpy()
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, rtol=1e-6)
    assert any(np.array_equal(c, rows[0]) for c in centroids)


def cosine_loss(rows, centroids, assigned, temperature):
    predicted = softmax(rows @ centroids.T / temperature)
    return -np.mean(np.sum(unit(assigned) * unit(predicted), 1))


def test_global_centroids_follow_the_gradient_of_the_definition():
    rows, centroids, temperature = random_rows(9), random_rows(5, 1), 0.3
    expected, velocity = centroids.copy(), np.zeros_like(centroids)
    for _ in range(3):
        assigned, _ = by_hand(rows @ expected.T, 100)
        gradient = np.zeros_like(expected)
        for place in np.ndindex(*expected.shape):
            step = np.zeros_like(expected)
            step[place] = 1e-5
            gradient[place] = (
                cosine_loss(rows, expected + step, assigned, temperature)
                - cosine_loss(rows, expected - step, assigned, temperature)
            ) / 2e-5
        velocity = 0.9 * velocity + gradient + 0.05 * expected
        expected = unit(expected - 0.2 * velocity)
    actual = clusters.global_centroids(
        tf.constant(rows, tf.float32), tf.constant(centroids, tf.float32), temperature,
        steps=3, learning_rate=0.2, weight_decay=0.05,
    )  # fmt: skip
    np.testing.assert_allclose(actual, expected, atol=2e-3)
    assert np.abs(expected - centroids).max() > 0.05


def test_training_brings_predictions_of_global_clusters_nearer_to_equal_shares():
    rows, centroids = random_rows(40, d=8), random_rows(6, 1, d=8)

    def agreement(c):
        return -cosine_loss(rows, c, by_hand(rows @ c.T, 100)[0], 0.1)

    train = tf.function(clusters.global_centroids, autograph=False)
    trained = train(tf.constant(rows, tf.float32), tf.constant(centroids, tf.float32), 0.1).numpy()
    np.testing.assert_allclose(np.linalg.norm(trained, axis=1), 1, rtol=1e-5)
    assert agreement(trained.astype(np.float64)) > agreement(centroids) + 0.02


def test_the_loss_is_the_cross_entropy_of_two_predictions():
    rng = np.random.default_rng(0)
    z1, z2, c = rng.normal(size=(6, 4)), rng.normal(size=(6, 4)), random_rows(3)
    p1, q2 = (softmax(unit(z) @ c.T / 0.2) for z in (z1, z2))
    expected = -np.sum(p1 * np.log(q2), 1)
    z1, z2, c = (tf.constant(x, tf.float32) for x in (z1, z2, c))
    with tf.GradientTape() as tape:
        tape.watch((z1, z2))
        losses = clusters.assignment_losses(z1, z2, c, 0.2)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    of_target, of_online = tape.gradient(losses, (z1, z2))
    assert of_target is None
    assert np.abs(of_online).max() > 1e-3
