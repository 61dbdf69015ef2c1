"""The numerical checks of theorems: closed forms, and the figures on the page of claims."""

import numpy as np
import pytest

from launch.studies import theorems


def test_the_best_map_has_no_gradient():
    rng = np.random.default_rng(0)
    images, corrupted = rng.normal(size=(2, 6, 40))
    found = theorems.best_map(images, corrupted)
    np.testing.assert_allclose((found @ corrupted - images) @ corrupted.T, 0, atol=1e-10)
    expected = np.linalg.lstsq(corrupted.T, images.T, rcond=None)[0].T
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert theorems.theorem_1(draws=5) < 1e-12
    assert theorems.printed_inverses(draws=5) == 0


def test_classes_matter_more_than_six_times_as_many_images():
    losses = theorems.corollary_1(draws=2)
    assert losses["all classes"][0] < losses["one class"][1]


def test_the_bound_of_a_round_is_that_of_one_step():
    """By hand, for a client with w = 1, slope 1, rate 0.1 and a tiny mu."""

    class Draws:
        def __init__(self):
            self.values = iter((-1.0, -6.0, 1.0, 1.0))

        def uniform(self, low, high):
            return next(self.values)

    one = theorems.theorem_4_7(1, Draws())
    w = 1 + 0.1 * (1 - 2e-6)  # After a step along the gradient -1 + 2 mu w K.
    assert one.loss == pytest.approx(-w + 1e-6 * w**4, abs=1e-12)
    fall = (0.1 - 2e-6 * 0.1**2 / 2) * (1 - 2e-6) ** 2
    assert one.bound == pytest.approx(-1 + 1e-6 - fall + 2e-7 * (1 - 2e-6) * w**3, abs=1e-12)
    assert theorems.violations(1, draws=200) == 0
    assert theorems.violations(2, draws=200) > 0.9
