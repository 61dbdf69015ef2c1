"""Colors of a view: jitter, grayscale and solarization of pixels in [0, 1].

Choices beyond the papers (see `policies`), or against them: brightness is added in BYOL, as in its
code, and multiplied in SimCLR, as in its later code (adding +-0.8 would leave many images all black
or white); contrast is taken around the mean of each channel, as in both codes, where torchvision
takes the mean of the gray image.
"""

import functools
import itertools
from collections.abc import Callable

import tensorflow as tf

from tff_ssl.views.determinism import optimization_barrier, round_parameter
from tff_ssl.views.draws import Draws, probability_by_view, scale_between
from tff_ssl.views.policies import ViewPolicy
from tff_ssl.views.rows import ChangeRows, change_parts, unchanged


def jitter(
    policy: ViewPolicy, draws: Draws, x: tf.Tensor, change_rows: ChangeRows = change_parts
) -> tf.Tensor:
    """Changes brightness, contrast, saturation and hue of images, in a random order.

    In each of four steps, an image goes through one of the adjustments or none. Images without 3
    channels have no saturation and hue.
    """
    if policy.jitter == 0.0:
        return x
    neutral = 1 if policy.brightness_is_factor else 0
    amounts = [
        scale_between(
            draws["brightness"], neutral - policy.brightness, neutral + policy.brightness
        ),
        scale_between(draws["contrast"], 1 - policy.contrast, 1 + policy.contrast),
        scale_between(draws["saturation"], 1 - policy.saturation, 1 + policy.saturation),
        scale_between(draws["hue"], -policy.hue, policy.hue),
    ]
    adjust_brightness = tf.multiply if policy.brightness_is_factor else tf.add
    adjustments = [adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue]
    none = 4 if x.shape[-1] == 3 else 2
    changes = [
        functools.partial(_adjusted, adjust, round_parameter(amount))
        for adjust, amount in zip(adjustments[:none], amounts[:none], strict=True)
    ]
    orders = tf.constant(list(itertools.permutations(range(4))))
    order = tf.minimum(tf.gather(orders, tf.cast(draws["order"] * 24.0, tf.int32)), none)
    order = tf.where((draws["jitter"] < policy.jitter)[:, None], order, none)
    for adjustment in tf.unstack(order, axis=1):
        x = change_rows(x, adjustment, [*changes, unchanged])
    return x


def _adjusted(
    adjust: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], amounts: tf.Tensor,
    x: tf.Tensor, of_rows: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:  # fmt: skip
    amount = of_rows(amounts)[:, None, None, None]
    return tf.clip_by_value(adjust(x, amount), 0.0, 1.0)


def adjust_contrast(x: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Scales the distance from the mean of each channel by a factor, float32 [rows, 1, 1, 1]."""
    # A sum of integers below 2**24 is exact in float64: its order does not matter.
    total = tf.reduce_sum(tf.cast(tf.round(x * 2**24), tf.float64), [1, 2], keepdims=True)
    mean = round_parameter(total / (2**24 * x.shape[1] * x.shape[2]))
    return (x - mean) * amount + mean


def adjust_saturation(x: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Scales the saturation of the HSV model, up to 1: distances from the largest of 3 channels."""
    value, chroma = _value_and_chroma(x)
    return value - (value - x) * tf.minimum(amount, tf.math.divide_no_nan(value, chroma))


def adjust_hue(x: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Adds turns of the color wheel, float32 [rows, 1, 1, 1], to the hue of the HSV model."""
    value, chroma = _value_and_chroma(x)
    red, green, blue = tf.split(x, 3, axis=-1)
    # Not `==`: in the graphs of TFF, that compares the Python objects.
    sixths = tf.where(  # chroma times the hue, in sixths of a turn from red
        tf.equal(value, red),
        green - blue,
        tf.where(tf.equal(value, green), blue - red + 2.0 * chroma, red - green + 4.0 * chroma),
    )
    hue = optimization_barrier(tf.math.divide_no_nan(sixths, chroma))
    # A channel has the largest value up to 1 sixth from its own hue, the smallest from 2 sixths on.
    channel_hue = optimization_barrier(tf.constant([0.0, 2.0, 4.0]) - 6.0 * amount)
    distance = optimization_barrier(hue - channel_hue)
    distance = tf.abs(distance - 6.0 * tf.round(distance * (1 / 6)))
    return value - chroma * tf.clip_by_value(distance - 1.0, 0.0, 1.0)


def _value_and_chroma(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Largest channel, and largest minus smallest: [rows, height, width, 1] each."""
    red, green, blue = tf.split(x, 3, axis=-1)
    value = tf.maximum(tf.maximum(red, green), blue)
    return value, value - tf.minimum(tf.minimum(red, green), blue)


def to_grayscale(
    policy: ViewPolicy, draws: Draws, x: tf.Tensor, change_rows: ChangeRows = change_parts
) -> tf.Tensor:
    """Gives some of the images the luma of ITU-R BT.601 in all channels, if they have 3."""
    if policy.grayscale == 0.0 or x.shape[-1] != 3:
        return x
    return change_rows(x, draws["grayscale"] < policy.grayscale, [unchanged, _gray])


def _gray(x: tf.Tensor, _: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    red, green, blue = tf.split(x, 3, axis=-1)
    luma = optimization_barrier(0.299 * red + 0.587 * green) + 0.114 * blue
    return tf.tile(luma, [1, 1, 1, 3])


def solarize(
    policy: ViewPolicy,
    draws: Draws,
    odd: tf.Tensor,
    x: tf.Tensor,
    change_rows: ChangeRows = change_parts,
) -> tf.Tensor:
    """Inverts the pixels from 0.5 on in some images; `odd` is the view number modulo 2, [rows]."""
    if policy.solarize == (0.0, 0.0):
        return x
    probability = probability_by_view(policy.solarize, odd)
    return change_rows(x, draws["solarize"] < probability, [unchanged, _solarized])


def _solarized(x: tf.Tensor, _: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    return tf.where(x >= 0.5, 1.0 - x, x)
