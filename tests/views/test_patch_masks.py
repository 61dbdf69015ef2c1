"""Patch masks: sizes, purity, and equally likely choices."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.views import patch_masks


def _visible(ids, patches=64, ratio=0.75, seed=11, round_number=5):
    ids = tf.constant(ids, tf.int64)
    chosen = patch_masks.visible_patches(ids, patches, ratio, seed=seed, round_number=round_number)
    return chosen.numpy()


@pytest.mark.parametrize(
    ("patches", "ratio", "visible"),
    [(64, 0.75, 16), (196, 0.75, 49), (9, 0.75, 2), (4, 0.99, 1), (4, 0.01, 3), (2, 0.5, 1)],
)
def test_the_number_of_visible_patches_follows_the_ratio(patches, ratio, visible):
    chosen = _visible(range(50), patches, ratio)
    assert chosen.shape == (50, visible)
    assert chosen.min() >= 0
    assert chosen.max() < patches
    assert np.all(np.diff(chosen, axis=1) > 0)


def test_a_mask_depends_on_its_own_example_only():
    ids = [7, 2**40, 0, 3]
    together = _visible(ids)
    np.testing.assert_array_equal(together[::-1], _visible(ids[::-1]))
    for row, one in zip(together, ids, strict=True):
        np.testing.assert_array_equal(row, _visible([one])[0])
    graph = tf.function(lambda r: patch_masks.visible_patches(
        tf.constant(ids, tf.int64), 64, 0.75, seed=11, round_number=r
    ))  # fmt: skip
    np.testing.assert_array_equal(together, graph(tf.constant(5, tf.int64)))


def test_masks_differ_between_examples_rounds_and_seeds():
    one = _visible([3])[0]
    for other in (_visible([4]), _visible([3], seed=12), _visible([3], round_number=6)):
        assert np.any(one != other[0])


def test_every_patch_and_every_pair_is_visible_equally_often():
    examples, patches, visible = 20_000, 8, 2
    chosen = _visible(range(examples), patches)
    seen = np.eye(patches)[chosen].sum(1)
    pairs = seen.T @ seen / examples
    alone, together = visible / patches, visible * (visible - 1) / (patches * (patches - 1))
    expected = np.where(np.eye(patches, dtype=bool), alone, together)
    error = np.sqrt(expected * (1 - expected) / examples)
    assert np.abs(pairs - expected).max() < 4.5 * error.max()
