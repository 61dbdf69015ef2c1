"""Shapes and parameter counts, against sums written down by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.resnet import RESNETS


def norm(channels):
    return 2 * channels


def basic(n, m):  # Two 3x3 convolutions with norms, and a 1x1 shortcut where channels change.
    return 9 * n * m + norm(m) + 9 * m * m + norm(m) + (n * m + norm(m) if n != m else 0)


def bottleneck(n, width, first):
    out = 4 * width
    body = n * width + norm(width) + 9 * width**2 + norm(width) + width * out + norm(out)
    return body + (n * out + norm(out) if first else 0)


CIFAR_STEM = 27 * 64 + norm(64)
HAND_COUNTS = {
    "tiny": 27 * 16 + norm(16) + basic(16, 16) + basic(16, 32) + basic(32, 64),
    "small": 27 * 32 + norm(32) + basic(32, 32) + basic(32, 64) + basic(64, 128),
    "resnet14": CIFAR_STEM
    + 2 * basic(64, 64)
    + basic(64, 128)
    + basic(128, 128)
    + basic(128, 256)
    + basic(256, 256),
    "resnet14_bottleneck": CIFAR_STEM
    + bottleneck(64, 64, True)
    + bottleneck(256, 128, True)
    + bottleneck(512, 256, True)
    + bottleneck(1024, 512, True),
    # torchvision's counts without the classifier, with a 3x3 in place of the 7x7 stem.
    "resnet18": 11_689_512 - 513_000 - (49 - 9) * 3 * 64,
    "resnet34": 21_797_672 - 513_000 - (49 - 9) * 3 * 64,
    "resnet50": 25_557_032 - 2_049_000 - (49 - 9) * 3 * 64,
}
FEATURES = {
    "tiny": 64,
    "small": 128,
    "resnet14": 256,
    "resnet14_bottleneck": 2048,
    "resnet18": 512,
    "resnet34": 512,
    "resnet50": 2048,
}


def test_every_encoder_is_counted():
    assert set(HAND_COUNTS) == set(RESNETS)


@pytest.mark.parametrize("encoder", RESNETS)
def test_parameter_count_equals_the_hand_calculation(encoder):
    assert DualEncoder(encoder, (32, 32, 3)).parameter_count == HAND_COUNTS[encoder]


def test_imagenet_stem_is_used_for_large_images():
    assert DualEncoder("resnet50", (224, 224, 3)).parameter_count == 25_557_032 - 2_049_000


def test_head_parameter_counts():
    plain = DualEncoder("small", (32, 32, 3)).parameter_count
    model = DualEncoder("small", (32, 32, 3), projector=(256, 64), predictor=(32, 48))
    projector = 128 * 256 + norm(256) + 256 * 64
    predictor = 64 * 32 + norm(32) + 32 * 48
    assert model.parameter_count - plain == projector + predictor


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["small", "resnet14", "resnet14_bottleneck", "resnet18"])
def test_output_shapes(encoder):
    model = DualEncoder(encoder, (16, 16, 3), projector=(64, 40), predictor=(64, 24))
    outputs = model.apply(model.init(0), tf.zeros([2, 16, 16, 3]), training=True)
    assert outputs.h.shape == (2, FEATURES[encoder])
    assert outputs.z.shape == (2, 40)
    assert outputs.p.shape == (2, 24)


def test_stride_halves_every_stage_but_the_first():
    # One bright pixel moves only the features of its own quarter: seen through the mean over
    # space, an image and its copy shifted by the total stride of 4 have the same encoding.
    model = DualEncoder("small", (32, 32, 1), norm="batch")
    image = np.zeros((2, 32, 32, 1), np.float32)
    image[0, 12:14, 12:14] = 1.0
    image[1, 16:18, 16:18] = 1.0
    h = model.apply(model.init(0), tf.constant(image), training=False).h.numpy()
    np.testing.assert_allclose(h[0], h[1], rtol=1e-4, atol=1e-6)
    image[1] = np.roll(image[1], 1, axis=0)
    moved = model.apply(model.init(0), tf.constant(image), training=False).h.numpy()
    assert np.abs(moved[0] - moved[1]).max() > 1e-3


def test_the_baselines_of_denav_cost_two_to_four_views_of_a_resnet18():
    """DeNAV's Table 1 has 3.65 to 7.40 GFLOPs with the heads, and 11.70 M parameters."""
    model, size = DualEncoder("resnet18", (224, 224, 3)), [1, 224, 224, 3]
    with tf.Graph().as_default() as graph:
        model.apply(model.init(0), tf.zeros(size), training=False)
    convolutions = [one for one in graph.get_operations() if one.type == "Conv2D"]
    counted = sum(
        np.prod(one.outputs[0].shape) * np.prod(one.inputs[1].shape[:3]) for one in convolutions
    )
    # Two views, three (Orchestra), and two by the online and by the target network (FedU).
    assert [round(views * counted / 1e9, 2) for views in (2, 3, 4)] == [3.63, 5.44, 7.25]
    assert round(model.parameter_count / 1e6, 2) == 11.18
