"""The SavedModel encoder equals the encoder of the model."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.deployment import saved_model
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import TwoTowers
from tff_ssl.views import augmentation

MODEL = DualEncoder("tiny", (16, 16, 1), projector=(16, 8))
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), np.uint8)


def expected(weights):
    x = augmentation.to_float(tf.constant(IMAGES), output_size=16)
    return MODEL.apply(weights, x, training=False).h.numpy()


def test_saved_encoder_equals_the_model(tmp_path):
    weights = MODEL.init(3)
    saved_model.save_encoder(tmp_path / "encoder", MODEL, weights, (8, 8, 1), view_size=16)
    encode = saved_model.load_encoder(tmp_path / "encoder")
    np.testing.assert_allclose(encode(tf.constant(IMAGES)), expected(weights), rtol=1e-5, atol=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == ["encoder"]


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_weights_and_their_names_are_those_of_the_model(tmp_path, norm):
    model = DualEncoder("tiny", (16, 16, 1), projector=(16, 8), norm=norm)
    weights = model.init(3)
    saved_model.save_encoder(tmp_path / "encoder", model, weights, (8, 8, 1), view_size=16)
    loaded = saved_model.load_encoder(tmp_path / "encoder")
    encoder, kept = model.without_heads(weights)
    assert loaded.weight_names.trainable == tuple(s.name for s in encoder.trainable_specs)
    assert loaded.weight_names.non_trainable == tuple(s.name for s in encoder.non_trainable_specs)
    for kind in ("trainable", "non_trainable"):
        for actual, expected in zip(
            getattr(loaded.weights, kind), getattr(kept, kind), strict=True
        ):
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.slow
def test_names_that_two_towers_share_are_numbered(tmp_path):
    model = TwoTowers(MODEL)
    saved_model.save_encoder(tmp_path / "encoder", model, model.init(0), (8, 8, 1), view_size=16)
    names = saved_model.load_encoder(tmp_path / "encoder").weight_names.trainable
    first = [spec.name for spec in DualEncoder("tiny", (16, 16, 1)).trainable_specs]
    assert names == tuple(f"{name} #{tower}" for tower in (1, 2) for name in first)


@pytest.mark.slow
def test_saving_again_replaces_the_encoder(tmp_path):
    for seed in (1, 2):
        weights = MODEL.init(seed)
        saved_model.save_encoder(tmp_path / "encoder", MODEL, weights, (8, 8, 1), view_size=16)
    encode = saved_model.load_encoder(tmp_path / "encoder")
    np.testing.assert_allclose(encode(tf.constant(IMAGES)), expected(weights), rtol=1e-5, atol=1e-6)


def test_the_projector_is_not_in_the_saved_model(tmp_path):
    saved_model.save_encoder(tmp_path / "encoder", MODEL, MODEL.init(0), (8, 8, 1), view_size=16)
    variables = tf.train.list_variables(str(tmp_path / "encoder" / "variables" / "variables"))
    count = sum(int(np.prod(shape)) for name, shape in variables if "VARIABLE_VALUE" in name)
    assert count == DualEncoder("tiny", (16, 16, 1)).parameter_count


def test_encoder_function_takes_other_weights_without_another_trace():
    encode = saved_model.encoder_function(MODEL, view_size=16)
    for seed in (1, 2):
        weights = MODEL.init(seed)
        np.testing.assert_allclose(
            encode(weights, tf.constant(IMAGES)), expected(weights), rtol=1e-5, atol=1e-6
        )
    assert encode.experimental_get_tracing_count() == 1


def test_a_folder_without_an_encoder_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="holds no encoder"):
        saved_model.load_encoder(tmp_path)
