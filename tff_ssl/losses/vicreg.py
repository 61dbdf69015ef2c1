"""VICReg (Bardes, Ponce & LeCun 2022): variance, invariance and covariance.

The invariance term is the mean over dimensions of squared differences, as in the paper's
pseudo-code. Variances and covariances divide by n, where the paper and the released code divide by
n - 1: the loss then depends on a batch only through averages, and the averages of a union are
weighted means of its parts' averages, as DCCO requires. Second moments are taken about a reference,
as in `losses.cco`. The variance term is the sum over the two views, as in Eq. 6; the released code
halves it, so that its weight of 25 (`std_coeff`) is a `variance_weight` of 12.5 here.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_ssl.losses import segments as segments_lib
from tff_ssl.losses.means import Means
from tff_ssl.losses.segments import Segments

# Added to a variance before its square root (the paper's epsilon).
VARIANCE_EPSILON = 1e-4
_TARGET_STD = 1.0  # The paper's gamma.


class VICRegStatistics(NamedTuple):
    """Averages of F, G, F_i F_j, G_i G_j and (F - G)^2 over the examples of a batch.

    They are float32 [d], and [d, d] for the products. F and G are encodings minus a reference, but
    not in (F - G)^2. In the result of `centred`, the same fields hold the means of the encodings
    themselves, their covariances, and the mean squared difference.
    """

    f: tf.Tensor
    g: tf.Tensor
    f_f: tf.Tensor
    g_g: tf.Tensor
    difference_squared: tf.Tensor


class VICRegTerms(NamedTuple):
    """The loss and its unweighted terms: float32 scalars, or one value per client each."""

    loss: tf.Tensor
    invariance: tf.Tensor
    variance: tf.Tensor
    covariance: tf.Tensor


class VICRegWeights(NamedTuple):
    """Weights lambda, mu and nu of Eq. 6, with the paper's values."""

    invariance: float = 25.0
    variance: float = 25.0
    covariance: float = 1.0


DEFAULT_WEIGHTS = VICRegWeights()


def zero_statistics(d: int) -> VICRegStatistics:
    """Statistics of encodings [n, d] of zeros, with which a sum starts."""
    vector, matrix = tf.zeros([d]), tf.zeros([d, d])
    return VICRegStatistics(vector, vector, matrix, matrix, vector)


def encoding_statistics(f: tf.Tensor, g: tf.Tensor, reference: Means) -> VICRegStatistics:
    """Statistics of paired encodings, each float32 [n, d] with n >= 1, about a reference."""
    count = tf.cast(tf.shape(f)[0], f.dtype)
    difference_squared = tf.reduce_mean(tf.square(f - g), 0)
    f, g = f - reference.f, g - reference.g
    return VICRegStatistics(
        f=tf.reduce_mean(f, 0),
        g=tf.reduce_mean(g, 0),
        f_f=tf.matmul(f, f, transpose_a=True) / count,
        g_g=tf.matmul(g, g, transpose_a=True) / count,
        difference_squared=difference_squared,
    )


def centred(statistics: VICRegStatistics, reference: Means) -> VICRegStatistics:
    """Means of the encodings and covariances, from statistics about a reference."""
    f, g, f_f, g_g, difference_squared = statistics
    return VICRegStatistics(
        f=reference.f + f,
        g=reference.g + g,
        f_f=f_f - f[:, tf.newaxis] * f[tf.newaxis, :],
        g_g=g_g - g[:, tf.newaxis] * g[tf.newaxis, :],
        difference_squared=difference_squared,
    )


def vicreg_from_statistics(
    centred_statistics: VICRegStatistics, weights: VICRegWeights = DEFAULT_WEIGHTS
) -> VICRegTerms:
    """The loss of Eq. 6 from means and covariances (see `centred`)."""
    d = centred_statistics.f.shape[0]
    invariance = tf.reduce_mean(centred_statistics.difference_squared)
    variance, covariance = tf.constant(0.0), tf.constant(0.0)
    for c in (centred_statistics.f_f, centred_statistics.g_g):
        diagonal = tf.linalg.diag_part(c)
        variance += tf.reduce_mean(_hinge(diagonal))
        covariance += tf.reduce_sum(tf.square(tf.linalg.set_diag(c, tf.zeros_like(diagonal)))) / d
    return _add_terms(invariance, variance, covariance, weights)


def vicreg_within_clients(
    f: tf.Tensor, g: tf.Tensor, segments: Segments, weights: VICRegWeights = DEFAULT_WEIGHTS
) -> VICRegTerms:
    """The loss of Eq. 6 for each of k clients' examples, terms [k], from encodings [n, d]."""
    d = f.shape[1]
    invariance = segments_lib.mean(tf.reduce_mean(tf.square(f - g), 1), segments)
    variance, covariance = tf.zeros_like(invariance), tf.zeros_like(invariance)
    for x in (f, g):
        centred = x - tf.gather(segments_lib.mean(x, segments), segments.ids)
        variances = segments_lib.mean(tf.square(centred), segments)
        variance += tf.reduce_mean(_hinge(variances), 1)
        all_entries = segments_lib.squared_cross_norm(centred, centred, segments)
        covariance += (all_entries - tf.reduce_sum(tf.square(variances), 1)) / d
    return _add_terms(invariance, variance, covariance, weights)


def encoding_std(centred_statistics: VICRegStatistics) -> tf.Tensor:
    """Mean over dimensions of the standard deviation of F; near 0 when encodings collapse."""
    variance = tf.linalg.diag_part(centred_statistics.f_f)
    return tf.reduce_mean(tf.sqrt(tf.nn.relu(variance)))


def _hinge(variance: tf.Tensor) -> tf.Tensor:
    """The amount by which a standard deviation is below the target, 0 above it; same shape."""
    return tf.nn.relu(_TARGET_STD - tf.sqrt(tf.nn.relu(variance) + VARIANCE_EPSILON))


def _add_terms(invariance, variance, covariance, weights: VICRegWeights) -> VICRegTerms:
    loss = (
        weights.invariance * invariance
        + weights.variance * variance
        + weights.covariance * covariance
    )
    return VICRegTerms(loss, invariance, variance, covariance)
