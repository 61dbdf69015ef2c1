"""Treatment of values that are not finite: they are dropped and counted, never averaged."""

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff


def zero_unless_finite(structure: Any) -> tuple[Any, tf.Tensor]:
    """(structure, True), or (zeros, False) if the structure holds a NaN or an infinity."""
    finite = tf.reduce_all(
        tf.stack([tf.reduce_all(tf.math.is_finite(t)) for t in tf.nest.flatten(structure)])
    )
    zeroed = tf.nest.map_structure(lambda t: tf.where(finite, t, tf.zeros_like(t)), structure)
    return zeroed, finite


@tf.autograph.experimental.do_not_convert
def reject_non_finite_update(state: Any, update: Any) -> tuple[tf.Tensor, Any]:
    """TFF's rule that an update that is not finite causes no server step; also logs its norm."""
    reject, measurements = tff.learning.templates.reject_non_finite_update(state, update)
    norm = tf.linalg.global_norm(tf.nest.flatten(update))
    return reject, collections.OrderedDict(update_norm=norm, **measurements)
