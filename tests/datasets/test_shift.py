"""Shifts: closed forms of rotations, differences of styles, and the shift of each client."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

from datasets import shift
from datasets.errors import DatasetError

squares = st.tuples(st.integers(0, 3), st.integers(1, 9), st.sampled_from([1, 3, 4])).map(
    lambda sizes: (sizes[0], sizes[1], sizes[1], sizes[2])
)
pixels = st.integers(0, 255)


def photographs(count=6, size=32, channels=3):
    """Random smooth images, which resemble photographs from a distance."""
    noise = np.random.default_rng(0).normal(size=(count, size, size, channels))
    smooth = ndimage.gaussian_filter(noise, (0, size / 10, size / 10, 0))
    return np.clip(128 + 128 * smooth / np.abs(smooth).max(), 0, 255).astype(np.uint8)


@settings(deadline=None)
@given(hnp.arrays(np.uint8, squares, elements=pixels), st.integers(1, 5))
def test_quarter_turns_are_exact(images, parts):
    assert np.array_equal(shift.rotation(images, 0, parts), images)
    for k in range(4):
        turned = shift.rotation(images, parts * k, 4 * parts)
        assert np.array_equal(turned, np.rot90(images, k, axes=(1, 2)))
    once = images
    for _ in range(4):
        once = shift.rotation(once, 1, 4)
    assert np.array_equal(once, images)


def test_a_rotation_is_a_copy():
    images = photographs()
    shift.rotation(images, 0, 5)[:] = 0
    assert images.any()


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("client", "clients"), [(1, 5), (2, 5), (4, 5), (1, 3), (3, 7)])
def test_other_angles_are_those_of_scipy(channels, client, clients):
    images = photographs(channels=channels)
    turned = shift.rotation(images, client, clients)
    # SciPy's rotation goes the other way round in the (1, 2) plane when the axes are swapped.
    expected = ndimage.rotate(
        images.astype(float), 360 * client / clients, axes=(2, 1), reshape=False, order=1
    )
    rows, columns = np.mgrid[:32, :32] - 15.5
    inside = np.hypot(rows, columns) < 14
    assert turned.dtype == np.uint8
    np.testing.assert_allclose(turned[:, inside], expected[:, inside], atol=2)
    assert np.all(turned[:, 0, 0] == 0)  # a corner comes from outside


def test_rotations_of_oblong_images_keep_the_shape():
    images = photographs()[:, :20]
    for client in range(4):
        turned = shift.rotation(images, client, 4)
        assert turned.shape == images.shape
    assert np.array_equal(shift.rotation(images, 2, 4), np.rot90(images, 2, axes=(1, 2)))


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [8, 32])
def test_styles_differ_and_keep_the_content(channels, size):
    images = photographs(size=size, channels=channels)
    styled = [shift.style(images, k, 5) for k in range(5)]
    for k, result in enumerate(styled):
        assert (result.shape, result.dtype) == (images.shape, np.uint8)
        assert np.array_equal(result, shift.style(images, k, 5))
        # Bright pixels stay bright, so the values before and after are correlated.
        colours = slice(0, min(channels, 3))
        x, y = (a[..., colours].astype(float).mean(axis=-1).ravel() for a in (images, result))
        assert np.corrcoef(x, y)[0, 1] > 0.5
        for other in [*styled[:k], images]:
            assert np.abs(result.astype(int) - other)[..., colours].mean() > 4
        if channels == 4:
            assert np.array_equal(result[..., 3], images[..., 3])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 4), st.integers(1, 5), st.data())
def test_an_images_style_does_not_depend_on_the_others(client, count, data):
    images = photographs(6)
    chosen = data.draw(st.permutations(range(6)))[:count]
    assert np.array_equal(
        shift.style(images[chosen], client, 5), shift.style(images, client, 5)[chosen]
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6))
def test_clients_have_the_shifts_in_turn(num_clients, shifts):
    images = photographs(2 * num_clients + 1, size=4)
    clients = np.split(np.arange(2 * num_clients), num_clients)
    shifted = shift.shift_clients("rotation", images, clients, shifts)
    different = min(num_clients, shifts)
    for k, indices in enumerate(clients):
        expected = shift.rotation(images[indices], k % different, different)
        assert np.array_equal(shifted[indices], expected)
    assert np.array_equal(shifted[-1], images[-1])  # belongs to no client
    assert np.array_equal(images, photographs(2 * num_clients + 1, size=4))


def test_the_angle_of_client_k_is_2_pi_k_over_K():
    # A bright spot at the right goes counter-clockwise about the centre.
    images = np.zeros((1, 65, 65, 1), np.uint8)
    images[0, 30:35, 54:59] = 255
    for client in range(5):
        spot = shift.rotation(images, client, 5)[0, ..., 0].astype(float)
        row, column = ndimage.center_of_mass(spot)
        angle = math.atan2(32 - row, column - 32) % (2 * math.pi)
        assert angle == pytest.approx(2 * math.pi * client / 5, abs=0.02)


@pytest.mark.parametrize(
    ("name", "shifts", "word"),
    [("style", 6, "shifts"), ("rotation", 0, "shifts"), ("nosuch", 5, "shift")],
)
def test_errors_name_the_setting(name, shifts, word):
    with pytest.raises(DatasetError, match=word):
        shift.shift_clients(name, photographs(), np.split(np.arange(6), 6), shifts)
