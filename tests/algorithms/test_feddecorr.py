"""FedDecorr's term against NumPy's correlations, and where it enters."""

import types

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.algorithms import fedavg, feddecorr


def test_the_term_is_the_mean_squared_correlation():
    h = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    h[:, 3] = 2 * h[:, 0] - h[:, 1] + 7
    expected = np.mean(np.corrcoef(h.T) ** 2)
    np.testing.assert_allclose(feddecorr.decorrelation(tf.constant(h)), expected, rtol=1e-5)
    # A constant dimension is uncorrelated with all, and with itself.
    h[:, 2] = 3
    others = np.corrcoef(np.delete(h, 2, 1).T)
    got = feddecorr.decorrelation(tf.constant(h))
    np.testing.assert_allclose(got, np.sum(others**2) / 25, rtol=1e-5)


def test_its_gradient_is_finite_and_spreads_encodings():
    h = np.outer(np.arange(8.0), [1, 2, 0]) + 0.1 * np.eye(8)[:, :3] * [1, 1, 0]
    h = tf.constant(h, tf.float32)
    for _ in range(200):
        with tf.GradientTape() as tape:
            tape.watch(h)
            value = feddecorr.decorrelation(h)
        h -= 5 * tape.gradient(value, h)
    assert np.all(np.isfinite(h))
    # From 4 / 9, all entries of two collapsed dimensions, to their diagonal.
    np.testing.assert_allclose(value, 2 / 9, atol=0.01)


def test_the_clients_loss_has_beta_times_the_term_of_both_views(monkeypatch):
    monkeypatch.setattr(fedavg, "build_fedavg", lambda task, values, **parts: (task, values, parts))
    values = feddecorr.FedDecorrHyperparameters(beta=0.3)
    task, given, parts = feddecorr.build_feddecorr("task", values, metric_sum="sum")
    assert (task, given, parts["metric_sum"]) == ("task", values, "sum")
    (term,) = parts["regularizers"]
    h = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    step = types.SimpleNamespace(evaluated=types.SimpleNamespace(h=tuple(map(tf.constant, h))))
    expected = 0.3 * np.mean(np.corrcoef(h.reshape(12, 4).T) ** 2)
    np.testing.assert_allclose(term(step), expected, rtol=1e-5)


def test_a_negative_weight_is_refused():
    with pytest.raises(ValueError, match="beta"):
        feddecorr.FedDecorrHyperparameters(beta=-1.0)
