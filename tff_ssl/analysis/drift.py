"""Drift of a DCCO round of several local steps from as many centralized steps.

With one local step they are equal (Appendix A). With more, the clients continue with second moments
of the broadcast model, and with its means ("stale statistics") or with means that follow the
client's model. A step on only some of a client's examples has only their gradient ("partial
gradients"; section 6 of the paper).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, statistics_of_batch
from tff_ssl.templates.task import Task


class Drift(NamedTuple):
    """|round - centralized| / |centralized| of the model deltas, and the cosine of their angle."""

    relative_distance: float
    cosine: float


def measure(
    task: Task,
    weights: Sequence[tf.Tensor],
    clients: Sequence[Mapping[str, np.ndarray]],
    hyperparameters: two_stage.DCCOHyperparameters,
) -> Drift:
    """Compares one round from `weights` with `local_steps` centralized steps from them.

    A centralized step uses all examples of the cohort and the clients' learning rate; the views of
    an example are those of the pass that its client has reached by that step. The clients' examples
    are arrays [n, ...] by their names in `task.element_type`.
    """
    federated = _round_delta(task, weights, clients, hyperparameters)
    centralized = _centralized_delta(task, weights, clients, hyperparameters)
    length = tf.linalg.global_norm(centralized)
    pairs = list(zip(federated, centralized, strict=True))
    difference = [a - b for a, b in pairs]
    product = tf.add_n([tf.reduce_sum(a * b) for a, b in pairs])
    return Drift(
        float(tf.linalg.global_norm(difference) / length),
        float(product / length / tf.linalg.global_norm(federated)),
    )


def _round_delta(task, weights, clients, hyperparameters) -> list[tf.Tensor]:
    """The weights before a DCCO round minus those after it."""
    server_optimizer = tff.learning.optimizers.build_sgdm(1.0)
    process = two_stage.build_dcco(task, hyperparameters, server_optimizer).process
    model = tff.learning.models.ModelWeights(tuple(np.asarray(w) for w in weights), ())
    state = process.set_model_weights(process.initialize(), model)
    cohort = [tf.data.Dataset.from_tensor_slices(dict(client)) for client in clients]
    after = process.next(state, cohort).state.global_model_weights.trainable
    return [w - a for w, a in zip(weights, after, strict=True)]


def _centralized_delta(task, weights, clients, hyperparameters) -> list[tf.Tensor]:
    """The weights before the centralized steps minus those after them."""
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
                tf.constant(union["image"][passes == number]),
                tf.constant(union["example_id"][passes == number]),
                tf.constant(number, tf.int64),
            )
            for number in np.unique(passes)
        ]
        return tuple(tf.concat(views, 0) for views in zip(*parts, strict=True))

    # Not a tf.function: tracing it for each comparison would take longer than its few calls.
    def gradient(current, step):
        views = views_at(step)
        with tf.GradientTape() as tape:
            tape.watch(current)
            first, second = task.model.apply_pair(Weights(current, ()), *views, training=True)
            encodings = (loss.prepared(each.z, hyperparameters) for each in (first, second))
            statistics = statistics_of_batch(loss, *encodings)
            value = loss.terms(statistics, hyperparameters).loss
        return tape.gradient(value, current)

    current = tuple(tf.convert_to_tensor(w) for w in weights)
    rate = hyperparameters.client_learning_rate
    for step in range(hyperparameters.local_steps):
        pairs = zip(current, gradient(current, step), strict=True)
        current = tuple(w - rate * g for w, g in pairs)
    return [w - a for w, a in zip(weights, current, strict=True)]
