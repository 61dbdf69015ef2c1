"""NT-Xent, the contrastive loss of SimCLR (Chen et al. 2020, Eq. 1), within each client."""

import tensorflow as tf

from tff_ssl.losses import segments as segments_lib
from tff_ssl.losses.segments import Segments


def nt_xent(
    z1: tf.Tensor,
    z2: tf.Tensor,
    segments: Segments,
    temperature: float,
    negatives: tf.Tensor | None = None,
) -> tf.Tensor:
    """The loss of each example, float32 [n], with the other examples of its client as negatives.

    It is the mean of the losses of an example's two anchors (one per view); the mean over a
    client's examples is the paper's loss of that client's 2 N_k views.

    Args:
      z1: Projections of the first views, float32 [n, d], of any norm but zero.
      z2: Projections of the second views, float32 [n, d].
      segments: Clients of the examples. One with a single example has no negatives, and loss 0.
      temperature: Temperature tau > 0; 0.1 in the DCCO paper, 0.5 in Dec-SSL's.
      negatives: Further negatives of all anchors, unit rows, float32 [m, d], without gradient; a
        row of zeros is none.
    """
    z = tf.math.l2_normalize(tf.concat([z1, z2], 0), 1)
    similarity = tf.matmul(z, z, transpose_b=True) / temperature
    # An anchor is compared with both views of all examples of its client, except with itself.
    allowed = tf.tile(segments_lib.together(segments), [2, 2])
    allowed = tf.linalg.set_diag(allowed, tf.zeros(tf.shape(z)[:1], tf.bool))
    compared = tf.where(allowed, similarity, similarity.dtype.min)
    if negatives is not None:
        negatives = tf.stop_gradient(negatives)
        further = tf.matmul(z, negatives, transpose_b=True) / temperature
        is_row = tf.reduce_any(tf.not_equal(negatives, 0.0), 1)
        compared = tf.concat([compared, tf.where(is_row, further, further.dtype.min)], 1)
    log_sums = tf.reduce_logsumexp(compared, 1)
    z1, z2 = tf.split(z, 2)
    positive = tf.reduce_sum(z1 * z2, 1) / temperature
    first, second = tf.split(log_sums, 2)
    return (first + second) / 2 - positive
