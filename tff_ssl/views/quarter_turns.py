"""Quarter turns of images, for predicting their number (Gidaris et al. 2018, arXiv:1803.07728)."""

import tensorflow as tf

from tff_ssl.views import seeds
from tff_ssl.views.threefry import threefry, to_uint64

TURNS = 4


def turned(
    images: tf.Tensor, example_ids: tf.Tensor, *, seed: int, round_number: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Turns each image counter-clockwise by a random number of quarters.

    Images are float32 [batch, side, side, channels], ids int64 [batch], and the seed is in [0,
    2**31). The result is the turned images, and the numbers of quarters, uniform from 0 to 3, int32
    [batch], a pure function of (seed, round, id).

    Raises:
      ValueError: If images are not square.
    """
    if images.shape[1] != images.shape[2]:
        raise ValueError(f"quarter turns need square images, found {images.shape[1:]}")
    # The first words of the keys of views and of masks are smaller, so that turns are independent.
    key = (to_uint64(seeds.current(seed) + 2**33), to_uint64(example_ids))
    words, _ = threefry(key, (to_uint64(round_number), tf.constant(0, tf.uint64)))
    quarters = tf.cast(tf.bitwise.right_shift(words, tf.constant(62, tf.uint64)), tf.int32)
    choices = tf.stack([tf.image.rot90(images, k) for k in range(TURNS)], 1)
    return tf.gather(choices, quarters, batch_dims=1), quarters
