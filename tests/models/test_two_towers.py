"""Two towers: the input of each tower, and the separation of their weights."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import TwoTowers

TOWER = DualEncoder("tiny", (8, 8, 3), projector=(16, 6))
X = tf.constant(np.random.default_rng(0).normal(size=(4, 8, 8, 3)), tf.float32)


@pytest.mark.parametrize(
    ("pair", "first", "second"),
    [("views", X, X), ("halves", X[:, :, :4], X[:, :, 4:]),
     ("colour_planes", X[..., :1], X[..., 2:])],
)  # fmt: skip
def test_each_tower_encodes_its_modality_with_its_own_weights(pair, first, second):
    model = TwoTowers(TOWER, pair)
    weights = model.init(3)
    one, two = model.apply_pair(weights, X, X, training=True)
    a, b = model.towers
    n = len(a.trainable_specs)
    parts = [type(weights)(weights.trainable[:n], ()), type(weights)(weights.trainable[n:], ())]
    np.testing.assert_allclose(one.z, a.apply(parts[0], first, True).z, rtol=1e-5)
    np.testing.assert_allclose(two.z, b.apply(parts[1], second, True).z, rtol=1e-5)
    assert np.abs(weights.trainable[0] - weights.trainable[n]).max() > 0.01 or pair != "views"
    assert model.parameter_count == a.parameter_count + b.parameter_count


def test_the_encoding_is_both_towers_side_by_side():
    model = TwoTowers(TOWER, "halves")
    weights = model.init(0)
    encoder, encoder_weights = model.without_heads(weights)
    h = encoder.apply(encoder_weights, X, training=False).h
    one, two = model.apply_pair(weights, X, X, training=False)
    np.testing.assert_allclose(h, np.concatenate([one.h, two.h], 1), rtol=1e-5)
    assert h.shape == (4, model.features)


def test_batch_norm_keeps_statistics_of_each_tower():
    model = TwoTowers(DualEncoder("tiny", (8, 8, 3), (16, 6), norm="batch"), "views")
    weights = model.init(0)
    outputs = model.apply(weights, X, training=True)
    assert len(outputs.non_trainable) == len(model.non_trainable_specs)
    half = len(outputs.non_trainable) // 2
    assert any(
        np.abs(a - b).max() > 1e-3
        for a, b in zip(outputs.non_trainable[:half], outputs.non_trainable[half:], strict=True)
    )


def test_the_encoders_alone_have_no_batch_norm_of_a_projector():
    tower = DualEncoder("tiny", (8, 8, 3), projector=(16, 6), projector_output_batch_norm=True)
    model = TwoTowers(tower, "views")
    encoder, weights = model.without_heads(model.init(3))
    assert [w.shape for w in weights.trainable] == [s.shape for s in encoder.trainable_specs]
    assert len(weights.non_trainable) == len(encoder.non_trainable_specs)
    h = model.apply_pair(model.init(3), X, X, training=False)[0].h
    np.testing.assert_allclose(encoder.apply(weights, X, False).h[:, : h.shape[1]], h, rtol=1e-4)


def test_images_that_cannot_be_divided_are_refused():
    gray = DualEncoder("tiny", (8, 8, 1), (16, 6))
    for tower, pair, message in (
        (gray, "colour_planes", "3 channels"),
        (DualEncoder("tiny", (8, 7, 3), (16, 6)), "halves", "even width"),
        (TOWER, "nosuch", "pair must be"),
        (DualEncoder("tiny", (8, 8, 3), (16, 6), predictor=(16, 6)), "views", "projectors only"),
    ):
        with pytest.raises(ValueError, match=message):
            TwoTowers(tower, pair)
