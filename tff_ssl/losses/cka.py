"""Linear centred kernel alignment (Kornblith et al. 2019, arXiv:1905.00414, section 3).

CKA compares two networks' features of the same inputs through the similarities between the inputs.
The features may differ in size, and CKA does not depend on rotations, reflections and scale.
"""

import tensorflow as tf

# Lower bound of denominators, which are squared Frobenius norms or products of two of them, and of
# the squared variation of features relative to their size.
_EPSILON = 1e-12


def linear_cka(x: tf.Tensor, y: tf.Tensor, uncentred: bool = False) -> tf.Tensor:
    """|| X^T Y ||^2 / (|| X^T X || || Y^T Y ||) (Frobenius), of features of the same n inputs.

    It equals HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) of the kernels K = X X^T and L = Y Y^T, but
    holds nothing of size n x n. Features are float32 [n, d] and [n, e], n >= 1. Unless `uncentred`,
    their mean over the n >= 2 inputs is subtracted first, so that offsets do not matter either.

    Returns:
      Similarity, float32 scalar in [0, 1], 1 for equal features. It is 0, with finite gradients, if
      the features of one network do not vary.
    """
    x, y = (_normalize(m, m if uncentred else m - tf.reduce_mean(m, 0)) for m in (x, y))
    scale = _squared_norm(x, x) * _squared_norm(y, y)
    return _squared_norm(x, y) * tf.math.rsqrt(tf.maximum(scale, _EPSILON))


def _normalize(features: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """x, centred features, with Frobenius norm 1, so that fourth powers stay in range.

    It is smaller if x is nearly zero, and zero if x is what rounding leaves of equal features.
    """
    size, variation = (tf.reduce_sum(tf.square(m)) for m in (features, x))
    x = tf.where(variation > _EPSILON * size, x, tf.zeros_like(x))
    return x * tf.math.rsqrt(tf.maximum(variation, _EPSILON))


def _squared_norm(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """|| X^T Y ||^2, [n, d] and [n, e] -> []."""
    return tf.reduce_sum(tf.square(tf.matmul(x, y, transpose_a=True)))
