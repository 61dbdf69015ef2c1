"""The patches of an image that a masked autoencoder sees: He et al. 2021, arXiv:2111.06377."""

import tensorflow as tf

from tff_ssl.views import seeds
from tff_ssl.views.threefry import threefry, to_uint64


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
    """Indices of the patches that the encoder sees, int32 [batch, visible], ascending.

    They are a pure function of (seed, round, example id). All choices of `number_visible` patches
    are equally likely, as in section 3. Ids are int64 [batch], and the seed is in [0, 2**31).
    """
    visible = number_visible(patches, mask_ratio)
    pairs = tf.range((patches + 1) // 2)
    ids, round_number, pairs = map(to_uint64, (example_ids, round_number, pairs))
    # A view's key has a smaller first word, so that masks and views are independent.
    key = (to_uint64(seeds.current(seed) + 2**32), ids[:, None])
    words = tf.concat(threefry(key, (round_number, pairs)), 1)[:, :patches]
    draws = tf.cast(tf.bitwise.right_shift(words, tf.constant(1, tf.uint64)), tf.int64)
    return tf.sort(tf.math.top_k(draws, visible).indices, 1)
