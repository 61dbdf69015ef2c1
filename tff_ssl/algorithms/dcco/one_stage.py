"""DCCO with one communication in each round, which uses the statistics of earlier rounds.

The DCCO paper asks for such a form in section 6: "How can we reduce this to one round of
communication?" Here the server keeps a moving average S of the cohorts' mean statistics. A client
gets S beside the model, takes its step on the loss of S with gradients through its own statistics,
and sends both its delta and its statistics:

  S_r = m S_(r-1) + (1 - m) <.>_A of round r-1,    <.>_C = <.>_k + sg(S_r - <.>_k).

The means and the second moments about the means are averaged over rounds separately. Averages of
second moments about the origin would count the drift of the means from round to round as variance,
and a drift that F and G share as correlation.

This form saves one pass over the clients' images, and one of two messages in each direction; and
its round, which has one stage, lowers to the map-reduce forms. Its cost is that the statistics are
those of older weights and other clients, so that a round no longer equals a centralized step. Round
0 has no statistics yet and only gathers them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco.parts import (
    DCCOHyperparameters,
    DCCOParts,
    build_parts,
    build_round_metrics,
)
from tff_ssl.objectives.statistics import combined_statistics
from tff_ssl.templates import non_finite
from tff_ssl.templates.micro_batches import mean_over_examples
from tff_ssl.templates.round_number import next_round_number
from tff_ssl.templates.stateless_clients import StatelessClients
from tff_ssl.templates.task import Task


@dataclasses.dataclass(frozen=True)
class DCCOOneStageHyperparameters(DCCOHyperparameters):
    """DCCO's hyperparameters, for one local step.

    Attributes:
      statistics_momentum: Momentum m of the server's moving average; 0 for the statistics of the
        last round alone.
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
    """The server's state of the clients' work.

    Attributes:
      round_number: Number of the next round, int64; the views depend on it.
      statistics_aggregator: State of the statistics' aggregator.
      statistics: Statistics S of the next round, with second moments about the means.
    """

    round_number: Any
    statistics_aggregator: Any
    statistics: Any


class LocalRound(NamedTuple):
    """The values that a client sends.

    Attributes:
      result: `tff.learning.templates.ClientResult` with the model delta and w_k.
      statistics: Encoding statistics of its examples.
      samples: Number of examples N_k, int64.
      dropped: 1 where delta or statistics are not finite, so that both weigh 0; else 0; int64.
    """

    result: Any
    statistics: Any
    samples: Any
    dropped: Any


def build_local_round(parts: DCCOParts) -> tff.Computation:
    """Builds the client's work: (weights, round number, S, examples) -> `LocalRound`."""
    task, loss, hyperparameters = parts.task, parts.loss, parts.hyperparameters
    d = task.model.projector[-1]

    @tff.tensorflow.computation(
        parts.weights_type, np.int64, parts.statistics_type, parts.examples_type
    )
    @tf.function(autograph=False)
    def local_round(weights, round_number, centred, examples):
        earlier = loss.uncentred(centred)

        def statistics_and_gradient(batch):
            x1, x2 = task.two_views(batch["image"], batch["example_id"], round_number)
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                first, second = task.model.apply_pair(weights, x1, x2, training=True)
                local = loss.of_batch(first.z, second.z)
                value = loss.terms(combined_statistics(local, earlier), hyperparameters).loss
            return local, tape.gradient(value, weights.trainable)

        zeros = (loss.zero(d), tf.nest.map_structure(tf.zeros_like, weights.trainable))
        means, samples = mean_over_examples(
            examples, statistics_and_gradient, zeros, hyperparameters.micro_batch_size
        )
        (statistics, gradient), is_finite = non_finite.zero_unless_finite(means)
        # Round 0 has no earlier statistics.
        rate = tf.where(tf.equal(round_number, 0), 0.0, hyperparameters.client_learning_rate)
        delta = tf.nest.map_structure(lambda g: rate * g, gradient)
        weight = hyperparameters.client_weight(samples, is_finite)
        return LocalRound(
            tff.learning.templates.ClientResult(delta, weight),
            statistics,
            samples,
            1 - tf.cast(is_finite, tf.int64),
        )

    return local_round


def build_moving_average(parts: DCCOParts, momentum: float) -> tff.Computation:
    """Builds the server's moving average: (round number, S, cohort's statistics) -> the next S.

    S has second moments about its means; the cohort's statistics have them about the origin.
    """

    @tff.tensorflow.computation(np.int64, parts.statistics_type, parts.statistics_type)
    def moving_average(round_number, earlier, current):
        m = tf.where(tf.equal(round_number, 0), 0.0, momentum)
        moved = tf.nest.map_structure(
            lambda a, b: m * a + (1 - m) * b, earlier, parts.loss.centred(current)
        )
        # The statistics of a cohort without any finite client are NaN and are not kept.
        finite_values, is_finite = non_finite.zero_unless_finite(moved)
        return tf.nest.map_structure(
            lambda new, old: tf.where(is_finite, new, old), finite_values, earlier
        )

    return moving_average


def build_client_work(parts: DCCOParts, momentum: float) -> tuple[tff.Computation, tff.Computation]:
    """Builds `initialize` and `next` of a `ClientWorkProcess`."""
    local_round = build_local_round(parts)
    moving_average = build_moving_average(parts, momentum)
    round_metrics = build_round_metrics(parts)

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            ClientWorkState(
                tff.federated_value(np.int64(0), tff.SERVER),
                parts.statistics_mean.initialize(),
                tff.federated_eval(parts.no_statistics, tff.SERVER),
            )
        )

    @tff.federated_computation(
        initialize.type_signature.result,
        parts.at_clients(parts.weights_type),
        parts.at_clients(parts.examples_type),
    )
    def next_work(state, weights, client_data):
        shared = tff.federated_broadcast((state.round_number, state.statistics))
        local = tff.federated_map(local_round, (weights, shared[0], shared[1], client_data))
        current = parts.statistics_mean.next(
            state.statistics_aggregator, local.statistics, local.result.update_weight
        )
        counts = (parts.metric_sum(local.samples), parts.metric_sum(local.dropped))
        new_state = ClientWorkState(
            tff.federated_map(next_round_number, state.round_number),
            current.state,
            tff.federated_map(
                moving_average, (state.round_number, state.statistics, current.result)
            ),
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(new_state),
            local.result,
            tff.federated_map(round_metrics, (current.result, *counts)),
        )

    return initialize, next_work


def build_dcco_one_stage(
    task: Task,
    hyperparameters: DCCOOneStageHyperparameters | None = None,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    statistics_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    metric_sum: Callable[[tff.Value], tff.Value] = tff.federated_sum,
) -> StatelessClients:
    """Builds the round of one stage; arguments and errors are those of `two_stage.build_dcco`."""
    hyperparameters = hyperparameters or DCCOOneStageHyperparameters()
    parts = build_parts(
        task, hyperparameters, server_optimizer, statistics_aggregator, update_aggregator,
        metric_sum,
    )  # fmt: skip
    client_work = build_client_work(parts, hyperparameters.statistics_momentum)
    return StatelessClients(
        task.model,
        parts.compose(*client_work),
        parts.initial_weights,
        downloads=(parts.weights_type, tff.types.to_type(np.int64), parts.statistics_type),
        uploads=(parts.statistics_type, parts.weights_type.trainable),
    )
