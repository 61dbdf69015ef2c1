"""The backbone has the features of the encoder that it is made of."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.evaluation.detection.backbone import ResNetBackbone
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.views import augmentation

SIZE = 128
IMAGES = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3), np.uint8)
# The parser's normalization, written down once more.
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
NORMALIZED = ((IMAGES / 255 - MEAN) / DEVIATION).astype(np.float32)


def random_weights(encoder):
    """Weights whose norms have other scales, offsets and moving averages than initial ones."""
    rng = np.random.default_rng(1)
    initial = encoder.init(3)
    trainable = tuple(
        w + rng.normal(0, 0.1, w.shape).astype(np.float32) if w.shape.rank == 1 else w
        for w in initial.trainable
    )
    averages = tuple(
        rng.normal(0, 0.1, spec.shape).astype(np.float32)
        if spec.name.endswith("moving_mean")
        else rng.uniform(0.5, 1.5, spec.shape).astype(np.float32)
        for spec in encoder.non_trainable_specs
    )
    return Weights(trainable, averages)


def built(encoder, weights):
    backbone = ResNetBackbone(encoder, SIZE, first_level=0)
    for variables, values in (
        (backbone.trainable_variables, weights.trainable),
        (backbone.non_trainable_variables, weights.non_trainable),
    ):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    return backbone


def assert_close(actual, expected):
    """Equal but for float32's rounding of the parser's normalization and its inverse."""
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    ("name", "side"),
    [("tiny", 128), ("tiny", 32), pytest.param("resnet18", 96, marks=pytest.mark.long)],
)
def test_the_last_endpoint_averages_to_the_encoding(name, side, norm):
    # The encoder that was trained on images of `side`, whose stem the backbone keeps.
    encoder = DualEncoder(name, (side, side, 3), norm=norm)
    weights = random_weights(encoder)
    endpoints = built(encoder, weights)(NORMALIZED)
    last = endpoints[max(endpoints)].numpy().mean((1, 2))
    if side >= 96:
        same_stem = DualEncoder(name, (SIZE, SIZE, 3), norm=norm)
        x = augmentation.to_float(tf.constant(IMAGES))
        expected = same_stem.apply(weights, x, training=False).h
        assert_close(last, expected)
    # On its own images, with its own stem.
    own = NORMALIZED[:, :side, :side]
    expected = encoder.apply(
        weights, augmentation.to_float(tf.constant(IMAGES[:, :side, :side])), training=False
    ).h
    endpoints = built(encoder, weights)(own)
    last = endpoints[max(endpoints)].numpy().mean((1, 2))
    assert_close(last, expected)
    assert last.std() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "side", "channels"),
    [
        ("tiny", 128, {"2": 16, "3": 32, "4": 64}),
        ("tiny", 32, {"0": 16, "1": 32, "2": 64}),
        pytest.param(
            "resnet14_bottleneck",
            128,
            {"2": 256, "3": 512, "4": 1024, "5": 2048},
            marks=pytest.mark.long,
        ),
    ],
)
def test_endpoints_have_the_size_that_their_level_says(name, side, channels):
    encoder = DualEncoder(name, (side, side, 3))
    backbone = ResNetBackbone(encoder, SIZE, first_level=0)
    expected = {
        level: [None, SIZE // 2 ** int(level), SIZE // 2 ** int(level), count]
        for level, count in channels.items()
    }
    assert {n: shape.as_list() for n, shape in backbone.output_specs.items()} == expected
    assert {n: x.shape.as_list() for n, x in backbone(NORMALIZED).items()} == {
        level: [2, *shape[1:]] for level, shape in expected.items()
    }
    from_two = ResNetBackbone(encoder, SIZE)
    assert list(from_two.output_specs) == [level for level in channels if int(level) >= 2]


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_every_trainable_weight_is_trained_and_moving_averages_are_fixed(norm):
    encoder = DualEncoder("tiny", (SIZE, SIZE, 3), norm=norm)
    backbone = built(encoder, random_weights(encoder))
    names = [v.name.removesuffix(":0") for v in backbone.trainable_variables]
    assert names == [spec.name for spec in encoder.trainable_specs]
    averages = [v.numpy() for v in backbone.non_trainable_variables]
    assert len(averages) == len(encoder.non_trainable_specs)
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(tf.sin(x)) for x in backbone(NORMALIZED, training=True).values())
    gradients = tape.gradient(loss, backbone.trainable_variables)
    assert all(np.abs(g.numpy()).max() > 0 for g in gradients)
    for before, variable in zip(averages, backbone.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(before, variable.numpy())


def test_a_transformer_has_no_stages():
    encoder = DualEncoder("vit_one_block_micro", (16, 16, 3))
    with pytest.raises(ValueError, match="vit_one_block_micro is not a ResNet"):
        encoder.feature_maps(encoder.init(0), tf.zeros([1, 16, 16, 3]))
