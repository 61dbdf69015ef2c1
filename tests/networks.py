"""A network and views that trace and compile in a fraction of the time of a ResNet and its views.

They are for tests of what is computed around them, whatever they are.
"""

import math

import tensorflow as tf

from tff_ssl.models import layers
from tff_ssl.models.dual_encoder import DualEncoder

_FEATURES = 5


class OneLayer(DualEncoder):
    """A dual encoder of one dense layer; projector, predictor and classifier are one layer each."""

    @property
    def features(self):
        return _FEATURES

    activation = staticmethod(tf.tanh)

    def _forward(self, parameters, images):
        flat = tf.reshape(images, [-1, math.prod(self.image_shape)])
        h = self.activation(layers.dense(parameters, "encoder", flat, _FEATURES))
        z = layers.dense(parameters, "projector", h, self.projector[-1]) if self.projector else h
        p = layers.dense(parameters, "predictor", z, self.predictor[-1]) if self.predictor else z
        logits = layers.dense(parameters, "classes", h, self.classes) if self.classes else h
        return h, z, p, logits


class Linear(OneLayer):
    """The same without an activation.

    No unit is saturated, so that no gradient is small enough for the rounding of secure sums to
    change its sign, which Adam would make a full step.
    """

    activation = staticmethod(tf.identity)


def two_views(images, example_ids, round_number):
    """Two views of each image, float32, which depend on its id and the round."""
    x = tf.cast(images, tf.float32) / 255
    moved = tf.cast(example_ids + 3 * round_number, tf.float32)[:, None, None, None]
    return x + tf.sin(moved), tf.square(x) + 0.1 * tf.cos(moved)
