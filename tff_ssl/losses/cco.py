"""Cross correlation optimization (DCCO paper, Eq. 1 and 2; Barlow Twins, Zbontar et al. 2021).

The loss depends on a batch only through five averages, the encoding statistics. Averages over the
union of batches are weighted means of the batches' averages; DCCO builds on this property.

The paper takes second moments about the origin, and variances as <F^2> - <F>^2. Where a mean is
large compared with the deviation, this difference of large numbers loses the digits of float32. The
statistics here are taken about a reference r that all batches share, which gives the same variances

  <(F - r)^2> - <F - r>^2 = <F^2> - <F>^2

and covariances for any r, with rounding errors that grow with (<F> - r)^2 in place of <F>^2.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_ssl.losses import means
from tff_ssl.losses import segments as segments_lib
from tff_ssl.losses.means import Means
from tff_ssl.losses.segments import Segments

# Added to each variance before its square root, so that encodings that do not vary (a collapsed
# unit, a single example) give correlation 0 and finite gradients instead of NaN.
VARIANCE_EPSILON = 1e-6
# Smallest plausible variance of one dimension, as a fraction of the mean over the dimensions.
_PLAUSIBLE_SHARE = 0.1


class EncodingStatistics(NamedTuple):
    """Averages over the examples of a batch: the paper's <F>, <F^2>, <G>, <G^2> and <F G>.

    They are float32 [d], and [d, d] for <F_i G_j>. F and G are encodings minus a reference. In the
    result of `centred`, the same fields hold the means of the encodings themselves, their
    variances, and the covariances of F with G.
    """

    f: tf.Tensor
    f_squared: tf.Tensor
    g: tf.Tensor
    g_squared: tf.Tensor
    f_g: tf.Tensor


class CCOTerms(NamedTuple):
    """loss = on_diagonal + lambda * off_diagonal: float32 scalars, or one value per client each."""

    loss: tf.Tensor
    on_diagonal: tf.Tensor
    off_diagonal: tf.Tensor


def zero_statistics(d: int) -> EncodingStatistics:
    """Statistics of encodings [n, d] of zeros, with which a sum starts."""
    vector = tf.zeros([d])
    return EncodingStatistics(vector, vector, vector, vector, tf.zeros([d, d]))


def encoding_statistics(f: tf.Tensor, g: tf.Tensor, reference: Means) -> EncodingStatistics:
    """Statistics of paired encodings, each float32 [n, d] with n >= 1, about a reference."""
    count = tf.cast(tf.shape(f)[0], f.dtype)
    f, g = f - reference.f, g - reference.g
    return EncodingStatistics(
        f=tf.reduce_mean(f, 0),
        f_squared=tf.reduce_mean(tf.square(f), 0),
        g=tf.reduce_mean(g, 0),
        g_squared=tf.reduce_mean(tf.square(g), 0),
        f_g=tf.matmul(f, g, transpose_a=True) / count,
    )


def centred(statistics: EncodingStatistics, reference: Means) -> EncodingStatistics:
    """Means of the encodings, variances and covariances, from statistics about a reference."""
    f, f_squared, g, g_squared, f_g = statistics
    return EncodingStatistics(
        f=reference.f + f,
        f_squared=f_squared - tf.square(f),
        g=reference.g + g,
        g_squared=g_squared - tf.square(g),
        f_g=f_g - f[:, tf.newaxis] * g[tf.newaxis, :],
    )


def correlation(centred_statistics: EncodingStatistics) -> tf.Tensor:
    """Correlation C_ij of F_i with G_j (Eq. 2) from the result of `centred`, float32 [d, d]."""
    _, f_variance, _, g_variance, covariance = centred_statistics
    f_scale = tf.math.rsqrt(tf.nn.relu(f_variance) + VARIANCE_EPSILON)
    g_scale = tf.math.rsqrt(tf.nn.relu(g_variance) + VARIANCE_EPSILON)
    return covariance * f_scale[:, tf.newaxis] * g_scale[tf.newaxis, :]


def plausible(statistics: EncodingStatistics) -> EncodingStatistics:
    """Replaces noisy statistics about a reference by similar ones that encodings could have.

    Noise can make a variance negative or nearly zero, and a correlation then exceeds 1 by orders of
    magnitude. Variances below `_PLAUSIBLE_SHARE` of their mean size over the dimensions are raised
    to it, and covariances are clipped to the Cauchy-Schwarz bound.
    """
    f, f_squared, g, g_squared, f_g = statistics

    def plausible_variance(mean, second_moment):
        raw = second_moment - tf.square(mean)
        return tf.maximum(raw, _PLAUSIBLE_SHARE * tf.reduce_mean(tf.abs(raw)))

    f_variance, g_variance = plausible_variance(f, f_squared), plausible_variance(g, g_squared)
    bound = tf.sqrt(f_variance[:, tf.newaxis] * g_variance[tf.newaxis, :])
    product = f[:, tf.newaxis] * g[tf.newaxis, :]
    return EncodingStatistics(
        f=f,
        f_squared=tf.square(f) + f_variance,
        g=g,
        g_squared=tf.square(g) + g_variance,
        f_g=product + tf.clip_by_value(f_g - product, -bound, bound),
    )


def cco_from_statistics(centred_statistics: EncodingStatistics, lambda_: float) -> CCOTerms:
    """The loss of Eq. 1 from the result of `centred`; lambda is 20 in the paper.

    Raises:
      ValueError: If encodings have fewer than two dimensions.
    """
    d = centred_statistics.f.shape[0]
    if d < 2:
        raise ValueError(f"CCO needs encodings of at least 2 dimensions, got {d}")
    c = correlation(centred_statistics)
    diagonal = tf.linalg.diag_part(c)
    on_diagonal = tf.reduce_sum(tf.square(1.0 - diagonal))
    # Zeroing the diagonal, not subtracting its sum, keeps a small sum of squares exact.
    off_diagonal = tf.reduce_sum(tf.square(tf.linalg.set_diag(c, tf.zeros_like(diagonal))))
    off_diagonal /= d - 1
    return CCOTerms(on_diagonal + lambda_ * off_diagonal, on_diagonal, off_diagonal)


def cco(f: tf.Tensor, g: tf.Tensor, lambda_: float) -> CCOTerms:
    """The loss of Eq. 1 for one batch of paired encodings, each float32 [n, d]."""
    reference = means.of_batch(f, g)
    statistics = centred(encoding_statistics(f, g, reference), reference)
    return cco_from_statistics(statistics, lambda_)


def cco_within_clients(f: tf.Tensor, g: tf.Tensor, segments: Segments, lambda_: float) -> CCOTerms:
    """The loss of Eq. 1 for each client's examples, terms [k], of encodings [n, d], d >= 2."""

    def normalize(x):
        centred = x - tf.gather(segments_lib.mean(x, segments), segments.ids)
        variance = segments_lib.mean(tf.square(centred), segments)
        return centred * tf.gather(tf.math.rsqrt(variance + VARIANCE_EPSILON), segments.ids)

    f, g = normalize(f), normalize(g)
    diagonal = segments_lib.mean(f * g, segments)
    on_diagonal = tf.reduce_sum(tf.square(1.0 - diagonal), 1)
    all_entries = segments_lib.squared_cross_norm(f, g, segments)
    off_diagonal = (all_entries - tf.reduce_sum(tf.square(diagonal), 1)) / (f.shape[1] - 1)
    return CCOTerms(on_diagonal + lambda_ * off_diagonal, on_diagonal, off_diagonal)


def encoding_std(centred_statistics: EncodingStatistics) -> tf.Tensor:
    """Mean over dimensions of the standard deviation of F; near 0 when encodings collapse."""
    return tf.reduce_mean(tf.sqrt(tf.nn.relu(centred_statistics.f_squared)))
