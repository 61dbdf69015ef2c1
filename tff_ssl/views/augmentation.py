"""Random views of images: stateless, seeded, vectorized augmentation in plain TensorFlow.

A view is a pure function of (seed, round, example id, view number): it has the same bits whatever
the batch, its size and its order, in eager mode and in a graph (see `determinism`). Federated
computations can thus be compared exactly with centralized ones. Between TensorFlow's wheel and
TFF's worker process, pixels differ by rounding (by at most 1e-5 in measurements), since the worker
interpolates with fused multiply-add instructions; the parameters agree.

The steps, in the order of Grill et al. (arXiv:2006.07733): geometry (crop, flip, rotation, ... as
one affine map, interpolated once), color jitter, grayscale, blur, solarization. The papers are in
`policies`; choices beyond or against them are in `geometry`, `color` and `blur`.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tff_ssl.views import blur, color, geometry, policies
from tff_ssl.views.draws import draw_uniforms
from tff_ssl.views.policies import ViewPolicy

# (images, example ids, round number) -> the two views of each image, as `two_views` gives them.
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
    """The views numbered `first_view` and `first_view + 1` of each image; see `view`."""
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
    """One random view of each image, float32 [batch, height, width, channels] in [-1, 1].

    Args:
      policy: A `ViewPolicy`, or the name of one of `policies.POLICIES`.
      images: uint8 [batch, height, width, channels]; only the batch size may be unknown in a graph.
        Without 3 channels there is no jitter of saturation and hue, and no grayscale.
      example_ids: Ids of the examples, int64 [batch].
      seed: Seed in [0, 2**31).
      round_number: Round, int or int64 scalar.
      view_number: Number of the view within the round; policies may treat even and odd differently.
      output_size: Height and width of the views; None for those of the images. A policy that does
        not crop resizes the images first.

    Raises:
      ValueError: If the policy is unknown, the seed out of range, or a dtype or shape wrong.
    """
    return _views(policy, images, example_ids, seed, round_number, (view_number,), output_size)


def to_float(images: tf.Tensor, *, output_size: int | None = None) -> tf.Tensor:
    """The images without augmentation, scaled as the views are: for evaluation.

    Images are uint8 [batch, height, width, channels], resized (bilinear) to the output size if
    there is one. For every data set, 0 becomes -1 and 255 becomes 1.

    Raises:
      ValueError: If the dtype or the shape is wrong.
    """
    images = _checked_images(images, output_size)
    return _normalize(_resize(_to_unit_range(images), output_size))


def to_float_of_shape(images: tf.Tensor, shape: Sequence[int | None]) -> tf.Tensor:
    """`to_float` for a network of this input shape: images that fit it are not resized.

    Other images become squares of its height.
    """
    fits = tuple(images.shape[1:3]) == tuple(shape[:2])
    return to_float(images, output_size=None if fits else shape[0])


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
    policy = policies.resolve(policy)
    images = _checked_images(images, output_size)
    ids = _checked_ids(example_ids, images)
    if not 0 <= seed < 2**31:
        raise ValueError(f"The seed must be in [0, 2**31), found {seed}.")
    views = len(view_numbers)
    numbers = tf.repeat(tf.constant(view_numbers, tf.int64), tf.shape(images)[0])
    draws = draw_uniforms(seed, round_number, tf.tile(ids, [views]), numbers)
    odd = numbers % 2

    x = _to_unit_range(images)
    if policy.crop_area is None:
        x = _resize(x, output_size)
    x = tf.tile(x, [views, 1, 1, 1])
    x = geometry.transform(policy, draws, x, output_size)
    x = color.jitter(policy, draws, x)
    x = color.to_grayscale(policy, draws, x)
    x = blur.gaussian_blur(policy, draws, odd, x)
    x = color.solarize(policy, draws, odd, x)
    return _normalize(x)


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


def _to_unit_range(images: tf.Tensor) -> tf.Tensor:
    """uint8 to float32 in [0, 1]."""
    return tf.cast(images, tf.float32) * (1 / 255)


def _normalize(x: tf.Tensor) -> tf.Tensor:
    """[0, 1] to [-1, 1]."""
    return x * 2.0 - 1.0


def _resize(x: tf.Tensor, size: int | None) -> tf.Tensor:
    return x if size is None else tf.image.resize(x, [size, size])
