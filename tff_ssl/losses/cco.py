"""Cross correlation optimization (DCCO paper, Eq. 1 and 2; Barlow Twins, Zbontar et al. 2021).

The loss depends on a batch only through five averages, the encoding statistics. Averages over the
union of several batches are weighted means of the batches' averages; DCCO builds on this property.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_ssl.losses import segments as segments_lib
from tff_ssl.losses.segments import Segments

# Added to each variance before its square root: encodings that do not vary (a collapsed unit, a
# single example) then give correlation 0 and finite gradients instead of NaN.
VARIANCE_EPSILON = 1e-6
# Smallest plausible variance of one dimension, as a fraction of the mean over the dimensions.
_PLAUSIBLE_SHARE = 0.1


class EncodingStatistics(NamedTuple):
    """Averages over the examples of a batch, float32 (the paper's <F>, <F^2>, <G>, <G^2>, <F G>).

    Attributes:
      f: Mean of F_i, [d].
      f_squared: Mean of (F_i)^2, [d].
      g: Mean of G_j, [d].
      g_squared: Mean of (G_j)^2, [d].
      f_g: Mean of F_i G_j, [d, d].
    """

    f: tf.Tensor
    f_squared: tf.Tensor
    g: tf.Tensor
    g_squared: tf.Tensor
    f_g: tf.Tensor


class CCOTerms(NamedTuple):
    """The loss and its parts: loss = on_diagonal + lambda * off_diagonal.

    Each is a float32 scalar, or has one value per client.
    """

    loss: tf.Tensor
    on_diagonal: tf.Tensor
    off_diagonal: tf.Tensor


def zero_statistics(d: int) -> EncodingStatistics:
    """Statistics of d-dimensional encodings that are all zero, the start of a sum."""
    vector = tf.zeros([d])
    return EncodingStatistics(vector, vector, vector, vector, tf.zeros([d, d]))


def encoding_statistics(f: tf.Tensor, g: tf.Tensor) -> EncodingStatistics:
    """Statistics of a batch of paired encodings, each float32 [n, d] with n >= 1."""
    count = tf.cast(tf.shape(f)[0], f.dtype)
    return EncodingStatistics(
        f=tf.reduce_mean(f, 0),
        f_squared=tf.reduce_mean(tf.square(f), 0),
        g=tf.reduce_mean(g, 0),
        g_squared=tf.reduce_mean(tf.square(g), 0),
        f_g=tf.matmul(f, g, transpose_a=True) / count,
    )


def moved_encoding_statistics(
    f: tf.Tensor, g: tf.Tensor, f_shift: tf.Tensor, g_shift: tf.Tensor
) -> EncodingStatistics:
    """Statistics of encodings whose shifts are taken back; see `StatisticsLoss.of_moved_batch`."""
    return encoding_statistics(f - f_shift, g - g_shift)


def centred(statistics: EncodingStatistics) -> EncodingStatistics:
    """The same statistics with second moments about the means: variances and covariances."""
    f, f_squared, g, g_squared, f_g = statistics
    return EncodingStatistics(
        f, f_squared - tf.square(f), g, g_squared - tf.square(g), f_g - tf.tensordot(f, g, axes=0)
    )


def uncentred(centred_statistics: EncodingStatistics) -> EncodingStatistics:
    """The inverse of `centred`."""
    f, f_variance, g, g_variance, covariance = centred_statistics
    return EncodingStatistics(
        f, f_variance + tf.square(f), g, g_variance + tf.square(g),
        covariance + tf.tensordot(f, g, axes=0),
    )  # fmt: skip


def correlation(statistics: EncodingStatistics) -> tf.Tensor:
    """Correlation C_ij of F_i with G_j (Eq. 2), float32 [d, d]."""
    f, f_squared, g, g_squared, f_g = statistics
    f_scale = tf.math.rsqrt(tf.nn.relu(f_squared - tf.square(f)) + VARIANCE_EPSILON)
    g_scale = tf.math.rsqrt(tf.nn.relu(g_squared - tf.square(g)) + VARIANCE_EPSILON)
    covariance = f_g - f[:, tf.newaxis] * g[tf.newaxis, :]
    return covariance * f_scale[:, tf.newaxis] * g_scale[tf.newaxis, :]


def plausible(statistics: EncodingStatistics) -> EncodingStatistics:
    """Replaces noisy statistics by the nearest ones that encodings could have.

    Noise can make a variance negative or nearly zero, and a correlation then exceeds 1 by orders of
    magnitude. Variances below `_PLAUSIBLE_SHARE` of their mean size over the dimensions are raised
    to it, and covariances are clipped to the bound of Cauchy and Schwarz.
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


def cco_from_statistics(statistics: EncodingStatistics, lambda_: float) -> CCOTerms:
    """The loss of Eq. 1 from statistics.

    Args:
      statistics: Encoding statistics with d >= 2.
      lambda_: Weight of the redundancy term; 20 in the paper.

    Raises:
      ValueError: If encodings have fewer than two dimensions.
    """
    d = statistics.f.shape[0]
    if d < 2:
        raise ValueError(f"CCO needs encodings of at least 2 dimensions, got {d}")
    c = correlation(statistics)
    diagonal = tf.linalg.diag_part(c)
    on_diagonal = tf.reduce_sum(tf.square(1.0 - diagonal))
    # Zeroing the diagonal, not subtracting its sum, keeps a small sum of squares exact.
    off_diagonal = tf.reduce_sum(tf.square(tf.linalg.set_diag(c, tf.zeros_like(diagonal))))
    off_diagonal /= d - 1
    return CCOTerms(on_diagonal + lambda_ * off_diagonal, on_diagonal, off_diagonal)


def cco(f: tf.Tensor, g: tf.Tensor, lambda_: float) -> CCOTerms:
    """The loss of Eq. 1 for one batch of paired encodings, each float32 [n, d]."""
    return cco_from_statistics(encoding_statistics(f, g), lambda_)


def cco_within_clients(f: tf.Tensor, g: tf.Tensor, segments: Segments, lambda_: float) -> CCOTerms:
    """The loss of Eq. 1 for each client's examples.

    Args:
      f: Encodings of the first views, float32 [n, d] with d >= 2.
      g: Encodings of the second views, float32 [n, d].
      segments: Division of the examples among k clients.
      lambda_: Weight of the redundancy term.

    Returns:
      Terms, each float32 [k].
    """

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


def encoding_std(statistics: EncodingStatistics) -> tf.Tensor:
    """Mean over dimensions of the standard deviation of F; near 0 when encodings collapse."""
    variance = statistics.f_squared - tf.square(statistics.f)
    return tf.reduce_mean(tf.sqrt(tf.nn.relu(variance)))
