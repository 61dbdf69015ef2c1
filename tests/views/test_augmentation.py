"""Tests of tff_ssl.views: purity to the bit, distributions, each step against NumPy or SciPy."""

import colorsys
import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import tensorflow as tf

from tff_ssl.views import augmentation as views
from tff_ssl.views.threefry import threefry

_PHOTOS = ("byol", "byol_no_blur", "skin", "simclr", "simclr_small")


def _images(batch: int, size: int = 20, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (batch, size, size, channels), np.uint8)


def _pair(policy, images, ids, round_number=7, **kwargs) -> np.ndarray:
    both = views.two_views(
        policy, images, np.asarray(ids, np.int64), seed=3, round_number=round_number, **kwargs
    )
    return np.stack([v.numpy() for v in both])


def _draws(**fixed: float | list[float]) -> dict[str, tf.Tensor]:
    """Uniforms of 0.5 (the middle of all ranges) but for those given."""
    rows = max([1, *(len(v) for v in fixed.values() if isinstance(v, list))])
    return {
        name: tf.constant(np.broadcast_to(fixed.get(name, 0.5), [rows]), tf.float64)
        for name in views._DRAWS
    }


def _many_draws(rows: int = 20_000) -> dict[str, tf.Tensor]:
    ids = tf.range(rows, dtype=tf.int64)
    return views._uniforms(11, 5, ids, tf.zeros_like(ids))


# --- Purity ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", views.POLICIES)
def test_view_has_the_same_bits_alone_and_in_permuted_batches(policy):
    images, ids = _images(37), np.arange(37, dtype=np.int64) * 1001
    whole = _pair(policy, images, ids)
    order = np.random.default_rng(1).permutation(37)
    np.testing.assert_array_equal(_pair(policy, images[order], ids[order]), whole[:, order])
    np.testing.assert_array_equal(_pair(policy, images[:16], ids[:16]), whole[:, :16])
    for i in range(6):
        alone = _pair(policy, images[i : i + 1], ids[i : i + 1])
        np.testing.assert_array_equal(alone, whole[:, i : i + 1])


_ODD_POLICIES = {  # Ranges of zero are constants, which the graph optimizer folds.
    f"rotation={r} shear={h} scale={c} shift={t} crop={a}": views.ViewPolicy(
        rotation=r, shear=h, scale=(c, 1.0), shift=t, crop_area=a
    )
    for r, h, c, t, a in itertools.product(
        (0.0, 30.0), (0.0, 0.2), (0.8, 1.0), (0.0, 0.1), (None, (0.2, 0.9))
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*views.POLICIES, *_ODD_POLICIES])
def test_view_has_the_same_bits_in_graphs(name, capfd):
    policy = views.POLICIES.get(name) or _ODD_POLICIES[name]
    images, ids = _images(9), np.arange(9, dtype=np.int64)
    eager = _pair(policy, images, ids)

    def both(images, ids, round_number):
        return views.two_views(policy, images, ids, seed=3, round_number=round_number)

    for batch in (9, None):
        specs = [tf.TensorSpec([batch, 20, 20, 3], tf.uint8), tf.TensorSpec([batch], tf.int64)]
        graph = tf.function(both, input_signature=[*specs, tf.TensorSpec([], tf.int64)])
        concrete = graph.get_concrete_function()
        assert [v.shape.as_list() for v in concrete.structured_outputs] == [[batch, 20, 20, 3]] * 2
        np.testing.assert_array_equal(np.stack(graph(images, ids, np.int64(7))), eager)
        last = graph(images[8:], ids[8:], np.int64(7)) if batch is None else ()
        for view, whole in zip(last, eager, strict=False):
            np.testing.assert_array_equal(view, whole[8:])
    assert "optimizer" not in capfd.readouterr().err  # It gives up on some graphs, with a message.


@pytest.mark.parametrize("policy", views.POLICIES)
def test_view_has_the_same_bits_in_the_graphs_of_tff(policy):
    # They are made outside of tf.function, where `==` between tensors compares Python objects.
    images, ids = _images(9), np.arange(9, dtype=np.int64)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.uint8, [None, 20, 20, 3])
        both = views.two_views(policy, fed, tf.constant(ids), seed=3, round_number=7)
        ours = np.stack(session.run(both, {fed: images}))
    np.testing.assert_array_equal(ours, _pair(policy, images, ids))


def test_two_views_are_the_single_views():
    images, ids = _images(5), np.arange(5, dtype=np.int64)
    first, second = _pair("byol", images, ids, first_view=4)
    for number, expected in ((4, first), (5, second)):
        single = views.view("byol", images, ids, seed=3, round_number=7, view_number=number)
        np.testing.assert_array_equal(single, expected)


@pytest.mark.parametrize(
    "policy", [name for name in views.POLICIES if name not in ("none", "flip")]
)
def test_seed_round_example_and_view_change_the_view(policy):
    images, ids = np.repeat(_images(1), 4, axis=0), np.array([0, 1, 2**32, 2**62], np.int64)
    seen = [_pair(policy, images, ids, round_number=r) for r in (0, 1, 2**32)]
    seen.append(np.stack(views.two_views(policy, images, ids, seed=4, round_number=0)))
    seen.append(_pair(policy, images, ids, round_number=0, first_view=2))
    assert len({v.tobytes() for v in np.concatenate(seen).reshape(-1, 20, 20, 3)}) == 5 * 2 * 4


def test_uniforms_do_not_collide_across_keys():
    keys = list(itertools.product((0, 1, 2**31 - 1), (0, 1, 2**32), (0, 1, 2**40), (0, 1, 2**16)))
    rows = [
        tf.stack([*views._uniforms(s, r, tf.constant([e], tf.int64), tf.constant([v])).values()])
        for s, r, e, v in ((s, r, e, np.int64(v)) for s, r, e, v in keys)
    ]
    values = np.concatenate([row.numpy().ravel() for row in rows])
    assert len(values) == len(keys) * len(views._DRAWS)
    assert len(np.unique(values)) > len(values) - 5  # 1620 of 2**24 values: 0.08 pairs expected


def test_empty_batch():
    assert _pair("byol", _images(0), []).shape == (2, 0, 20, 20, 3)


# --- Random numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # Random123 1.14, tests/kat_vectors, "threefry2x64 20"
        ((0, 0), (0, 0), (0xC2B6E3A8C2C69865, 0x6F81ED42F350084D)),
        ((2**64 - 1,) * 2, (2**64 - 1,) * 2, (0xE02CB7C4D95D277A, 0xD06633D0893B8B68)),
        (
            (0x243F6A8885A308D3, 0x13198A2E03707344),
            (0xA4093822299F31D0, 0x082EFA98EC4E6C89),
            (0x263C7D30BB0F0AF1, 0x56BE8361D3311526),
        ),
    ],
)
def test_threefry_known_answers(counter, key, expected):
    pairs = [tuple(tf.constant(word, tf.uint64) for word in pair) for pair in (key, counter)]
    assert tuple(int(word) for word in threefry(*pairs)) == expected


def test_uniforms_are_uniform_and_independent():
    draws = np.stack([u.numpy() for u in _many_draws().values()])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert min(scipy.stats.kstest(u, "uniform").pvalue for u in draws) > 1e-3
    correlation = np.corrcoef(draws)[np.triu_indices(len(draws), 1)]
    assert np.abs(correlation).max() < 5 / math.sqrt(draws.shape[1])


def test_crop_boxes_have_the_distribution_of_the_papers():
    draws, policy = _many_draws(), views.POLICIES["byol"]
    left, top, width, height = (v.numpy() for v in views._crop_box(policy, draws, 32, 32))
    area = width * height / 32**2
    assert scipy.stats.kstest(area, scipy.stats.uniform(0.08, 0.92).cdf).pvalue > 1e-3
    small = area < 0.75  # There, every ratio between 3/4 and 4/3 fits.
    ratio = np.log(width / height)[small] / math.log(4 / 3)
    assert scipy.stats.kstest(ratio, scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert np.abs(np.log(width / height)).max() <= math.log(4 / 3) + 1e-9
    assert scipy.stats.kstest(left / (32 - width), "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(top / (32 - height), "uniform").pvalue > 1e-3
    for start, size in ((left, width), (top, height)):
        assert start.min() >= 0
        assert (start + size).max() <= 32 + 1e-9


def test_crop_boxes_of_long_images_stay_inside():
    left, top, width, height = views._crop_box(views.POLICIES["byol"], _many_draws(500), 10, 30)
    assert np.all(left + width <= 30 + 1e-9)
    assert np.all(top + height <= 10 + 1e-9)
    assert np.allclose((width / height)[width * height < 60].numpy().max(), 4 / 3, rtol=0.05)


@pytest.mark.parametrize(
    ("fields", "probability"),
    [
        ({"flip": 0.5}, (0.5, 0.5)),
        ({"grayscale": 0.2}, (0.2, 0.2)),
        ({"jitter": 0.8, "brightness": 0.4}, (0.8, 0.8)),
        ({"blur": (1.0, 0.1), "blur_sigma": (0.5, 2.0)}, (1.0, 0.1)),
        ({"solarize": (0.0, 0.2)}, (0.0, 0.2)),
    ],
)
def test_steps_are_applied_as_often_as_they_should(fields, probability):
    count = 4000
    images, ids = np.repeat(_images(1, 4), count, axis=0), np.arange(count)
    pair = _pair(views.ViewPolicy(**fields), images, ids, round_number=8)
    same = pair == views.to_float(images).numpy()
    changed = ~same.all(axis=(2, 3, 4))
    for p, rate in zip(probability, changed.mean(axis=1), strict=True):
        assert abs(rate - p) <= 4 * math.sqrt(p * (1 - p) / count)


def test_policies_have_the_published_parameters():
    byol, simclr = views.POLICIES["byol"], views.POLICIES["simclr"]
    assert (byol.crop_area, byol.crop_aspect, byol.flip) == ((0.08, 1.0), (3 / 4, 4 / 3), 0.5)
    jitter = (byol.jitter, byol.brightness, byol.contrast, byol.saturation, byol.hue)
    assert jitter == (0.8, 0.4, 0.4, 0.2, 0.1)
    assert (byol.grayscale, byol.blur, byol.solarize) == (0.2, (1.0, 0.1), (0.0, 0.2))
    assert dataclasses.replace(views.POLICIES["byol_no_blur"], blur=byol.blur) == byol
    assert (simclr.brightness, simclr.contrast, simclr.saturation, simclr.hue) == (
        0.8,
        0.8,
        0.8,
        0.2,
    )
    assert views.POLICIES["simclr_small"].hue == 0.1
    assert views.POLICIES["skin"].solarize == (0.0, 0.0)
    assert views.POLICIES["skin"].blur == byol.blur


# --- Geometry -------------------------------------------------------------------------------------


def _geometry(policy: views.ViewPolicy, x: np.ndarray, size: int | None = None, **fixed: float):
    return views._geometry(policy, _draws(**fixed), tf.constant(x, tf.float32), size).numpy()


def _unit_images(batch: int = 1, size: int = 12, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(2).random((batch, size, size, channels), np.float32)


@pytest.mark.parametrize("quarter_turns", [0, 1, 2, -1])
def test_rotation_is_counter_clockwise_around_the_centre(quarter_turns):
    x = _unit_images()
    policy = views.ViewPolicy(rotation=180.0, fill="CONSTANT")
    rotated = _geometry(policy, x, rotation=0.5 + quarter_turns / 4)
    expected = np.rot90(x, quarter_turns, axes=(1, 2))
    np.testing.assert_allclose(rotated[:, 1:-1, 1:-1], expected[:, 1:-1, 1:-1], atol=1e-4)


def test_shift_moves_right_and_down():
    x = _unit_images()
    moved = _geometry(views.ViewPolicy(shift=0.25, fill="CONSTANT"), x, shift_x=1.0, shift_y=1.0)
    expected = np.pad(x, [(0, 0), (3, 0), (3, 0), (0, 0)])[:, :12, :12]
    np.testing.assert_allclose(moved, expected, atol=1e-5)


def test_affine_equals_scipy():
    x = _unit_images(size=14, channels=1)
    policy = views.ViewPolicy(
        rotation=40.0, shear=0.4, scale=(0.5, 2.0), shift=0.2, fill="CONSTANT"
    )
    ours = _geometry(policy, x, rotation=0.8, shear=0.9, scale=0.6, shift_x=0.3, shift_y=0.7)
    angle, shear, scale = math.radians(24.0), 0.32, 1.4
    shift = np.array([0.4 * 0.2 * 14, -0.4 * 0.2 * 14])  # rows, columns
    # Forward, on (column, row) with rows downwards: scale, then shear, then rotation, then shift.
    rotation = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    forward = rotation @ np.array([[1, shear], [0, 1]]) * scale
    inverse = np.linalg.inv(forward)[::-1, ::-1]  # on (row, column)
    centre = np.array([6.5, 6.5])
    offset = centre - inverse @ (centre + shift)
    expected = scipy.ndimage.affine_transform(
        x[0, ..., 0], inverse, offset, order=1, mode="grid-constant", cval=0.0
    )
    np.testing.assert_allclose(ours[0, ..., 0], expected, atol=1e-4)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("size", [None, 7, 25])
def test_crop_equals_bilinear_interpolation(flip, size):
    x = _unit_images()
    policy = views.ViewPolicy(crop_area=(0.08, 1.0), flip=0.5)
    uniforms = {"area": 0.4, "aspect": 0.8, "left": 0.9, "top": 0.2, "flip": 0.75 - 0.5 * flip}
    ours = _geometry(policy, x, size, **uniforms)
    area, ratio = (0.08 + 0.92 * 0.4) * 12**2, (4 / 3) ** 0.6
    width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
    out = np.arange(size or 12) + 0.5
    columns = 0.9 * (12 - width) + out * width / len(out) - 0.5
    rows = 0.2 * (12 - height) + out * height / len(out) - 0.5
    grid = np.meshgrid(rows, columns[::-1] if flip else columns, indexing="ij")
    for channel in range(3):
        expected = scipy.ndimage.map_coordinates(x[0, ..., channel], grid, order=1, mode="nearest")
        np.testing.assert_allclose(ours[0, ..., channel], expected, atol=1e-4)


def test_whole_crop_is_the_identity_and_its_flip_exact():
    x = _unit_images()
    policy = views.ViewPolicy(crop_area=(1.0, 1.0), flip=0.5)
    np.testing.assert_array_equal(_geometry(policy, x, flip=0.7), x)
    np.testing.assert_array_equal(_geometry(policy, x, flip=0.2), x[:, :, ::-1])


def test_reflect_fill_leaves_no_black_corners():
    x = np.full((1, 12, 12, 3), 0.5, np.float32)
    np.testing.assert_allclose(_geometry(views.POLICIES["skin"], x, rotation=0.6), x, atol=1e-6)
    black = dataclasses.replace(views.POLICIES["skin"], fill="CONSTANT", crop_area=None)
    assert _geometry(black, x, rotation=0.625).min() == 0.0


# --- Color, blur, solarization --------------------------------------------------------------------


def _per_pixel(function, x: np.ndarray) -> np.ndarray:
    return np.array([function(*pixel) for pixel in x.reshape(-1, 3)]).reshape(x.shape)


def _amount(value: float) -> tf.Tensor:
    return tf.constant(value, tf.float32, [1, 1, 1, 1])


@pytest.mark.parametrize("amount", [-0.5, -0.13, 0.0, 0.1, 0.4])
def test_hue_equals_colorsys(amount):
    x = _unit_images()
    x[0, 0] = np.round(x[0, 0])  # pure colors, black and white
    x[0, 1] = x[0, 1, :, :1]  # grays

    def turn(r, g, b):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return colorsys.hsv_to_rgb((h + amount) % 1.0, s, v)

    ours = views._hue(tf.constant(x), _amount(amount))
    np.testing.assert_allclose(ours, _per_pixel(turn, x), atol=2e-6)


@pytest.mark.parametrize("amount", [0.0, 0.6, 1.0, 1.8])
def test_saturation_equals_colorsys(amount):
    x = _unit_images()
    x[0, 0] = np.round(x[0, 0])

    def saturate(r, g, b):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return colorsys.hsv_to_rgb(h, min(s * amount, 1.0), v)

    ours = views._saturation(tf.constant(x), _amount(amount))
    np.testing.assert_allclose(ours, _per_pixel(saturate, x), atol=2e-6)


def test_contrast_equals_numpy():
    x = _unit_images(3)
    mean = x.mean(axis=(1, 2), keepdims=True, dtype=np.float64)
    ours = views._contrast(tf.constant(x), tf.constant([[[[0.3]]], [[[1.0]]], [[[1.7]]]]))
    factor = np.array([0.3, 1.0, 1.7])[:, None, None, None]
    np.testing.assert_allclose(ours, mean + factor * (x - mean), atol=2e-6)


def test_jitter_applies_each_adjustment_once_in_the_drawn_order():
    permutations = list(itertools.permutations(range(4)))
    x = np.repeat(_unit_images(), 25, axis=0)
    uniforms = {"brightness": 0.9, "contrast": 0.8, "saturation": 0.1, "hue": 0.9}
    draws = _draws(
        order=[*((i + 0.5) / 24 for i in range(24)), 0.0], jitter=[0.79] * 24 + [0.81], **uniforms
    )
    ours = views._color_jitter(views.POLICIES["byol"], draws, tf.constant(x)).numpy()
    np.testing.assert_array_equal(ours[24], x[24])
    steps = [
        lambda v: v + 0.32,
        lambda v: views._contrast(v, _amount(1.24)),
        lambda v: views._saturation(v, _amount(0.84)),
        lambda v: views._hue(v, _amount(0.08)),
    ]
    for image, order in zip(ours, permutations, strict=False):
        expected = tf.constant(x[:1])
        for step in order:
            expected = np.clip(steps[step](expected), 0, 1)
        np.testing.assert_allclose(image, expected[0], atol=1e-5)
    assert len({image.tobytes() for image in ours}) > 12  # the order matters


def test_brightness_as_a_factor():
    policy = views.ViewPolicy(jitter=1.0, brightness=0.8, brightness_is_factor=True)
    x = _unit_images()
    ours = views._color_jitter(policy, _draws(brightness=0.25), tf.constant(x))
    np.testing.assert_allclose(ours, 0.6 * x, atol=1e-6)


def test_grayscale_is_the_luma():
    x = _unit_images(2)
    ours = views._grayscale(views.POLICIES["byol"], _draws(grayscale=[0.1, 0.3]), tf.constant(x))
    luma = x[0] @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(ours[0], np.repeat(luma[..., None], 3, axis=-1), atol=1e-6)
    np.testing.assert_array_equal(ours[1], x[1])


@pytest.mark.parametrize(("size", "radius"), [(12, 1), (32, 1), (60, 3), (224, 11)])
def test_blur_equals_scipy(size, radius):
    x = _unit_images(2, size)
    policy = views.ViewPolicy(blur=(1.0, 0.1))
    odd = tf.constant([0, 1], tf.int64)
    ours = views._blur(policy, _draws(sigma=[0.6, 0.6]), odd, tf.constant(x))
    sigma = 0.1 + 0.6 * 1.9
    expected = scipy.ndimage.gaussian_filter(
        x[0].astype(np.float64), (sigma, sigma, 0), mode="reflect", truncate=radius / sigma
    )
    np.testing.assert_allclose(ours[0], expected, atol=1e-5)
    np.testing.assert_array_equal(ours[1], x[1])


def test_solarize_inverts_bright_pixels_of_odd_views():
    x = np.array([0.0, 0.4, 0.5, 0.9, 1.0], np.float32).reshape(1, 1, 5, 1).repeat(2, axis=0)
    odd = tf.constant([0, 1], tf.int64)
    ours = views._solarize(views.POLICIES["byol"], _draws(solarize=[0.1, 0.1]), odd, tf.constant(x))
    np.testing.assert_array_equal(ours[0], x[0])
    np.testing.assert_allclose(np.ravel(ours[1]), [0.0, 0.4, 0.5, 0.1, 0.0], atol=1e-6)


# --- Outputs and errors ---------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [None, 16])
@pytest.mark.parametrize("policy", views.POLICIES)
def test_shapes_dtype_and_range(policy, size, channels):
    images = _images(6, 12, channels)
    images[0], images[1] = 0, 255
    pair = _pair(policy, images, np.arange(6), output_size=size)
    assert pair.dtype == np.float32
    assert pair.shape == (2, 6, size or 12, size or 12, channels)
    assert pair.min() >= -1
    assert pair.max() <= 1


def test_to_float_scales_to_one_and_is_the_view_of_the_policy_none():
    images = np.arange(256, dtype=np.uint8).reshape(4, 8, 8, 1)
    expected = images.astype(np.float64) / 127.5 - 1
    np.testing.assert_allclose(views.to_float(images), expected, atol=1e-6)
    assert views.to_float(images).numpy().max() == 1.0
    for size in (None, 16):
        pair = _pair("none", images, np.arange(4), output_size=size)
        np.testing.assert_array_equal(pair, [views.to_float(images, output_size=size)] * 2)


def test_digits_are_resized_with_half_pixel_centres():
    images = _images(2, 8, 1)
    grid = np.meshgrid(*[(np.arange(16) + 0.5) / 2 - 0.5] * 2, indexing="ij")
    for image, ours in zip(images, views.to_float(images, output_size=16), strict=True):
        x = image[..., 0] / 127.5 - 1
        expected = scipy.ndimage.map_coordinates(x, grid, order=1, mode="nearest")
        np.testing.assert_allclose(ours[..., 0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "cutmix"}, "'cutmix'; known: byol, byol_no_blur, skin"),
        ({"images": _images(2).astype(np.float32)}, "must be uint8, found float32"),
        ({"images": _images(2)[0]}, r"\[batch, height, width, channels\], found \(20, 20, 3\)"),
        ({"example_ids": np.arange(2, dtype=np.int32)}, "int64 .* found int32"),
        ({"example_ids": np.arange(3)}, "one per image, found int64 .3"),
        ({"example_ids": np.arange(2)[:, None]}, "example_ids must be int64"),
        ({"seed": -1}, "seed must be in"),
        ({"seed": 2**31}, "seed must be in"),
        ({"output_size": 0}, "output_size must be at least 1"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    arguments = {"policy": "byol", "images": _images(2), "example_ids": np.arange(2), "seed": 0}
    with pytest.raises(ValueError, match=message):
        views.two_views(**{**arguments, **change}, round_number=0)


def test_unknown_image_size_is_refused():
    graph = tf.function(views.to_float, input_signature=[tf.TensorSpec([4, None, 8, 3], tf.uint8)])
    with pytest.raises(ValueError, match="only the batch size may be unknown"):
        graph.get_concrete_function()
