"""Views: equal bits in all batches and graphs, frequencies of steps, shapes, ranges and errors."""

import math

import numpy as np
import pytest
import scipy.ndimage
import tensorflow as tf

from tff_ssl.views import augmentation, rows
from tff_ssl.views.policies import POLICIES, ViewPolicy


def _images(batch: int, size: int = 20, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (batch, size, size, channels), np.uint8)


def _pair(policy, images, ids, round_number=7, **kwargs) -> np.ndarray:
    both = augmentation.two_views(
        policy, images, np.asarray(ids, np.int64), seed=3, round_number=round_number, **kwargs
    )
    return np.stack([v.numpy() for v in both])


# --- Purity ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_view_has_the_same_bits_alone_and_in_permuted_batches(policy):
    images, ids = _images(37), np.arange(37, dtype=np.int64) * 1001
    whole = _pair(policy, images, ids)
    order = np.random.default_rng(1).permutation(37)
    np.testing.assert_array_equal(_pair(policy, images[order], ids[order]), whole[:, order])
    np.testing.assert_array_equal(_pair(policy, images[:16], ids[:16]), whole[:, :16])
    for i in range(6):
        alone = _pair(policy, images[i : i + 1], ids[i : i + 1])
        np.testing.assert_array_equal(alone, whole[:, i : i + 1])


# Ranges of zero are constants, which the graph optimizer folds. Each pair of fields has all four
# pairs of values.
_EDGE_POLICIES = {
    f"rotation={r} shear={h} scale={c} shift={t} crop={a}": ViewPolicy(
        rotation=r, shear=h, scale=(c, 1.0), shift=t, crop_area=a
    )
    for r, h, c, t, a in (
        (0.0, 0.0, 1.0, 0.0, None),
        (0.0, 0.0, 1.0, 0.0, (0.2, 0.9)),
        (0.0, 0.2, 0.8, 0.1, None),
        (30.0, 0.0, 0.8, 0.1, None),
        (30.0, 0.2, 1.0, 0.1, (0.2, 0.9)),
        (30.0, 0.2, 0.8, 0.0, (0.2, 0.9)),
    )
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name != "byol"))  # It has most operations.
        for name in [*POLICIES, *_EDGE_POLICIES]
    ],
)
def test_view_has_the_same_bits_in_graphs(name, capfd):
    policy = POLICIES.get(name) or _EDGE_POLICIES[name]
    images, ids = _images(9), np.arange(9, dtype=np.int64)
    eager = _pair(policy, images, ids)

    def both(images, ids, round_number):
        return augmentation.two_views(policy, images, ids, seed=3, round_number=round_number)

    for batch in (9, None):
        specs = [tf.TensorSpec([batch, 20, 20, 3], tf.uint8), tf.TensorSpec([batch], tf.int64)]
        graph = tf.function(both, input_signature=[*specs, tf.TensorSpec([], tf.int64)])
        concrete = graph.get_concrete_function()
        assert [v.shape.as_list() for v in concrete.structured_outputs] == [[batch, 20, 20, 3]] * 2
        np.testing.assert_array_equal(np.stack(graph(images, ids, np.int64(7))), eager)
        last = graph(images[8:], ids[8:], np.int64(7)) if batch is None else ()
        for view, whole in zip(last, eager, strict=False):
            np.testing.assert_array_equal(view, whole[8:])
    assert "optimizer" not in capfd.readouterr().err  # The graph optimizer logs when it gives up.


def test_a_view_in_a_graph_of_constants():
    images, ids = _images(33), np.arange(33, dtype=np.int64)
    constant = tf.function(lambda: tf.stack(augmentation.two_views(
        "simclr_small", images, ids, seed=3, round_number=7
    )))  # fmt: skip
    np.testing.assert_array_equal(constant(), _pair("simclr_small", images, ids))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_view_has_the_same_bits_in_the_graphs_of_tff(policy):
    # They are made outside of tf.function, where `==` between tensors compares Python objects.
    images, ids = _images(9), np.arange(9, dtype=np.int64)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.uint8, [None, 20, 20, 3])
        both = augmentation.two_views(policy, fed, tf.constant(ids), seed=3, round_number=7)
        actual = np.stack(session.run(both, {fed: images}))
    np.testing.assert_array_equal(actual, _pair(policy, images, ids))


def test_two_views_are_the_single_views():
    images, ids = _images(5), np.arange(5, dtype=np.int64)
    first, second = _pair("byol", images, ids, first_view=4)
    for number, expected in ((4, first), (5, second)):
        single = augmentation.view("byol", images, ids, seed=3, round_number=7, view_number=number)
        np.testing.assert_array_equal(single, expected)


@pytest.mark.parametrize("policy", [name for name in POLICIES if name not in ("none", "flip")])
def test_seed_round_example_and_view_change_the_view(policy):
    images, ids = np.repeat(_images(1), 4, axis=0), np.array([0, 1, 2**32, 2**62], np.int64)
    seen = [_pair(policy, images, ids, round_number=r) for r in (0, 1, 2**32)]
    seen.append(np.stack(augmentation.two_views(policy, images, ids, seed=4, round_number=0)))
    seen.append(_pair(policy, images, ids, round_number=0, first_view=2))
    assert len({v.tobytes() for v in np.concatenate(seen).reshape(-1, 20, 20, 3)}) == 5 * 2 * 4


@pytest.mark.parametrize("policy", ["byol", "skin", "affine", "none"])
def test_compiled_views_are_equal_up_to_rounding(policy):
    for count, size in ((5, None), (8, 12)):
        ids = np.arange(count, dtype=np.int64)
        found = _pair(policy, _images(count), ids, output_size=size, xla=True)
        np.testing.assert_allclose(
            found, _pair(policy, _images(count), ids, output_size=size), rtol=0, atol=2e-6
        )


def test_changes_of_all_rows_select_the_bits_of_changes_of_parts(monkeypatch):
    images, ids = _images(40), np.arange(40, dtype=np.int64)
    expected = _pair("byol", images, ids)
    steps, change_all = [], rows.change_all

    def counted(x, choice, changes):
        steps.append(len(changes))
        return change_all(x, choice, changes)

    monkeypatch.setattr(rows, "change_parts", counted)
    np.testing.assert_array_equal(_pair("byol", images, ids), expected)
    assert steps == [5] * 4 + [2] * 3  # Four colour adjustments or none; gray, blur, solarization.


def test_empty_batch():
    assert _pair("byol", _images(0), []).shape == (2, 0, 20, 20, 3)


# --- Outputs and errors ---------------------------------------------------------------------------


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
    pair = _pair(ViewPolicy(**fields), images, ids, round_number=8)
    same = pair == augmentation.to_float(images).numpy()
    changed = ~same.all(axis=(2, 3, 4))
    for p, rate in zip(probability, changed.mean(axis=1), strict=True):
        assert abs(rate - p) <= 4 * math.sqrt(p * (1 - p) / count)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [None, 16])
@pytest.mark.parametrize("policy", POLICIES)
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
    np.testing.assert_allclose(augmentation.to_float(images), expected, atol=1e-6)
    assert augmentation.to_float(images).numpy().max() == 1.0
    for size in (None, 16):
        pair = _pair("none", images, np.arange(4), output_size=size)
        np.testing.assert_array_equal(pair, [augmentation.to_float(images, output_size=size)] * 2)


def test_digits_are_resized_with_half_pixel_centres():
    images = _images(2, 8, 1)
    grid = np.meshgrid(*[(np.arange(16) + 0.5) / 2 - 0.5] * 2, indexing="ij")
    for image, actual in zip(images, augmentation.to_float(images, output_size=16), strict=True):
        x = image[..., 0] / 127.5 - 1
        expected = scipy.ndimage.map_coordinates(x, grid, order=1, mode="nearest")
        np.testing.assert_allclose(actual[..., 0], expected, atol=1e-5)


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
        augmentation.two_views(**{**arguments, **change}, round_number=0)


def test_unknown_image_size_is_refused():
    graph = tf.function(
        augmentation.to_float, input_signature=[tf.TensorSpec([4, None, 8, 3], tf.uint8)]
    )
    with pytest.raises(ValueError, match="only the batch size may be unknown"):
        graph.get_concrete_function()
