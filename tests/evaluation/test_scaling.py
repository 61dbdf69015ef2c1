"""The scaling of the probes' features, by its properties, and its checks."""

import numpy as np
import pytest

from tff_ssl.evaluation import scaling


def uneven_features(n=200):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 4)) * [1.0, 10.0, 0.1, 0.0] + [0.0, 5.0, -3.0, 0.7]


def test_the_scaling_keeps_the_proportions_of_distances():
    features = uneven_features()
    scaled = scaling.fit_scaler(features)(features)
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose((scaled**2).sum(axis=1).mean(), 4.0, rtol=1e-5)
    before = np.linalg.norm(features[1:] - features[:-1], axis=1)
    after = np.linalg.norm(scaled[1:] - scaled[:-1], axis=1)
    np.testing.assert_allclose(after / before, after[0] / before[0], rtol=1e-4)


def test_origin_and_unit_of_the_features_do_not_matter():
    features = uneven_features()
    expected = scaling.fit_scaler(features)(features)
    moved = features * 1e-3 + 0.25
    np.testing.assert_allclose(scaling.fit_scaler(moved)(moved), expected, atol=1e-3)


def test_rounding_errors_of_constant_features_are_not_enlarged():
    features = np.full((50, 3), 0.1, np.float32)
    features[::2] = np.nextafter(np.float32(0.1), np.float32(1))
    assert np.abs(scaling.fit_scaler(features)(features)).max() < 1e-6


def test_the_scaling_is_fitted_on_the_reference_alone():
    train, test = np.array([[0.0], [1.0]]), np.array([[3.0]])
    reference = np.array([[2.0], [6.0]])  # mean 4, standard deviation 2
    scaler = scaling.fit_scaler(reference)
    sets = scaling.prepare(train, np.array([0, 1]), test, np.array([1]), scaler)
    np.testing.assert_allclose(sets.train_features, [[-2.0], [-1.5]])
    np.testing.assert_allclose(sets.test_features, [[-0.5]])


def test_sets_that_cannot_be_probed():
    two, labels = np.eye(2), np.array([0, 1])
    with pytest.raises(ValueError, match="differ in size: 2, 3 and 2"):
        scaling.prepare(two, labels, np.ones([1, 3]), labels[:1], None)
    with pytest.raises(ValueError, match="two classes; all training labels are 1"):
        scaling.prepare(two, np.array([1, -1]), two, labels, None)
    with pytest.raises(ValueError, match="reference features are not finite"):
        scaling.fit_scaler(np.full([2, 2], np.nan))
