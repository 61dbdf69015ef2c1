"""Groups of a model's weights: encoder and predictor, and the weights that a client keeps.

A `DualEncoder` has its weights in the order encoder, projector, predictor; a target network has the
first two.
"""

import itertools
from typing import Any

import tensorflow as tf

from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.two_towers import Model


def one_tower(model: Model) -> DualEncoder:
    """The model if it is a single network; a ValueError if it consists of two."""
    if not isinstance(model, DualEncoder):
        raise ValueError("this algorithm needs --towers=one")
    return model


def encoder_of(model: DualEncoder, weights: Any) -> Weights:
    """The weights of encoder and projector, those of a target network."""
    return model.target_model.part_of(weights)


def predictor_of(model: DualEncoder, weights: Any) -> Weights:
    encoder = model.target_model
    return Weights(
        tuple(weights.trainable)[len(encoder.trainable_specs) :],
        tuple(weights.non_trainable)[len(encoder.non_trainable_specs) :],
    )


def joined(encoder: Any, predictor: Any) -> Weights:
    """The weights of an online network, from those of encoder (with projector) and predictor."""
    return Weights(
        (*encoder.trainable, *predictor.trainable),
        (*encoder.non_trainable, *predictor.non_trainable),
    )


def squared_distance(a: Any, b: Any) -> tf.Tensor:
    """|a - b|^2 over all tensors, float32."""
    pairs = zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)
    return tf.add_n([tf.reduce_sum(tf.math.squared_difference(x, y)) for x, y in pairs])


def where(condition: tf.Tensor, yes: Any, no: Any) -> Any:
    """The structure `yes` if the condition, a scalar, holds; otherwise `no`."""
    return tf.nest.map_structure(lambda y, n: tf.where(condition, y, n), yes, no)


class LocalWeights:
    """The weights that stay with a client: all, none, or those of batch norms.

    The latter are scale, offset and moving averages.
    """

    def __init__(self, model: DualEncoder, *, everything: bool = False, batch_norm: bool = False):
        def select_local(specs):
            return [everything or (batch_norm and spec.batch_norm) for spec in specs]

        self._trainable = select_local(model.trainable_specs)
        self._non_trainable = select_local(model.non_trainable_specs)

    def select(self, weights: Any) -> Weights:
        """The weights that stay with the client, in the order of the model's weights."""
        return Weights(
            tuple(itertools.compress(weights.trainable, self._trainable)),
            tuple(itertools.compress(weights.non_trainable, self._non_trainable)),
        )

    def restore(self, weights: Any, local: Any) -> Weights:
        """The whole model's weights, with the client's own (see `select`) in their places."""

        def merged(shared, kept, stay):
            kept = iter(kept)
            return tuple(next(kept) if stays else w for w, stays in zip(shared, stay, strict=True))

        return Weights(
            merged(weights.trainable, local.trainable, self._trainable),
            merged(weights.non_trainable, local.non_trainable, self._non_trainable),
        )
