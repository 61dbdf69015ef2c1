"""The multipliers against SciPy's general solver of the primal problem."""

import numpy as np
import pytest
from scipy import optimize

from tff_ssl.analysis import max_margin


def general_solver(samples, labels, num_classes):
    """Solves the primal problem (E.19) by SLSQP; returns w [c, d]."""
    d = samples.shape[1]
    constraints = [
        {
            "type": "ineq",
            "fun": lambda flat, x=x, y=y, z=z: (
                flat.reshape(-1, d)[y] - flat.reshape(-1, d)[z]
            ) @ x - 1,
        }
        for x, y in zip(samples, labels, strict=True)
        for z in range(num_classes)
        if z != y
    ]  # fmt: skip
    solution = optimize.minimize(
        lambda flat: flat @ flat,
        np.zeros(num_classes * d),
        jac=lambda flat: 2 * flat,
        method="SLSQP",
        constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert solution.success
    return solution.x.reshape(num_classes, d)


@pytest.mark.parametrize("seed", range(4))
def test_the_solution_is_that_of_a_general_solver(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 9)
    samples = rng.standard_normal((9, 5)) + 4 * np.eye(5)[labels]
    multipliers = max_margin.solve_dual(samples @ samples.T, labels, 4)  # Class 3 has no samples.
    w = max_margin.coefficients(multipliers, labels).T @ samples
    np.testing.assert_allclose(w, general_solver(samples, labels, 4), atol=1e-6)


@pytest.mark.parametrize("repetitions", [1, 3])
def test_samples_that_cannot_be_separated_are_an_error(repetitions):
    samples = np.repeat([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], repetitions, axis=0)
    with pytest.raises(ValueError, match="separates"):
        max_margin.solve_dual(samples @ samples.T, np.repeat([0, 0, 1], repetitions), 2)


def test_margins_are_differences_of_scores():
    scores = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 7.0]])
    margins = max_margin.margins(scores, np.array([0, 1]))
    np.testing.assert_array_equal(margins, [[np.inf, 2, 1], [5, np.inf, -2]])
