"""A network of a few scalars whose training can be worked out by hand.

The online network has w (encoder), b and m (offset and moving average of its batch norm), and p
(predictor). An example is one pixel a. A client's loss is the mean over its examples of

  (w - a)^2 / 2 + (b - a)^2 / 2 + (p - 2 a)^2 / 2,

and m becomes the mean of a in every step.
"""

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import DualEncoder, Outputs, Weights
from tff_ssl.models.layers import ParameterSpec
from tff_ssl.objectives import registry
from tff_ssl.templates.task import Task


@dataclasses.dataclass(frozen=True)
class Scalars(DualEncoder):
    """The network; its features are (w, 1), so that their cosine measures how far two w differ."""

    @property
    def specs(self):
        specs = (
            ParameterSpec("w", (), "zeros", True),
            ParameterSpec("b", (), "zeros", True, True),
            ParameterSpec("m", (), "zeros", False, True),
        )
        return (*specs, ParameterSpec("p", (), "zeros", True)) if self.predictor else specs

    def init(self, seed):
        trainable = [tf.constant(float(seed)) for _ in self.trainable_specs]
        return Weights(tuple(trainable), (tf.constant(0.0),))

    def apply(self, weights, images, training):
        n = tf.shape(images)[0]
        z = tf.stack([tf.fill([n], weights.trainable[0]), tf.ones([n])], 1)
        moving = (tf.reduce_mean(images),) if training else tuple(weights.non_trainable)
        return Outputs(z, z, z, z, moving)


def _evaluate(model, weights, target, batch, hyperparameters):
    a = tf.reshape(batch.x1, [-1])
    losses = 0.5 * (tf.square(weights.trainable[0] - a) + tf.square(weights.trainable[1] - a))
    if model.predictor:
        losses += 0.5 * tf.square(weights.trainable[2] - 2 * a)
    outputs = model.apply(weights, batch.x1, True)
    # Predictions for the two views: (w, 1) and (w, 2).
    predictions = (outputs.z, outputs.z + tf.constant([0.0, 1.0]))
    both = (outputs.h, outputs.h)
    return registry.Evaluated(losses, outputs.z, predictions, outputs.non_trainable, both)


_built: dict[tuple, Any] = {}


def build_once(build, task, values):
    """`build(task, values)`, traced once for all tests of a process.

    Tasks of the fixture `scalars` with the same objective and number of rounds are the same.
    """
    key = (build, task.objective, task.rounds, values)
    if key not in _built:
        _built[key] = build(task, values)
    return _built[key]


@pytest.fixture
def scalars(worker, monkeypatch):
    """Functions: (objective, rounds) -> a task of `Scalars`; (client, pixels) -> its examples."""
    element = collections.OrderedDict(
        client=np.int64, example_id=np.int64, image=(np.uint8, (1, 1, 1))
    )

    def data(client, pixels):
        return tf.data.Dataset.from_tensor_slices(
            collections.OrderedDict(
                client=np.full(len(pixels), client, np.int64),
                example_id=np.arange(len(pixels), dtype=np.int64),
                image=np.array(pixels, np.uint8).reshape(-1, 1, 1, 1),
            )
        )

    def task(name, rounds=10):
        original = registry.OBJECTIVES[name]
        monkeypatch.setitem(
            registry.OBJECTIVES, name, dataclasses.replace(original, evaluate=_evaluate)
        )
        predictor = (2,) if original.predictor else ()
        model = Scalars("tiny", (1, 1, 1), (2,), predictor, "batch")

        def views(images, example_ids, round_number):
            x = tf.cast(images, tf.float32)
            return x, x

        return Task(model, views, tff.types.to_type(element), rounds, name)

    return task, data
