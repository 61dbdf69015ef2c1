"""Weight distances against numbers calculated by hand, and as a metric."""

import numpy as np
import pytest

from tff_ssl.analysis.weight_distances import layer_distances
from tff_ssl.errors import ConfigurationError


def test_distances_equal_numbers_calculated_by_hand():
    a = [np.zeros((2, 2), np.float32), np.float32([1, 2, 3]), np.float32(5)]
    b = [np.full((2, 2), 3, np.float32), np.float32([1, 2, 7]), np.float32(4)]
    distances = layer_distances(a, b)
    assert distances.dtype == np.float64
    np.testing.assert_array_equal(distances, [6, 4, 1])  # sqrt(4 * 9), sqrt(16), 1
    np.testing.assert_array_equal(layer_distances(a, a), 0)


def test_each_layer_is_a_metric():
    rng = np.random.default_rng(0)
    a, b, c = ([rng.normal(size=s) for s in ((3, 4, 2), (5,))] for _ in range(3))
    np.testing.assert_array_equal(layer_distances(a, b), layer_distances(b, a))
    assert np.all(layer_distances(a, c) <= layer_distances(a, b) + layer_distances(b, c))


def test_a_large_layer_keeps_its_digits():
    a, b = np.zeros(3_000_000, np.float32), np.full(3_000_000, 0.1, np.float32)
    expected = np.float64(np.float32(0.1)) * np.sqrt(3e6)
    # In float32 the error would be 5e-7 or more. The order in which BLAS sums is not fixed.
    np.testing.assert_allclose(layer_distances([a], [b]), [expected], rtol=1e-10)


def test_networks_without_layers_have_no_distances():
    assert layer_distances([], []).shape == (0,)


def test_different_structures_are_an_error():
    a = [np.zeros((3, 2)), np.zeros(4)]
    with pytest.raises(ConfigurationError, match="2 and 1 layers"):
        layer_distances(a, a[:1])
    # Shapes that broadcast to each other are also different.
    with pytest.raises(ConfigurationError, match="layer 2 of 2 has shapes 4 and 1"):
        layer_distances(a, [a[0], np.zeros(1)])
