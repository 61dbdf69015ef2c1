"""The composition of a round of two stages, which DCCO and FedSC share.

In the first stage, clients send statistics, and the server forms their mean over the cohort; in the
second, clients train with this mean and send model deltas.
"""

import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco import client
from tff_ssl.algorithms.dcco.parts import (
    DCCOParts,
    centre,
    loss_and_spread,
    round_metrics,
)
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.losses.means import Means
from tff_ssl.templates import non_finite
from tff_ssl.templates.server_step import next_round_number, server_step
from tff_ssl.templates.stages import Mean, Stage, Upload

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
        return state._replace(
            global_model_weights=weights, client_work=replace(state.client_work, reference)
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


class CohortRule(NamedTuple):
    """What the clients receive about their cohort in the second stage, beside its statistics."""

    name: str  #: What it is.
    first: Any  #: The value before the first round; of every round, if nothing is counted.
    #: A client's weight in stage 1 -> its contributions to sums over the clients, int64 by name;
    #: None if nothing is counted.
    counted: Callable[[Any], Mapping[str, Any]] | None = None
    of: Callable[..., Any] = dict  #: The sums, by name -> the value.


class TwoStages(NamedTuple):
    """The functions of a round of two stages."""

    #: Stage 1 of a client: (parts, weights, round number, reference, examples) ->
    #: `client.LocalStatistics`.
    local_statistics: Callable[..., Any]
    #: Stage 2: (parts, weights, round number, the cohort's statistics, what `cohort` tells,
    #: examples) -> `client.LocalUpdate`.
    local_update: Callable[..., Any]
    cohort: CohortRule


def keep_finite(statistics: Any) -> Any:
    """The statistics for the next round's state, in which second moments of NaN become zeros.

    Without any finite client, they are then those before the first round: a state with NaN could
    not be saved.
    """
    finite, _ = non_finite.zero_unless_finite(statistics)
    return with_means(finite, Means(statistics.f, statistics.g))


def _cohort_at_server(
    parts: DCCOParts, rule: CohortRule, before: tff.Value, weights: tff.Value
) -> tff.Value:
    """What the rule tells of the clients with these weights, at the server."""
    if rule.counted is None:
        return before
    counted = tff.federated_map(tff.tensorflow.computation(rule.counted, np.float32), weights)
    names = tff.structure.name_list(counted.type_signature.member)
    sums = collections.OrderedDict((name, parts.metric_sum(counted[name])) for name in names)
    of = tff.tensorflow.computation(
        lambda sums: rule.of(**sums), collections.OrderedDict.fromkeys(names, np.int64)
    )
    return tff.federated_map(of, tff.federated_zip(sums))


def _build_statistics_stage(parts: DCCOParts, stages: TwoStages) -> _Stage:
    """Stage 1: (state, weights, examples) -> state with the cohort's statistics."""
    local_statistics = parts.on_client(stages.local_statistics, parts.reference_type)
    centred = parts.on_server(centre, parts.statistics_type, parts.reference_type)
    means_of = tff.tensorflow.computation(lambda s: Means(s.f, s.g), parts.statistics_type)

    def aggregate_statistics(state, weights, client_data):
        reference = tff.federated_map(means_of, state.statistics)
        shared = tff.federated_broadcast((state.round_number, reference))
        local = tff.federated_map(local_statistics, (weights, *shared, client_data))
        mean = parts.statistics_mean.next(
            state.statistics_aggregator, local.statistics, local.weight
        )
        cohort = _cohort_at_server(parts, stages.cohort, state.cohort, local.weight)
        statistics = tff.federated_map(centred, (mean.result, reference))
        new_state = ClientWorkState(state.round_number, mean.state, statistics, cohort)
        return tff.federated_zip(new_state)

    return aggregate_statistics


def _build_update_stage(parts: DCCOParts, stages: TwoStages, cohort_type: tff.Type) -> _Stage:
    """Stage 2: (state, weights, examples) -> `MeasuredProcessOutput` with the model deltas."""
    local_update = parts.on_client(stages.local_update, parts.statistics_type, cohort_type)
    metrics_of_round = parts.on_server(round_metrics, parts.statistics_type, np.int64, np.int64)
    kept = tff.tensorflow.computation(keep_finite, parts.statistics_type)

    def update_locally(state, weights, client_data):
        shared = tff.federated_broadcast((state.round_number, state.statistics, state.cohort))
        local = tff.federated_map(local_update, (weights, *shared, client_data))
        counts = (parts.metric_sum(local.samples), parts.metric_sum(local.dropped))
        metrics = tff.federated_map(metrics_of_round, (state.statistics, *counts))
        new_state = ClientWorkState(
            tff.federated_map(next_round_number, state.round_number),
            state.statistics_aggregator,
            tff.federated_map(kept, state.statistics),
            state.cohort,
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(new_state), local.result, metrics
        )

    return update_locally


def _plain_stages(parts: DCCOParts, stages: TwoStages) -> tuple[Stage, Stage]:
    """Both stages as functions of tensors, with plain means."""
    rule = stages.cohort

    def received(state):
        statistics, work = state.client_work.statistics, state.client_work
        reference = Means(statistics.f, statistics.g)
        return {
            "weights": state.global_model_weights, "round": work.round_number,
            "reference": reference,
        }  # fmt: skip

    def statistics_of(received, _, examples):
        local = stages.local_statistics(parts, *received.values(), examples)
        counts = rule.counted(local.weight) if rule.counted else {}
        return Upload({"statistics": Mean(*local)}, counts)

    def with_statistics(state, means, counts):
        work = state.client_work
        reference = Means(work.statistics.f, work.statistics.g)
        statistics = centre(parts, means["statistics"].value, reference)
        cohort = rule.of(**counts) if rule.counted else work.cohort
        work = work._replace(statistics=statistics, cohort=cohort)
        return state._replace(client_work=work), loss_and_spread(parts, statistics)

    def received_then(state):
        work = state.client_work
        return {
            "weights": state.global_model_weights, "round": work.round_number,
            "aggregated": work.statistics, rule.name: work.cohort,
        }  # fmt: skip

    def update_of(received, _, examples):
        local = stages.local_update(parts, *received.values(), examples)
        counts = {"samples": local.samples, "dropped": local.dropped}
        return Upload({"delta": Mean(*local.result)}, counts)

    def with_update(state, means, counts):
        work, weights = state.client_work, state.global_model_weights
        metrics = round_metrics(parts, work.statistics, counts["samples"], counts["dropped"])
        of_optimizer, weights, of_step = server_step(
            parts.server_optimizer, state.finalizer, weights, means["delta"].value
        )
        work = work._replace(
            round_number=work.round_number + 1, statistics=keep_finite(work.statistics)
        )
        new = state._replace(global_model_weights=weights, client_work=work, finalizer=of_optimizer)
        return new, {**metrics, **of_step}

    return (
        Stage("statistics", received, statistics_of, with_statistics),
        Stage("update", received_then, update_of, with_update),
    )


def _build_statistics_round(
    parts: DCCOParts, process: tff.learning.templates.LearningProcess, aggregate_statistics: _Stage
) -> tff.learning.templates.LearningProcess:
    """The first stage alone, whose `next` stores the cohort's statistics in the state."""
    metrics_of_statistics = parts.on_server(loss_and_spread, parts.statistics_type)
    state_type = process.initialize.type_signature.result.member
    with_work = tff.tensorflow.computation(
        lambda state, work: state._replace(client_work=work), state_type, state_type.client_work
    )

    @tff.federated_computation(process.next.type_signature.parameter)
    def next_statistics(state, client_data):
        weights = tff.federated_broadcast(state.global_model_weights)
        work = aggregate_statistics(state.client_work, weights, client_data)
        return tff.learning.templates.LearningProcessOutput(
            tff.federated_map(with_work, (state, work)),
            tff.federated_map(metrics_of_statistics, work.statistics),
        )

    return tff.learning.templates.LearningProcess(
        process.initialize, next_statistics, process.get_model_weights, process.set_model_weights
    )


def compose_two_stages(
    parts: DCCOParts,
    stages: TwoStages,
    with_group_size: Callable[[Any, float], Any] | None = None,
) -> StatelessClients:
    """Composes the round of two stages, and each stage as a process of its own.

    For `with_group_size`, see `StatelessClients`; `parts` are task, means and server step.
    """
    first_cohort = tff.tensorflow.computation(lambda: stages.cohort.first)
    initialize = parts.initial_work(ClientWorkState, parts.no_statistics, first_cohort)
    aggregate_statistics = _build_statistics_stage(parts, stages)
    update_locally = _build_update_stage(parts, stages, first_cohort.type_signature.result)
    received = (parts.at_clients(t) for t in (parts.weights_type, parts.examples_type))
    work_type = (initialize.type_signature.result, *received)

    @tff.federated_computation(*work_type)
    def next_both(state, weights, client_data):
        state = aggregate_statistics(state, weights, client_data)
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
            "update": composed(tff.federated_computation(update_locally, *work_type)),
        },
        with_group_size=with_group_size,
        plain_stages=_plain_stages(parts, stages),
    )
