"""Clusters of equal sizes, and the loss of Orchestra (Lubana et al., ICML 2022, arXiv:2205.11506).

Rows and centroids are unit vectors, and similarities their cosines. Sinkhorn's iterations give each
row the same weight and each cluster the same share of the rows. The clusterings follow the paper's
Algorithm 1 and the authors' code (github.com/akhilmathurs/orchestra).
"""

import tensorflow as tf

from tff_ssl.losses.cosine import cosine

_SHARPNESS = 25.0  # Factor lambda of the similarities in Sinkhorn's iterations.
_TOLERANCE = 1e-2
_CHECK_EVERY = 10


def unit_rows(rows: tf.Tensor) -> tf.Tensor:
    """The rows [n, d] divided by their norms; a row of zeros stays."""
    return tf.math.l2_normalize(rows, 1)


def sinkhorn(similarities: tf.Tensor, iterations: int = 100) -> tf.Tensor:
    """Soft assignments of rows to clusters, in equal shares (Sinkhorn and Knopp).

    With P = softmax(lambda S) over the clusters, for N rows and K clusters, the scales b of the
    clusters and a of the rows are iterated from a = 1/N:

      b = (1/K) / (P^T a),   a = (1/N) / (P b),   result = N diag(a) P diag(b).

    Iterations end early at the first, eleventh, ... one if the sum over the rows of |a / a_new - 1|
    is below 0.01. The cosines S are float32 [N, K], as is the result, which has no gradient. Its
    rows sum to 1, and its columns to about N / K.
    """
    p = tf.nn.softmax(_SHARPNESS * tf.stop_gradient(similarities), 1)
    rows, clusters = (tf.cast(tf.shape(p)[axis], tf.float32) for axis in (0, 1))

    def iterate(i, a, b, change):
        b = 1 / clusters / tf.linalg.matvec(p, a, transpose_a=True)
        new = 1 / rows / tf.linalg.matvec(p, b)
        checked = tf.reduce_sum(tf.abs(a / new - 1))
        return i + 1, new, b, tf.where(tf.equal(i % _CHECK_EVERY, 0), checked, change)

    start = (0, tf.fill([tf.shape(p)[0]], 1 / rows), tf.zeros([tf.shape(p)[1]]), 2 * _TOLERANCE)

    def unfinished(i, a, b, change):
        return (i < iterations) & (change >= _TOLERANCE)

    _, a, b, _ = tf.while_loop(unfinished, iterate, start, parallel_iterations=1)
    return tf.stop_gradient(rows * a[:, tf.newaxis] * p * b)


def local_centroids(
    rows: tf.Tensor, first: tf.Tensor, spare: tf.Tensor, iterations: int = 10
) -> tf.Tensor:
    """Centroids of equal-sized clusters of unit rows [n, d], by hard assignments: float32 [L, d].

    In each step, a row belongs to the cluster of its largest assignment by `sinkhorn`, and a
    centroid becomes the unit vector along the mean of its rows. Indices of rows are those of the
    `first` centroids, int32 [L], and the `spare` ones that replace the centroids of empty clusters
    in each step, int32 [steps, L].
    """
    clusters = first.shape[0]
    centroids = tf.gather(rows, first)
    for replacements in tf.unstack(spare):
        assignments = sinkhorn(tf.matmul(rows, centroids, transpose_b=True), iterations)
        members = tf.one_hot(tf.argmax(assignments, 1), clusters)
        sizes = tf.reduce_sum(members, 0)[:, tf.newaxis]
        means = unit_rows(tf.matmul(members, rows, transpose_a=True))
        centroids = tf.where(sizes > 0, means, tf.gather(rows, replacements))
    return centroids


def global_centroids(
    rows: tf.Tensor,
    centroids: tf.Tensor,
    temperature: float,
    steps: int = 500,
    learning_rate: float = 0.01,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
) -> tf.Tensor:
    """Centroids [G, d] whose predictions for the rows are trained to agree with `sinkhorn`.

    The loss is the mean of -cos(sinkhorn(S), softmax(S / T)), with the similarities S of unit rows
    Z [n, d] and centroids. It is minimized by gradient descent with momentum and an L2 term
    `weight_decay` |C|^2 / 2, and the centroids are divided by their norms after each step.
    """

    def step(i, c, velocity):
        with tf.GradientTape() as tape:
            tape.watch(c)
            similarities = tf.matmul(rows, c, transpose_b=True)
            predicted = tf.nn.softmax(similarities / temperature, 1)
            loss = -tf.reduce_mean(cosine(sinkhorn(similarities), predicted))
        velocity = momentum * velocity + tape.gradient(loss, c) + weight_decay * c
        return i + 1, unit_rows(c - learning_rate * velocity), velocity

    start = (0, centroids, tf.zeros_like(centroids))
    return tf.while_loop(lambda i, *_: i < steps, step, start, parallel_iterations=1)[1]


def assignment_losses(
    target_z1: tf.Tensor, z2: tf.Tensor, centroids: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Orchestra's loss of each example [n]: the cross-entropy of two predictions of its cluster.

    The target network projects the first views, the online network the second ones, float32 [n, d];
    no gradient flows into the targets. The global centroids [G, d] are unit rows.
    """

    def logits(z):
        return tf.matmul(unit_rows(z), centroids, transpose_b=True) / temperature

    p1 = tf.nn.softmax(logits(tf.stop_gradient(target_z1)), 1)
    return -tf.reduce_sum(p1 * tf.nn.log_softmax(logits(z2), 1), 1)
