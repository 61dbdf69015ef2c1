"""Features that linear models learn from heterogeneous sources, self-supervised and supervised.

The setting is that of "Does Learning from Decentralized Non-IID Unlabeled Data Benefit from Self
Supervision?" (Theorem 3.2, Proposition 4.1, appendix E). K directions e_1, ..., e_K of R^d generate
the data, and source k has nearly all of its data in two classes that e_k separates. According to
the theorem, the features that Dec-SSL learns at one source also contain the other sources'
directions. According to the proposition, those of Dec-SLRep, which learns from labels, hardly do.

Both optimization problems are solved exactly, in float64 and without gradient descent. Sources
and classes count from 0: source k has the frequent classes 2k and 2k + 1 (the paper's 2k - 1 and
2k), and its direction is column k.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import svds

from tff_ssl.analysis import max_margin


class SampleCounts(NamedTuple):
    """Numbers of samples of each frequent and of each infrequent class of a source."""

    frequent: int
    infrequent: int


class Source(NamedTuple):
    """A source's samples x, float64 [n, d], and their classes, int64 [n] in 0..2K-1."""

    samples: np.ndarray
    labels: np.ndarray


def default_counts(num_sources: int, dimension: int) -> SampleCounts:
    """Returns counts of the orders of appendix E.1, which gives no constants.

    A frequent class has d / 2 samples. The "Poly(d)" frequent samples must outnumber the d^(1/5)
    infrequent ones by d^(4/5), so order d is the smallest power. With this constant a source has
    about d + K - 1 samples; d samples are separable whatever their classes, so that the smallest
    problems are separable, too.

    An infrequent class has d^(1/5) / K samples, so that all K - 1 of them together have fewer than
    d^(1/5). This is 1 at every feasible d: with K = 3 it becomes 2 at d = 7776.
    """
    return SampleCounts(max(1, dimension // 2), max(1, int(dimension**0.2 / num_sources)))


def draw_source(
    source: int, num_sources: int, dimension: int, counts: SampleCounts, rng: np.random.Generator
) -> Source:
    """Draws the data set of source k of K in d dimensions (appendix E.1).

    With tau = d^(1/5), mu = d^(-1/5), and xi ~ N(0, I_d) and q_i uniform on {0, 1}, both drawn
    independently for each sample:

      class 2k:              e_k - sum_{i != k} q_i tau e_i + mu xi
      class 2k + 1:         -e_k - sum_{i != k} q_i tau e_i + mu xi
      class 2i, i != k:      e_i + mu xi
      class 2i + 1, i != k:  none

    The 2 counts.frequent + (K - 1) counts.infrequent samples are sorted by class as in this list.

    Raises:
      ValueError: There is no such source, a count is not positive, or d < K.
    """
    if not 0 <= source < num_sources <= dimension:
        raise ValueError(f"No source {source} of {num_sources} in {dimension} dimensions.")
    if min(counts) < 1:
        raise ValueError(f"Every class needs a sample, found {counts}.")
    tau, mu = dimension**0.2, dimension**-0.2
    others = [i for i in range(num_sources) if i != source]
    rare = np.repeat(others, counts.infrequent)
    labels = np.concatenate(
        [np.repeat([2 * source, 2 * source + 1], counts.frequent), 2 * rare]
    ).astype(np.int64)
    samples = mu * rng.standard_normal((len(labels), dimension))
    frequent = 2 * counts.frequent
    samples[: counts.frequent, source] += 1
    samples[counts.frequent : frequent, source] -= 1
    samples[:frequent, others] -= tau * rng.integers(0, 2, (frequent, len(others)))
    samples[np.arange(frequent, len(labels)), rare] += 1
    return Source(samples, labels)


def draw_sources(
    num_sources: int, dimension: int, counts: SampleCounts, rng: np.random.Generator
) -> list[Source]:
    """Draws the data sets of all K sources, which have equal numbers of samples."""
    return [draw_source(k, num_sources, dimension, counts, rng) for k in range(num_sources)]


def dec_ssl_solution(samples: np.ndarray, m: int) -> np.ndarray:
    """Minimizes the SSL objective (3.1) of samples [n, d], in expectation over augmentations.

    The noises of the two views are independent with mean zero, so that they drop out of the loss
    -mean_i ||w x_i||^2 + 1/2 ||w^T w||_F^2 = -tr(w X w^T) + 1/2 ||w w^T||_F^2, with the second
    moments X = mean_i x_i x_i^T, which the paper calls the data covariance.

    Up to a constant the loss is 1/2 ||X - w^T w||_F^2 (E.5). The rows of w are thus the first m
    eigenvectors of X times the roots of their eigenvalues (Eckart-Young), up to a rotation of the
    rows. The eigenvectors are computed as right singular vectors of the samples.

    The sum of the sources' losses, weighted by their sizes, has the same minimizer as the loss on
    all samples together (E.13): the global solution is this function of all samples.

    Returns:
      The minimizer w, float64 [m, d], with rows of decreasing norm. If m exceeds the rank of the
      samples, the last rows are zero.

    Raises:
      ValueError: m is less than one.
    """
    if m < 1:
        raise ValueError(f"w needs at least one row, found m = {m}.")
    if 4 * m < min(samples.shape):
        initial = np.random.default_rng(0).standard_normal(min(samples.shape))
        _, values, vectors = svds(samples, k=m, v0=initial, return_singular_vectors="vh")
        values, vectors = values[::-1], vectors[::-1]
    else:
        _, values, vectors = np.linalg.svd(samples, full_matrices=False)
    w = np.zeros((m, samples.shape[1]))
    w[: len(values)] = (values[:, None] * vectors)[:m] / np.sqrt(len(samples))
    return w


def representability(w: np.ndarray) -> np.ndarray:
    """Computes r_i = ||projection of e_i onto the row space of w||^2 (Definition 3.1).

    It is float64 [d], between 0 and 1, for features w [m, d]; its sum is the rank of w.
    """
    _, values, vectors = np.linalg.svd(w, full_matrices=False)
    return np.square(vectors[values > _rounding_error(w.shape, values)]).sum(axis=0)


def _rounding_error(shape: tuple[int, ...], values: np.ndarray) -> float:
    """The singular value up to which all count as zero in float64 (NumPy's `matrix_rank`)."""
    return float(values.max() * max(shape) * np.finfo(np.float64).eps)


def correlations(u: np.ndarray) -> np.ndarray:
    """Computes sum_i <u_i, e_j>^2 for each direction e_j (Proposition 4.1), float64 [d]."""
    return np.square(u).sum(axis=0)


class DecSLRepSolution(NamedTuple):
    """A two-layer linear network v u with margins of at least one."""

    u: np.ndarray  #: Features, float64 [c, d].
    v: np.ndarray  #: Classifier of the features, float64 [c, c].
    #: Multipliers, float64 [n, c]; entry (i, y') is that of the constraint that the score of sample
    #: i for its class exceeds that for y' by at least one.
    multipliers: np.ndarray
    #: Largest violation of the conditions of optimality: margins below one, multipliers below zero,
    #: multipliers of constraints that do not bind, and v u - sum_i,y' multipliers_i,y' (e_{y_i} -
    #: e_y') x_i^T.
    kkt_residual: float


def dec_slrep_solution(
    samples: np.ndarray, labels: np.ndarray, num_classes: int
) -> DecSLRepSolution:
    """Computes the minimum-norm maximum-margin linear network of section 4.2.

    It minimizes ||u^T u||_F^2 + ||v^T v||_F^2 subject to [v u x]_y >= [v u x]_y' + 1 for all
    samples x [n, d] of class y and all other classes y' of 0..c-1, including those without samples.
    For a given product w = v u the least norm is 2 ||w||_F^2, which the balanced u = S^(1/2) V^T
    and v = U S^(1/2) reach, where w = U S V^T. What remains is the convex problem (E.19) in w:
    minimize ||w||_F^2 subject to the margins. It is solved in its dual (`max_margin`).

    All data are separable if n <= d and the samples are linearly independent, as they almost surely
    are. The data of all sources together are not separable once n is well above d: in the first two
    coordinates (-1, -1) lies between samples of class 1 as well as between samples of class 3. So
    there is no global solution to compare with, and the proposition names none.

    In the limit of d to infinity at source k, w_2k = e_k, w_2k+1 = -e_k, and all others are 0. The
    feature's correlation with e_k is then sqrt(2), so the proposition's "at least 1 - O(d^(-1/20))"
    is not tight: with balanced layers ||w||_F^2 is ||u u^T||_F^2, not twice that as in the proof.

    Raises:
      ValueError: The labels are out of range, or no linear classifier separates the samples.
    """
    labels = np.asarray(labels)
    if labels.shape != samples.shape[:1] or not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(f"Labels must be {len(samples)} integers in 0..{num_classes - 1}.")
    multipliers = max_margin.solve_dual(samples @ samples.T, labels, num_classes)
    left, values, right = np.linalg.svd(
        max_margin.coefficients(multipliers, labels).T @ samples, full_matrices=False
    )
    # The root of a singular value that is zero but for rounding would be as large as 1e-8.
    values = np.where(values > _rounding_error(samples.shape, values), values, 0.0)
    u, v = np.zeros((num_classes, samples.shape[1])), np.zeros((num_classes, num_classes))
    u[: len(values)] = np.sqrt(values)[:, None] * right
    v[:, : len(values)] = left * np.sqrt(values)
    return DecSLRepSolution(u, v, multipliers, _kkt_residual(v @ u, multipliers, samples, labels))


def _kkt_residual(
    w: np.ndarray, multipliers: np.ndarray, samples: np.ndarray, labels: np.ndarray
) -> float:
    excess = max_margin.margins(samples @ w.T, labels) - 1
    slack = multipliers * np.where(np.isinf(excess), 0.0, excess)
    stationarity = w - max_margin.coefficients(multipliers, labels).T @ samples
    return float(
        max(-excess.min(), -multipliers.min(), np.abs(slack).max(), np.abs(stationarity).max(), 0.0)
    )


class Comparison(NamedTuple):
    """The K directions that generate the data in the features of both methods.

    Arrays are float64 [K, K] (source, direction), or [K] (direction).
    """

    ssl_local: np.ndarray  #: Representability in Dec-SSL's features of each source, [K, K].
    ssl_global: np.ndarray  #: Representability in Dec-SSL's features of all sources together, [K].
    slrep_local: np.ndarray  #: Correlations of Dec-SLRep's features of each source, [K, K].
    #: Representability in Dec-SLRep's features of each source, [K, K].
    slrep_representability: np.ndarray
    kkt_residual: float  #: Largest residual of the K Dec-SLRep solutions.


def compare(sources: list[Source], m: int) -> Comparison:
    """Solves both problems at each source, and Dec-SSL with m features on all sources together.

    Raises:
      ValueError: A source's data are not linearly separable.
    """
    k = len(sources)
    features = [dec_ssl_solution(source.samples, m) for source in sources]
    pooled = dec_ssl_solution(np.concatenate([source.samples for source in sources]), m)
    networks = [dec_slrep_solution(source.samples, source.labels, 2 * k) for source in sources]
    return Comparison(
        np.stack([representability(w)[:k] for w in features]),
        representability(pooled)[:k],
        np.stack([correlations(network.u)[:k] for network in networks]),
        np.stack([representability(network.u)[:k] for network in networks]),
        max(network.kkt_residual for network in networks),
    )
