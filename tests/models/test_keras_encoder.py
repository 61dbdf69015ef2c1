"""Keras models as pure functions: features, gradients and moving averages equal Keras's own."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.deployment import encoder_weights
from tff_ssl.deployment.encoder_weights import StoredEncoder
from tff_ssl.models import from_keras, from_tff
from tff_ssl.models.dual_encoder import DualEncoder

SIDE = 16


def small(dropout=0.0):
    """Batch norm, a grouped and a depthwise convolution, swish, dropout, and another batch norm."""
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.Conv2D(16, 3, input_shape=(None, None, 3)),
        layers.BatchNormalization(),
        layers.Activation("swish"),
        layers.Conv2D(16, 3, groups=4, padding="same"),
        layers.DepthwiseConv2D(3, 2),
        layers.Conv2D(16, 3, groups=16),
        layers.BatchNormalization(scale=False),
        layers.Dropout(dropout),
        layers.Conv2D(8, 1),
    ])  # fmt: skip


def application(name):
    build = getattr(tf.keras.applications, name)
    return build(include_top=False, weights=None, input_shape=(64, 64, 3))


def images(side, count=4):
    return np.random.default_rng(0).uniform(-1, 1, (count, side, side, 3)).astype(np.float32)


def moved(model):
    """The model with norms that do something."""
    rng = np.random.default_rng(1)
    for weight in model.weights:
        if any(name in weight.name for name in ("moving", "gamma", "beta")):
            weight.assign(rng.uniform(0.5, 1.5, weight.shape).astype(np.float32))
    return model


def of_keras(model, x, training):
    with tf.GradientTape() as tape:
        h = tf.reduce_mean(model(x, training=training), [1, 2])
        loss = tf.reduce_sum(h**2)
    gradients = tape.gradient(loss, model.trainable_weights)
    named = {v.name: g for v, g in zip(model.trainable_weights, gradients, strict=True)}
    return h, named


def in_float64(build, weights, x, training):
    """What `of_keras` returns in float64: oneDNN's float32 is off by 1e-4 on some processors."""
    tf.keras.backend.set_floatx("float64")
    try:
        exact = build()
        exact.set_weights(weights)
        h, gradients = of_keras(exact, x.astype(np.float64), training)
    finally:
        tf.keras.backend.set_floatx("float32")
    return h, list(gradients.values())


def of_encoder(model, weights, x, training):
    @tf.function(autograph=False)
    def compute(weights, x):
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            outputs = model.apply(weights, x, training)
            loss = tf.reduce_sum(outputs.h**2)
        return outputs, tape.gradient(loss, weights.trainable, unconnected_gradients="zero")

    outputs, gradients = compute(weights, x)
    names = [spec.name.removeprefix("encoder/") + ":0" for spec in model.trainable_specs]
    return outputs, dict(zip(names, gradients, strict=True))


def assert_near(actual, expected, tolerance):
    scale = np.abs(expected).max() + 1e-12
    assert np.abs(np.asarray(actual) - expected).max() <= tolerance * scale


def assert_exact(actual, keras, exact, tolerance):
    """Arrays are within the tolerance of the exact ones, or off by at most twice Keras's error."""
    largest = max(np.abs(array).max() for array in exact)

    def error(arrays):
        return max(
            np.abs(np.asarray(array) - np.asarray(right)).max() / largest
            for array, right in zip(arrays, exact, strict=True)
        )

    assert error(actual) <= max(tolerance, 2 * error(keras)), (error(actual), error(keras))


@pytest.mark.parametrize(
    ("build", "side"),
    [(small, SIDE)]
    + [
        pytest.param(lambda name=name: application(name), 64, marks=pytest.mark.long, id=name)
        for name in ("MobileNetV3Small", "EfficientNetV2B0", "ResNet50", "ConvNeXtTiny")
    ],
)
def test_frozen_batch_norm_is_keras_in_inference(build, side):
    keras = moved(build())
    model = DualEncoder(from_keras(keras), (side, side, 3))
    assert not model.has_batch_norm
    x = images(side)
    h, expected = of_keras(keras, x, training=False)
    exact_h, exact = in_float64(build, keras.get_weights(), x, training=False)
    exact = dict(zip(expected, exact, strict=True))
    outputs, gradients = of_encoder(model, model.init(0), x, training=False)
    assert_exact([outputs.h], [h], [exact_h], 1e-5)
    shared = gradients.keys() & expected.keys()
    of_norms = {name for name in expected if "gamma" in name or "beta" in name}
    assert shared >= expected.keys() - of_norms
    assert_exact(
        *([named[name] for name in shared] for named in (gradients, expected, exact)), 1e-4
    )


@pytest.mark.parametrize(
    ("build", "side"),
    [(small, SIDE)]
    + [
        pytest.param(lambda name=name: application(name), 64, marks=pytest.mark.long, id=name)
        for name in ("MobileNetV3Small", "ResNet50")
    ],
)
@pytest.mark.parametrize("batch_norm", ["local", "global"])
def test_batch_statistics_are_those_of_keras_in_training(build, side, batch_norm):
    keras = moved(build())
    model = DualEncoder(from_keras(keras, batch_norm), (side, side, 3))
    assert model.has_batch_norm
    assert any(spec.batch_norm for spec in model.specs) == (batch_norm == "local")
    outputs, gradients = of_encoder(model, model.init(0), images(side), training=True)
    exact_h, exact = in_float64(build, keras.get_weights(), images(side), training=True)
    h, expected = of_keras(keras, images(side), training=True)
    assert_exact([outputs.h], [h], [exact_h], 1e-5)
    assert gradients.keys() == expected.keys()
    assert_exact([gradients[name] for name in expected], expected.values(), exact, 1e-4)
    new = {v.name: v.numpy() for v in keras.non_trainable_weights}
    for spec, value in zip(model.non_trainable_specs, outputs.non_trainable, strict=True):
        assert_near(value, new[spec.name.removeprefix("encoder/") + ":0"], 1e-5)


def test_dropout_is_a_function_of_the_batch():
    model = DualEncoder(from_keras(small(dropout=0.5)), (SIDE, SIDE, 3))
    weights, x = model.init(0), images(SIDE)
    first, again, inference = (
        of_encoder(model, weights, x, training)[0].h.numpy() for training in (True, True, False)
    )
    other = of_encoder(model, weights, x[::-1].copy(), True)[0].h.numpy()[::-1]
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - inference).max() > 0.01 * np.abs(inference).max()
    assert np.abs(first - other).max() > 0.01 * np.abs(first).max()


def test_files_hold_models_that_only_compute(tmp_path):
    layers = tf.keras.layers
    image = tf.keras.Input((SIDE, SIDE, 3))
    x = layers.Conv2DTranspose(4, 3, 2)(image)
    x = tf.cumsum(layers.UpSampling2D(2, interpolation="bilinear")(x), 1)
    x = layers.LayerNormalization()(layers.MultiHeadAttention(2, 4)(x[:, :2], x[:, :2]))
    keras = tf.keras.Model(image, layers.GlobalAveragePooling2D()(x))
    model = DualEncoder(from_keras(keras), (SIDE, SIDE, 3))
    encoder_weights.write(
        tmp_path / "weights.npz", StoredEncoder(model, model.init(0), (SIDE, SIDE, 3), None)
    )
    stored = encoder_weights.read(tmp_path / "weights.npz")
    h = stored.model.apply(stored.weights, images(SIDE), training=False).h
    assert_near(h, np.asarray(keras(images(SIDE))), 1e-5)


def test_images_are_preprocessed():
    keras = small()
    model = DualEncoder(from_keras(keras, preprocess=lambda x: 2 * x + 1), (SIDE, SIDE, 3))
    h, _ = of_keras(keras, 2 * images(SIDE) + 1, False)
    assert_near(of_encoder(model, model.init(0), images(SIDE), False)[0].h, h, 1e-5)


def test_what_the_user_has_frozen_is_not_trained():
    keras = small()
    keras.layers[0].trainable = keras.layers[1].trainable = False
    model = DualEncoder(from_keras(keras), (SIDE, SIDE, 3))
    assert not model.has_batch_norm
    fixed = {spec.name.split("/")[1].rstrip("_0123456789") for spec in model.non_trainable_specs}
    assert fixed == {"conv2d", "batch_normalization"}


@pytest.mark.parametrize(
    ("build", "options", "words"),
    [
        (lambda: small(), {"batch_norm": "none"}, "batch_norm must be one of"),
        (lambda: np.zeros(3), {}, "takes a tf.keras.Model; got ndarray"),
        (lambda: tf.keras.Sequential([tf.keras.layers.Dense(3)]), {}, "has no weights yet"),
        (
            lambda: tf.keras.Sequential([tf.keras.layers.Conv2D(3, 3, input_shape=(8, 8, 3))]), {},
            "takes images of",
        ),
        (lambda: tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(SIDE, SIDE, 3)),
                                      tf.keras.layers.Reshape((SIDE * SIDE, 3))]), {},
         "must be"),
    ],
)  # fmt: skip
def test_models_that_are_no_encoders(build, options, words):
    with pytest.raises(ValueError, match=words):
        DualEncoder(from_keras(build(), **options), (SIDE, SIDE, 3)).init(0)


class _Functional:
    """A `tff.learning.models.FunctionalModel`, as far as an encoder uses it."""

    initial_weights = ((np.ones([3, 4], np.float32),), ())

    @staticmethod
    def predict_on_batch(weights, x, training):
        return tf.reduce_mean(x, [1, 2]) @ weights[0][0]


def test_a_functional_model_of_tff():
    model = DualEncoder(from_tff(_Functional()), (SIDE, SIDE, 3), projector=(32, 8))
    assert model.features == 4
    outputs, gradients = of_encoder(model, model.init(0), images(SIDE), training=True)
    means = images(SIDE).mean((1, 2))
    np.testing.assert_allclose(outputs.h, np.repeat(means.sum(1, keepdims=True), 4, 1), rtol=1e-5)
    expected = means.T @ (2 * np.asarray(outputs.h))
    np.testing.assert_allclose(gradients["weight0:0"], expected, rtol=1e-4)
