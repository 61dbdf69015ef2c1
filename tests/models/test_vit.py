"""Vision transformers against NumPy, sums written down by hand, and published counts."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models import layers, vit
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import TwoTowers

SHAPE = (8, 12, 3)  # Two rows of three patches.
MODEL = DualEncoder("vit_micro", SHAPE, decoder=True)
VISIBLE = tf.constant([[0, 4], [2, 3], [1, 5], [0, 1]])


def images(seed=0, count=4):
    return tf.random.stateless_normal([count, *SHAPE], [seed, 1])


def linear(n, m):
    return n * m + m


def block(width):
    norms, mlp = 2 * 2 * width, linear(width, 4 * width) + linear(4 * width, width)
    return norms + linear(width, 3 * width) + linear(width, width) + mlp


def encoder(width, depth, values):
    return linear(values, width) + width + depth * block(width) + 2 * width


def decoder(inputs, width, depth, values):
    ends = linear(inputs, width) + width + 2 * width + linear(width, values)
    return ends + depth * block(width)


HAND_COUNTS = {  # Patches of 4x4 pixels with 3 channels have 48 values.
    "vit_micro": (encoder(64, 2, 48), decoder(64, 32, 1, 48)),
    "vit_tiny": (encoder(192, 12, 48), decoder(192, 192, 4, 48)),
    "vit_small_cpu": (encoder(128, 4, 48), decoder(128, 64, 2, 48)),
    "vit_one_block": (encoder(768, 1, 48), decoder(768, 512, 1, 48)),
    "vit_one_block_small": (encoder(128, 1, 48), decoder(128, 64, 1, 48)),
    "vit_one_block_micro": (encoder(64, 1, 48), decoder(64, 32, 1, 48)),
}


def test_every_transformer_is_counted():
    assert set(HAND_COUNTS) == set(vit.VITS)


@pytest.mark.parametrize("name", vit.VITS)
def test_parameter_count_equals_the_hand_calculation(name):
    encoder_count, decoder_count = HAND_COUNTS[name]
    assert DualEncoder(name, (32, 32, 3)).parameter_count == encoder_count
    with_decoder = DualEncoder(name, (32, 32, 3), decoder=True)
    assert with_decoder.parameter_count == encoder_count + decoder_count


def test_vit_tiny_is_deits():
    # timm's deit_tiny_patch16_224, without its classifier and its learned positions.
    expected = 5_717_416 - (192 * 1000 + 1000) - 197 * 192
    assert DualEncoder("vit_tiny", (224, 224, 3)).parameter_count == expected


def test_the_one_block_autoencoder_has_denavs_size_and_cost():
    # DeNAV's Table 1: 11.62 M and 1.23 GFLOPs in pretraining, 39.97 M and 7.39 downstream, where
    # the block is there five times (and the decoder is still counted).
    spec, shape = vit.VITS["vit_one_block"], (224, 224, 3)
    parameters = DualEncoder("vit_one_block", shape, decoder=True).parameter_count
    five = dataclasses.replace(spec, encoder=spec.encoder._replace(depth=5))
    assert round(parameters / 1e6, 2) == 11.62
    assert round(vit.multiply_adds(spec, shape, visible=49) / 1e9, 2) == 1.23
    assert round((parameters + 4 * block(768)) / 1e6, 2) == 39.97
    assert round(vit.multiply_adds(five, shape) / 1e9, 2) == 7.39


@pytest.mark.parametrize("visible", [None, 2])
def test_multiply_adds_are_those_of_the_graphs_matrix_products(visible):
    with tf.Graph().as_default() as graph:
        weights, x = MODEL.init(0), tf.zeros([1, *SHAPE])
        if visible:
            MODEL.reconstruct(weights, x, tf.zeros([1, visible], tf.int32))
        else:
            MODEL.apply(weights, x, training=False)
    counted = 0
    for operation in graph.get_operations():
        if "MatMul" in operation.type:
            a, b = (tuple(t.shape) for t in operation.inputs)
            transposed = {"BatchMatMulV2": "adj_x", "MatMul": "transpose_a"}[operation.type]
            inner = a[-2] if operation.get_attr(transposed) else a[-1]
            counted += np.prod(operation.outputs[0].shape) * inner
            assert inner in b
    assert counted == vit.multiply_adds(vit.VITS["vit_micro"], SHAPE, visible)


def test_patches_are_cut_row_by_row():
    x = images()
    cut = vit.patches(x).numpy()
    assert cut.shape == (4, 6, 48)
    for index in range(6):
        row, column = divmod(index, 3)
        expected = x[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        np.testing.assert_array_equal(cut[:, index], tf.reshape(expected, [4, 48]))


def test_large_images_have_large_patches():
    assert vit.patches(tf.zeros([1, 224, 224, 3])).shape == (1, 196, 768)
    assert vit.patches(tf.zeros([1, 32, 32, 3])).shape == (1, 64, 48)


def test_positions_are_sines_and_cosines_of_column_and_row():
    actual = vit.positions((3, 5), 16)
    for row in range(3):
        for column in range(5):
            expected = [
                wave(index / 10000 ** (i / 4))
                for index in (column, row)
                for wave in (np.sin, np.cos)
                for i in range(4)
            ]
            np.testing.assert_allclose(actual[5 * row + column], expected, atol=1e-6)


def numpy_attention(x, qkv, qkv_bias, out, out_bias, heads):
    """Scaled dot-product attention, image by image, head by head and token by token."""
    count, tokens, width = x.shape
    size = width // heads
    result = np.zeros_like(x)
    for b in range(count):
        q, k, v = np.split(x[b] @ qkv + qkv_bias, 3, axis=1)
        for h in range(heads):
            columns = slice(h * size, (h + 1) * size)
            for t in range(tokens):
                weights = np.exp(k[:, columns] @ q[t, columns] / np.sqrt(size))
                result[b, t, columns] = weights / weights.sum() @ v[:, columns]
    return result @ out + out_bias


def test_attention_equals_numpy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 12))
    arrays = [rng.normal(size=shape) for shape in ((12, 36), 36, (12, 12), 12)]
    names = ("a/qkv/kernel", "a/qkv/bias", "a/out/kernel", "a/out/bias")
    values = {n: tf.constant(v, tf.float32) for n, v in zip(names, arrays, strict=True)}
    actual = layers.attention(layers.Parameters(values), "a", tf.constant(x, tf.float32), 3)
    np.testing.assert_allclose(actual, numpy_attention(x, *arrays, 3), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="5 heads do not divide a width of 12"):
        layers.attention(layers.Parameters(values), "a", tf.constant(x, tf.float32), 5)


def test_layer_norm_equals_numpy():
    rng = np.random.default_rng(0)
    x, scale, offset = rng.normal(2.0, 3.0, (2, 5, 8)), rng.normal(size=8), rng.normal(size=8)
    values = {
        "n/scale": tf.constant(scale, tf.float32),
        "n/offset": tf.constant(offset, tf.float32),
    }
    actual = layers.layer_norm(layers.Parameters(values), "n", tf.constant(x, tf.float32))
    expected = (x - x.mean(2, keepdims=True)) / x.std(2, keepdims=True) * scale + offset
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_initial_weights_are_xaviers():
    spec = layers.ParameterSpec("w", (300, 200), "xavier_uniform", True)
    values = layers.initialize(spec, tf.constant([0, 1], tf.int64)).numpy()
    assert np.abs(values).max() == pytest.approx(np.sqrt(6 / 500), rel=0.01)
    assert values.var() == pytest.approx(2 / 500, rel=0.02)
    token = layers.ParameterSpec("t", (5000,), "normal_0.02", True)
    assert np.std(layers.initialize(token, tf.constant([0, 1], tf.int64))) == pytest.approx(
        0.02, rel=0.05
    )


def test_each_image_is_encoded_by_itself():
    weights = MODEL.init(0)
    together = MODEL.apply(weights, images(), training=False).h
    assert together.shape == (4, MODEL.features)
    reversed_ = MODEL.apply(weights, images()[::-1], training=False).h
    np.testing.assert_allclose(together, reversed_[::-1], rtol=1e-4, atol=1e-5)
    alone = tf.concat([MODEL.apply(weights, x[tf.newaxis], training=False).h for x in images()], 0)
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_the_encoding_is_the_mean_over_all_patches_and_knows_their_places():
    weights, x = MODEL.init(0), images()
    whole = MODEL.apply(weights, x, training=False).h
    everything = tf.tile([[3, 1, 5, 0, 2, 4]], [4, 1])
    np.testing.assert_allclose(
        MODEL.reconstruct(weights, x, everything).h, whole, rtol=1e-4, atol=1e-5
    )
    swapped = tf.concat([x[:, 4:], x[:, :4]], 1)
    assert np.abs(MODEL.apply(weights, swapped, training=False).h - whole).max() > 1e-2


def test_hidden_pixels_are_not_seen_and_visible_ones_are():
    weights, x = MODEL.init(0), images().numpy()
    actual = MODEL.reconstruct(weights, x, VISIBLE)
    assert actual.patches.shape == (4, 6, 48)
    hidden, seen = x.copy(), x.copy()
    hidden[0, 0:4, 4:8] += 1.0  # Patch 1 of the first image.
    seen[0, 4:8, 4:8] += 1.0  # Patch 4.
    same = MODEL.reconstruct(weights, hidden, VISIBLE)
    np.testing.assert_array_equal(same.h, actual.h)
    np.testing.assert_array_equal(same.patches, actual.patches)
    other = MODEL.reconstruct(weights, seen, VISIBLE).patches.numpy() - actual.patches.numpy()
    assert np.all(np.abs(other[0]).max(1) > 1e-3)  # Attention takes it to every patch,
    np.testing.assert_array_equal(other[1:], 0.0)  # of the same image only.


def test_the_order_of_the_visible_patches_does_not_matter():
    weights = MODEL.init(0)
    one = MODEL.reconstruct(weights, images(), VISIBLE)
    other = MODEL.reconstruct(weights, images(), VISIBLE[:, ::-1])
    np.testing.assert_allclose(one.patches, other.patches, rtol=1e-4, atol=1e-5)


def test_without_heads_there_is_no_decoder_and_the_same_h():
    weights = MODEL.init(1)
    network, encoder_weights = MODEL.without_heads(weights)
    assert network == DualEncoder("vit_micro", SHAPE)
    assert not any("decoder" in spec.name for spec in network.specs)
    expected = MODEL.apply(weights, images(), training=False).h
    np.testing.assert_array_equal(
        network.apply(encoder_weights, images(), training=False).h, expected
    )


def test_a_transformer_takes_projector_and_predictor():
    model = DualEncoder("vit_micro", SHAPE, projector=(16, 8), predictor=(8, 8))
    first, second = model.apply_pair(model.init(0), images(0), images(1), training=True)
    assert first.z.shape == second.p.shape == (4, 8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "small"}, "vit_micro, vit_tiny, vit_small_cpu, vit_one_block"),
        ({"projector": (16, 8)}, "no projector, predictor or classifier"),
        ({"classes": 3}, "no projector, predictor or classifier"),
        ({"image_shape": (30, 32, 3)}, "30x32 into patches of 4x4"),
        ({"image_shape": (100, 96, 3)}, "100x96 into patches of 16x16"),
        ({"image_shape": (4, 4, 3)}, "two patches or more"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    given = {"encoder": "vit_tiny", "image_shape": SHAPE, "decoder": True, **settings}
    with pytest.raises(ValueError, match=message):
        DualEncoder(**given)


def test_two_towers_have_no_decoder():
    with pytest.raises(ValueError, match="projectors only"):
        TwoTowers(MODEL)
