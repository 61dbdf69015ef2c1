"""An online network's two parts: encoder (with its projector), and predictor.

The weights of a `DualEncoder` are in the order encoder, projector, predictor; a target network has
the first two.
"""

from typing import Any

import tensorflow as tf

from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.two_towers import Model


def one_tower(model: Model) -> DualEncoder:
    """The model, as one network.

    Raises:
      ValueError: If it has two.
    """
    if not isinstance(model, DualEncoder):
        raise ValueError("this algorithm needs --towers=one")
    return model


def encoder_of(model: DualEncoder, weights: Any) -> Weights:
    """Encoder and projector of the model's weights: what a target network has."""
    return model.target_model.part_of(weights)


def predictor_of(model: DualEncoder, weights: Any) -> Weights:
    """The model's weights after those of encoder and projector."""
    trainable, non_trainable = (
        len(specs)
        for specs in (model.target_model.trainable_specs, model.target_model.non_trainable_specs)
    )
    return Weights(
        tuple(weights.trainable)[trainable:], tuple(weights.non_trainable)[non_trainable:]
    )


def joined(encoder: Any, predictor: Any) -> Weights:
    """The online network of two parts."""
    return Weights(
        (*encoder.trainable, *predictor.trainable),
        (*encoder.non_trainable, *predictor.non_trainable),
    )


def squared_distance(a: Any, b: Any) -> tf.Tensor:
    """|a - b|^2 over all tensors, float32."""
    return tf.add_n(
        [
            tf.reduce_sum(tf.math.squared_difference(x, y))
            for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)
        ]
    )
