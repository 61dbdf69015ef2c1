"""Models whose training XLA compiles: equal to the others, whatever the size of a batch."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.networks import OneLayer
from tff_ssl import compiled
from tff_ssl.models import layers
from tff_ssl.models.dual_encoder import DualEncoder

SHAPE = (2, 2, 3)


class WithBatchNorm(OneLayer):
    """`OneLayer` whose h has a batch norm."""

    def _forward(self, parameters, images):
        h, *_ = super()._forward(parameters, images)
        h = layers.norm(parameters, "norm", h)
        return h, h, h, h


def outputs_and_gradient(model, images):
    """The model's outputs in training, and the gradient of a loss of h."""
    weights = model.init(0)

    @tf.function(input_signature=[tf.TensorSpec([None, *SHAPE])], autograph=False)
    def compute(images):
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            outputs = model.apply(weights, images, training=True)
            loss = tf.reduce_sum(tf.square(outputs.h - 0.3))
        return outputs, tape.gradient(loss, weights.trainable, unconnected_gradients="zero")

    return tf.nest.flatten(compute(images))


@pytest.mark.parametrize("count", [1, 9, 16])
@pytest.mark.parametrize(
    "model",
    [
        OneLayer("tiny", SHAPE, projector=(4,)),
        WithBatchNorm("tiny", SHAPE, norm="batch"),
    ],
    ids=["group", "batch"],
)
def test_outputs_and_gradients(model, count):
    images = tf.random.stateless_normal([count, *SHAPE], [1, count])
    expected = outputs_and_gradient(model, images)
    found = outputs_and_gradient(dataclasses.replace(model, xla=True), images)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_batches_are_padded_to_a_few_sizes(is_dynamic):
    pad = compiled.padded
    if is_dynamic:
        pad = tf.function(pad, input_signature=[tf.TensorSpec([None, 1])], autograph=False)
    counts = [*range(130), 1000]
    padded = [pad(tf.ones([count, 1])) for count in counts]
    for count, batch in zip(counts, padded, strict=True):
        assert count <= len(batch) <= max(count * 5 / 4, 1)
        np.testing.assert_array_equal(batch[:, 0], np.arange(len(batch)) < count)
    assert len({len(batch) for batch in padded[64:129]}) == 5  # 64, 80, 96, 112 and 128.


def test_inference_is_not_compiled():
    model = DualEncoder("tiny", SHAPE, xla=True)
    images = tf.ones([1, *SHAPE])
    model.apply(model.init(0), images, training=False)
    assert "_compiled" not in vars(model)


def test_what_is_not_compiled():
    with pytest.raises(ValueError, match="not masked autoencoders"):
        DualEncoder("vit_tiny", (32, 32, 3), decoder=True, xla=True)
