"""The spectral contrastive loss (HaoChen et al. 2021, Eq. 6), from the statistics of a batch.

  loss = -2 <F . G> + |R|^2,    R = (<F F^T> + <G G^T>) / 2

<.> is a mean over examples, |.| the Frobenius norm, and F and G are projections of two views in the
ball |z|^2 <= mu: z min(1, sqrt(mu) / |z|), as in FedSC (Jing et al., ICML 2024, arXiv:2405.03949,
and the authors' code). |R|^2 is the mean of (z . z')^2 over all pairs of projections, that of a
view with itself included, as in FedSC; HaoChen et al. take pairs of different images.

The loss depends on a batch only through these averages, and averages over the union of batches are
weighted means of the batches' averages. Second moments are about the origin: a reference, as in
`losses.cco`, enters only the means, from which the spread is computed.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_ssl.losses import segments as segments_lib
from tff_ssl.losses.means import Means
from tff_ssl.losses.segments import Segments


class SpectralStatistics(NamedTuple):
    """Averages over the examples of a batch, float32."""

    f: tf.Tensor  #: Mean of F minus a reference, [d]; of F itself in the result of `centred`.
    g: tf.Tensor  #: Mean of G, likewise, [d].
    f_dot_g: tf.Tensor  #: Mean of F . G, scalar; no reference enters it.
    moments: tf.Tensor  #: R, the mean of the second moments of F and of G about the origin, [d, d].


class SpectralTerms(NamedTuple):
    """loss = -2 alignment + squared_moments: float32 scalars, or one value per client each."""

    loss: tf.Tensor
    alignment: tf.Tensor
    squared_moments: tf.Tensor


def in_ball(z: tf.Tensor, squared_radius: float) -> tf.Tensor:
    """z min(1, sqrt(mu) / |z|) of each row, float32 [n, d]; its gradient at z = 0 is that of z."""
    squared = tf.reduce_sum(tf.square(z), 1, keepdims=True)
    return z * tf.sqrt(squared_radius / tf.maximum(squared, squared_radius))


def zero_statistics(d: int) -> SpectralStatistics:
    """Statistics of encodings [n, d] of zeros, with which a sum starts."""
    vector = tf.zeros([d])
    return SpectralStatistics(vector, vector, tf.constant(0.0), tf.zeros([d, d]))


def encoding_statistics(f: tf.Tensor, g: tf.Tensor, reference: Means) -> SpectralStatistics:
    """Statistics of paired encodings in the ball, each float32 [n, d] with n >= 1."""
    count = tf.cast(tf.shape(f)[0], f.dtype)
    second = tf.matmul(f, f, transpose_a=True) + tf.matmul(g, g, transpose_a=True)
    return SpectralStatistics(
        f=tf.reduce_mean(f - reference.f, 0),
        g=tf.reduce_mean(g - reference.g, 0),
        f_dot_g=tf.reduce_mean(tf.reduce_sum(f * g, 1)),
        moments=second / (2 * count),
    )


def centred(statistics: SpectralStatistics, reference: Means) -> SpectralStatistics:
    """Means of the encodings themselves; the second moments stay about the origin."""
    return statistics._replace(f=reference.f + statistics.f, g=reference.g + statistics.g)


def spectral_from_statistics(statistics: SpectralStatistics) -> SpectralTerms:
    """The loss from statistics; their means do not enter it."""
    return _add_terms(statistics.f_dot_g, tf.reduce_sum(tf.square(statistics.moments)))


def spectral_within_clients(f: tf.Tensor, g: tf.Tensor, segments: Segments) -> SpectralTerms:
    """The loss for each of k clients' examples, terms [k], from encodings in the ball, [n, d]."""
    alignment = segments_lib.mean(tf.reduce_sum(f * g, 1), segments)
    views = Segments(tf.tile(segments.ids, [2]), 2 * segments.sizes)
    z = tf.concat([f, g], 0)
    return _add_terms(alignment, segments_lib.squared_cross_norm(z, z, views))


def encoding_std(statistics: SpectralStatistics) -> tf.Tensor:
    """Mean over dimensions of the standard deviation of both views; 0 when encodings collapse."""
    squared_means = (tf.square(statistics.f) + tf.square(statistics.g)) / 2
    variance = tf.linalg.diag_part(statistics.moments) - squared_means
    return tf.reduce_mean(tf.sqrt(tf.nn.relu(variance)))


def _add_terms(alignment: tf.Tensor, squared_moments: tf.Tensor) -> SpectralTerms:
    return SpectralTerms(-2 * alignment + squared_moments, alignment, squared_moments)
