"""DCCO: distributed cross correlation optimization.

"Federated Training of Dual Encoding Models on Small Non-IID Client Datasets", section 3.3 and
Figure 2. A round has two stages:

1. each client encodes two views of its images with the broadcast model and sends the encoding
   statistics <F>, <F^2>, <G>, <G^2>, <F G^T>; the server averages them by N_k / N (Eq. 3);
2. each client takes one step of gradient descent on the CCO loss (Eq. 1) of the aggregated
   statistics, with gradients through its own statistics only; the server averages the model deltas
   with the same weights and gives them to its optimizer as a gradient.

One round equals one centralized step on the union of the clients' examples (Appendix A). Therefore
clients may be folded into groups, and a client may work in micro-batches: once the aggregated
statistics are fixed, the gradient is a sum over examples (Eq. 9).

The statistics are taken about a reference that all clients share (see `losses.cco`): the means of
the last cohort, which the server keeps and broadcasts with the model, 2 d numbers. In the first
round it is the origin, since there are no means yet. The server adds the reference to the means and
centres the second moments, and broadcasts the result for the second stage. All this is equivalent
to the paper's statistics, for any reference, and keeps the digits of float32 where the encodings'
mean is large. Where aggregation is private, the reference is a function of released statistics.

Extensions that section 6 of the paper leaves open:

- the statistics of VICReg or of the spectral contrastive loss (`losses.spectral`) in place of
  CCO's, for which the same argument holds;
- two encoders (`models.two_towers`);
- several local steps on larger clients (`local_steps`). The second moments of the loss are then
  those of the broadcast model, and a step may see a part of a client's examples ("partial
  gradients"). The means follow the client's model (`means_follow`): at its step t, client k uses

    mu_A + <F(theta_t)>_k - <F(theta_0)>_k

  on the examples and views of the step, and likewise for G, with the second moments about the means
  held. This takes one more forward pass. With means that are held as well ("stale statistics"), the
  loss pushes a common move of the encodings further away, and diverges at larger learning rates
  (see `one_stage`). `launch.studies.drift` measures both;
- one communication in each round (`one_stage`).

The paper says nothing of clients that drop out. A client that drops out before it has sent its
statistics is not part of the round. One that drops out between the stages is part of the
statistics, which cannot be corrected any more, but its delta is missing. If n clients with weights
w_k take part in the first stage, and the set S of them in the second, the update is

  n / |S| * sum_(k in S) w_k delta_k / sum_k w_k,

the estimate from S of the sum over the whole cohort (Horvitz and Thompson). If dropping out does
not depend on the data, the expectation of this update is the update of the complete round, for
clients of any sizes. A mean over S by weights would not have this expectation, and a mean of the
statistics over S would take one more communication. Therefore a client scales its delta by w_k over
the mean weight of the first stage, and deltas have equal weights. A client whose statistics or
delta are not finite, or that has no examples, counts as one that dropped out before it sent them.

Deviations: the reference; `losses.cco.VARIANCE_EPSILON` keeps a variance of zero from giving NaN.
Batch norm is refused, since it would need one more communication for each layer (section 3.2).
"""

import collections
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco import client
from tff_ssl.algorithms.dcco.parts import (
    DCCOHyperparameters,
    DCCOParts,
    build_centre,
    build_parts,
    build_round_metrics,
    loss_and_spread,
    with_client_work,
)
from tff_ssl.losses.means import Means
from tff_ssl.templates import non_finite
from tff_ssl.templates.round_number import next_round_number
from tff_ssl.templates.stateless_clients import StatelessClients
from tff_ssl.templates.task import Task


class ClientWorkState(NamedTuple):
    """The server's state of the clients' work.

    Attributes:
      round_number: Number of the next round, int64; the views depend on it.
      statistics_aggregator: State of the statistics' aggregator.
      statistics: Centred encoding statistics <.>_A of the last cohort.
      mean_weight: Mean weight w_k of the clients that contributed to these statistics, float32.
    """

    round_number: Any
    statistics_aggregator: Any
    statistics: Any
    mean_weight: Any


@tff.tensorflow.computation(np.float32)
def _counts(weight):
    """A client's contributions to the numbers of examples and of clients, from its weight N_k."""
    samples = tf.cast(weight, tf.int64)
    return collections.OrderedDict(samples=samples, clients=tf.minimum(samples, 1))


@tff.tensorflow.computation(np.int64, np.int64)
def _ratio(samples, clients):
    return tf.cast(samples / tf.maximum(clients, 1), tf.float32)


def build_initialize(parts: DCCOParts) -> tff.Computation:
    """Builds () -> the `ClientWorkState` before the first round, at the server."""

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            ClientWorkState(
                tff.federated_value(np.int64(0), tff.SERVER),
                parts.statistics_mean.initialize(),
                tff.federated_eval(parts.no_statistics, tff.SERVER),
                tff.federated_value(np.float32(1.0), tff.SERVER),
            )
        )

    return initialize


def build_reference(parts: DCCOParts) -> tff.Computation:
    """Builds (centred statistics of the last cohort) -> reference of the next cohort's statistics.

    A mean that is not finite, of a cohort without any finite client, is replaced by 0.
    """

    @tff.tensorflow.computation(parts.statistics_type)
    def reference(statistics):
        last = Means(statistics.f, statistics.g)
        return Means(*(tf.where(tf.math.is_finite(mean), mean, 0.0) for mean in last))

    return reference


def build_keep_finite(parts: DCCOParts) -> tff.Computation:
    """Builds (statistics of a cohort) -> the statistics that the server keeps after the round.

    Those of a cohort without any finite client are replaced by zeros, as in the first round. A
    state with NaN could not be saved.
    """

    @tff.tensorflow.computation(parts.statistics_type)
    def keep_finite(statistics):
        return non_finite.zero_unless_finite(statistics)[0]

    return keep_finite


def build_aggregate_statistics(parts: DCCOParts) -> Callable[..., tff.Value]:
    """Builds stage 1 (Eq. 3): (state, weights, examples) -> state with the cohort's statistics.

    Returns:
      A function of federated values, for use in a `tff.federated_computation`.
    """
    local_statistics = client.build_local_statistics(parts)
    reference_after, centre = build_reference(parts), build_centre(parts)

    def aggregate_statistics(state, weights, client_data):
        reference = tff.federated_map(reference_after, state.statistics)
        shared = tff.federated_broadcast((state.round_number, reference))
        local = tff.federated_map(local_statistics, (weights, *shared, client_data))
        mean = parts.statistics_mean.next(
            state.statistics_aggregator, local.statistics, local.weight
        )
        mean_weight = state.mean_weight
        if parts.hyperparameters.client_weighting == "examples":  # Otherwise every weight is 1.
            counts = tff.federated_map(_counts, local.weight)
            sums = (parts.metric_sum(counts.samples), parts.metric_sum(counts.clients))
            mean_weight = tff.federated_map(_ratio, sums)
        statistics = tff.federated_map(centre, (mean.result, reference))
        return tff.federated_zip(
            ClientWorkState(state.round_number, mean.state, statistics, mean_weight)
        )

    return aggregate_statistics


def build_update_locally(parts: DCCOParts) -> Callable[..., tff.templates.MeasuredProcessOutput]:
    """Builds stage 2: (state, weights, examples) -> state, model deltas and metrics.

    Returns:
      A function of federated values, for use in a `tff.federated_computation`.
    """
    local_update = client.build_local_update(parts)
    round_metrics, keep_finite = build_round_metrics(parts), build_keep_finite(parts)

    def update_locally(state, weights, client_data):
        shared = tff.federated_broadcast((state.round_number, state.statistics, state.mean_weight))
        local = tff.federated_map(local_update, (weights, *shared, client_data))
        counts = (parts.metric_sum(local.samples), parts.metric_sum(local.dropped))
        metrics = tff.federated_map(round_metrics, (state.statistics, *counts))
        new_state = ClientWorkState(
            tff.federated_map(next_round_number, state.round_number),
            state.statistics_aggregator,
            tff.federated_map(keep_finite, state.statistics),
            state.mean_weight,
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(new_state), local.result, metrics
        )

    return update_locally


def with_group_size(state: Any, ratio: float) -> Any:
    """The state between the stages, where the groups of folded clients change in size.

    A group counts as one client with the examples of all. The mean weight of the first stage is
    then one over groups, and the mean over the second stage's groups is to be scaled by n / |S|,
    and not by the ratio of the numbers of groups.

    Args:
      state: The process's state after the first stage.
      ratio: Clients of a group in the second stage over those of a group in the first, on average.
    """
    work = state.client_work
    return state._replace(
        client_work=work._replace(mean_weight=np.float32(work.mean_weight * ratio))
    )


def build_statistics_round(
    parts: DCCOParts,
    process: tff.learning.templates.LearningProcess,
    aggregate_statistics: Callable[..., tff.Value],
) -> tff.learning.templates.LearningProcess:
    """Builds the first stage alone, whose `next` stores the cohort's statistics in the state."""
    metrics_of_statistics = tff.tensorflow.computation(
        functools.partial(loss_and_spread, parts), parts.statistics_type
    )

    @tff.federated_computation(
        process.initialize.type_signature.result, parts.at_clients(parts.examples_type)
    )
    def next_statistics(state, client_data):
        weights = tff.federated_broadcast(state.global_model_weights)
        client_work = aggregate_statistics(state.client_work, weights, client_data)
        return tff.learning.templates.LearningProcessOutput(
            with_client_work(state, client_work),
            tff.federated_map(metrics_of_statistics, client_work.statistics),
        )

    return tff.learning.templates.LearningProcess(
        process.initialize, next_statistics, process.get_model_weights, process.set_model_weights
    )


def build_dcco(
    task: Task,
    hyperparameters: DCCOHyperparameters | None = None,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    statistics_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    metric_sum: Callable[[tff.Value], tff.Value] = tff.federated_sum,
) -> StatelessClients:
    """Builds DCCO's two-stage round, and each of its stages as a process of its own.

    All three share one state, a `LearningAlgorithmState`. On the same cohort, `next` of the stage
    `statistics` and then `next` of the stage `update` equal `next` of the whole round.

    Args:
      task: Model (with group norm and a projector), views, objective (one of
        `STATISTICS_LOSSES`) and type of the examples. The views must be pure, since both stages
        call them.
      hyperparameters: Hyperparameters; the paper's by default.
      server_optimizer: Optimizer that applies the mean model delta to the model; the one of the
        hyperparameters by default.
      statistics_aggregator: Weighted mean of the statistics; `MeanFactory` by default.
      update_aggregator: Weighted mean of the model deltas; `MeanFactory` by default.
      metric_sum: Sum of a metric over the clients.

    Raises:
      ValueError: If the model has batch norm or fewer than two outputs, or the objective does not
        depend on statistics alone.
    """
    parts = build_parts(
        task, hyperparameters or DCCOHyperparameters(), server_optimizer, statistics_aggregator,
        update_aggregator, metric_sum,
    )  # fmt: skip
    return compose_two_stages(
        parts,
        build_initialize(parts),
        build_aggregate_statistics(parts),
        build_update_locally(parts),
        cohort_type=tff.types.to_type(np.float32),
        with_group_size=with_group_size,
    )


def compose_two_stages(
    parts: DCCOParts,
    initialize: tff.Computation,
    aggregate_statistics: Callable[..., tff.Value],
    update_locally: Callable[..., tff.templates.MeasuredProcessOutput],
    cohort_type: tff.Type,
    with_group_size: Callable[[Any, float], Any] | None = None,
) -> StatelessClients:
    """Composes the round of two stages, and each stage as a process of its own.

    Args:
      parts: Task, means and server step.
      initialize: () -> the state of the clients' work before the first round, at the server; its
        field `statistics` has the statistics of the last cohort.
      aggregate_statistics: Stage 1: (state, weights, examples) -> the state with the statistics of
        this cohort.
      update_locally: Stage 2: (state, weights, examples) -> state, model deltas and metrics.
      cohort_type: Type of what a client receives about the cohort beside its statistics.
      with_group_size: See `StatelessClients`.
    """
    work_type = (
        initialize.type_signature.result,
        parts.at_clients(parts.weights_type),
        parts.at_clients(parts.examples_type),
    )

    @tff.federated_computation(*work_type)
    def next_both(state, weights, client_data):
        state = aggregate_statistics(state, weights, client_data)
        return update_locally(state, weights, client_data)

    @tff.federated_computation(*work_type)
    def next_update(state, weights, client_data):
        return update_locally(state, weights, client_data)

    process = parts.compose(initialize, next_both)
    return StatelessClients(
        parts.task.model,
        process,
        parts.initial_weights,
        downloads=(
            parts.weights_type,
            tff.types.to_type(np.int64),
            parts.reference_type,
            parts.statistics_type,
            cohort_type,
        ),
        uploads=(parts.statistics_type, parts.weights_type.trainable),
        compose_stages=lambda: {
            "statistics": build_statistics_round(parts, process, aggregate_statistics),
            "update": parts.compose(initialize, next_update),
        },
        with_group_size=with_group_size,
    )
