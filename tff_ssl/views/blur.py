"""Gaussian blur of a view.

Deviation: the image is reflected at its border, where BYOL's code pads with zeros (a dark frame).
"""

import numpy as np
import tensorflow as tf

from tff_ssl.views.determinism import optimization_barrier, round_parameter
from tff_ssl.views.draws import Draws, probability_by_view, scale_between
from tff_ssl.views.policies import ViewPolicy
from tff_ssl.views.rows import ChangeRows, change_parts, unchanged


def gaussian_blur(
    policy: ViewPolicy,
    draws: Draws,
    odd: tf.Tensor,
    x: tf.Tensor,
    change_rows: ChangeRows = change_parts,
) -> tf.Tensor:
    """Blurs some of the images, float32 [rows, height, width, channels].

    The kernel is about a tenth of the height, and at most twice the width: 23 pixels at 224, 3 at
    32. `odd` is the view number modulo 2, int64 [rows].
    """
    if policy.blur == (0.0, 0.0):
        return x
    radius = max(1, min(x.shape[1] // 20, x.shape[1], x.shape[2]))
    offsets = np.arange(-radius, radius + 1)
    sigma = scale_between(draws["sigma"], *policy.blur_sigma)
    kernels = tf.exp(-0.5 * tf.square(offsets / sigma[:, None]))
    kernels = round_parameter(kernels / tf.reduce_sum(kernels, axis=1, keepdims=True))
    blurs = draws["blur"] < probability_by_view(policy.blur, odd)

    def blurred(x, of_rows):
        for axis in (1, 2):
            x = _convolve(x, of_rows(kernels), axis)
        return x

    return change_rows(x, blurs, [unchanged, blurred])


def _convolve(x: tf.Tensor, kernels: tf.Tensor, axis: int) -> tf.Tensor:
    """Each image with its own kernel [rows, 2 * radius + 1], as a sum of shifted images."""
    length, radius = x.shape[axis], kernels.shape[1] // 2
    padded = tf.pad(x, [[0, 0], *([radius * (a == axis)] * 2 for a in (1, 2, 3))], "SYMMETRIC")
    total = tf.zeros_like(x)
    for i, weight in enumerate(tf.unstack(kernels[..., None, None, None], axis=1)):
        shifted = padded[:, i : i + length] if axis == 1 else padded[:, :, i : i + length]
        total = optimization_barrier(total + weight * shifted)
    return tf.minimum(total, 1.0)  # The weights add up to 1 up to rounding.
