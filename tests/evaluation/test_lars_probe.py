"""The paper's probe against full-batch LARS in NumPy, and on real digits."""

import dataclasses

import numpy as np
import pytest
from scipy import special
from sklearn import datasets

from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation import lars_probe, scaling

SMALL = lars_probe.LARS_PROBES["500_labels"]


def noisy_classes(n, seed):
    """Four overlapping classes in six dimensions, labelled 1, 3, 5, 7."""
    centres = np.random.default_rng(50).standard_normal((4, 6))
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n)
    return centres[labels] + rng.standard_normal((n, 6)), 2 * labels + 1


def reference_predictions(train, test, seed, config):
    """Full-batch LARS (You et al. 2017) on softmax regression with a cosine rate, in float64."""
    features, labels = train
    mean, rms = features.mean(axis=0), np.sqrt(features.var(axis=0).mean())
    x, (classes, y) = (features - mean) / rms, np.unique(labels, return_inverse=True)
    rng = np.random.default_rng(seed)
    kernel = rng.normal(0.0, config.initial_stddev, (x.shape[1], len(classes)))
    bias, kernel_v, bias_v = np.zeros(len(classes)), 0.0, 0.0
    for t in range(config.steps):
        rate = config.learning_rate * (1 + np.cos(np.pi * t / config.steps)) / 2
        error = (special.softmax(x @ kernel + bias, axis=1) - np.eye(len(classes))[y]) / len(y)
        kernel_g, bias_g = x.T @ error, error.sum(axis=0)
        ratio = config.trust_coefficient * np.linalg.norm(kernel) / np.linalg.norm(kernel_g)
        kernel_v = config.momentum * kernel_v + rate * ratio * kernel_g
        bias_v = config.momentum * bias_v + rate * bias_g
        kernel, bias = kernel - kernel_v, bias - bias_v
    return classes[((test - mean) / rms @ kernel + bias).argmax(axis=1)]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "config", [SMALL, dataclasses.replace(SMALL, steps=80, trust_coefficient=0.01, momentum=0.8)]
)
def test_full_batches_equal_numpy(seed, config):
    train, test = noisy_classes(50, 0), noisy_classes(500, 1)
    expected = labelling.score(reference_predictions(train, test[0], seed, config), test[1])
    scores = lars_probe.lars_probe(scaling.prepare(*train, *test), seed, config)
    assert expected.accuracy > 0.4
    # One of the 500 examples may lie on the boundary.
    np.testing.assert_allclose(scores[:2], expected[:2], atol=2.5e-3)


def test_same_seed_same_result_and_other_seed_another():
    train, test = noisy_classes(300, 0), noisy_classes(500, 1)
    scores = [lars_probe.lars_probe(scaling.prepare(*train, *test), s, SMALL) for s in (5, 5, 6)]
    assert scores[0] == scores[1]
    assert scores[0] != scores[2]


def test_the_presets_are_the_papers():
    large, small = lars_probe.config_for(5000), lars_probe.config_for(500)
    assert (large.steps, large.batch_size, large.learning_rate, large.momentum) == (
        1000,
        512,
        2.0,
        0.9,
    )
    assert (small.steps, small.batch_size, small.learning_rate, small.momentum) == (
        400,
        128,
        2.5,
        0.9,
    )
    assert lars_probe.config_for(10) == small
    assert lars_probe.config_for(50_000) == large


def test_flipped_features_are_trained_on():
    (x, y), test = noisy_classes(300, 0), noisy_classes(500, 1)
    noise = np.random.default_rng(3).standard_normal(x.shape)
    scaler = scaling.fit_scaler(x)
    without = lars_probe.lars_probe(scaling.prepare(noise, y, *test, scaler), 0)
    with_flips = lars_probe.lars_probe(scaling.prepare(noise, y, *test, scaler, x), 0)
    assert without.accuracy < 0.4 < 0.6 < with_flips.accuracy
    with pytest.raises(ValueError, match="shaped as the training features"):
        scaling.prepare(x, y, *test, flipped_features=x[:, :4])


def test_both_presets_learn_digits():
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = ((x[part], y[part]) for part in np.split(order, [1200]))
    sets = scaling.prepare(*train, *test)
    for config in lars_probe.LARS_PROBES.values():
        assert lars_probe.lars_probe(sets, 0, config).accuracy > 0.95


def test_the_unit_of_the_features_does_not_matter():
    (x, y), (x_test, y_test) = noisy_classes(300, 0), noisy_classes(500, 1)
    expected = lars_probe.lars_probe(scaling.prepare(x, y, x_test, y_test), 0, SMALL)
    other_unit = scaling.prepare(x * 1e-3 + 7, y, x_test * 1e-3 + 7, y_test)
    scores = lars_probe.lars_probe(other_unit, 0, SMALL)
    np.testing.assert_allclose(scores[:2], expected[:2], atol=5e-3)
