"""Predictive losses: BYOL (Grill et al. 2020) and SimSiam (Chen & He 2021)."""

import tensorflow as tf


def cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Cosine of the angle between rows, [n, d] each -> [n]."""
    return tf.reduce_sum(tf.math.l2_normalize(a, 1) * tf.math.l2_normalize(b, 1), 1)


def byol(p1: tf.Tensor, p2: tf.Tensor, target_z1: tf.Tensor, target_z2: tf.Tensor) -> tf.Tensor:
    """BYOL's symmetric loss of each example (Eq. 2 and the line after it), in [0, 8].

    It is 2 - 2 cos(p1, target_z2) + 2 - 2 cos(p2, target_z1), float32 [n], of the online network's
    predictions p and the target network's projections, into which no gradient flows.
    """
    target_z1, target_z2 = tf.stop_gradient(target_z1), tf.stop_gradient(target_z2)
    return 4 - 2 * cosine(p1, target_z2) - 2 * cosine(p2, target_z1)


def byol_one_direction(p1: tf.Tensor, target_z2: tf.Tensor) -> tf.Tensor:
    """BYOL's loss of each example in one direction (Eq. 2): 2 - 2 cos(p1, target_z2), in [0, 4].

    FedU (Eq. 1) and Hetero-SSFL (section 3.2) print this loss.
    """
    return 2 - 2 * cosine(p1, tf.stop_gradient(target_z2))


def simsiam(p1: tf.Tensor, p2: tf.Tensor, z1: tf.Tensor, z2: tf.Tensor) -> tf.Tensor:
    """SimSiam's loss of each example (Eq. 4): -cos(p1, z2) / 2 - cos(p2, z1) / 2, in [-1, 1].

    No gradient flows into the projections z.
    """
    z1, z2 = tf.stop_gradient(z1), tf.stop_gradient(z2)
    return -(cosine(p1, z2) + cosine(p2, z1)) / 2
