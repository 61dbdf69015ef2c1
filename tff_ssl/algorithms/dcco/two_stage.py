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

Beyond the paper, where section 6 leaves it open: VICReg's statistics in place of CCO's (the same
argument holds); two encoders (`models.two_towers`); several local steps on larger clients, in
which the loss keeps the statistics of the broadcast model ("stale statistics") and a step may see
a part of a client's examples ("partial gradients"; `dcco_drift` measures what that does). With
stale values the loss is linear in the client's own statistics, without a bound: small learning
rates only. `dcco_one_stage` is the form with one communication a round.

Clients that drop out, of which the paper says nothing. One that drops before its statistics are
in is not in the round. One that drops between the stages stays in the statistics, which cannot be
taken back, and its delta is missing. Of n clients with weights w_k in the first stage, let the set
S report in the second; the update is

  n / |S| * sum_(k in S) w_k delta_k / sum_k w_k,

the sum over the whole cohort as estimated from S (Horvitz and Thompson): if who drops does not
depend on the data, its expectation is the update of the round in which nobody drops, for clients
of any sizes. A mean over S by weights would not have it, and a mean of statistics over S would take
one more communication. To this end a client scales its delta by w_k over the mean weight of the
first stage, and deltas have equal weights. A client whose statistics or delta are not finite, or
that has no examples, counts as one that dropped before its report.

Deviations: `losses.cco.VARIANCE_EPSILON` keeps a variance of zero from giving NaN. Batch norm is
refused: it would need one more communication per layer (section 3.2).
"""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco.client import DCCOHyperparameters, client_computations
from tff_ssl.objectives.statistics import STATISTICS_LOSSES
from tff_ssl.templates import non_finite
from tff_ssl.templates.task import Task


class ClientWorkState(NamedTuple):
    """What the server keeps for the clients' work.

    Attributes:
      round_number: int64, the round that comes next; the views depend on it.
      statistics_aggregator: State of the statistics' aggregator.
      statistics: Encoding statistics of the last cohort, <.>_A.
      mean_weight: Mean w_k of the clients that they are of, float32.
    """

    round_number: Any
    statistics_aggregator: Any
    statistics: Any
    mean_weight: Any


class DCCO(NamedTuple):
    """DCCO's computations; all three share one state, a `LearningAlgorithmState`.

    Attributes:
      process: The two-stage round.
      statistics_round: Its first stage: `next` puts the cohort's statistics into the state, and
        its metrics are those of the statistics.
      update_round: Its second stage: `next` updates the model with the statistics in the state. On
        the same cohort, `statistics_round.next` and then `update_round.next` equal `process.next`.
      initial_weights: Seed -> the global model's weights.
      downloads: What a client receives in a round (TFF types).
      uploads: What a client sends in a round (TFF types), but for its weight, a scalar.
    """

    process: tff.learning.templates.LearningProcess
    statistics_round: tff.learning.templates.LearningProcess
    update_round: tff.learning.templates.LearningProcess
    initial_weights: Callable[[int], tff.learning.models.ModelWeights]
    downloads: tuple[tff.Type, ...]
    uploads: tuple[tff.Type, ...]

    @property
    def stages(self) -> dict[str, tff.learning.templates.LearningProcess]:
        """What to run one after the other where a round may have only one aggregation."""
        return {"statistics": self.statistics_round, "update": self.update_round}


def build_dcco(
    task: Task,
    hyperparameters: DCCOHyperparameters | None = None,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    statistics_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    metric_sum: Callable[[tff.Value], tff.Value] = tff.federated_sum,
) -> DCCO:
    """Builds DCCO's computations.

    Args:
      task: Model (with group norm and a projector), views, objective (`cco` or `vicreg`) and type
        of the examples. The views must be pure: both stages call them.
      hyperparameters: The paper's by default.
      server_optimizer: Turns the mean model delta into the new model; as the hyperparameters say
        by default.
      statistics_aggregator: Weighted mean of the statistics; `MeanFactory` by default.
      update_aggregator: Weighted mean of the model deltas; `MeanFactory` by default.
      metric_sum: Sum of counts at the clients.

    Raises:
      ValueError: If the model has batch norm or fewer than two outputs, or the objective does not
        depend on statistics alone.
    """
    check_task(task)
    hyperparameters = hyperparameters or DCCOHyperparameters()
    weighs_by_examples = hyperparameters.client_weighting == "examples"
    model, loss, d = task.model, STATISTICS_LOSSES[task.objective], task.model.projector[-1]

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
    local_statistics, local_update = client_computations(
        task, loss, hyperparameters, weights_type, statistics_type
    )
    examples_type = tff.types.SequenceType(task.element_type)
    data_type = tff.types.FederatedType(examples_type, tff.CLIENTS)

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            ClientWorkState(
                tff.federated_value(np.int64(0), tff.SERVER),
                statistics_mean.initialize(),
                tff.federated_eval(no_statistics, tff.SERVER),
                tff.federated_value(np.float32(1.0), tff.SERVER),
            )
        )

    work_state_type = initialize.type_signature.result
    weights_at_clients = tff.types.FederatedType(weights_type, tff.CLIENTS)

    def aggregate_statistics(state, weights, client_data):
        """Stage 1: the clients' statistics and their mean, now in the state (Eq. 3)."""
        round_number = tff.federated_broadcast(state.round_number)
        local = tff.federated_map(local_statistics, (weights, round_number, client_data))
        mean = statistics_mean.next(state.statistics_aggregator, local.statistics, local.weight)
        mean_weight = state.mean_weight
        if weighs_by_examples:  # Else every weight is 1.
            counts = tff.federated_map(as_counts, local.weight)
            sums = (metric_sum(counts.samples), metric_sum(counts.clients))
            mean_weight = tff.federated_map(ratio, sums)
        return tff.federated_zip(
            ClientWorkState(state.round_number, mean.state, mean.result, mean_weight)
        )

    def update_locally(state, weights, client_data):
        """Stage 2: the clients' model deltas with the aggregated statistics."""
        shared = tff.federated_broadcast((state.round_number, state.statistics, state.mean_weight))
        local = tff.federated_map(local_update, (weights, *shared, client_data))
        metrics = tff.federated_map(
            server_metrics,
            (state.statistics, metric_sum(local.samples), metric_sum(local.dropped)),
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(
                ClientWorkState(
                    tff.federated_map(following, state.round_number),
                    state.statistics_aggregator,
                    state.statistics,
                    state.mean_weight,
                )
            ),
            local.result,
            metrics,
        )

    @tff.tensorflow.computation(np.float32)
    def as_counts(weight):
        samples = tf.cast(weight, tf.int64)
        return collections.OrderedDict(samples=samples, clients=tf.minimum(samples, 1))

    @tff.tensorflow.computation(np.int64, np.int64)
    def ratio(samples, clients):
        return tf.cast(samples / clients, tf.float32)

    @tff.tensorflow.computation(np.int64)
    def following(round_number):
        return round_number + 1

    def loss_and_spread(statistics):
        terms = loss.terms(statistics, hyperparameters)._asdict()
        return collections.OrderedDict(**terms, encoding_std=loss.encoding_std(statistics))

    @tff.tensorflow.computation(statistics_type)
    def metrics_of_statistics(statistics):
        return loss_and_spread(statistics)

    @tff.tensorflow.computation(statistics_type, np.int64, np.int64)
    def server_metrics(statistics, samples, dropped):
        metrics = loss_and_spread(statistics)
        metrics.update(samples=samples, dropped_clients=dropped)
        return metrics

    @tff.federated_computation(work_state_type, weights_at_clients, data_type)
    def next_both(state, weights, client_data):
        state = aggregate_statistics(state, weights, client_data)
        return update_locally(state, weights, client_data)

    @tff.federated_computation(work_state_type, weights_at_clients, data_type)
    def next_update(state, weights, client_data):
        return update_locally(state, weights, client_data)

    def compose(next_fn):
        return tff.learning.templates.compose_learning_process(
            initial_model,
            tff.learning.templates.build_broadcast_process(weights_type),
            tff.learning.templates.ClientWorkProcess(initialize, next_fn),
            update_mean,
            tff.learning.templates.build_apply_optimizer_finalizer(
                server_optimizer or hyperparameters.build_server_optimizer(task.rounds),
                weights_type,
                non_finite.reject_non_finite_update,
            ),
        )

    process = compose(next_both)

    @tff.federated_computation(process.initialize.type_signature.result, data_type)
    def next_statistics(state, client_data):
        weights = tff.federated_broadcast(state.global_model_weights)
        client_work = aggregate_statistics(state.client_work, weights, client_data)
        new_state = tff.learning.templates.LearningAlgorithmState(
            state.global_model_weights,
            state.distributor,
            client_work,
            state.aggregator,
            state.finalizer,
        )
        return tff.learning.templates.LearningProcessOutput(
            tff.federated_zip(new_state),
            tff.federated_map(metrics_of_statistics, client_work.statistics),
        )

    return DCCO(
        process=process,
        statistics_round=tff.learning.templates.LearningProcess(
            process.initialize,
            next_statistics,
            process.get_model_weights,
            process.set_model_weights,
        ),
        update_round=compose(next_update),
        initial_weights=initial_weights,
        downloads=(weights_type, tff.types.to_type(np.int64), statistics_type, weight_type),
        uploads=(statistics_type, weights_type.trainable),
    )


def check_task(task: Task) -> None:
    """Raises a ValueError if DCCO cannot work on it."""
    model = task.model
    if task.objective not in STATISTICS_LOSSES:
        raise ValueError(f"dcco trains with {' or '.join(STATISTICS_LOSSES)}; got {task.objective}")
    if model.norm != "group":
        raise ValueError("dcco needs --norm=group: batch norm would mix the clients' statistics")
    if not model.projector or model.projector[-1] < 2:
        raise ValueError("dcco needs a --projector with at least 2 outputs")
