"""The masked autoencoder's loss against an independent NumPy calculation."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.losses import reconstruction

RNG = np.random.default_rng(0)
PREDICTED, PATCHES = RNG.normal(size=(2, 5, 6, 8))
VISIBLE = np.array([[0, 3], [1, 2], [4, 5], [2, 5], [0, 1]], np.int32)


def loss(predicted=PREDICTED, patches=PATCHES, visible=VISIBLE, normalize=True):
    tensors = tf.constant(predicted, tf.float32), tf.constant(patches, tf.float32)
    return reconstruction.masked_error(*tensors, tf.constant(visible), normalize).numpy()


def numpy_loss(predicted, patches, visible, normalize):
    """Example by example and hidden patch by hidden patch, in float64."""
    losses = []
    for p, x, seen in zip(predicted, patches, visible, strict=True):
        errors = []
        for hidden in set(range(len(x))) - set(seen):
            target = x[hidden]
            if normalize:
                target = (target - target.mean()) / np.sqrt(target.var() + 1e-6)
            errors.append(np.mean((p[hidden] - target) ** 2))
        losses.append(np.mean(errors))
    return losses


@pytest.mark.parametrize("normalize", [True, False])
def test_equals_numpy(normalize):
    expected = numpy_loss(PREDICTED, PATCHES, VISIBLE, normalize)
    np.testing.assert_allclose(loss(normalize=normalize), expected, rtol=1e-5)


def test_visible_patches_do_not_count():
    predicted = PREDICTED.copy()
    np.put_along_axis(predicted, VISIBLE[..., np.newaxis], 9.0, 1)
    np.testing.assert_array_equal(loss(predicted), loss())
    patches = PATCHES.copy()
    np.put_along_axis(patches, VISIBLE[..., np.newaxis], 9.0, 1)
    np.testing.assert_array_equal(loss(patches=patches), loss())


def test_normalized_targets_do_not_depend_on_brightness_and_contrast():
    np.testing.assert_allclose(loss(patches=5 * PATCHES - 2), loss(), rtol=1e-4)
    plain = loss(normalize=False)
    assert np.all(np.abs(loss(patches=5 * PATCHES - 2, normalize=False) - plain) > 1)


def test_a_patch_of_one_colour_has_the_target_zero():
    patches = np.full_like(PATCHES, 0.7)
    np.testing.assert_array_equal(
        reconstruction.normalize_patches(tf.constant(patches, tf.float32)), 0.0
    )
    np.testing.assert_array_equal(loss(np.zeros_like(patches), patches), 0.0)
