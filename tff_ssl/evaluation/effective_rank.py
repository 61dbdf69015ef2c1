"""The effective rank of encodings, which shows dimensional collapse without labels.

O. Roy and M. Vetterli, "The effective rank: a measure of effective dimensionality", EUSIPCO 2007,
of the covariance matrix of the encodings: with its eigenvalues l_1, ..., l_d,

  p_i = l_i / sum_j l_j,    effective rank = exp(-sum_i p_i log p_i).

It is k if k directions have the same variance and the others none, and close to 1 if one direction
has nearly all of it. The mean deviation of the encodings (`encoding_std`) cannot show this: it may
rise while all images move along one line.
"""

import numpy as np
from threadpoolctl import threadpool_limits

# Encodings are computed in float32: a smaller spread around the mean is rounding error.
_EPSILON = float(np.finfo(np.float32).eps)


def effective_rank(encodings: np.ndarray) -> float:
    """The effective rank of the covariance of encodings [n, d], from 1 to min(n - 1, d).

    It is 0.0 if all encodings are equal up to the rounding of float32. Scale, mean and rotations do
    not matter.

    Raises:
      ValueError: The encodings are not finite, or not a matrix with at least one row.
    """
    h = np.asarray(encodings, np.float64)
    if h.ndim != 2 or len(h) == 0:
        raise ValueError(f"Encodings must be [n, d] with n >= 1, found {list(h.shape)}.")
    if not np.isfinite(h).all():
        raise ValueError("Encodings must be finite.")
    centred = h - h.mean(0)
    # The nonzero eigenvalues of H^T H and H H^T are the same.
    gram = centred.T @ centred if h.shape[1] <= len(h) else centred @ centred.T
    # Its threads wait for each other: on busy cores two took thirty times as long as one.
    with threadpool_limits(1, "blas"):
        eigenvalues = np.linalg.eigvalsh(gram)
    noise = len(h) * (_EPSILON * np.abs(h).max(initial=0.0)) ** 2
    eigenvalues = eigenvalues[eigenvalues > noise]
    if len(eigenvalues) == 0:
        return 0.0
    p = eigenvalues / eigenvalues.sum()
    return float(np.exp(-np.sum(p * np.log(p))))
