"""Hetero-SSFL's probe against full-batch Adam in NumPy, and its number of steps."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from tff_ssl.evaluation import adam_probe, scaling
from tff_ssl.evaluation import labels as labelling


def noisy_classes(n, seed):
    """Four overlapping classes in six dimensions, labelled 1, 3, 5, 7."""
    centres = np.random.default_rng(50).standard_normal((4, 6))
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n)
    return centres[labels] + rng.standard_normal((n, 6)), 2 * labels + 1


def reference_predictions(train, test, epochs, rate):
    """Full-batch Adam (Kingma & Ba 2015) on softmax regression from zero, in float64."""
    features, labels = train
    mean, rms = features.mean(axis=0), np.sqrt(features.var(axis=0).mean())
    x, (classes, y) = (features - mean) / rms, np.unique(labels, return_inverse=True)
    x, test = (np.c_[images, np.ones(len(images))] for images in (x, (test - mean) / rms))
    w = first = second = np.zeros((x.shape[1], len(classes)))
    for t in range(1, epochs + 1):
        error = special.softmax(x @ w, axis=1) - np.eye(len(classes))[y]
        gradient = x.T @ error / len(y)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        w = w - rate * first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-7)
    return classes[(test @ w).argmax(axis=1)]


@pytest.mark.parametrize("rate", [0.003, 0.1])
def test_full_batches_equal_numpy(rate):
    train, test = noisy_classes(60, 0), noisy_classes(500, 1)
    expected = labelling.score(reference_predictions(train, test[0], 100, rate), test[1])
    config = adam_probe.AdamProbeConfig(learning_rate=rate)
    scores = adam_probe.adam_probe(scaling.prepare(*train, *test), 0, config)
    assert expected.accuracy > 0.4
    # One of the 500 examples may lie on the boundary.
    np.testing.assert_allclose(scores[:2], expected[:2], atol=2.5e-3)


@pytest.mark.parametrize(("labels", "steps", "batch"), [(40, 100, 40), (1000, 196, 512)])
def test_a_hundred_epochs_in_batches_of_512(monkeypatch, labels, steps, batch):
    shapes = []

    def recorded(sets, config, kernel, variants, examples, example_variants):
        shapes.append(examples.shape)
        counts = np.bincount(examples.ravel(), minlength=labels)
        assert counts.min() >= 100

    monkeypatch.setattr(adam_probe, "trained_scores", recorded)
    sets = scaling.prepare(*noisy_classes(labels, 0), *noisy_classes(50, 1))
    adam_probe.adam_probe(sets, 0)
    assert shapes == [(steps, batch)]
    assert dataclasses.astuple(adam_probe.AdamProbeConfig()) == (100, 512, 0.003)
