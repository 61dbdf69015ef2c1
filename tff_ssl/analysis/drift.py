"""How far a DCCO round of several local steps is from as many centralized steps.

With one local step they are equal (Appendix A). With more, the clients go on with statistics of the
broadcast model ("stale statistics"), and where a step takes a part of a client's examples, only
these take part in its gradient ("partial gradients"; section 6 of the paper).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.statistics import STATISTICS_LOSSES
from tff_ssl.templates.task import Task


class Drift(NamedTuple):
    """A round's mean model delta against that of centralized gradient descent.

    Attributes:
      relative_distance: |round - centralized| / |centralized|.
      cosine: Of the angle between the two.
    """

    relative_distance: float
    cosine: float


def measure(
    task: Task,
    weights: Sequence[tf.Tensor],
    clients: Sequence[Mapping[str, np.ndarray]],
    hyperparameters: two_stage.DCCOHyperparameters,
) -> Drift:
    """Compares one round from `weights` with `local_steps` centralized steps from them.

    The centralized steps take all examples of the cohort, with the clients' learning rate; each
    example has the views of the pass in which its client is at that step.

    Args:
      task: What the algorithm works on.
      weights: The model's trainable weights.
      clients: The cohort: each client's examples, arrays by the names of `task.element_type`.
      hyperparameters: DCCO's.
    """
    ours = _round_delta(task, weights, clients, hyperparameters)
    theirs = _centralized_delta(task, weights, clients, hyperparameters)
    length = tf.linalg.global_norm(theirs)
    difference = [a - b for a, b in zip(ours, theirs, strict=True)]
    product = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(ours, theirs, strict=True)])
    return Drift(
        float(tf.linalg.global_norm(difference) / length),
        float(product / length / tf.linalg.global_norm(ours)),
    )


def _round_delta(task, weights, clients, hyperparameters) -> list[tf.Tensor]:
    server_optimizer = tff.learning.optimizers.build_sgdm(1.0)
    process = two_stage.build_dcco(task, hyperparameters, server_optimizer).process
    model = tff.learning.models.ModelWeights(tuple(np.asarray(w) for w in weights), ())
    state = process.set_model_weights(process.initialize(), model)
    cohort = [tf.data.Dataset.from_tensor_slices(dict(client)) for client in clients]
    after = process.next(state, cohort).state.global_model_weights.trainable
    return [w - a for w, a in zip(weights, after, strict=True)]


def _centralized_delta(task, weights, clients, hyperparameters) -> list[tf.Tensor]:
    loss = STATISTICS_LOSSES[task.objective]
    union: dict[str, Any] = {
        name: np.concatenate([client[name] for client in clients]) for name in clients[0]
    }

    sizes = np.array([len(client["example_id"]) for client in clients])
    batches = np.maximum(sizes // (hyperparameters.batch_size or sizes), 1)

    def views_at(step):
        passes = np.repeat(step // batches, sizes)
        parts = [
            task.two_views(
                tf.constant(union["image"][passes == one]),
                tf.constant(union["example_id"][passes == one]),
                tf.constant(one, tf.int64),
            )
            for one in np.unique(passes)
        ]
        return tuple(tf.concat(views, 0) for views in zip(*parts, strict=True))

    # Not a tf.function: tracing it for each comparison would take longer than its few calls.
    def gradient(current, step):
        views = views_at(step)
        with tf.GradientTape() as tape:
            tape.watch(current)
            first, second = task.model.apply_pair(Weights(current, ()), *views, training=True)
            value = loss.terms(loss.of_batch(first.z, second.z), hyperparameters).loss
        return tape.gradient(value, current)

    current = tuple(tf.convert_to_tensor(w) for w in weights)
    for step in range(hyperparameters.local_steps):
        gradients = gradient(current, step)
        rate = hyperparameters.client_learning_rate
        current = tuple(w - rate * g for w, g in zip(current, gradients, strict=True))
    return [w - a for w, a in zip(weights, current, strict=True)]
