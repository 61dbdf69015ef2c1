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

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_ssl import compiled
from tff_ssl.views import blur, color, geometry, policies, rows, seeds
from tff_ssl.views.draws import Draws, draw_uniforms
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
    xla: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The views numbered `first_view` and `first_view + 1` of each image; see `view`."""
    numbers = (first_view, first_view + 1)
    first, second = _views(
        policy, images, example_ids, seed, round_number, numbers, output_size, xla
    )
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
    xla: bool = False,
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
      xla: Whether XLA compiles everything but the interpolation, so that a GPU starts fewer
        operations. Pixels then differ by rounding.

    Raises:
      ValueError: If the policy is unknown, the seed out of range, or a dtype or shape wrong.
    """
    numbers = (view_number,)
    (only,) = _views(policy, images, example_ids, seed, round_number, numbers, output_size, xla)
    return only


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
    view_numbers: tuple[int, ...],
    output_size: int | None,
    xla: bool,
) -> list[tf.Tensor]:
    """The views of these numbers, float32 [batch, ...] each."""
    policy = policies.resolve(policy)
    images = _checked_images(images, output_size)
    ids = _checked_ids(example_ids, images)
    if not 0 <= seed < 2**31:
        raise ValueError(f"The seed must be in [0, 2**31), found {seed}.")
    shape = tuple(images.shape[1:3])
    out_shape = (output_size, output_size) if output_size else shape
    if policy.crop_area is None:
        shape = out_shape
    steps = _Steps(policy, view_numbers, shape, out_shape)
    round_number = tf.cast(round_number, tf.int64)
    if xla:
        return _compiled_views(steps, images, ids, seeds.current(seed), round_number)
    # Some 200 operations on a few numbers: on a GPU, starting them would take longer than the rest.
    with tf.device("/device:CPU:0"):
        draws, maps = steps.parameters(ids, seeds.current(seed), round_number)
    x = geometry.warp(policy, maps, steps.inputs(images), out_shape)
    return tf.split(steps.adjusted(draws, x, rows.change_parts), len(view_numbers))


class _Steps(NamedTuple):
    """The steps of views before and after the interpolation."""

    policy: ViewPolicy
    view_numbers: tuple[int, ...]
    shape: tuple[int, int]  # Height and width of what is interpolated,
    out_shape: tuple[int, int]  # and of the views.

    def parameters(
        self, ids: tf.Tensor, seed: tf.Tensor, round_number: tf.Tensor
    ) -> tuple[Draws, tf.Tensor | None]:
        """The draws of all rows, and the maps of `geometry.transforms`."""
        ids, numbers = tf.tile(ids, [len(self.view_numbers)]), self._numbers(tf.shape(ids)[0])
        draws = draw_uniforms(seed, round_number, ids, numbers)
        return draws, geometry.transforms(self.policy, draws, self.shape, self.out_shape)

    def inputs(self, images: tf.Tensor) -> tf.Tensor:
        """What is interpolated, ordered by view number: float32 [views * batch, ...] in [0, 1]."""
        x = _to_unit_range(images)
        if tuple(images.shape[1:3]) != self.shape:
            x = tf.image.resize(x, self.shape)
        return tf.tile(x, [len(self.view_numbers), 1, 1, 1])

    def adjusted(self, draws: Draws, x: tf.Tensor, change_rows: rows.ChangeRows) -> tf.Tensor:
        """The views from what was interpolated."""
        policy, odd = self.policy, self._numbers(tf.shape(x)[0] // len(self.view_numbers)) % 2
        x = color.jitter(policy, draws, x, change_rows)
        x = color.to_grayscale(policy, draws, x, change_rows)
        x = blur.gaussian_blur(policy, draws, odd, x, change_rows)
        x = color.solarize(policy, draws, odd, x, change_rows)
        return _normalize(x)

    def _numbers(self, batch: tf.Tensor) -> tf.Tensor:
        """The view number of each row, int64."""
        return tf.repeat(tf.constant(self.view_numbers, tf.int64), batch)


def _compiled_views(
    steps: _Steps, images: tf.Tensor, ids: tf.Tensor, seed: tf.Tensor, round_number: tf.Tensor
) -> list[tf.Tensor]:
    """The views, where XLA compiles all but the interpolation, an operation that it lacks."""
    before, after = _compiled_steps(steps)
    batch = images.shape[0] or tf.shape(images)[0]
    images, ids = compiled.padded(images), compiled.padded(ids)
    draws, maps, x = before(images, ids, seed, round_number)
    x = after(draws, geometry.warp(steps.policy, maps, x, steps.out_shape))
    return [view[:batch] for view in tf.split(x, len(steps.view_numbers))]


@functools.cache
def _compiled_steps(steps: _Steps) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The steps before and after the interpolation."""
    return (
        compiled.compiled(
            lambda images, *of_draws: (*steps.parameters(*of_draws), steps.inputs(images))
        ),
        compiled.compiled(lambda draws, x: steps.adjusted(draws, x, rows.change_all)),
    )


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
