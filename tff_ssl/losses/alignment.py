"""Hetero-SSFL's proximal term: distance of a client's representations from all clients'.

"Federated Self-supervised Learning for Heterogeneous Clients" (Makhija, Ho & Ghosh), section 3.3:
similarity is CKA between two kernels of the same images, K_k = A_k A_k^T of the client and
the weighted mean K-bar = sum_j w_j K_j of the round before.

With B = [sqrt(w_1) A_1, ..., sqrt(w_N) A_N], K-bar = B B^T. Clients of different widths d_j fit in
one B, and K-bar, which has n^2 numbers for n images, is not needed:

  CKA(K, K-bar) = |B^T A|^2 / (|A^T A| |B^T B|), Frobenius norms.

The columns of B are the clients' representations. What is sent is another factor F of the same
kernel, F F^T = K-bar, with min(n, D) columns for the D = d_1 + ... + d_N columns of B (`mixed`). F
is a function of K-bar alone, so it tells what the kernel tells, but not who has which features.

The paper also tried the kernel of radial basis functions, K_k = `rbf_kernel` of A_k. It has no
factor but of n x n numbers (`factor`).

There are two deviations from the printed equations. Eq. 2 adds mu * CKA, a similarity, to the loss,
which would drive clients apart; the text speaks of a distance, and the term here is 1 - CKA. Eq. 1
omits that linear CKA centres its features (Kornblith et al. 2019); they are centred here unless
`centred` is False.
"""

from collections.abc import Sequence

import tensorflow as tf

# Representations that vary by less than a millionth of their size (here squared) count as constant.
_COLLAPSED = 1e-12
_TINY = 1e-24  # Gradients take the cube of its inverse root, which is within float32's range.
_SMALLEST = 1e-30  # Divisors below it are replaced by it.
_BANDWIDTH = 0.8  # Of the median distance; the best in Table 2 of Kornblith et al.
_BLOCK = 1024  # Number of rows of a kernel held at a time; only the kernel's norm is needed.


def stack(representations: Sequence[tf.Tensor], weights: Sequence[float]) -> tf.Tensor:
    """B [n, sum of d_j], from representations A_j, float32 [n, d_j], of the same images.

    The weights w_j are uniform in the paper.

    Raises:
      ValueError: If there is not one weight per client, one is negative, or none is above 0.
    """
    if len(representations) != len(weights):
        raise ValueError(f"{len(weights)} weights for {len(representations)} clients")
    if min(weights) < 0 or max(weights) <= 0:
        raise ValueError(f"weights must not be negative, and not all 0: {list(weights)}")
    pairs = zip(representations, weights, strict=True)
    return tf.concat([w**0.5 * tf.cast(a, tf.float32) for a, w in pairs], 1)


def of_unit_kernel(a: tf.Tensor, centred: bool = True) -> tf.Tensor:
    """A, float32 [n, d], scaled such that the kernel A A^T has Frobenius norm 1.

    If `centred`, it is centred over the images first. Constant representations become zero.
    """
    a = _normalize(a, centred)
    return a * tf.pow(tf.maximum(squared_kernel_norm(a), _TINY), -0.25)


def mixed(stacked: tf.Tensor) -> tf.Tensor:
    """A factor F of K-bar = B B^T, float32 [n, min(n, D)], that mixes the clients.

    F is a function of K-bar: with n images and D columns of B,

    - for D < n the thin U S of B = U S V^T, from the eigenvectors V of B^T B as F = B V. The
      largest entry of each column is positive. As V is orthogonal, F F^T is exact up to rounding.
    - for D >= n the Cholesky factor of K-bar, lower triangular with a positive diagonal. (U S would
      take the eigenvectors of a matrix of n x n: 2.3 s for n = 2000, growing as n^3.)
      Rows of B are scaled to length 1 before, and (n + 16) 2^-24 is added to the diagonal of their
      kernel; otherwise rounding would make kernels of low rank indefinite. Relative to the
      Frobenius norm of K-bar, this changes F F^T by at most that number, 3e-4 for n = 5000, and by
      less where the diagonal is a small part of the kernel.
    """
    rows, columns = stacked.shape
    if columns < rows:
        scale = tf.maximum(tf.reduce_max(tf.abs(stacked)), _SMALLEST)
        _, vectors = tf.linalg.eigh(tf.matmul(stacked / scale, stacked / scale, transpose_a=True))
        factor = tf.matmul(stacked, tf.reverse(vectors, [1]))
        largest = tf.argmax(tf.abs(factor), output_type=tf.int32)
        signs = tf.sign(tf.gather(tf.transpose(factor), largest, batch_dims=1))
        return factor * tf.where(tf.equal(signs, 0.0), 1.0, signs)
    largest = tf.maximum(tf.reduce_max(tf.abs(stacked), 1, keepdims=True), _SMALLEST)
    lengths = largest * tf.linalg.norm(stacked / largest, axis=1, keepdims=True)
    return lengths * _cholesky(_lower_kernel(stacked / tf.maximum(lengths, _SMALLEST)))


def rbf_kernel(a: tf.Tensor, centred: bool = True) -> tf.Tensor:
    """exp(-|a_i - a_j|^2 / (2 s^2)) of representations A, float32 [n, d] -> [n, n], n >= 2.

    The width s is 0.8 of the median distance of two images, so that scale does not matter. In
    gradients, it is a constant share of the norm of the centred A, which scales with A as well. The
    kernel of constant representations is 0 if `centred`, otherwise 1.
    """
    a = _normalize(a, centred=True)  # Which changes no ratio of distances.
    lengths = tf.reduce_sum(tf.square(a), 1, keepdims=True)
    products = tf.matmul(a, a, transpose_b=True)
    squared = tf.maximum(lengths + tf.transpose(lengths) - 2 * products, 0.0)
    images = a.shape[0]
    # The smallest numbers are those of the images with themselves; every pair comes twice.
    median = tf.sort(tf.reshape(squared, [-1]))[images + images * (images - 1) // 2]
    width = tf.stop_gradient(_BANDWIDTH**2 * tf.maximum(median, _COLLAPSED))
    kernel = tf.exp(-squared / (2 * width))
    if centred:
        kernel -= tf.reduce_mean(kernel, 0, keepdims=True)
        kernel -= tf.reduce_mean(kernel, 1, keepdims=True)
    return kernel


def factor(kernel: tf.Tensor) -> tf.Tensor:
    """The Cholesky factor of a kernel, float32 [n, n]; see `mixed`."""
    lengths = tf.sqrt(tf.maximum(tf.linalg.diag_part(kernel), _SMALLEST))[:, None]
    return lengths * _cholesky(kernel / lengths / tf.transpose(lengths))


def _cholesky(kernel: tf.Tensor) -> tf.Tensor:
    """The factor of a kernel with ones on its diagonal, to which as much as `mixed` says is added.

    What is above the diagonal is not read.
    """
    rows = kernel.shape[0]
    return tf.linalg.cholesky(kernel + (rows + 16) * 2.0**-24 * tf.eye(rows))


def _lower_kernel(x: tf.Tensor) -> tf.Tensor:
    """X X^T, float32 [n, n], of which only the blocks up to the diagonal are computed."""
    rows = x.shape[0]
    blocks = []
    for start in range(0, rows, _BLOCK):
        end = min(start + _BLOCK, rows)
        block = tf.matmul(x[start:end], x[:end], transpose_b=True)
        blocks.append(tf.pad(block, [[0, 0], [0, rows - end]]))
    return tf.concat(blocks, 0)


def cka_with_mean_kernel(
    a: tf.Tensor, stacked: tf.Tensor, centred: bool = True, kernel: str = "linear"
) -> tf.Tensor:
    """CKA between K-bar and A's kernel, A A^T or `rbf` (Eq. 1): float32 scalar in [0, 1].

    A is float32 [n, d], and `stacked` is B or another factor of K-bar, [n, D], into which no
    gradient flows. Both may be the rows of a batch of the images, and are centred within it.
    Representations that are constant (centred) or, with the linear kernel, zero (uncentred) have
    similarity and gradient 0.
    """
    b = tf.stop_gradient(_normalize(stacked, centred))
    if kernel == "rbf":
        own = rbf_kernel(a, centred)
        cross = tf.reduce_sum(b * tf.matmul(own, b))
        client_norm = tf.reduce_sum(tf.square(own))
    else:
        a = _normalize(a, centred)
        cross = tf.reduce_sum(tf.square(tf.matmul(b, a, transpose_a=True)))
        client_norm = squared_kernel_norm(a)
    mean_norm = tf.stop_gradient(squared_kernel_norm(b))
    return cross * tf.math.rsqrt(tf.maximum(client_norm * mean_norm, _TINY))


def proximal_term(
    a: tf.Tensor, stacked: tf.Tensor, mu: float | tf.Tensor, centred: bool = True,
    kernel: str = "linear",
) -> tf.Tensor:  # fmt: skip
    """mu * (1 - CKA): the term that Eq. 2 adds to a client's loss, as a distance in [0, mu].

    See `cka_with_mean_kernel`. In the paper, mu is 0.5 for CIFAR and 1 for Tiny-ImageNet.
    """
    return mu * (1 - cka_with_mean_kernel(a, stacked, centred, kernel))


def squared_kernel_norm(x: tf.Tensor) -> tf.Tensor:
    """|X X^T|^2 = |X^T X|^2 (Frobenius), X [n, d], from blocks of the smaller product.

    At most 1024 rows of the product are held at a time.

    Raises:
      ValueError: If the shape is not known.
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


def _normalize(x: tf.Tensor, centred: bool) -> tf.Tensor:
    """Centres x over images and divides it by its norm: float32, unlike CKA, depends on scale."""
    size = tf.reduce_sum(tf.square(x))
    if centred:
        x = x - tf.reduce_mean(x, 0)
    floor = tf.stop_gradient(_COLLAPSED * size) + _TINY
    squared = tf.reduce_sum(tf.square(x))
    # Variation below the floor is rounding. It becomes zero, which a maximum alone would not do.
    return tf.where(squared > floor, x * tf.math.rsqrt(tf.maximum(squared, floor)), 0.0 * x)
