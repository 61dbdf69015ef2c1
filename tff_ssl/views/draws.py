"""The random numbers behind a view: pure functions of (seed, round, example id, view number)."""

import tensorflow as tf

from tff_ssl.views.threefry import threefry, to_uint64

DRAW_NAMES = (  # One uniform each for every example and view. Append only: the position is the key.
    *("area", "aspect", "left", "top", "flip", "rotation", "shear", "scale", "shift_x", "shift_y"),
    *("jitter", "order", "brightness", "contrast", "saturation", "hue", "grayscale"),
    *("blur", "sigma", "solarize"),
)
Draws = dict[str, tf.Tensor]


def draw_uniforms(
    seed: int | tf.Tensor,
    round_number: int | tf.Tensor,
    example_ids: tf.Tensor,
    view_numbers: tf.Tensor,
) -> Draws:
    """Uniforms in [0, 1) by the names of `DRAW_NAMES`: float64 [rows] each, multiples of 2**-24.

    The seed is in [0, 2**31), and ids and view numbers are int64 [rows]. Key (seed, example id) and
    counter (round, view number and block) are 64-bit words: different arguments never share both.
    `tf.random.stateless_uniform` takes one seed for a whole tensor, and mapping it over the
    examples is several times slower.
    """
    ids, round_number, view_numbers = map(to_uint64, (example_ids, round_number, view_numbers))
    blocks = tf.range(len(DRAW_NAMES) // 4, dtype=tf.int64)  # 128 bits each: four uniforms.
    counter = view_numbers[:, None] * 2**32 + tf.cast(blocks, tf.uint64)
    words = threefry((to_uint64(seed), ids[:, None]), (round_number, counter))
    bits = tf.bitcast(tf.stack(words, axis=-1), tf.uint32)  # [rows, blocks, 2 words, 2 halves]
    bits = tf.reshape(bits, [-1, len(DRAW_NAMES)])
    bits = tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32))
    uniforms = tf.cast(bits, tf.float64) * 2**-24
    return dict(zip(DRAW_NAMES, tf.unstack(uniforms, axis=1), strict=True))


def scale_between(uniform: tf.Tensor, low: float | tf.Tensor, high: float | tf.Tensor) -> tf.Tensor:
    """Maps a uniform in [0, 1) to [low, high)."""
    return low + (high - low) * uniform


def probability_by_view(probabilities: tuple[float, float], odd: tf.Tensor) -> tf.Tensor:
    """The probability for each row's view, float64 [rows], from those of even and odd views."""
    return tf.gather(tf.constant(probabilities, tf.float64), odd)
