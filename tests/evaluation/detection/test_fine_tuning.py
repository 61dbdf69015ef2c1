"""The schedule, flips and steps of the fine-tuning, on a network of two weights."""

import numpy as np
import pytest
import tensorflow as tf

from datasets.coco_folder import AnnotatedImage
from tff_ssl.evaluation.detection import fine_tuning
from tff_ssl.evaluation.detection.hyperparameters import DetectionHyperparameters
from tff_ssl.models.dual_encoder import Weights


def test_the_schedule_of_90000_steps_is_detectrons():
    values = DetectionHyperparameters(learning_rate=0.02, warmup_steps=500)
    expected = {
        0: 0.02 / 3, 250: 0.02 * 2 / 3, 500: 0.02, 59_999: 0.02, 60_000: 0.002, 79_999: 0.002,
        80_000: 0.0002, 89_999: 0.0002,
    }  # fmt: skip
    actual = {step: fine_tuning.learning_rate(step, 90_000, values) for step in expected}
    assert actual == pytest.approx(expected)


def test_without_warm_up_the_first_step_has_the_whole_rate():
    values = DetectionHyperparameters(learning_rate=0.5, warmup_steps=0)
    rates = [fine_tuning.learning_rate(step, 9, values) for step in range(9)]
    assert rates == pytest.approx([0.5] * 6 + [0.05] * 2 + [0.005])


def example(number):
    """An image of 2x4 pixels whose instance is its left column, and one that is the second."""
    image = np.zeros([2, 4, 3], np.uint8)
    image[:, 0], image[:, 1] = 10 * number + 10, 200
    masks = np.zeros([2, 2, 4], np.uint8)
    masks[0, :, 0] = masks[1, :, 1] = 1
    boxes = np.array([[0, 0, 1, 0.25], [0, 0.25, 1, 0.5]], np.float32)
    return AnnotatedImage(number, image, boxes, np.array([1, 2]), masks, np.zeros(2, bool))


def test_boxes_and_masks_are_flipped_with_the_image():
    before = example(3)
    after = fine_tuning.flipped(before)
    for index, (top, left, bottom, right) in enumerate(after.boxes):
        columns = np.flatnonzero(after.masks[index].any(0))
        assert (left * 4, right * 4) == (columns[0], columns[-1] + 1)
        assert (top, bottom) == (0, 1)
        np.testing.assert_array_equal(
            after.image[after.masks[index].astype(bool)],
            before.image[before.masks[index].astype(bool)],
        )
    assert after.boxes[0, 1] == 0.75
    for one, other in zip(fine_tuning.flipped(after)[1:], before[1:], strict=True):
        np.testing.assert_array_equal(one, other)


class ToyNetwork:
    """A kernel [1, 1] and a bias [1] with a quadratic loss; a counter in the place of norms."""

    def __init__(self):
        self.trainable_variables = [tf.Variable([[0.0]]), tf.Variable([0.0])]
        self.non_trainable_variables = [tf.Variable(0.0, trainable=False)]

    def initial_weights(self, backbone):
        return Weights((backbone.trainable[0], tf.constant([0.5])), (tf.constant(0.0),))

    def assign(self, weights):
        for variable, value in zip(self.trainable_variables, weights.trainable, strict=True):
            variable.assign(value)
        self.non_trainable_variables[0].assign(weights.non_trainable[0])

    def training_batch(self, examples):
        pixels = [example.image[0, :, 0].astype(np.float32) / 100 for example in examples]
        return tf.constant(np.stack(pixels)), {}

    def losses(self, images, labels, seed):
        self.non_trainable_variables[0].assign_add(1.0)
        noise = tf.random.stateless_uniform([], seed)
        kernel, bias = self.trainable_variables
        # The first pixel tells flipped images from others.
        residual = kernel[0, 0] * images[:, 0] + bias[0] - noise
        loss = tf.reduce_mean(tf.square(residual))
        return loss, {"mask_loss": 0.5 * loss}


VALUES = DetectionHyperparameters(
    batch_size=2, learning_rate=0.1, warmup_steps=2, weight_decay=0.05, momentum=0.8
)


def toy_training(seed=4):
    def batches(step):
        return np.array([step % 3, (step + 1) % 3])

    start = Weights((tf.constant([[2.0]]),), ())
    return fine_tuning.FineTuning(ToyNetwork(), start, example, batches, 6, VALUES, seed)


def test_steps_are_those_of_momentum_with_weight_decay_of_kernels():
    training = toy_training()
    state = training.initialize(0)
    kernel, bias, kernel_velocity, bias_velocity = 2.0, 0.5, 0.0, 0.0
    for step in range(6):
        flips = np.random.default_rng((4, step, 1)).random(2) < 0.5
        x = np.array(
            [0.0 if flip else (10 * (k % 3) + 10) / 100
             for flip, k in zip(flips, (step, step + 1), strict=True)]
        )  # fmt: skip
        noise = float(tf.random.stateless_uniform([], [4, step]))
        residual = kernel * x + bias - noise
        rate = fine_tuning.learning_rate(step, 6, VALUES)
        kernel_velocity = 0.8 * kernel_velocity + np.mean(2 * residual * x) + 0.05 * kernel
        bias_velocity = 0.8 * bias_velocity + np.mean(2 * residual)
        kernel -= rate * kernel_velocity
        bias -= rate * bias_velocity
        state, metrics = training.run_round(state, step)
        assert metrics["loss"] == pytest.approx(np.mean(residual**2), rel=1e-5)
        assert metrics["rate"] == rate
        assert float(state.weights.non_trainable[0]) == step + 1
        np.testing.assert_allclose(state.weights.trainable[0], [[kernel]], rtol=1e-5)
        np.testing.assert_allclose(state.weights.trainable[1], [bias], rtol=1e-5)


def test_a_step_depends_on_nothing_but_state_and_number():
    training = toy_training()
    states = [training.initialize(0)]
    for step in range(4):
        states.append(training.run_round(states[-1], step)[0])
    other = toy_training()
    copied = tf.nest.map_structure(lambda x: x.numpy(), states[2])
    repeated, _ = other.run_round(copied, 2)  # As after reading a checkpoint.
    for one, again in zip(tf.nest.flatten(states[3]), tf.nest.flatten(repeated), strict=True):
        np.testing.assert_array_equal(one, again)
    elsewhere, _ = toy_training(seed=5).run_round(copied, 2)
    assert float(elsewhere.weights.trainable[1][0]) != float(states[3].weights.trainable[1][0])


def test_another_start_begins_with_its_own_weights():
    training = toy_training()
    state, _ = training.run_round(training.initialize(0), 0)
    other = training.starting_from(Weights((tf.constant([[7.0]]),), ()))
    begun = other.initialize(0)
    assert float(begun.weights.trainable[0][0, 0]) == 7
    assert float(begun.weights.trainable[1][0]) == 0.5  # The head's own initial weight.
    assert float(training.initialize(0).weights.trainable[0][0, 0]) == 2
    assert float(state.weights.trainable[0][0, 0]) != 2


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"image_size": 100}, "image_size must be a multiple of 64; got 100"),
        ({"image_size": 0}, "image_size"),
        ({"batch_size": 0}, "batch_size"),
        ({"proposals": 10}, "proposals must be at least sampled_boxes, 64; got 10"),
        ({"sampled_masks": 65}, "sampled_masks"),
        ({"sampled_anchors": 1}, "sampled_anchors"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"weight_decay": -0.1}, "weight_decay"),
    ],
)
def test_impossible_hyperparameters_are_named(setting, named):
    with pytest.raises(ValueError, match=named):
        DetectionHyperparameters(**setting)
