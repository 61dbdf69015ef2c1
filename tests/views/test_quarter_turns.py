"""Quarter turns against NumPy, and as a function of seed, round and example."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.views import quarter_turns

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(400, 3, 3, 2)).astype(np.float32)
IDS = np.arange(1000, 1400)


def turned(images=IMAGES, ids=IDS, seed=3, round_number=5):
    x, k = quarter_turns.turned(
        tf.constant(images), tf.constant(ids, tf.int64), seed=seed, round_number=round_number
    )
    return x.numpy(), k.numpy()


def test_an_image_is_turned_by_its_number_of_quarters():
    x, k = turned()
    assert set(k) == {0, 1, 2, 3}
    for image, result, quarters in zip(IMAGES, x, k, strict=True):
        np.testing.assert_array_equal(result, np.rot90(image, quarters))
    # 400 draws with probability 1/4 have a deviation of 8.7.
    assert np.abs(np.bincount(k) - 100).max() < 4 * 8.7


def test_the_turn_of_an_example_depends_on_seed_round_and_id_alone():
    _, k = turned()
    order = RNG.permutation(400)[:50]
    np.testing.assert_array_equal(turned(IMAGES[order], IDS[order])[1], k[order])
    for other in ({"seed": 4}, {"round_number": 6}, {"round_number": -6}, {"ids": IDS + 400}):
        assert np.mean(turned(**other)[1] == k) < 0.5


def test_images_must_be_square():
    with pytest.raises(ValueError, match="square"):
        turned(IMAGES[:, :2])
