"""The spectral contrastive loss against sums over pairs in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.losses import means, segments, spectral
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, combined_statistics

SPECTRAL = STATISTICS_LOSSES["spectral"]
N, D = 9, 4
PAIRS = np.random.default_rng(0).normal(size=(2, N, D)).astype(np.float32)
F, G = map(tf.constant, PAIRS)


def of_pairs(f, g):
    """The loss as a mean over all pairs of the 2n projections."""
    z = np.concatenate([f, g]).astype(np.float64)
    alignment = np.mean([a @ b for a, b in zip(f.astype(np.float64), g, strict=True)])
    return -2 * alignment + np.mean([(a @ b) ** 2 for a in z for b in z])


def statistics_of(f, g):
    return spectral.encoding_statistics(f, g, means.zero(D))


def test_the_loss_is_the_mean_over_all_pairs():
    terms = spectral.spectral_from_statistics(statistics_of(F, G))
    assert float(terms.loss) == pytest.approx(of_pairs(*PAIRS), rel=1e-5)
    assert float(terms.loss) == pytest.approx(
        float(-2 * terms.alignment + terms.squared_moments), rel=1e-6
    )


def test_the_loss_within_clients_is_that_of_each_client_alone():
    clients = np.array([2, 0, 0, 2, 1, 2, 0, 0, 2])
    got = spectral.spectral_within_clients(F, G, segments.by_client(tf.constant(clients)))
    # The segments are in the order in which the clients appear.
    for value, client in zip(got.loss, (2, 0, 1), strict=True):
        chosen = clients == client
        expected = of_pairs(PAIRS[0][chosen], PAIRS[1][chosen])
        assert float(value) == pytest.approx(expected, rel=1e-5)


def test_projections_are_shortened_to_the_ball():
    z = tf.constant([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(
        spectral.in_ball(z, 4.0), [[0.3, 0.4], [1.2, 1.6], [0.0, 0.0]], rtol=1e-6
    )
    with tf.GradientTape() as tape:
        tape.watch(z)
        value = tf.reduce_sum(spectral.in_ball(z, 4.0))
    gradient = tape.gradient(value, z).numpy()
    np.testing.assert_allclose(gradient[[0, 2]], 1.0, rtol=1e-6)
    # Along a projection that is outside, nothing changes.
    assert gradient[1] @ [3.0, 4.0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("mu", [0.5, 4.0])
def test_moments_are_symmetric_and_bounded_by_the_ball(mu):
    values = ObjectiveHyperparameters(squared_radius=mu)
    prepared = (SPECTRAL.prepared(10 * z, values) for z in (F, G))
    moments = statistics_of(*prepared).moments.numpy()
    np.testing.assert_allclose(moments, moments.T, atol=1e-6)
    assert np.linalg.eigvalsh(moments).min() > -1e-6
    assert np.trace(moments) == pytest.approx(mu, rel=1e-5)  # All of these are longer.


@pytest.mark.parametrize("reference", [0.0, 3.0])
def test_a_unions_statistics_are_weighted_means_of_its_parts(reference):
    point = means.Means(tf.fill([D], reference), tf.fill([D], -reference))
    parts = [SPECTRAL.of_batch(F[a:b], G[a:b], point) for a, b in ((0, 2), (2, 9))]
    mean = tf.nest.map_structure(lambda a, b: (2 * a + 7 * b) / 9, *parts)
    union = SPECTRAL.centred(SPECTRAL.of_batch(F, G, point), point)
    for a, b in zip(SPECTRAL.centred(mean, point), union, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_allclose(union.f, PAIRS[0].mean(0), atol=1e-6)
    np.testing.assert_allclose(union.moments, statistics_of(F, G).moments, atol=1e-6)


def test_gradients_of_combined_statistics_add_up_to_those_of_the_union():
    sizes = (3, 5, 1)

    def loss(f, g, aggregated):
        return SPECTRAL.terms(combined_statistics(SPECTRAL, f, g, aggregated), None).loss

    with tf.GradientTape() as tape:
        tape.watch((F, G))
        whole = spectral.spectral_from_statistics(statistics_of(F, G)).loss
    expected = tape.gradient(whole, (F, G))
    start, got = 0, []
    for size in sizes:
        part = (F[start : start + size], G[start : start + size])
        with tf.GradientTape() as tape:
            tape.watch(part)
            value = loss(*part, statistics_of(F, G))
        got.append([size / N * g for g in tape.gradient(value, part)])
        assert float(value) == pytest.approx(float(whole), rel=1e-5)
        start += size
    for view in range(2):
        np.testing.assert_allclose(
            tf.concat([g[view] for g in got], 0), expected[view], rtol=1e-4, atol=1e-6
        )


def test_the_spread_is_the_deviation_of_both_views():
    point = means.of_batch(F, G)
    statistics = SPECTRAL.centred(SPECTRAL.of_batch(F, G, point), point)
    expected = np.sqrt((PAIRS[0].var(0) + PAIRS[1].var(0)) / 2).mean()
    assert float(SPECTRAL.encoding_std(statistics)) == pytest.approx(expected, rel=1e-5)
    collapsed = statistics_of(tf.ones([N, D]), tf.ones([N, D]))
    assert float(SPECTRAL.encoding_std(collapsed)) == 0.0


def test_a_radius_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="squared_radius"):
        ObjectiveHyperparameters(squared_radius=0.0)
