"""Random views of images: stateless, seeded, vectorized augmentation in plain TensorFlow.

A view is a pure function of (seed, round, example id, view number): it has the same bits whatever
the batch, its size and its order, in eager mode and in a graph. That makes federated computations
exactly comparable with centralized ones. Between TensorFlow's wheel and TFF's worker process the
parameters agree too; pixels differ by rounding, since the worker interpolates with fused
multiply-add instructions (1e-5 at most where seen).

The steps, in the order of Grill et al.: geometry (crop, flip, rotation, ... as one affine map,
interpolated once), color jitter, grayscale, blur, solarization. Sources:
  - "BYOL": Grill et al. 2020, arXiv:2006.07733, appendix on image augmentations;
  - "SimCLR": Chen et al. 2020, arXiv:2002.05709, appendices A and B.9 (CIFAR-10);
  - "DCCO": Vemulapalli et al. 2022, appendix B: BYOL's without blur, or with rotation.

Choices where the papers are silent, or that differ from them:
  - interpolation is bilinear (BYOL: bicubic), not antialiased, of boxes in fractions of pixels;
  - the area of a crop is uniform, as the papers say, and its aspect ratio log-uniform among those
    that fit into the image; the usual rejection sampler makes large areas rarer than uniform;
  - brightness is added in BYOL, as its code does, and multiplied in SimCLR, as its later code does
    (adding +-0.8 would leave many images all black or white); contrast is taken around the mean of
    each channel, as both do, where torchvision takes the mean of the gray image;
  - blur reflects the image at its border, where BYOL's code pads with zeros (a dark frame).

What could make bits depend on the batch: the order of float sums (so the mean of an image is made
from a sum of integers), and what `_parameter` and `_as_written` are there for. All else is
elementwise arithmetic, rounded as IEEE 754 prescribes.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tff_ssl.views.threefry import threefry

_DRAWS = (  # One uniform each for every example and view. Append only: the position is the key.
    *("area", "aspect", "left", "top", "flip", "rotation", "shear", "scale", "shift_x", "shift_y"),
    *("jitter", "order", "brightness", "contrast", "saturation", "hue", "grayscale"),
    *("blur", "sigma", "solarize"),
)
_Draws = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class ViewPolicy:
    """Probabilities and ranges of the random steps; the defaults change nothing.

    "By view" means: one probability for even and one for odd view numbers.
    """

    crop_area: tuple[float, float] | None = None  # fraction of the image's area; None: no crop
    crop_aspect: tuple[float, float] = (3 / 4, 4 / 3)  # width / height, in pixels
    flip: float = 0.0  # probability of a left-right flip
    rotation: float = 0.0  # degrees: uniform in [-rotation, rotation], around the image's centre
    shear: float = 0.0  # x moves by up to this times y
    scale: tuple[float, float] = (1.0, 1.0)  # magnification
    shift: float = 0.0  # up to this fraction of the width, and of the height
    fill: str = "NEAREST"  # outside of the image: NEAREST, REFLECT, WRAP or CONSTANT (black)
    jitter: float = 0.0  # probability of color jitter: the next four, in random order
    brightness: float = 0.0  # adds up to +- this; pixels are in [0, 1]
    brightness_is_factor: bool = False  # multiplies by [1 - brightness, 1 + brightness] instead
    contrast: float = 0.0  # factor in [1 - contrast, 1 + contrast]; at most 1
    saturation: float = 0.0  # factor in [1 - saturation, 1 + saturation]; at most 1
    hue: float = 0.0  # up to +- this, in turns of the color wheel; at most 0.5
    grayscale: float = 0.0  # probability
    blur: tuple[float, float] = (0.0, 0.0)  # probability, by view
    blur_sigma: tuple[float, float] = (0.1, 2.0)  # pixels
    solarize: tuple[float, float] = (0.0, 0.0)  # probability, by view


_SIMCLR = ViewPolicy(
    crop_area=(0.08, 1.0),
    flip=0.5,
    jitter=0.8,
    brightness=0.8,
    brightness_is_factor=True,
    contrast=0.8,
    saturation=0.8,
    hue=0.2,
    grayscale=0.2,
    blur=(0.5, 0.5),
)
_BYOL = dataclasses.replace(
    _SIMCLR,
    brightness=0.4,
    brightness_is_factor=False,
    contrast=0.4,
    saturation=0.2,
    hue=0.1,
    blur=(1.0, 0.1),
    solarize=(0.0, 0.2),
)

POLICIES: dict[str, ViewPolicy] = {
    "byol": _BYOL,
    "byol_no_blur": dataclasses.replace(_BYOL, blur=(0.0, 0.0)),  # DCCO on CIFAR-100
    "skin": dataclasses.replace(  # DCCO on DERM
        _BYOL, solarize=(0.0, 0.0), rotation=180.0, fill="REFLECT"
    ),
    "simclr": _SIMCLR,  # color strength 1
    "simclr_small": dataclasses.replace(  # CIFAR-10: color strength 0.5, no blur
        _SIMCLR, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, blur=(0.0, 0.0)
    ),
    # Digits: a small crop of a digit, or its mirror image, may be another digit.
    "affine": ViewPolicy(rotation=20.0, shear=0.2, scale=(0.8, 1.2), shift=0.1, fill="CONSTANT"),
    "flip": ViewPolicy(flip=0.5),  # the DCCO paper's supervised training
    "crop_flip": ViewPolicy(crop_area=(0.2, 1.0), flip=0.5),  # "MAE": He et al. 2021, appendix A.1
    "none": ViewPolicy(),
}


TwoViews = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def two_views(
    policy: str | ViewPolicy,
    images: tf.Tensor,
    example_ids: tf.Tensor,
    *,
    seed: int,
    round_number: int | tf.Tensor,
    first_view: int = 0,
    output_size: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The views numbered `first_view` and `first_view + 1` of each image; else as `view`."""
    numbers = (first_view, first_view + 1)
    rows = _views(policy, images, example_ids, seed, round_number, numbers, output_size)
    first, second = tf.split(rows, 2)
    return first, second


def view(
    policy: str | ViewPolicy,
    images: tf.Tensor,
    example_ids: tf.Tensor,
    *,
    seed: int,
    round_number: int | tf.Tensor,
    view_number: int,
    output_size: int | None = None,
) -> tf.Tensor:
    """One random view of each image: a pure function of (seed, round, example id, view number).

    Args:
      policy: A `ViewPolicy`, or the name of one of `POLICIES`.
      images: uint8 [batch, height, width, channels]; only the batch size may be unknown in a graph.
        With other than 3 channels there is no jitter of saturation and hue, and no grayscale.
      example_ids: int64 [batch].
      seed: In [0, 2**31).
      round_number: int, or int64 scalar.
      view_number: Which of the views of the round. Even and odd ones differ where the policy does.
      output_size: Height and width of the views; None: those of the images. Crops have this size;
        a policy that does not crop resizes the images before all else.

    Returns:
      float32 [batch, height, width, channels] in [-1, 1].

    Raises:
      ValueError: For an unknown policy, a seed out of range, a wrong dtype or shape.
    """
    return _views(policy, images, example_ids, seed, round_number, (view_number,), output_size)


def to_float(images: tf.Tensor, *, output_size: int | None = None) -> tf.Tensor:
    """The images without augmentation, scaled as the views are: for evaluation.

    Args:
      images: uint8 [batch, height, width, channels]; only the batch size may be unknown in a graph.
      output_size: Height and width to resize to (bilinear); None: unchanged.

    Returns:
      float32 [batch, height, width, channels]: for every data set, 0 becomes -1 and 255 becomes 1.

    Raises:
      ValueError: For a wrong dtype or shape.
    """
    images = _checked_images(images, output_size)
    return _normalize(_resize(_unit(images), output_size))


def _views(
    policy: str | ViewPolicy,
    images: tf.Tensor,
    example_ids: tf.Tensor,
    seed: int,
    round_number: int | tf.Tensor,
    view_numbers: Sequence[int],
    output_size: int | None,
) -> tf.Tensor:
    """The views in one batch, ordered by view number: float32 [views * batch, ...]."""
    policy = _named_policy(policy)
    images = _checked_images(images, output_size)
    ids = _checked_ids(example_ids, images)
    if not 0 <= seed < 2**31:
        raise ValueError(f"The seed must be in [0, 2**31), found {seed}.")
    views = len(view_numbers)
    numbers = tf.repeat(tf.constant(view_numbers, tf.int64), tf.shape(images)[0])
    draws = _uniforms(seed, round_number, tf.tile(ids, [views]), numbers)
    odd = numbers % 2

    x = _unit(images)
    if policy.crop_area is None:
        x = _resize(x, output_size)
    x = tf.tile(x, [views, 1, 1, 1])
    x = _geometry(policy, draws, x, output_size)
    x = _color_jitter(policy, draws, x)
    x = _grayscale(policy, draws, x)
    x = _blur(policy, draws, odd, x)
    x = _solarize(policy, draws, odd, x)
    return _normalize(x)


def _named_policy(policy: str | ViewPolicy) -> ViewPolicy:
    if isinstance(policy, ViewPolicy):
        return policy
    if policy not in POLICIES:
        raise ValueError(f"Unknown view policy {policy!r}; known: {', '.join(POLICIES)}.")
    return POLICIES[policy]


def _checked_images(images: tf.Tensor, output_size: int | None) -> tf.Tensor:
    images = tf.convert_to_tensor(images)
    if images.dtype != tf.uint8:
        raise ValueError(f"Images must be uint8, found {images.dtype.name}.")
    if images.shape.rank != 4 or None in images.shape.as_list()[1:]:
        raise ValueError(
            f"Images must be [batch, height, width, channels], found {images.shape} "
            "(only the batch size may be unknown)."
        )
    if output_size is not None and output_size < 1:
        raise ValueError(f"output_size must be at least 1, found {output_size}.")
    return images


def _checked_ids(example_ids: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    ids = tf.convert_to_tensor(example_ids)
    if ids.dtype != tf.int64 or not ids.shape.is_compatible_with(images.shape[:1]):
        raise ValueError(
            f"example_ids must be int64 {images.shape[:1]}, one per image, "
            f"found {ids.dtype.name} {ids.shape}."
        )
    return tf.reshape(ids, tf.shape(images)[:1])  # Fails in a graph where the batch sizes differ.


def _unit(images: tf.Tensor) -> tf.Tensor:
    """uint8 to float32 in [0, 1]."""
    return tf.cast(images, tf.float32) * (1 / 255)


def _normalize(x: tf.Tensor) -> tf.Tensor:
    """[0, 1] to [-1, 1]."""
    return x * 2.0 - 1.0


def _resize(x: tf.Tensor, size: int | None) -> tf.Tensor:
    return x if size is None else tf.image.resize(x, [size, size])


# --- Random numbers -------------------------------------------------------------------------------


def _uniforms(
    seed: int, round_number: int | tf.Tensor, example_ids: tf.Tensor, view_numbers: tf.Tensor
) -> _Draws:
    """Uniforms in [0, 1) for all of `_DRAWS`: float64 [rows] each, multiples of 2**-24.

    Key (seed, example id) and counter (round, view number and block) are 64-bit words: different
    arguments never share a key and a counter. `tf.random.stateless_uniform` takes one seed for a
    whole tensor, and mapping it over the examples is several times slower.
    """
    ids, round_number, view_numbers = (
        tf.cast(tf.cast(word, tf.int64), tf.uint64)
        for word in (example_ids, round_number, view_numbers)
    )
    blocks = tf.range(len(_DRAWS) // 4, dtype=tf.int64)  # A block is 128 bits: four uniforms.
    counter = view_numbers[:, None] * 2**32 + tf.cast(blocks, tf.uint64)
    words = threefry((tf.constant(seed, tf.uint64), ids[:, None]), (round_number, counter))
    bits = tf.bitcast(tf.stack(words, axis=-1), tf.uint32)  # [rows, blocks, 2 words, 2 halves]
    bits = tf.reshape(bits, [-1, len(_DRAWS)])
    uniforms = tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.float64) * 2**-24
    return dict(zip(_DRAWS, tf.unstack(uniforms, axis=1), strict=True))


def _between(uniform: tf.Tensor, low: float | tf.Tensor, high: float | tf.Tensor) -> tf.Tensor:
    return low + (high - low) * uniform


def _parameter(x: tf.Tensor) -> tf.Tensor:
    """float64 to the nearest multiple of 2**-20 in float32: hides differences in the last bits.

    These come from exp, log, sin and cos, for which Eigen has one approximation for whole SIMD
    registers and another for the rest of a tensor, so that they depend on the batch size; and from
    TensorFlow's graph optimizer, which moves constants through sums and products.
    """
    return tf.cast(tf.round(x * 2**20) * 2**-20, tf.float32)


def _as_written(x: tf.Tensor) -> tf.Tensor:
    """x itself, but the graph optimizer does not rearrange arithmetic across this operation."""
    return tf.ensure_shape(x, [None] * x.shape.rank)


# --- Geometry -------------------------------------------------------------------------------------


def _geometry(policy: ViewPolicy, draws: _Draws, x: tf.Tensor, size: int | None) -> tf.Tensor:
    """Moves around the centre (rotation, shear, scale, shift); then crops, resizes and flips."""
    crops = policy.crop_area is not None or policy.flip > 0.0
    moves = policy.rotation or policy.shear or policy.shift or policy.scale != (1.0, 1.0)
    if not crops and not moves:
        return x
    height, width = x.shape[1:3]
    out_height, out_width = (size, size) if size else (height, width)
    # Pixel (i, j) of the view is at (x0 + i * dx, y0 + j * dy) of the moved image.
    x0, y0, dx, dy = _crop(policy, draws, (height, width), (out_height, out_width))
    zero = tf.zeros_like(dx)
    rows = (dx, zero, x0, zero, dy, y0, zero, zero)
    if moves:
        rows = _through_inverse_move(policy, draws, (height, width), (x0, y0, dx, dy))
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=x,
        transforms=_parameter(tf.stack(rows, axis=1)),
        output_shape=[out_height, out_width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode=policy.fill,
    )


def _crop(
    policy: ViewPolicy, draws: _Draws, shape: tuple[int, int], out_shape: tuple[int, int]
) -> tuple[tf.Tensor, ...]:
    """Position of the view's first pixel (x0, y0) and step to the next (dx, dy): [rows] each."""
    left, top, width, height = _crop_box(policy, draws, *shape)
    dx, dy = width / out_shape[1], height / out_shape[0]
    flip = draws["flip"] < policy.flip
    left, dx = tf.where(flip, left + width, left), tf.where(flip, -dx, dx)
    return left + 0.5 * dx - 0.5, top + 0.5 * dy - 0.5, dx, dy


def _crop_box(
    policy: ViewPolicy, draws: _Draws, height: int, width: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Left and top edge, width and height in pixels: [rows] each."""
    if policy.crop_area is None:
        zero = tf.zeros_like(draws["area"])
        return zero, zero, zero + width, zero + height
    area = _between(draws["area"], *policy.crop_area)
    # A box of aspect ratio r fits if area * width / height <= r <= width / height / area. If none
    # does (a long image, a large area), the box is cut to the image.
    log_area, log_image = tf.math.log(area), math.log(width / height)
    low, high = (math.log(ratio) for ratio in policy.crop_aspect)
    high = tf.minimum(log_image - log_area, high)
    low = tf.minimum(tf.maximum(log_image + log_area, low), high)
    aspect = tf.exp(_between(draws["aspect"], low, high))
    pixels = area * float(height * width)
    box_width = tf.minimum(tf.sqrt(pixels * aspect), float(width))
    box_height = tf.minimum(tf.sqrt(pixels / aspect), float(height))
    left, top = draws["left"] * (width - box_width), draws["top"] * (height - box_height)
    return left, top, box_width, box_height


def _through_inverse_move(
    policy: ViewPolicy, draws: _Draws, shape: tuple[int, int], crop: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, ...]:
    """The crop's map, then the inverse of scale, shear, rotation (counter-clockwise) and shift."""
    x0, y0, dx, dy = crop
    turn = math.radians(policy.rotation)
    angle = _between(draws["rotation"], -turn, turn)
    cos, sin = tf.cos(angle), tf.sin(angle)
    shear = _between(draws["shear"], -policy.shear, policy.shear)
    scale = _between(draws["scale"], *policy.scale)
    a, b = (cos - shear * sin) / scale, (sin + shear * cos) / -scale
    c, d = sin / scale, cos / scale
    centre_x, centre_y = (shape[1] - 1) / 2, (shape[0] - 1) / 2
    shift_x = _between(draws["shift_x"], -policy.shift, policy.shift) * shape[1]
    shift_y = _between(draws["shift_y"], -policy.shift, policy.shift) * shape[0]
    u0, v0 = _as_written(x0 - centre_x - shift_x), _as_written(y0 - centre_y - shift_y)
    zero = tf.zeros_like(dx)
    return (
        *(a * dx, b * dy, a * u0 + b * v0 + centre_x),
        *(c * dx, d * dy, c * u0 + d * v0 + centre_y),
        *(zero, zero),
    )


# --- Color ----------------------------------------------------------------------------------------


def _color_jitter(policy: ViewPolicy, draws: _Draws, x: tf.Tensor) -> tf.Tensor:
    """In each of four steps, an image goes through one of the four adjustments, or through none."""
    if policy.jitter == 0.0:
        return x
    middle = 1 if policy.brightness_is_factor else 0
    amounts = [
        _between(draws["brightness"], middle - policy.brightness, middle + policy.brightness),
        _between(draws["contrast"], 1 - policy.contrast, 1 + policy.contrast),
        _between(draws["saturation"], 1 - policy.saturation, 1 + policy.saturation),
        _between(draws["hue"], -policy.hue, policy.hue),
    ]
    brightness = tf.multiply if policy.brightness_is_factor else tf.add
    adjustments = [brightness, _contrast, _saturation, _hue][: 4 if x.shape[-1] == 3 else 2]
    none = len(adjustments)
    orders = tf.constant(list(itertools.permutations(range(4))))
    order = tf.minimum(tf.gather(orders, tf.cast(draws["order"] * 24.0, tf.int32)), none)
    order = tf.where((draws["jitter"] < policy.jitter)[:, None], order, none)
    for which in tf.unstack(order, axis=1):
        places, parts = _partition(x, which, none + 1)
        for i, adjust in enumerate(adjustments):
            amount = tf.gather(_parameter(amounts[i]), places[i])[:, None, None, None]
            parts[i] = tf.clip_by_value(adjust(parts[i], amount), 0.0, 1.0)
        x = _join(places, parts, x)
    return x


def _contrast(x: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Scales the distance from the mean of each channel."""
    # A sum of integers below 2**24 is exact in float64: its order does not matter.
    total = tf.reduce_sum(tf.cast(tf.round(x * 2**24), tf.float64), [1, 2], keepdims=True)
    mean = _parameter(total / (2**24 * x.shape[1] * x.shape[2]))
    return (x - mean) * amount + mean


def _saturation(x: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Scales the saturation of the HSV model, up to 1: distances from the largest channel."""
    value, chroma = _value_and_chroma(x)
    return value - (value - x) * tf.minimum(amount, tf.math.divide_no_nan(value, chroma))


def _hue(x: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Adds to the hue of the HSV model, in turns."""
    value, chroma = _value_and_chroma(x)
    red, green, blue = tf.split(x, 3, axis=-1)
    # Not `==`: in the graphs of TFF, that compares the Python objects.
    sixths = tf.where(  # chroma times the hue, in sixths of a turn from red
        tf.equal(value, red),
        green - blue,
        tf.where(tf.equal(value, green), blue - red + 2.0 * chroma, red - green + 4.0 * chroma),
    )
    hue = _as_written(tf.math.divide_no_nan(sixths, chroma))
    # A channel has the largest value up to 1 sixth from its own hue, the smallest from 2 sixths on.
    channel_hue = _as_written(tf.constant([0.0, 2.0, 4.0]) - 6.0 * amount)
    distance = _as_written(hue - channel_hue)
    distance = tf.abs(distance - 6.0 * tf.round(distance * (1 / 6)))
    return value - chroma * tf.clip_by_value(distance - 1.0, 0.0, 1.0)


def _value_and_chroma(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Largest channel, and largest minus smallest: [rows, height, width, 1] each."""
    red, green, blue = tf.split(x, 3, axis=-1)
    value = tf.maximum(tf.maximum(red, green), blue)
    return value, value - tf.minimum(tf.minimum(red, green), blue)


def _grayscale(policy: ViewPolicy, draws: _Draws, x: tf.Tensor) -> tf.Tensor:
    """The luma of ITU-R BT.601 in all channels."""
    if policy.grayscale == 0.0 or x.shape[-1] != 3:
        return x
    places, (color, gray) = _partition(x, draws["grayscale"] < policy.grayscale)
    red, green, blue = tf.split(gray, 3, axis=-1)
    luma = _as_written(0.299 * red + 0.587 * green) + 0.114 * blue
    return _join(places, [color, tf.repeat(luma, 3, axis=-1)], x)


# --- Blur and solarization ------------------------------------------------------------------------


def _blur(policy: ViewPolicy, draws: _Draws, odd: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Gaussian blur with a kernel of about a tenth of the height: 23 pixels at 224, 3 at 32."""
    if policy.blur == (0.0, 0.0):
        return x
    radius = max(1, x.shape[1] // 20)
    offsets = np.arange(-radius, radius + 1)
    sigma = _between(draws["sigma"], *policy.blur_sigma)
    kernels = tf.exp(-0.5 * tf.square(offsets / sigma[:, None]))
    kernels = _parameter(kernels / tf.reduce_sum(kernels, axis=1, keepdims=True))
    places, (sharp, blurred) = _partition(x, draws["blur"] < _by_view(policy.blur, odd))
    for axis in (1, 2):
        blurred = _convolve(blurred, tf.gather(kernels, places[1]), axis)
    return _join(places, [sharp, blurred], x)


def _convolve(x: tf.Tensor, kernels: tf.Tensor, axis: int) -> tf.Tensor:
    """Each image with its own kernel [rows, 2 * radius + 1], as a sum of shifted images."""
    length, radius = x.shape[axis], kernels.shape[1] // 2
    padded = tf.pad(x, [[0, 0], *([radius * (a == axis)] * 2 for a in (1, 2, 3))], "SYMMETRIC")
    total = tf.zeros_like(x)
    for i, weight in enumerate(tf.unstack(kernels[..., None, None, None], axis=1)):
        shifted = padded[:, i : i + length] if axis == 1 else padded[:, :, i : i + length]
        total = _as_written(total + weight * shifted)
    return tf.minimum(total, 1.0)  # The weights add up to 1 up to rounding.


def _solarize(policy: ViewPolicy, draws: _Draws, odd: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Inverts the pixels from 0.5 on."""
    if policy.solarize == (0.0, 0.0):
        return x
    places, (as_is, part) = _partition(x, draws["solarize"] < _by_view(policy.solarize, odd))
    return _join(places, [as_is, tf.where(part >= 0.5, 1.0 - part, part)], x)


# --- Rows of a batch ------------------------------------------------------------------------------


def _by_view(probabilities: tuple[float, float], odd: tf.Tensor) -> tf.Tensor:
    return tf.gather(tf.constant(probabilities, tf.float64), odd)


def _partition(
    x: tf.Tensor, which: tf.Tensor, count: int = 2
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Row numbers, and rows of x, for each value of `which` (0, 1, ... count - 1; or bool)."""
    which = tf.cast(which, tf.int32)
    rows = tf.range(tf.shape(x)[0])
    return tf.dynamic_partition(rows, which, count), tf.dynamic_partition(x, which, count)


def _join(places: list[tf.Tensor], parts: list[tf.Tensor], like: tf.Tensor) -> tf.Tensor:
    """The inverse of `_partition`."""
    return tf.ensure_shape(tf.dynamic_stitch(places, parts), like.shape)
