"""DCCO with one communication a round: the statistics of earlier rounds in place of this round's.

The DCCO paper asks for it in section 6: "How can we reduce this to one round of communication?"
Here the server keeps a moving average S of the cohorts' mean statistics. A client gets S beside the
model, takes its step on the loss of S with gradients through its own statistics, and sends both
its delta and its statistics:

  S_r = m S_(r-1) + (1 - m) <.>_A of round r-1,    <.>_C = <.>_k + sg(S_r - <.>_k).

What it saves: one pass over the clients' images, and one of two messages in each direction; and a
round of one stage lowers to the map-reduce forms. What it costs: the statistics are those of older
weights and other clients, so a round no longer equals a centralized step. Round 0 has no statistics
yet: it only gathers them.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, combined_statistics
from tff_ssl.templates import non_finite
from tff_ssl.templates.micro_batches import mean_over_examples
from tff_ssl.templates.task import Task


@dataclasses.dataclass(frozen=True)
class DCCOOneStageHyperparameters(two_stage.DCCOHyperparameters):
    """DCCO's hyperparameters, for one local step.

    Attributes:
      statistics_momentum: m of the server's moving average; 0 takes the last round's statistics.
    """

    statistics_momentum: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.statistics_momentum < 1:
            raise ValueError(
                f"statistics_momentum must be in [0, 1); got {self.statistics_momentum}"
            )
        if self.local_steps != 1 or self.batch_size:
            raise ValueError("dcco_one_stage takes one local step on all of a client's examples")


class ClientWorkState(NamedTuple):
    """What the server keeps for the clients' work.

    Attributes:
      round_number: int64, the round that comes next; the views depend on it.
      statistics_aggregator: State of the statistics' aggregator.
      statistics: S of the round that comes next.
    """

    round_number: Any
    statistics_aggregator: Any
    statistics: Any


class LocalRound(NamedTuple):
    """What a client sends.

    Attributes:
      result: `tff.learning.templates.ClientResult` with the model delta and w_k.
      statistics: Encoding statistics of its examples.
      samples: N_k, int64.
      dropped: 1 where delta or statistics are not finite (then both weigh 0), else 0; int64.
    """

    result: Any
    statistics: Any
    samples: Any
    dropped: Any


class DCCOOneStage(NamedTuple):
    """The round; the types that a client receives and sends in it."""

    process: tff.learning.templates.LearningProcess
    initial_weights: Callable[[int], tff.learning.models.ModelWeights]
    downloads: tuple[tff.Type, ...]
    uploads: tuple[tff.Type, ...]


def build_dcco_one_stage(
    task: Task,
    hyperparameters: DCCOOneStageHyperparameters | None = None,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    statistics_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    metric_sum: Callable[[tff.Value], tff.Value] = tff.federated_sum,
) -> DCCOOneStage:
    """Builds the round; arguments and errors as those of `dcco.build_dcco`."""
    two_stage.check_task(task)
    hyperparameters = hyperparameters or DCCOOneStageHyperparameters()
    model, loss, d = task.model, STATISTICS_LOSSES[task.objective], task.model.projector[-1]
    momentum = hyperparameters.statistics_momentum

    def initial_weights(seed):
        return tff.learning.models.ModelWeights(*model.init(seed))

    initial_model = tff.tensorflow.computation(lambda: initial_weights(0))
    weights_type = initial_model.type_signature.result
    no_statistics = tff.tensorflow.computation(lambda: loss.zero(d))
    statistics_type = no_statistics.type_signature.result
    mean = tff.aggregators.MeanFactory()
    weight_type = tff.types.TensorType(np.float32)
    statistics_mean = (statistics_aggregator or mean).create(statistics_type, weight_type)
    update_mean = (update_aggregator or mean).create(weights_type.trainable, weight_type)
    examples_type = tff.types.SequenceType(task.element_type)

    @tff.tensorflow.computation(weights_type, np.int64, statistics_type, examples_type)
    @tf.function(autograph=False)
    def local_round(weights, round_number, earlier, examples):
        def statistics_and_gradient(batch):
            x1, x2 = task.two_views(batch["image"], batch["example_id"], round_number)
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                first, second = model.apply_pair(weights, x1, x2, training=True)
                local = loss.of_batch(first.z, second.z)
                value = loss.terms(combined_statistics(local, earlier), hyperparameters).loss
            return local, tape.gradient(value, weights.trainable)

        zeros = (loss.zero(d), tf.nest.map_structure(tf.zeros_like, weights.trainable))
        means, samples = mean_over_examples(
            examples, statistics_and_gradient, zeros, hyperparameters.micro_batch_size
        )
        (statistics, gradient), is_finite = non_finite.zero_unless_finite(means)
        rate = tf.where(tf.equal(round_number, 0), 0.0, hyperparameters.client_learning_rate)
        delta = tf.nest.map_structure(lambda g: rate * g, gradient)
        weight = hyperparameters.client_weight(samples, is_finite)
        return LocalRound(
            tff.learning.templates.ClientResult(delta, weight),
            statistics,
            samples,
            1 - tf.cast(is_finite, tf.int64),
        )

    @tff.tensorflow.computation(np.int64)
    def following(round_number):
        return round_number + 1

    @tff.tensorflow.computation(np.int64, statistics_type, statistics_type)
    def moving_average(round_number, earlier, current):
        m = tf.where(tf.equal(round_number, 0), 0.0, momentum)
        moved = tf.nest.map_structure(lambda a, b: m * a + (1 - m) * b, earlier, current)
        # Statistics of a cohort without any finite client are NaN: they are not kept.
        finite_values, is_finite = non_finite.zero_unless_finite(moved)
        return tf.nest.map_structure(
            lambda new, old: tf.where(is_finite, new, old), finite_values, earlier
        )

    @tff.tensorflow.computation(statistics_type, np.int64, np.int64)
    def server_metrics(statistics, samples, dropped):
        return collections.OrderedDict(
            **loss.terms(statistics, hyperparameters)._asdict(),
            encoding_std=loss.encoding_std(statistics),
            samples=samples,
            dropped_clients=dropped,
        )

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            ClientWorkState(
                tff.federated_value(np.int64(0), tff.SERVER),
                statistics_mean.initialize(),
                tff.federated_eval(no_statistics, tff.SERVER),
            )
        )

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.types.FederatedType(weights_type, tff.CLIENTS),
        tff.types.FederatedType(examples_type, tff.CLIENTS),
    )
    def next_work(state, weights, client_data):
        shared = tff.federated_broadcast((state.round_number, state.statistics))
        local = tff.federated_map(local_round, (weights, shared[0], shared[1], client_data))
        current = statistics_mean.next(
            state.statistics_aggregator, local.statistics, local.result.update_weight
        )
        counts = (metric_sum(local.samples), metric_sum(local.dropped))
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(
                ClientWorkState(
                    tff.federated_map(following, state.round_number),
                    current.state,
                    tff.federated_map(
                        moving_average, (state.round_number, state.statistics, current.result)
                    ),
                )
            ),
            local.result,
            tff.federated_map(server_metrics, (current.result, *counts)),
        )

    process = tff.learning.templates.compose_learning_process(
        initial_model,
        tff.learning.templates.build_broadcast_process(weights_type),
        tff.learning.templates.ClientWorkProcess(initialize, next_work),
        update_mean,
        tff.learning.templates.build_apply_optimizer_finalizer(
            server_optimizer or hyperparameters.build_server_optimizer(task.rounds),
            weights_type,
            non_finite.reject_non_finite_update,
        ),
    )
    return DCCOOneStage(
        process,
        initial_weights,
        downloads=(weights_type, tff.types.to_type(np.int64), statistics_type),
        uploads=(statistics_type, weights_type.trainable),
    )
