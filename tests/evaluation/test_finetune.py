"""Fine-tuning against a step written by hand, and its invariances."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import views
from tff_ssl.evaluation import cases, finetune
from tff_ssl.models.dual_encoder import DualEncoder, Weights

RNG = np.random.default_rng(0)
LABELS = np.tile(np.arange(3), 8).astype(np.int32)
# Bright on the left, in the middle or on the right: easy to tell.
IMAGES = RNG.integers(0, 60, (24, 8, 8, 1)).astype(np.uint8)
for i, c in enumerate(LABELS):
    IMAGES[i, :, 2 * c + 1 : 2 * c + 3] += 150
IDS = np.arange(24) + 5
ENCODER = DualEncoder("tiny", (8, 8, 1))


def tuner(policy="none", norm="group", **config):
    config = {"steps": 1, "batch_size": 24, "learning_rate": 0.01} | config
    encoder = DualEncoder("tiny", (8, 8, 1), norm=norm)
    return finetune.Finetuner(encoder, 3, finetune.FinetuneConfig(**config), policy), encoder


def test_the_papers_settings():
    assert finetune.config_for(5000) == finetune.FinetuneConfig(100, 256, 5e-3)
    assert finetune.config_for(500) == finetune.FinetuneConfig(40, 128, 5e-3)


def test_one_step_is_adam_on_the_cross_entropy_of_the_mean_encoding():
    tuned, encoder = tuner()
    of_cases = cases.group(np.repeat(np.arange(12), 2), np.repeat(LABELS[:12], 2))
    start = encoder.init(1)
    after = tuned.train(start, IMAGES, IDS, of_cases, np.arange(12), [0])
    kernel, bias = tf.zeros([64, 3]), tf.zeros([3])
    weights = (*start.trainable, kernel, bias)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        h = encoder.apply(Weights(weights[:-2], ()), views.to_float(tf.constant(IMAGES)), True).h
        mean = tf.reduce_mean(tf.reshape(h, [12, 2, -1]), 1)
        log = tf.nn.log_softmax(mean @ weights[-2] + weights[-1])
        loss = -tf.reduce_mean(tf.gather(log, LABELS[:12], batch_dims=1))
    gradients = tape.gradient(loss, weights)
    # The first step of Adam is the learning rate times the gradient's sign (epsilon aside).
    moved = after.trainable[-2] - kernel
    expected = -0.01 * gradients[-2] / (np.abs(gradients[-2]) + 1e-7)
    # The gradient of the bias is zero: the classes are of one size.
    np.testing.assert_allclose(moved, expected, atol=5e-4)


@pytest.mark.slow
def test_it_learns_what_is_easy_to_tell():
    alone = cases.each_image(LABELS)
    learning, encoder = tuner(steps=60, batch_size=12)
    weights = learning.train(encoder.init(0), IMAGES, IDS, alone, np.arange(24), [0])
    assert learning.scores(weights, IMAGES, alone).accuracy > 0.9


@pytest.mark.slow
def test_it_repeats_from_its_seed_and_leaves_the_encoder_alone():
    tuned, encoder = tuner(policy="affine", steps=2, batch_size=8)
    start = encoder.init(0)
    before = [w.numpy().copy() for w in start.trainable]
    alone = cases.each_image(LABELS)

    def train(seed):
        return tuned.train(start, IMAGES, IDS, alone, np.arange(24), [seed]).trainable

    one, two, other = train(0), train(0), train(1)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not np.array_equal(one[0], other[0])
    assert all(np.array_equal(a, b) for a, b in zip(before, start.trainable, strict=True))


def test_batch_norm_keeps_its_averages_up():
    tuned, encoder = tuner(norm="batch")
    start = encoder.init(0)
    after = tuned.train(start, IMAGES, IDS, cases.each_image(LABELS), np.arange(24), [0])
    assert any(
        np.abs(a - b).max() > 1e-4
        for a, b in zip(start.non_trainable, after.non_trainable, strict=True)
    )


def test_unlabelled_cases_take_no_part_in_the_scores():
    tuned, encoder = tuner()
    weights = tuned._with_classifier(encoder.init(0))
    labels = np.array([0] * 4 + [-1] * 20, np.int32)  # A zero classifier says class 0.
    assert tuned.scores(weights, IMAGES, cases.each_image(labels)).accuracy == 1.0
