"""The composition of a round of two stages, which DCCO and FedSC share.

In the first stage, clients send statistics, and the server forms their mean over the cohort; in the
second, clients train with this mean and send model deltas.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco import client
from tff_ssl.algorithms.dcco.parts import (
    DCCOParts,
    build_centre,
    build_round_metrics,
    loss_and_spread,
    with_client_work,
)
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.losses.means import Means
from tff_ssl.templates import non_finite
from tff_ssl.templates.round_number import next_round_number

# (state, weights, examples) -> a result at the server; for use in a `tff.federated_computation`.
_Stage = Callable[[tff.Value, tff.Value, tff.Value], Any]


class ClientWorkState(NamedTuple):
    """The server's state of the clients' work."""

    round_number: Any  #: Number of the next round, int64; the views depend on it.
    statistics_aggregator: Any  #: State of the statistics' aggregator.
    statistics: Any  #: Centred statistics of the last cohort.
    #: What the clients receive about the cohort in the second stage, beside its statistics.
    cohort: Any


def with_first_reference(
    parts: DCCOParts,
    process: tff.learning.templates.LearningProcess,
    replace: Callable[[Any, Means], Any],
) -> tff.learning.templates.LearningProcess:
    """The process whose initial states, also with other weights, have `client.first_reference`.

    `replace` gives the state of the clients' work another reference.
    """
    state_type = process.initialize.type_signature.result.member

    @tff.tensorflow.computation(state_type, parts.weights_type)
    def set_model_weights(state, weights):
        reference = client.first_reference(parts, weights)
        return tff.learning.templates.LearningAlgorithmState(
            weights,
            state.distributor,
            replace(state.client_work, reference),
            state.aggregator,
            state.finalizer,
        )

    @tff.federated_computation
    def initialize():
        state = process.initialize()
        return tff.federated_map(set_model_weights, (state, state.global_model_weights))

    return tff.learning.templates.LearningProcess(
        initialize, process.next, process.get_model_weights, set_model_weights
    )


def with_means(statistics: Any, reference: Means) -> Any:
    """Statistics with other means."""
    return statistics._replace(f=reference.f, g=reference.g)


def _build_statistics_stage(
    parts: DCCOParts,
    local_statistics: tff.Computation,
    describe_cohort: Callable[[tff.Value, tff.Value], tff.Value],
) -> _Stage:
    """Stage 1: (state, weights, examples) -> state with the cohort's statistics."""
    centre = build_centre(parts)
    means_of = tff.tensorflow.computation(lambda s: Means(s.f, s.g), parts.statistics_type)

    def aggregate_statistics(state, weights, client_data):
        reference = tff.federated_map(means_of, state.statistics)
        shared = tff.federated_broadcast((state.round_number, reference))
        local = tff.federated_map(local_statistics, (weights, *shared, client_data))
        mean = parts.statistics_mean.next(
            state.statistics_aggregator, local.statistics, local.weight
        )
        cohort = describe_cohort(state.cohort, local.weight)
        statistics = tff.federated_map(centre, (mean.result, reference))
        new_state = ClientWorkState(state.round_number, mean.state, statistics, cohort)
        return tff.federated_zip(new_state)

    return aggregate_statistics


def _build_update_stage(parts: DCCOParts, local_update: tff.Computation) -> _Stage:
    """Stage 2: (state, weights, examples) -> `MeasuredProcessOutput` with the model deltas."""
    round_metrics = build_round_metrics(parts)

    @tff.tensorflow.computation(parts.statistics_type)
    def keep_finite(statistics):
        # Without any finite client, second moments are zeros, as in the first round: a state with
        # NaN could not be saved.
        finite, _ = non_finite.zero_unless_finite(statistics)
        return with_means(finite, Means(statistics.f, statistics.g))

    def update_locally(state, weights, client_data):
        shared = tff.federated_broadcast((state.round_number, state.statistics, state.cohort))
        local = tff.federated_map(local_update, (weights, *shared, client_data))
        counts = (parts.metric_sum(local.samples), parts.metric_sum(local.dropped))
        metrics = tff.federated_map(round_metrics, (state.statistics, *counts))
        new_state = ClientWorkState(
            tff.federated_map(next_round_number, state.round_number),
            state.statistics_aggregator,
            tff.federated_map(keep_finite, state.statistics),
            state.cohort,
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(new_state), local.result, metrics
        )

    return update_locally


def _build_statistics_round(
    parts: DCCOParts, process: tff.learning.templates.LearningProcess, aggregate_statistics: _Stage
) -> tff.learning.templates.LearningProcess:
    """The first stage alone, whose `next` stores the cohort's statistics in the state."""
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


def compose_two_stages(
    parts: DCCOParts,
    local_statistics: tff.Computation,
    local_update: tff.Computation,
    first_cohort: Callable[[], tff.Value],
    describe_cohort: Callable[[tff.Value, tff.Value], tff.Value],
    with_group_size: Callable[[Any, float], Any] | None = None,
) -> StatelessClients:
    """Composes the round of two stages, and each stage as a process of its own.

    Args:
      parts: Task, means and server step.
      local_statistics: A client's stage 1: (weights, round number, reference, examples) ->
        `client.LocalStatistics`.
      local_update: A client's stage 2: (weights, round number, the cohort's statistics, `cohort`,
        examples) -> `client.LocalUpdate`.
      first_cohort: () -> `ClientWorkState.cohort` before the first round, at the server.
      describe_cohort: (`cohort` of the last round, the clients' weights in stage 1) -> `cohort` of
        this round, at the server.
      with_group_size: See `StatelessClients`.
    """

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            ClientWorkState(
                tff.federated_value(np.int64(0), tff.SERVER),
                parts.statistics_mean.initialize(),
                tff.federated_eval(parts.no_statistics, tff.SERVER),
                first_cohort(),
            )
        )

    aggregate_statistics = _build_statistics_stage(parts, local_statistics, describe_cohort)
    update_locally = _build_update_stage(parts, local_update)
    received = (parts.at_clients(t) for t in (parts.weights_type, parts.examples_type))
    work_type = (initialize.type_signature.result, *received)

    @tff.federated_computation(*work_type)
    def next_both(state, weights, client_data):
        state = aggregate_statistics(state, weights, client_data)
        return update_locally(state, weights, client_data)

    @tff.federated_computation(*work_type)
    def next_update(state, weights, client_data):
        return update_locally(state, weights, client_data)

    def composed(next_work: tff.Computation) -> tff.learning.templates.LearningProcess:
        return with_first_reference(
            parts,
            parts.compose(initialize, next_work),
            lambda work, reference: work._replace(
                statistics=with_means(work.statistics, reference)
            ),
        )

    process = composed(next_both)
    return StatelessClients(
        parts.task.model,
        process,
        parts.initial_weights,
        downloads=(
            parts.weights_type,
            tff.types.to_type(np.int64),
            parts.reference_type,
            parts.statistics_type,
            initialize.type_signature.result.member.cohort,
        ),
        uploads=(parts.statistics_type, parts.weights_type.trainable),
        compose_stages=lambda: {
            "statistics": _build_statistics_round(parts, process, aggregate_statistics),
            "update": composed(next_update),
        },
        with_group_size=with_group_size,
    )
