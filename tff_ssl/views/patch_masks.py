"""Which patches of an image a masked autoencoder sees: He et al. 2021, arXiv:2111.06377."""

import tensorflow as tf

from tff_ssl.views.threefry import threefry


def number_visible(patches: int, mask_ratio: float) -> int:
    """round((1 - mask_ratio) * patches), with at least one patch visible and one hidden."""
    return min(max(round((1 - mask_ratio) * patches), 1), patches - 1)


def visible_patches(
    example_ids: tf.Tensor,
    patches: int,
    mask_ratio: float,
    *,
    seed: int,
    round_number: int | tf.Tensor,
) -> tf.Tensor:
    """What a masked autoencoder's encoder sees: a pure function of (seed, round, example id).

    All choices of so many patches are equally likely, as in He et al. 2021, section 3.

    Args:
      example_ids: int64 [batch].
      patches: Number of patches of an image, at least 2.
      mask_ratio: Fraction of the patches that is hidden, in (0, 1).
      seed: In [0, 2**31).
      round_number: int, or int64 scalar.

    Returns:
      int32 [batch, visible], ascending.
    """
    visible = number_visible(patches, mask_ratio)
    ids, round_number, pairs = (
        tf.cast(tf.cast(word, tf.int64), tf.uint64)
        for word in (example_ids, round_number, tf.range((patches + 1) // 2))
    )
    # A view's key has a smaller first word, so that masks and views are independent.
    key = (tf.constant(seed + 2**32, tf.uint64), ids[:, None])
    words = tf.concat(threefry(key, (round_number, pairs)), 1)[:, :patches]
    draws = tf.cast(tf.bitwise.right_shift(words, tf.constant(1, tf.uint64)), tf.int64)
    return tf.sort(tf.math.top_k(draws, visible).indices, 1)
