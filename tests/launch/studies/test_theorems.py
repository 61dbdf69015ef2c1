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


def test_the_best_map_with_a_ridge_has_no_gradient():
    images, corrupted = np.random.default_rng(1).normal(size=(2, 6, 40))
    found = theorems.best_map(images, corrupted, 3.0)
    np.testing.assert_allclose((found @ corrupted - images) @ corrupted.T + 3 * found, 0, atol=1e-9)


def test_classes_matter_with_one_client_and_not_with_five_that_have_all_of_them():
    losses = {
        (clients, kind, size): theorems.corollary_1(clients, kind, size, seed=0)
        for clients in (1, 5)
        for kind, size in (("all classes", 20), ("two classes", 80))
    }
    assert all(loss < constant for loss, constant in losses.values())
    assert losses[1, "all classes", 20] < losses[1, "two classes", 80]
    assert losses[5, "two classes", 80] < losses[5, "all classes", 20]


def test_the_bounds_of_a_round_are_those_of_one_step():
    """By hand, for a client with w = 1, slope 1, rate 0.1 and a tiny mu."""

    class Draws:
        def __init__(self):
            self.values = iter((-1.0, -6.0, 1.0, 1.0))

        def uniform(self, low, high):
            return next(self.values)

    one = theorems.hetero_round(1, Draws())
    w = 1 + 0.1 * (1 - 2e-6)  # After a step along the gradient -1 + 2 mu w K.
    assert one.before == pytest.approx(-1 + 1e-6, abs=1e-12)
    assert one.after_steps == pytest.approx(-w + 1e-6 * w**2, abs=1e-12)
    assert one.after_update == pytest.approx(-w + 1e-6 * w**4, abs=1e-12)
    fall = (0.1 - 2e-6 * 0.1**2 / 2) * (1 - 2e-6) ** 2
    assert one.fall == pytest.approx(fall, abs=1e-12)
    assert one.rise == pytest.approx(2e-7 * (1 - 2e-6) * w**3, abs=1e-12)
    assert theorems.violations(1, draws=200) == (0, 0, 0, 0)
    steps, update, both, rises = theorems.violations(2, draws=1000)
    assert steps == 0
    assert min(update, both) > 0.5
    assert 0 < rises < 0.1


def test_the_printed_conditions_say_that_the_fall_is_larger_than_the_rise():
    """Theorem 4.7's conditions on eta and mu, as printed, with sigma = 0, L = 1 and L_2 = 1."""
    rng = np.random.default_rng(7)
    for _ in range(200):
        rate, mu, gradients, smoothness, p_r3 = rng.uniform(0.01, 2, size=5)
        fall = (rate - smoothness * rate**2 / 2) * gradients
        one = theorems.Round(0, 0, 0, fall, 2 * mu * rate * p_r3)
        printed = rate < 2 * (gradients - 2 * mu * p_r3) / (
            smoothness * gradients
        ) and mu < gradients / (2 * p_r3)
        assert one.is_guaranteed == printed


def test_each_bound_is_compared_with_its_own_loss():
    one = theorems.Round(before=3.0, after_steps=2.5, after_update=2.6, fall=0.4, rise=0.2)
    assert one.failures() == (False, False, False)
    assert one._replace(fall=0.6).failures() == (True, False, False)
    assert one._replace(rise=0.05).failures() == (False, True, False)
    assert one._replace(fall=0.6, rise=0.05).failures() == (True, True, True)
