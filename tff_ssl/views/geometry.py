"""Geometry of a view: rotation, shear, scale, shift, crop and flip as one affine map.

Choices beyond the papers (see `policies`), or against them:
  - interpolation is bilinear (BYOL: bicubic) and not antialiased, and the edges of boxes lie at
    fractions of pixels;
  - the area of a crop is uniform, as the papers say, and its aspect ratio log-uniform among those
    that fit into the image; the usual rejection sampler makes large areas rarer than uniform. Crops
    of long images for whose area no box fits are smaller.
"""

import math

import tensorflow as tf

from tff_ssl.views.determinism import optimization_barrier, round_parameter
from tff_ssl.views.draws import Draws, scale_between
from tff_ssl.views.policies import ViewPolicy


def transforms(
    policy: ViewPolicy, draws: Draws, shape: tuple[int, int], out_shape: tuple[int, int]
) -> tf.Tensor | None:
    """Moves around the centre (rotation, shear, scale, shift); then crops, resizes and flips.

    Returns:
      The map of each row for `warp`, from images of a height and width to views of another: float32
      [rows, 8]; None if the policy moves nothing.
    """
    crops = policy.crop_area is not None or policy.flip > 0.0
    moves = policy.rotation or policy.shear or policy.shift or policy.scale != (1.0, 1.0)
    if not crops and not moves:
        return None
    # Pixel (i, j) of the view is at (x0 + i * dx, y0 + j * dy) of the moved image.
    x0, y0, dx, dy = _crop_map(policy, draws, shape, out_shape)
    zero = tf.zeros_like(dx)
    coefficients = (dx, zero, x0, zero, dy, y0, zero, zero)
    if moves:
        coefficients = _compose_with_inverse_move(policy, draws, shape, (x0, y0, dx, dy))
    return round_parameter(tf.stack(coefficients, axis=1))


def warp(
    policy: ViewPolicy, maps: tf.Tensor | None, x: tf.Tensor, out_shape: tuple[int, int]
) -> tf.Tensor:
    """Interpolates images, float32 [rows, height, width, channels], once, by their `transforms`."""
    if maps is None:
        return x
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=x, transforms=maps, output_shape=out_shape, fill_value=0.0,
        interpolation="BILINEAR", fill_mode=policy.fill,
    )  # fmt: skip


def _crop_map(
    policy: ViewPolicy, draws: Draws, shape: tuple[int, int], out_shape: tuple[int, int]
) -> tuple[tf.Tensor, ...]:
    """Position of the view's first pixel (x0, y0) and step to the next (dx, dy): [rows] each."""
    left, top, width, height = crop_box(policy, draws, *shape)
    dx, dy = width / out_shape[1], height / out_shape[0]
    flip = draws["flip"] < policy.flip
    left, dx = tf.where(flip, left + width, left), tf.where(flip, -dx, dx)
    return left + 0.5 * dx - 0.5, top + 0.5 * dy - 0.5, dx, dy


def crop_box(
    policy: ViewPolicy, draws: Draws, height: int, width: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Left edge, top edge, width and height of the crop in pixels, float64 [rows] each."""
    if policy.crop_area is None:
        zero = tf.zeros_like(draws["area"])
        return zero, zero, zero + width, zero + height
    area = scale_between(draws["area"], *policy.crop_area)
    # A box of aspect ratio r fits if area * width / height <= r <= width / height / area. If none
    # does (a long image, a large area), the box has the ratio closest to these, and is cut to the
    # image.
    log_area, log_image = tf.math.log(area), math.log(width / height)
    ends = [math.log(ratio) for ratio in policy.crop_aspect]
    low = tf.clip_by_value(log_image + log_area, *ends)
    high = tf.clip_by_value(log_image - log_area, *ends)
    aspect = tf.exp(scale_between(draws["aspect"], low, high))
    pixels = area * float(height * width)
    box_width = tf.minimum(tf.sqrt(pixels * aspect), float(width))
    box_height = tf.minimum(tf.sqrt(pixels / aspect), float(height))
    left, top = draws["left"] * (width - box_width), draws["top"] * (height - box_height)
    return left, top, box_width, box_height


def _compose_with_inverse_move(
    policy: ViewPolicy, draws: Draws, shape: tuple[int, int], crop: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, ...]:
    """The crop's map after the inverse of scale, shear, rotation and shift: 8 coefficients."""
    x0, y0, dx, dy = crop
    max_angle = math.radians(policy.rotation)
    angle = scale_between(draws["rotation"], -max_angle, max_angle)
    cos, sin = tf.cos(angle), tf.sin(angle)
    shear = scale_between(draws["shear"], -policy.shear, policy.shear)
    scale = scale_between(draws["scale"], *policy.scale)
    a, b = (cos - shear * sin) / scale, (sin + shear * cos) / -scale
    c, d = sin / scale, cos / scale
    centre_x, centre_y = (shape[1] - 1) / 2, (shape[0] - 1) / 2
    shift_x = scale_between(draws["shift_x"], -policy.shift, policy.shift) * shape[1]
    shift_y = scale_between(draws["shift_y"], -policy.shift, policy.shift) * shape[0]
    u0 = optimization_barrier(x0 - centre_x - shift_x)
    v0 = optimization_barrier(y0 - centre_y - shift_y)
    zero = tf.zeros_like(dx)
    return (
        *(a * dx, b * dy, a * u0 + b * v0 + centre_x),
        *(c * dx, d * dy, c * u0 + d * v0 + centre_y),
        *(zero, zero),
    )
