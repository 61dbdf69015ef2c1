"""Backbones of any depth from pretrained blocks."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models import stacking, vit
from tff_ssl.models.dual_encoder import DualEncoder

SHAPE = (8, 8, 1)
PRETRAINED = DualEncoder("vit_one_block_micro", SHAPE, decoder=True)


def weights_by_name(model, weights):
    return {
        s.name: w.numpy() for s, w in zip(model.trainable_specs, weights.trainable, strict=True)
    }


def test_every_block_starts_from_the_pretrained_one():
    encoder, weights = PRETRAINED.without_heads(PRETRAINED.init(3))
    deep, start = stacking.stacked(encoder, weights, 3)
    before, after = weights_by_name(encoder, weights), weights_by_name(deep, start)
    blocks = [name for name in before if name.startswith("block0/")]
    assert len(blocks) > 5
    assert len(after) == len(before) + 2 * len(blocks)
    for name, value in after.items():
        source = name if not name.startswith("block") else f"block0/{name.split('/', 1)[1]}"
        np.testing.assert_array_equal(value, before[source])


def test_with_the_old_depth_nothing_changes_and_with_others_the_encodings_do():
    encoder, weights = PRETRAINED.without_heads(PRETRAINED.init(0))
    x = tf.constant(np.random.default_rng(0).normal(size=(2, *SHAPE)), tf.float32)
    stacks = [stacking.stacked(encoder, weights, depth) for depth in (1, 2, 3)]
    one, two, three = (deep.apply(start, x, False).h.numpy() for deep, start in stacks)
    np.testing.assert_array_equal(one, encoder.apply(weights, x, False).h)
    assert np.abs(one - two).max() > 0.05
    assert np.abs(two - three).max() > 0.05


def test_blocks_of_deeper_encoders_take_turns():
    two = DualEncoder("vit_micro", SHAPE)
    weights = two.init(1)
    deep, start = stacking.stacked(two, weights, 5)
    before, after = weights_by_name(two, weights), weights_by_name(deep, start)
    for i in range(5):
        name = f"block{i}/mlp0/kernel"
        np.testing.assert_array_equal(after[name], before[f"block{i % 2}/mlp0/kernel"])
    again, _ = stacking.stacked(deep, start, 2)
    assert again.parameter_count == two.parameter_count


def test_parameters_and_operations_are_those_of_the_papers_table_1():
    pretrained = DualEncoder("vit_one_block", (224, 224, 3), decoder=True)
    assert round(pretrained.parameter_count / 1e6, 2) == 11.62
    assert round(pretrained.multiply_adds(49) / 1e9, 2) == 1.23
    downstream = DualEncoder("vit_one_block", (224, 224, 3), depth=5)
    assert round(downstream.multiply_adds() / 1e9, 2) == 7.39
    # The paper's 39.97 M count the decoder too.
    with_decoder = DualEncoder("vit_one_block", (224, 224, 3), decoder=True, depth=5)
    assert round(with_decoder.parameter_count / 1e6, 2) == 39.97
    assert DualEncoder("tiny", SHAPE).multiply_adds() is None


@pytest.mark.parametrize(
    ("model", "depth", "message"),
    [
        (DualEncoder("tiny", SHAPE), 2, "only vision transformers"),
        (PRETRAINED, 2, "without heads"),
        (DualEncoder("vit_micro", SHAPE), 0, "at least 1"),
    ],
)
def test_impossible_stacks_are_refused(model, depth, message):
    with pytest.raises(ValueError, match=message):
        stacking.stacked(model, model.init(0), depth)


def test_only_vision_transformers_take_a_depth():
    with pytest.raises(ValueError, match="only vision transformers have a depth"):
        DualEncoder("tiny", SHAPE, depth=2)
    assert vit.VITS["vit_one_block"].encoder.depth == 1
