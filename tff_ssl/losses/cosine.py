"""Predictive losses: BYOL (Grill et al. 2020) and SimSiam (Chen & He 2021)."""

import tensorflow as tf


def cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Cosine of the angle between rows, [n, d] each -> [n]."""
    return tf.reduce_sum(tf.math.l2_normalize(a, 1) * tf.math.l2_normalize(b, 1), 1)


def byol(p1: tf.Tensor, p2: tf.Tensor, target_z1: tf.Tensor, target_z2: tf.Tensor) -> tf.Tensor:
    """BYOL's symmetric loss of each example (Eq. 2 and the line after it), in [0, 8].

    Args:
      p1: Online network's predictions from the first views, float32 [n, d].
      p2: Online network's predictions from the second views, float32 [n, d].
      target_z1: Target network's projections of the first views, float32 [n, d]; no gradient flows
        into them.
      target_z2: Target network's projections of the second views; likewise.

    Returns:
      float32 [n]: 2 - 2 cos(p1, target_z2) + 2 - 2 cos(p2, target_z1).
    """
    target_z1, target_z2 = tf.stop_gradient(target_z1), tf.stop_gradient(target_z2)
    return 4 - 2 * cosine(p1, target_z2) - 2 * cosine(p2, target_z1)


def byol_one_direction(p1: tf.Tensor, target_z2: tf.Tensor) -> tf.Tensor:
    """BYOL's loss of each example in one direction (Eq. 2), in [0, 4].

    FedU (Eq. 1) and Hetero-SSFL (section 3.2) print this loss.

    Args:
      p1: Online network's predictions from the first views, float32 [n, d].
      target_z2: Target network's projections of the second views, float32 [n, d]; no gradient flows
        into them.

    Returns:
      float32 [n]: 2 - 2 cos(p1, target_z2).
    """
    return 2 - 2 * cosine(p1, tf.stop_gradient(target_z2))


def simsiam(p1: tf.Tensor, p2: tf.Tensor, z1: tf.Tensor, z2: tf.Tensor) -> tf.Tensor:
    """SimSiam's loss of each example (Eq. 4), in [-1, 1].

    Args:
      p1: Predictions from the first views, float32 [n, d].
      p2: Predictions from the second views, float32 [n, d].
      z1: Projections of the first views by the same network, float32 [n, d]; no gradient flows into
        them from here.
      z2: Projections of the second views; likewise.

    Returns:
      float32 [n]: -cos(p1, z2) / 2 - cos(p2, z1) / 2.
    """
    z1, z2 = tf.stop_gradient(z1), tf.stop_gradient(z2)
    return -(cosine(p1, z2) + cosine(p2, z1)) / 2
