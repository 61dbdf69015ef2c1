"""Crops, and the affine map against SciPy and NumPy."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import tensorflow as tf

from tests.views.inputs import fixed_draws, many_draws, unit_images
from tff_ssl.views import geometry
from tff_ssl.views.policies import POLICIES, ViewPolicy


def test_crop_boxes_have_the_distribution_of_the_papers():
    draws, policy = many_draws(), POLICIES["byol"]
    left, top, width, height = (v.numpy() for v in geometry.crop_box(policy, draws, 32, 32))
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
    left, top, width, height = geometry.crop_box(POLICIES["byol"], many_draws(500), 10, 30)
    assert np.all(left + width <= 30 + 1e-9)
    assert np.all(top + height <= 10 + 1e-9)
    assert np.allclose((width / height)[width * height < 60].numpy().max(), 4 / 3, rtol=0.05)


@pytest.mark.parametrize("size", [(100, 150), (100, 400), (90, 100)])
def test_crop_boxes_of_a_turned_image_are_turned(size):
    draws = many_draws(500)
    turned = {**draws, "aspect": 1 - draws["aspect"], "left": draws["top"], "top": draws["left"]}
    left, top, width, height = geometry.crop_box(POLICIES["byol"], draws, *size)
    boxes = geometry.crop_box(POLICIES["byol"], turned, *reversed(size))
    for expected, box in zip((top, left, height, width), boxes, strict=True):
        np.testing.assert_allclose(box, expected, rtol=1e-9, atol=1e-9)


def _geometry(policy: ViewPolicy, x: np.ndarray, size: int | None = None, **fixed: float):
    shape = x.shape[1:3]
    out_shape = (size, size) if size else shape
    maps = geometry.transforms(policy, fixed_draws(**fixed), shape, out_shape)
    return geometry.warp(policy, maps, tf.constant(x, tf.float32), out_shape).numpy()


@pytest.mark.parametrize("quarter_turns", [0, 1, 2, -1])
def test_rotation_is_counter_clockwise_around_the_centre(quarter_turns):
    x = unit_images()
    policy = ViewPolicy(rotation=180.0, fill="CONSTANT")
    rotated = _geometry(policy, x, rotation=0.5 + quarter_turns / 4)
    expected = np.rot90(x, quarter_turns, axes=(1, 2))
    np.testing.assert_allclose(rotated[:, 1:-1, 1:-1], expected[:, 1:-1, 1:-1], atol=1e-4)


def test_shift_moves_right_and_down():
    x = unit_images()
    moved = _geometry(ViewPolicy(shift=0.25, fill="CONSTANT"), x, shift_x=1.0, shift_y=1.0)
    expected = np.pad(x, [(0, 0), (3, 0), (3, 0), (0, 0)])[:, :12, :12]
    np.testing.assert_allclose(moved, expected, atol=1e-5)


def test_affine_equals_scipy():
    x = unit_images(size=14, channels=1)
    policy = ViewPolicy(rotation=40.0, shear=0.4, scale=(0.5, 2.0), shift=0.2, fill="CONSTANT")
    actual = _geometry(policy, x, rotation=0.8, shear=0.9, scale=0.6, shift_x=0.3, shift_y=0.7)
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
    np.testing.assert_allclose(actual[0, ..., 0], expected, atol=1e-4)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("size", [None, 7, 25])
def test_crop_equals_bilinear_interpolation(flip, size):
    x = unit_images()
    policy = ViewPolicy(crop_area=(0.08, 1.0), flip=0.5)
    uniforms = {"area": 0.4, "aspect": 0.8, "left": 0.9, "top": 0.2, "flip": 0.75 - 0.5 * flip}
    actual = _geometry(policy, x, size, **uniforms)
    area, ratio = (0.08 + 0.92 * 0.4) * 12**2, (4 / 3) ** 0.6
    width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
    out = np.arange(size or 12) + 0.5
    columns = 0.9 * (12 - width) + out * width / len(out) - 0.5
    rows = 0.2 * (12 - height) + out * height / len(out) - 0.5
    grid = np.meshgrid(rows, columns[::-1] if flip else columns, indexing="ij")
    for channel in range(3):
        expected = scipy.ndimage.map_coordinates(x[0, ..., channel], grid, order=1, mode="nearest")
        np.testing.assert_allclose(actual[0, ..., channel], expected, atol=1e-4)


def test_whole_crop_is_the_identity_and_its_flip_exact():
    x = unit_images()
    policy = ViewPolicy(crop_area=(1.0, 1.0), flip=0.5)
    np.testing.assert_array_equal(_geometry(policy, x, flip=0.7), x)
    np.testing.assert_array_equal(_geometry(policy, x, flip=0.2), x[:, :, ::-1])


def test_reflect_fill_leaves_no_black_corners():
    x = np.full((1, 12, 12, 3), 0.5, np.float32)
    np.testing.assert_allclose(_geometry(POLICIES["skin"], x, rotation=0.6), x, atol=1e-6)
    black = dataclasses.replace(POLICIES["skin"], fill="CONSTANT", crop_area=None)
    assert _geometry(black, x, rotation=0.625).min() == 0.0
