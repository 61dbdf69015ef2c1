"""The server's step, an optimizer that takes the mean update as its gradient, and its clock."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import non_finite


@tff.tensorflow.computation(np.int64)
def next_round_number(round_number):
    return round_number + 1


class _TracedAsWritten(tff.learning.optimizers.Optimizer):
    """An optimizer whose step AutoGraph does not convert.

    TFF's finalizer has an `if` that AutoGraph must convert. AutoGraph would continue with the
    source of the optimizer, which has none, and delay a program's start by nearly a second.
    """

    def __init__(self, optimizer: tff.learning.optimizers.Optimizer):
        self._optimizer = optimizer

    def initialize(self, specs: Any) -> Any:
        return self._optimizer.initialize(specs)

    def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
        step = tf.autograph.experimental.do_not_convert(self._optimizer.next)
        return step(state, weights, gradients)


def build_server_step(
    optimizer: tff.learning.optimizers.Optimizer, weights_type: tff.types.StructType
) -> tff.learning.templates.FinalizerProcess:
    """TFF's finalizer, which skips updates that are not finite and logs their norm.

    The optimizer's step must not branch on a tensor by `if`.
    """
    return tff.learning.templates.build_apply_optimizer_finalizer(
        _TracedAsWritten(optimizer), weights_type, non_finite.reject_non_finite_update
    )


def server_step(
    optimizer: tff.learning.optimizers.Optimizer, state: Any, weights: Any, update: Any
) -> tuple[Any, tff.learning.models.ModelWeights, dict[str, tf.Tensor]]:
    """The step of `build_server_step` as a function of tensors: (state, weights, measurements)."""
    new_state, trainable = optimizer.next(state, weights.trainable, update)
    reject, measurements = non_finite.reject_non_finite_update(new_state, update)
    state, trainable = tf.nest.map_structure(
        lambda old, new: tf.where(reject, old, new),
        (state, tuple(weights.trainable)),
        (new_state, tuple(trainable)),
    )
    new = tff.learning.models.ModelWeights(trainable, tuple(weights.non_trainable))
    return state, new, dict(measurements)
