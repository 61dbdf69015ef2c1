"""Random samples of anchors and proposals that are pure functions of a seed.

The Model Garden draws them with stateful random operations, whose state a checkpoint does not hold,
so a resumed run would draw others. The numbers of positives and negatives are the same here.
"""

import tensorflow as tf


def balanced_sample(
    positive: tf.Tensor, negative: tf.Tensor, count: int, positive_fraction: float, seed: tf.Tensor
) -> tf.Tensor:
    """Draws up to `count` candidates of each image without replacement: bool [b, n].

    Up to `positive_fraction` of the sample are positives; negatives fill the rest. Candidates that
    are neither are never drawn. The seed is int32 [2].
    """
    priorities = tf.random.stateless_uniform(tf.shape(positive), seed)

    def ranks(candidates: tf.Tensor) -> tf.Tensor:
        """The place of each candidate in the order of priorities; others come after them."""
        order = tf.argsort(tf.where(candidates, priorities, 2.0), stable=True)
        return tf.argsort(order)  # The inverse permutation.

    drawn = positive & (ranks(positive) < int(count * positive_fraction))
    left = count - tf.reduce_sum(tf.cast(drawn, tf.int32), 1, keepdims=True)
    return drawn | (negative & (ranks(negative) < left))


def sample_anchors(
    targets: dict[str, tf.Tensor], count: int, positive_fraction: float, seed: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Draws the anchors on which the region proposal network is trained (Ren et al. 2015).

    Targets by level, int32 [b, height, width, anchors], are 1 for an object, 0 for background, and
    -1 for no training, as of all anchors that are not drawn.
    """
    levels = list(targets)
    batch = tf.shape(targets[levels[0]])[0]
    flat = tf.concat([tf.reshape(targets[level], [batch, -1]) for level in levels], 1)
    drawn = balanced_sample(flat > 0, tf.equal(flat, 0), count, positive_fraction, seed)
    flat = tf.where(drawn, flat, -tf.ones_like(flat))
    sizes = [targets[level].shape[1:].num_elements() for level in levels]
    return {
        level: tf.reshape(part, tf.shape(targets[level]))
        for level, part in zip(levels, tf.split(flat, sizes, 1), strict=True)
    }


class ProposalSampler:
    """Draws the proposals on which the box head is trained, in place of `BoxSampler`.

    Attributes:
      seed: Seed of the next sample, a variable int32 [2].
    """

    def __init__(self, count: int, positive_fraction: float):
        """Sets the number of proposals of an image, and the largest fraction with an object."""
        self._count, self._positive_fraction = count, positive_fraction
        self.seed = tf.Variable([0, 0], trainable=False, dtype=tf.int32)

    def __call__(
        self, positive_matches: tf.Tensor, negative_matches: tf.Tensor, ignored_matches: tf.Tensor
    ) -> tf.Tensor:
        """Draws `count` proposals of each image: their indices, int32 [b, count].

        The matches, bool [b, n] with n >= count, say whether a proposal has an object, is
        background, or must not be drawn. If there are too few candidates, the first of the others
        fill up, as in the Model Garden.
        """
        positive, negative = (m & ~ignored_matches for m in (positive_matches, negative_matches))
        drawn = balanced_sample(positive, negative, self._count, self._positive_fraction, self.seed)
        # Of equal values, `top_k` takes those of lower indices first.
        return tf.math.top_k(tf.cast(drawn, tf.int32), self._count).indices
