"""Dual of the minimum-norm maximum-margin problem of linear multi-class classification.

The primal problem, (E.19) of "Does Learning from Decentralized Non-IID Unlabeled Data Benefit from
Self Supervision?", is to minimize ||w||_F^2 over w [c, d] subject to [w x]_y >= [w x]_y' + 1 for
all samples x of class y and all other classes y'. There is a multiplier for each sample and each
other class; the multipliers [n, c] are zero at a sample's own class.
"""

import numpy as np
from scipy import linalg

_PRECISION = 1e-10  # Tolerance of the least squares gradient; its multipliers sum to less than one.
_INDEPENDENCE = 1e-12  # Relative squared distance from the span of others that is taken for zero.
_MAX_ITERATIONS = 10_000  # About 50 are needed in practice.


def coefficients(multipliers: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The coefficients b [n, c] of the samples in the solution w = b^T samples.

    A multiplier adds its sample to the row of its class y, and subtracts it from that of y'.
    """
    b = -multipliers
    b[np.arange(len(labels)), labels] += multipliers.sum(axis=1)
    return b


def margins(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The score of each sample's class minus each other score, [n, c]; inf for the class itself."""
    rows = np.arange(len(labels))
    differences = scores[rows, labels][:, None] - scores
    differences[rows, labels] = np.inf
    return differences


def solve_dual(gram: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Computes the multipliers, float64 [n, c], by an active-set method.

    With g = (e_y - e_y') x^T for each constraint, the problem is to find the point of least norm
    with <g, w> >= 1. As in Lawson and Hanson, "Solving Least Squares Problems", chapter 23, problem
    LDP, the multipliers a are computed, up to their scale, by nonnegative least squares: minimize
    1/2 ||sum a g||^2 + 1/2 (1 - sum a)^2. Unlike the dual itself, this always has a minimum; 1 -
    sum a is zero there if and only if the constraints contradict each other.

    Each iteration adds the most violated constraint of each of the worst samples, and solves for
    the multipliers that are not zero. If an iteration does not lower the value, or its constraints
    are linearly dependent, the next one adds a single constraint. That always lowers the value, as
    a violated constraint is independent of those that hold with equality.

    `gram` has the samples' inner products, float64 [n, n]; labels are integers [n] in 0..c-1.

    Raises:
      ValueError: No linear classifier separates the samples.
    """
    a = np.zeros((len(labels), num_classes))
    value, single = 0.0, False
    for _ in range(_MAX_ITERATIONS):
        gradient = margins(gram @ coefficients(a, labels), labels) + a.sum() - 1
        gradient[a > 0] = 0  # Zero but for rounding.
        if gradient.min() >= -_PRECISION:
            return _rescale(a)
        added = _most_violated(gradient, 1 if single else max(20, np.count_nonzero(a) // 3))
        active = np.union1d(np.flatnonzero(a), added)
        values, new_value = _solve_active(gram, labels, active, a.ravel()[active], num_classes)
        a = np.zeros_like(a)
        a.ravel()[active] = values
        if new_value >= value and single:
            return _rescale(a)  # The violations that remain are rounding errors.
        value, single = min(value, new_value), new_value >= value
    raise RuntimeError(f"No solution after {_MAX_ITERATIONS} turns.")  # pragma: no cover


def _most_violated(gradient: np.ndarray, limit: int) -> np.ndarray:
    """Flat indices of the most negative entries of the gradient [n, c], at most one per row."""
    lowest = gradient.min(axis=1)
    rows = np.argsort(lowest, kind="stable")[:limit]
    rows = rows[lowest[rows] < -_PRECISION]
    return rows * gradient.shape[1] + gradient[rows].argmin(axis=1)


def _rescale(a: np.ndarray) -> np.ndarray:
    """The multipliers of the dual, from those of the nonnegative least squares problem."""
    remainder = 1 - a.sum()  # 1 / (1 + ||w||^2) of the solution w.
    if remainder < 1e-9:
        raise ValueError("No linear classifier separates the samples.")
    return a / remainder


def _solve_active(
    gram: np.ndarray, labels: np.ndarray, active: np.ndarray, a: np.ndarray, num_classes: int
) -> tuple[np.ndarray, float]:
    """Solves the nonnegative least squares problem of `solve_dual` on the active constraints.

    Constraints are removed until the solution on the others is nonnegative; the value falls in each
    step. Returns the new multipliers [f], and the value of 1/2 ||sum a g||^2 + 1/2 (1 - sum a)^2 -
    1/2 there; for linearly dependent constraints, the old ones and infinity.
    """
    hessian = _constraint_products(gram, labels, active, num_classes) + 1

    def objective(values: np.ndarray) -> float:
        return float(values @ hessian @ values / 2 - values.sum())

    free = np.arange(len(active))
    while True:
        free_solution = _solve_ones(hessian[np.ix_(free, free)])
        if free_solution is None:
            return a, np.inf
        solution = np.zeros(len(active))
        solution[free] = free_solution
        if solution.min() >= 0:
            return solution, objective(solution)
        clipped = np.maximum(solution, 0)
        if objective(clipped) < objective(a):
            a = clipped
            free = np.flatnonzero(a)
            continue
        falling = free[solution[free] < 0]
        ratios = a[falling] / (a[falling] - solution[falling])
        leaving = falling[ratios <= ratios.min()]
        a = a + ratios.min() * (solution - a)
        a[leaving] = 0
        free = np.setdiff1d(free, leaving)


def _solve_ones(matrix: np.ndarray) -> np.ndarray | None:
    """Solves matrix @ x = 1 for a positive matrix [f, f]; None if it is singular."""
    try:
        factor = linalg.cholesky(matrix, lower=True)
    except linalg.LinAlgError:
        return None
    # The squared diagonal holds each constraint's squared distance from the span of those before.
    if (np.diag(factor) ** 2 < _INDEPENDENCE * np.diag(matrix)).any():
        return None
    return linalg.cho_solve((factor, True), np.ones(len(matrix)))


def _constraint_products(
    gram: np.ndarray, labels: np.ndarray, active: np.ndarray, num_classes: int
) -> np.ndarray:
    """<g, g'> = <x, x'> <e_y - e_y', e_z - e_z'> of the active constraints, [f, f]."""
    samples, others = np.divmod(active, num_classes)
    classes = labels[samples]
    pairs = (
        (classes[:, None] == classes).astype(np.float64)
        - (classes[:, None] == others)
        - (others[:, None] == classes)
        + (others[:, None] == others)
    )
    return gram[np.ix_(samples, samples)] * pairs
