"""Hetero-SSFL's proximal term: a client's representations of common images against all clients'.

"Federated Self-supervised Learning for Heterogeneous Clients" (Makhija, Ho & Ghosh), section 3.3:
similarity is linear CKA between kernels, K_k = A_k A_k^T of the client and the weighted mean
K-bar = sum_j w_j K_j of the round before.

With B = [sqrt(w_1) A_1, ..., sqrt(w_N) A_N], K-bar = B B^T. Clients of different widths d_j fit in
one B, and K-bar, of n images n^2 numbers, is never formed.

  CKA(K, K-bar) = |B^T A|^2 / (|A^T A| |B^T B|), Frobenius norms.

Two departures from the print: Eq. 2 adds mu * CKA, a similarity, to what is minimized, and so would
drive clients apart; the text speaks of a distance, and here it is 1 - CKA. Eq. 1 leaves out that
linear CKA centres its features (Kornblith et al. 2019); they are centred here unless told not to.
"""

from collections.abc import Sequence

import tensorflow as tf

# Representations that vary by less than a millionth of their size do not vary: that is rounding.
_COLLAPSED = 1e-12
_TINY = 1e-24  # The cube of its inverse root, which gradients take, is a float32.
# Rows of a product of which only the norm is needed that are held at the same time.
_BLOCK = 1024


def stack(representations: Sequence[tf.Tensor], weights: Sequence[float]) -> tf.Tensor:
    """B: the clients' representations side by side, such that B B^T is K-bar.

    Args:
      representations: A_j of each client, float32 [n, d_j]: the same n images in the same order.
      weights: w_j of each client, at least 0; uniform in the paper.

    Returns:
      float32 [n, sum of d_j].

    Raises:
      ValueError: Not one weight per client, a negative weight, or none above 0.
    """
    if len(representations) != len(weights):
        raise ValueError(f"{len(weights)} weights for {len(representations)} clients")
    if min(weights) < 0 or max(weights) <= 0:
        raise ValueError(f"weights must not be negative, and not all 0: {list(weights)}")
    pairs = zip(representations, weights, strict=True)
    return tf.concat([w**0.5 * tf.cast(a, tf.float32) for a, w in pairs], 1)


def cka_with_mean_kernel(a: tf.Tensor, stacked: tf.Tensor, centred: bool = True) -> tf.Tensor:
    """Linear CKA between A A^T and K-bar (Eq. 1).

    No gradient flows into `stacked`. Representations that do not vary over the images (centred) or
    are zero (uncentred) have similarity 0 and gradient 0.

    Args:
      a: A, the client's own representations, float32 [n, d].
      stacked: B, rows for the same n images, float32 [n, D]. Of a batch of the alignment images:
        its rows, which are centred within the batch.
      centred: Whether kernels are centred.

    Returns:
      float32 scalar in [0, 1].
    """
    a = _prepared(a, centred)
    b = tf.stop_gradient(_prepared(stacked, centred))
    cross = tf.reduce_sum(tf.square(tf.matmul(b, a, transpose_a=True)))
    own, mean = squared_kernel_norm(a), tf.stop_gradient(squared_kernel_norm(b))
    return cross * tf.math.rsqrt(tf.maximum(own * mean, _TINY))


def proximal_term(a: tf.Tensor, stacked: tf.Tensor, mu: float, centred: bool = True) -> tf.Tensor:
    """mu * (1 - CKA): what Eq. 2 adds to a client's loss, read as a distance.

    Args:
      a: The client's own representations, float32 [n, d].
      stacked: B, float32 [n, D], of the round before; no gradient flows into it.
      mu: Weight; 0.5 in the paper for CIFAR, 1 for Tiny-ImageNet.
      centred: Whether kernels are centred.

    Returns:
      float32 scalar in [0, mu].
    """
    return mu * (1 - cka_with_mean_kernel(a, stacked, centred))


def squared_kernel_norm(x: tf.Tensor) -> tf.Tensor:
    """|X X^T|^2 = |X^T X|^2 (Frobenius), from blocks of the smaller of the two products.

    At most 1024 rows of it are held: of a batch smaller than that and than d, its kernel.

    Args:
      x: float32 [n, d] of known shape.

    Returns:
      float32 scalar.

    Raises:
      ValueError: The shape is not known.
    """
    rows, columns = x.shape
    if rows is None or columns is None:
        raise ValueError(f"representations need a known shape [n, d]; got {x.shape}")
    if rows > columns:
        x, rows = tf.transpose(x), columns
    total = tf.constant(0.0)
    for start in range(0, rows, _BLOCK):
        block = tf.matmul(x[start : start + _BLOCK], x, transpose_b=True)
        total += tf.reduce_sum(tf.square(block))
    return total


def _prepared(x: tf.Tensor, centred: bool) -> tf.Tensor:
    """Centred over images, and of norm 1: CKA is blind to scale, float32 is not."""
    size = tf.reduce_sum(tf.square(x))
    if centred:
        x = x - tf.reduce_mean(x, 0)
    floor = tf.stop_gradient(_COLLAPSED * size) + _TINY
    squared = tf.reduce_sum(tf.square(x))
    # Not the root of a maximum: what is below the floor is rounding, and becomes zero.
    return tf.where(squared > floor, x * tf.math.rsqrt(tf.maximum(squared, floor)), 0.0 * x)
