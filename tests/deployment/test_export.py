"""TFLite, Keras and ONNX models have the encoder's features."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.deployment import export
from tff_ssl.deployment.encoder_weights import StoredEncoder
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.views import augmentation

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (7, 16, 16, 3), np.uint8)
MODELS = {
    "resnet": DualEncoder("tiny", (16, 16, 3)),
    "batch_norm": DualEncoder("tiny", (16, 16, 3), norm="batch"),
    "transformer": DualEncoder("vit_one_block_micro", (16, 16, 3)),
}


def stored(name):
    model = MODELS[name]
    return StoredEncoder(model, model.init(1), (16, 16, 3), None)


def expected(name):
    model = MODELS[name]
    x = augmentation.to_float(tf.constant(IMAGES))
    return model.apply(model.init(1), x, training=False).h.numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name != "resnet")) for name in MODELS]
)
def test_tflite_has_the_features_in_float32_and_nearly_in_int8(tmp_path, name):
    h = expected(name)
    exact = export.to_tflite(stored(name), tmp_path / "float32.tflite")
    np.testing.assert_allclose(exact(IMAGES), h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(exact(IMAGES[2:3]), h[2:3], rtol=1e-4, atol=1e-5)
    calibration = RNG.integers(0, 256, (40, 16, 16, 3), np.uint8)
    quantized = export.to_tflite(stored(name), tmp_path / "int8.tflite", calibration)
    error = np.abs(quantized(IMAGES) - h).max()
    assert 0 < error < 0.5 * h.std()
    sizes = [(tmp_path / f"{kind}.tflite").stat().st_size for kind in ("float32", "int8")]
    assert sizes[1] < 0.5 * sizes[0]


@pytest.mark.long
@pytest.mark.slow
def test_keras_loads_the_model_without_this_package(tmp_path):
    encode = export.to_keras(stored("resnet"), tmp_path / "keras")
    np.testing.assert_allclose(encode(IMAGES), expected("resnet"), rtol=1e-4, atol=1e-5)
    np.save(tmp_path / "images.npy", IMAGES)
    program = (
        "import sys, numpy as np, tensorflow as tf\n"
        "model = tf.keras.models.load_model('keras', compile=False)\n"
        "assert len(model.trainable_weights) > 10\n"
        "np.save('h.npy', model(np.load('images.npy')))\n"
        "assert 'tff_ssl' not in sys.modules\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    h = np.load(tmp_path / "h.npy")
    np.testing.assert_allclose(h, expected("resnet"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_onnx_has_the_features(tmp_path, name):
    pytest.importorskip("tf2onnx")
    encode = export.to_onnx(stored(name), tmp_path / "encoder.onnx")
    np.testing.assert_allclose(encode(IMAGES), expected(name), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(encode(IMAGES[:1]), expected(name)[:1], rtol=1e-3, atol=1e-5)


def test_without_the_extra_onnx_the_message_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ConfigurationError, match="--format=onnx needs the extra `onnx`"):
        export.to_onnx(stored("resnet"), tmp_path / "encoder.onnx")
    assert not list(tmp_path.iterdir())
