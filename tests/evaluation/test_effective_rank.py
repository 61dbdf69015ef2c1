"""The effective rank of encodings, against NumPy and against known spectra."""

import numpy as np
import pytest

from tff_ssl.evaluation.effective_rank import effective_rank

RNG = np.random.default_rng(0)


def with_spectrum(variances, n=60, dimensions=12):
    """Encodings whose covariance has exactly these nonzero eigenvalues, in random directions."""
    columns, _ = np.linalg.qr(
        np.concatenate([np.ones([n, 1]), RNG.normal(size=(n, len(variances)))], 1)
    )
    directions, _ = np.linalg.qr(RNG.normal(size=(dimensions, dimensions)))
    # The columns after the first are orthonormal and have mean 0.
    return columns[:, 1:] * np.sqrt(variances) @ directions[: len(variances)]


@pytest.mark.parametrize("k", [1, 3, 12])
def test_k_directions_of_equal_variance_have_rank_k(k):
    assert effective_rank(with_spectrum(np.full(k, 2.5))) == pytest.approx(k, rel=1e-9)


def test_a_spectrum_of_two_values_in_closed_form():
    # Shares 9/10 and 1/10.
    expected = np.exp(-(0.9 * np.log(0.9) + 0.1 * np.log(0.1)))
    assert effective_rank(with_spectrum(np.array([9.0, 1.0]))) == pytest.approx(expected, rel=1e-9)
    # A geometric spectrum with ratio q = 1/2 and 12 terms.
    p = 0.5 ** np.arange(12) / (2 - 0.5**11)
    expected = np.prod(p**-p)
    assert effective_rank(with_spectrum(p * 7)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [(50, 7), (7, 50)])
def test_it_equals_the_entropy_of_numpys_covariance(shape):
    h = RNG.normal(size=shape) * RNG.uniform(0.1, 3, shape[1]) + RNG.normal(size=shape[1])
    singular = np.linalg.svd(np.cov(h, rowvar=False), compute_uv=False)
    p = singular[singular > 1e-9] / singular.sum()
    expected = np.exp(np.sum(p * np.log(1 / p)))
    assert effective_rank(h) == pytest.approx(expected, rel=1e-9)
    assert effective_rank(h.astype(np.float32)) == pytest.approx(expected, rel=1e-4)


def test_mean_scale_and_rotation_do_not_matter():
    h = with_spectrum(np.array([4.0, 2.0, 1.0]))
    rotation, _ = np.linalg.qr(RNG.normal(size=(12, 12)))
    expected = effective_rank(h)
    assert effective_rank(1e-3 * h @ rotation + 0.2) == pytest.approx(expected, rel=1e-9)


def test_encodings_that_are_all_equal_have_no_rank():
    # The mean of 100 times 0.1 is not exactly 0.1.
    assert effective_rank(np.full([100, 5], 0.1, np.float32)) == 0.0
    assert effective_rank(np.full([100, 5], 1e4) + RNG.uniform(-1e-5, 1e-5, (100, 5))) == 0.0
    assert effective_rank(np.zeros([3, 2])) == 0.0
    assert effective_rank(np.ones([1, 2])) == 0.0


@pytest.mark.parametrize("h", [np.zeros(3), np.zeros([0, 3]), np.array([[1.0, np.nan]])])
def test_wrong_encodings_are_rejected(h):
    with pytest.raises(ValueError, match="Encodings must be"):
        effective_rank(h)
