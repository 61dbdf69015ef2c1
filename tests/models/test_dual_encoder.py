"""The model as a pure function of its weights."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models.dual_encoder import DualEncoder, Weights

SHAPE = (8, 8, 1)


def images(seed=0, count=6):
    return tf.random.stateless_normal([count, *SHAPE], [seed, 1])


def test_init_is_a_pure_function_of_the_seed():
    model = DualEncoder("small", SHAPE, projector=(16, 8))
    first, again, other = model.init(3), model.init(3), model.init(4)
    for a, b in zip(first.trainable, again.trainable, strict=True):
        np.testing.assert_array_equal(a, b)
    kernels = [i for i, spec in enumerate(model.trainable_specs) if spec.name.endswith("kernel")]
    assert all(np.any(first.trainable[i] != other.trainable[i]) for i in kernels)


def test_no_two_kernels_start_alike():
    model = DualEncoder("small", SHAPE, projector=(32, 32, 32))
    weights = dict(
        zip([s.name for s in model.trainable_specs], model.init(0).trainable, strict=True)
    )
    one, two = weights["projector/layer1/kernel"], weights["projector/layer2/kernel"]
    assert np.any(one.numpy() != two.numpy())


def test_group_norm_model_encodes_each_image_by_itself():
    model = DualEncoder("small", SHAPE, projector=(16, 8))
    weights = model.init(0)
    together = model.apply(weights, images(), training=True).z
    alone = tf.concat([model.apply(weights, x[tf.newaxis], True).z for x in images()], 0)
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert model.non_trainable_specs == ()


def test_batch_norm_moves_its_averages_in_training_only():
    model = DualEncoder("small", SHAPE, projector=(16, 8), norm="batch")
    weights = model.init(0)
    in_training = model.apply(weights, images(), training=True).non_trainable
    at_rest = model.apply(weights, images(), training=False).non_trainable
    names = [spec.name for spec in model.non_trainable_specs]
    stem = names.index("stem/moving_mean")
    assert np.any(in_training[stem].numpy() != weights.non_trainable[stem].numpy())
    for before, after in zip(weights.non_trainable, at_rest, strict=True):
        np.testing.assert_array_equal(before, after)


def test_batch_norm_average_equals_numpy():
    model = DualEncoder("small", SHAPE, norm="batch")
    weights = model.init(0)
    kernel = weights.trainable[[s.name for s in model.trainable_specs].index("stem/kernel")]
    x = tf.nn.conv2d(images(), kernel, 1, "SAME").numpy()
    updated = dict(
        zip(
            [s.name for s in model.non_trainable_specs],
            model.apply(weights, images(), training=True).non_trainable,
            strict=True,
        )
    )
    np.testing.assert_allclose(updated["stem/moving_mean"], 0.1 * x.mean((0, 1, 2)), atol=1e-5)
    expected = 0.9 + 0.1 * x.var((0, 1, 2))
    np.testing.assert_allclose(updated["stem/moving_variance"], expected, rtol=1e-4)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_batch_norm_on_the_projectors_output_equals_numpy(norm):
    options = {"projector": (16, 8), "predictor": (8, 8), "norm": norm}
    plain = DualEncoder("tiny", SHAPE, **options)
    model = DualEncoder("tiny", SHAPE, **options, projector_output_batch_norm=True)
    assert model.has_batch_norm
    assert plain.has_batch_norm == (norm == "batch")
    added = [spec for spec in model.specs if spec not in plain.specs]
    names = ["moving_mean", "moving_variance"]
    assert [spec.name for spec in added] == [f"projector/layer1/{name}" for name in names]
    # No scale and no offset is trained, and batch norm stays local where the algorithm says so.
    assert all(spec.batch_norm and not spec.trainable for spec in added)
    target = plain.target_model
    weights, x = model.target_model.init(3), images()
    without = target.part_of(weights)  # The moving averages of the output come last.
    z = target.apply(without, x, training=True).z.numpy()
    trained = model.target_model.apply(weights, x, training=True)
    np.testing.assert_allclose(
        trained.z, (z - z.mean(0)) / np.sqrt(z.var(0) + 1e-5), rtol=1e-3, atol=1e-3
    )
    mean, variance = trained.non_trainable[-2:]
    np.testing.assert_allclose(mean, 0.1 * z.mean(0), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(variance, 0.9 + 0.1 * z.var(0), rtol=1e-3)
    at_rest = target.apply(without, x, training=False).z.numpy()
    np.testing.assert_allclose(
        model.target_model.apply(weights, x, training=False).z, at_rest / np.sqrt(1 + 1e-5),
        rtol=1e-4,
    )  # fmt: skip


def test_without_heads_the_output_has_no_batch_norm():
    model = DualEncoder("tiny", SHAPE, projector=(16, 8), projector_output_batch_norm=True)
    encoder, weights = model.without_heads(model.init(0))
    assert not encoder.has_batch_norm
    assert weights.non_trainable == ()


def test_without_heads_gives_the_same_h():
    model = DualEncoder("small", SHAPE, projector=(16, 8), predictor=(8, 8), norm="batch")
    weights = model.init(1)
    encoder, encoder_weights = model.without_heads(weights)
    expected = model.apply(weights, images(), training=False).h
    np.testing.assert_array_equal(
        encoder.apply(encoder_weights, images(), training=False).h, expected
    )
    assert not any("projector" in spec.name for spec in encoder.specs)


def test_without_heads_z_and_p_are_h():
    model = DualEncoder("small", SHAPE)
    outputs = model.apply(model.init(0), images(), training=False)
    np.testing.assert_array_equal(outputs.z, outputs.h)
    np.testing.assert_array_equal(outputs.p, outputs.h)


def test_weights_of_another_model_are_refused():
    model = DualEncoder("small", SHAPE, projector=(16, 8))
    weights = model.init(0)
    with pytest.raises(ValueError, match="zip"):
        model.apply(Weights(weights.trainable[:-1], ()), images(), training=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "vgg"}, "encoder must be one of tiny, small"),
        ({"norm": "layer"}, "norm must be one of group, batch"),
        ({"precision": "float16"}, "precision must be one of float32, bfloat16"),
        ({"projector": (12, 8)}, "multiples of 8"),
        ({"projector": (8, 8)}, "and larger; got"),
        ({"projector": (0,)}, "at least 1"),
        ({"projector_output_batch_norm": True}, "needs a projector"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DualEncoder(**{"encoder": "small", "image_shape": SHAPE, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["tiny", "vit_micro"])
def test_bfloat16_is_for_the_products_of_the_encoder_only(encoder):
    model = DualEncoder(encoder, SHAPE, projector=(16, 8), precision="bfloat16")
    weights = model.init(0)
    apply = tf.function(lambda x: model.apply(weights, x, training=True))
    graph = apply.get_concrete_function(tf.TensorSpec([2, *SHAPE])).graph
    narrow = {
        op.type for op in graph.get_operations() if tf.bfloat16 in [x.dtype for x in op.outputs]
    }
    products = {"Conv2D"} if encoder == "tiny" else {"MatMul", "BatchMatMulV2"}
    assert products <= narrow <= products | {"Cast", "Reshape", "Transpose"}
    wide = [
        op
        for op in graph.get_operations()
        if op.type == "MatMul" and op.outputs[0].dtype == tf.float32
    ]
    assert len(wide) == 2  # The projector's two layers.


@pytest.mark.parametrize("encoder", ["tiny", "vit_micro"])
def test_encodings_in_bfloat16_are_near_those_in_float32(encoder):
    narrow = DualEncoder(encoder, SHAPE, precision="bfloat16")
    weights = narrow.init(0)
    h = narrow.apply(weights, images(), training=True).h
    exact = DualEncoder(encoder, SHAPE).apply(weights, images(), training=True).h
    assert h.dtype == tf.float32
    error = np.abs(h - exact).max() / np.abs(exact).max()
    assert 0 < error < 0.02


def test_the_encoder_without_heads_is_float32():
    model = DualEncoder("tiny", SHAPE, projector=(16, 8), precision="bfloat16")
    assert model.target_model.precision == "bfloat16"
    assert model.without_heads(model.init(0))[0].precision == "float32"
