"""An encoder from ImageNet as a baseline, here with random weights in place of its own."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from datasets.image_dataset import ImageDataset, Split
from launch.options import pretrained
from launch.options.run_config import EvaluationConfig
from launch.probes import imagenet, probing, result_text
from tff_ssl.errors import MissingExtraError
from tff_ssl.models.dual_encoder import DualEncoder

MODEL = DualEncoder(pretrained.EFFICIENTNET, (96, 96, 3), norm="frozen")


@pytest.fixture
def weights(monkeypatch):
    """The random weights that the baseline has here."""
    weights = MODEL.init(5)
    names = [spec.name for spec in MODEL.trainable_specs]
    values = {k: v.numpy() for k, v in zip(names, weights.trainable, strict=True)}
    monkeypatch.setattr(pretrained, "efficientnet_lite0", lambda: (values, []))
    monkeypatch.setattr(pretrained, "weights_file", lambda flag: None)
    imagenet._encoder.cache_clear()
    yield weights
    imagenet._encoder.cache_clear()


def test_features_are_those_of_images_of_96_pixels(weights):
    images = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 1), np.uint8)
    resized = tf.image.resize(np.repeat(images, 3, axis=3) / 127.5 - 1, (96, 96))
    expected = MODEL.apply(weights, tf.cast(resized, tf.float32), training=False).h
    np.testing.assert_allclose(imagenet.features(images), expected, rtol=1e-4, atol=1e-5)
    with_alpha = np.concatenate([images] * 3 + [images // 2], axis=3)
    assert np.array_equal(imagenet.features(with_alpha), imagenet.features(images))


@pytest.mark.usefixtures("weights")
def test_it_stands_beside_the_encoder():
    config = EvaluationConfig(labels_per_class=(2,), baselines=("imagenet_encoder",))
    labels = np.tile(np.arange(2, dtype=np.int32), 6)
    images = np.tile((labels * 150)[:, None, None, None], (1, 8, 8, 3)).astype(np.uint8)
    split = Split(images, labels, np.arange(12))
    dataset = ImageDataset("two", split, split, ("dark", "bright"))

    @tf.function
    def blind(batch):
        return tf.zeros([len(batch), 4])

    kinds = probing.feature_kinds(blind, blind, probing.baselines(config))
    (result,) = probing.linear_probes(dataset, kinds, config, 0)
    assert result["baselines"]["imagenet_encoder"]["accuracy"] == 1.0
    assert result["accuracy"] == 0.5
    assert "ImageNet" in result_text.format_results([result])
    (warning,) = result_text.comparison_lines([result])
    assert "(--init_from=efficientnet_lite0)" in warning


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="--baselines=imagenet_encoder"):
        probing.baselines(EvaluationConfig(baselines=("imagenet_encoder",)))
