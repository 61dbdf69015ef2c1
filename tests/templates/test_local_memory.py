"""What local training carries from step to step: a memory, and a target that moves first."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.registry import Evaluated, Objective
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.local_training import Memory, build_local_training

RATE, MOMENTUM, A = 0.1, 0.8, 4.0
NOTHING = Weights((), ())


def all_examples(data):
    return next(iter(data.batch(100)))


@pytest.mark.parametrize("first", [False, True])
def test_the_target_moves_before_or_after_the_step(scalars, first):
    task, data = scalars
    values = ClientHyperparameters(
        client_learning_rate=RATE, client_momentum=0.0, target_momentum=MOMENTUM, local_epochs=3
    )
    training = build_local_training(task("byol"), values, keeps_target=True)
    training = dataclasses.replace(training, target_first=first)
    online = Weights(tuple(map(tf.constant, (0.0, 0.0, 0.0))), (tf.constant(0.0),))
    target = Weights(tuple(map(tf.constant, (1.0, 1.0))), (tf.constant(0.0),))
    batch = all_examples(data(0, [int(A)] * 2))
    trained = training.train(online, target, tf.constant(0, tf.int64), batch)
    w, t = 0.0, 1.0
    for _ in range(3):
        if first:
            t = MOMENTUM * t + (1 - MOMENTUM) * w
        w -= RATE * (w - A)
        if not first:
            t = MOMENTUM * t + (1 - MOMENTUM) * w
    np.testing.assert_allclose(trained.weights.trainable[0], w, rtol=1e-6)
    np.testing.assert_allclose(trained.target.trainable[0], t, rtol=1e-6)


def recording(task, **options):
    """Local training of two epochs of three batches, and the batches that it sees."""
    seen = []

    def evaluate(model, weights, target, batch, hyperparameters):
        seen.append(batch)
        losses = tf.reduce_sum(weights.trainable[0]) + tf.zeros([len(batch.x1)])
        outputs = model.apply(weights, batch.x1, True)
        z, h = outputs.z, (outputs.h, outputs.h)
        return Evaluated(losses, z, (z, z), (), h, noted=tf.cast(batch.example_ids, tf.float32))

    def views(images, ids, number):
        shown = tf.cast(ids, tf.float32)[:, None, None, None] + 0 * tf.cast(images, tf.float32)
        return shown + 1000 * tf.cast(number, tf.float32), shown

    values = ClientHyperparameters(client_learning_rate=RATE, local_epochs=2, batch_size=2)
    training = build_local_training(task._replace(two_views=views), values)
    training = dataclasses.replace(training, objective=Objective("a test", evaluate, **options))
    return training, seen


EXAMPLES = {
    "example_id": tf.range(10, 17, dtype=tf.int64), "image": tf.zeros([7, 2, 2, 3], tf.uint8)
}  # fmt: skip


def test_a_memory_holds_what_the_last_epoch_wrote_at_each_position(small_algorithm):
    task = small_algorithm("fedbn").task
    training, seen = recording(task)

    def update(memory, batch, evaluated):
        ids, steps = memory
        ids = tf.tensor_scatter_nd_update(ids, batch.positions[:, tf.newaxis], evaluated.noted)
        return ids, steps + 1

    memory = Memory((tf.zeros([9]), tf.constant(0.0)), update)
    trained = training.train(
        task.model.init(0), NOTHING, tf.constant(1, tf.int64), EXAMPLES, memory=memory
    )
    ids, steps = trained.memory
    np.testing.assert_array_equal(ids, [*range(10, 17), 0, 0])
    assert steps == len(seen) == 6
    without = training.train(task.model.init(0), NOTHING, tf.constant(1, tf.int64), EXAMPLES)
    assert without.memory == ()
    for a, b in zip(without.weights.trainable, trained.weights.trainable, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_third_view_is_of_the_same_images_and_of_another_pass(small_algorithm):
    task = small_algorithm("fedbn").task
    training, seen = recording(task, third_view=True)
    training.train(task.model.init(0), NOTHING, tf.constant(1, tf.int64), EXAMPLES)
    for step, batch in enumerate(seen):
        number = 2 + step // 3
        np.testing.assert_array_equal(
            batch.x1[:, 0, 0, 0], batch.example_ids.numpy() + 1000 * number
        )
        np.testing.assert_array_equal(
            batch.x3[:, 0, 0, 0], batch.example_ids.numpy() + 1000 * (-1 - number)
        )
