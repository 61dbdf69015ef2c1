"""DCCO with one communication in each round, which uses the statistics of earlier rounds.

The DCCO paper asks for such a form in section 6: "How can we reduce this to one round of
communication?" Here a client receives the statistics S of the round before beside the model, takes
its step with them, and sends both its delta and its statistics. This saves one of two messages in
each direction, and the round, of one stage, lowers to the map-reduce forms. The cost: the
statistics belong to older weights and to other clients, so that a round no longer equals a
centralized step. Round 0 has no statistics yet and only gathers them.

Let theta_r be the model of round r, mu, v and K the means of the encodings, their variances and the
covariances of F with G, and sg the stop-gradient. DCCO's gradient of client k is, since the
derivatives of L with respect to the raw moments give those with respect to v and K,

  sum_i dL/dv_i 2 <(F_i - mu_i) dF_i>_k + sum_ij dL/dK_ij <(F_i - mu_i) dG_j + dF_i (G_j - mu'_j)>_k

and the terms of dL/dv' of G. The means enter as the centre alone. If the centre differs from the
current mean of the encodings, the mean of (F - centre) over the cohort is not zero, and the
gradient has a part that moves all encodings of the cohort together, further away from the centre.
The first three variants treat it differently; the fourth also lets v and K follow.

`stale_statistics`: nothing. S = (mu, v, K) of earlier rounds, <.>_C = <.>_k + sg(S - <.>_k). It
needs a small server learning rate.

`paired_mean`: the centre follows the model. The client also receives theta_(r-1), to which S
belongs, and encodes the same views of its images with both models:

  delta_k = <F(theta_r)>_k - <F(theta_(r-1))>_k, likewise for G,
  centre c_k = sg(mu + delta_k), with dL/dv and dL/dK at (v, K).

The pairing removes the difference between images from delta_k, whose mean over the clients is the
move of the cohort's mean. The mean over clients of F - c_k is then <F(theta_(r-1))>_A - mu, the
difference between two cohorts at the same model, which does not accumulate. If the model has not
moved, delta_k = 0 and the step is that of `stale_statistics`. The centre enters example by example,
so that clients with centres of their own can be folded.

`delayed_gradient`: weights and statistics belong together, a round late. The client computes the
gradient at theta_(r-1) on the views of round r-1 with S of round r-1, and the statistics that it
sends at theta_r on the views of round r. If both rounds have the same cohort (and m is 0), the
gradient is that of DCCO in round r-1, and training is gradient descent with a delay of one round.

In these three, the server averages over rounds with momentum m: S_r = m S_(r-1) + (1 - m) <.>_A.
Second moments are averaged about the means: averaged about the origin, they would count the drift
of the means from round to round as variance, and a drift that F and G share as correlation. The
means themselves are averaged in `stale_statistics`; the other variants take those of the last
round, which belong to theta_(r-1). The clients send their statistics about mu, which all of them
have, so that float32 keeps its digits if the mean is large (see `losses.cco`); in round 0, mu is
the encodings of a grey image.

`paired_moments`, the default: as `paired_mean`, and v and K follow the model too. Those of one
cohort are noisy, because a cohort has few clients. In DCCO this noise is that of the examples that
take the step; here it is that of other clients. Averages over rounds have less noise, but belong to
older models. So a client sends its statistics at both models, and the server moves its average by
the cohort's change before it adds the cohort to it. With Q for v and K and <.>_A(theta) for the
cohort of round r,

  M_r = <Q>_A(theta_r) - <Q>_A(theta_(r-1)),
  Q_r = m (Q_(r-1) + M_r) + (1 - m) <Q>_A(theta_r).

Both terms belong to theta_r for any m: the average is over rounds, not over models. (STORM,
Cutkosky & Orabona 2019, corrects the momentum of a moving quantity likewise.) The clients of round
r + 1 receive Q_r + M_r: the next step is expected to change v and K as the last one did. Encodings
may be unable to have such extrapolated moments; `StatisticsLoss.plausible` corrects them. For CCO
it also raises a possible variance below a tenth of the mean over the dimensions to that tenth.

In the variants that pair models, a client receives the weights of two models. It sends as much as
in `stale_statistics`, in `paired_moments` its statistics twice. DCCO's client receives the model
twice if it keeps nothing between the stages, and once otherwise.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco import earlier_statistics, one_stage_client
from tff_ssl.algorithms.dcco.composition import with_first_reference, with_means
from tff_ssl.algorithms.dcco.earlier_statistics import PairedStatistics
from tff_ssl.algorithms.dcco.parts import (
    DCCOHyperparameters,
    DCCOParts,
    build_parts,
    centre,
    round_metrics,
)
from tff_ssl.bounds import bounded, one_of
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.templates.server_step import next_round_number, server_step
from tff_ssl.templates.stages import Mean, Stage, Upload
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import where

VARIANTS = ("stale_statistics", "paired_mean", "delayed_gradient", "paired_moments")


@dataclasses.dataclass(frozen=True)
class DCCOOneStageHyperparameters(DCCOHyperparameters):
    """DCCO's hyperparameters, for one local step.

    Attributes:
      variant: Use of the earlier statistics, `stale_statistics`, `paired_mean`,
        `delayed_gradient` or `paired_moments`.
      statistics_momentum: Momentum m of the server's moving average; 0 for the last round alone.
    """

    variant: str = one_of("paired_moments", VARIANTS)
    statistics_momentum: float = bounded(0.9, at_least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_steps != 1 or self.batch_size:
            raise ValueError("dcco_one_stage takes one local step on all of a client's examples")

    @property
    def pairs_models(self) -> bool:
        """Whether clients receive the model that belongs to the earlier statistics."""
        return self.variant != "stale_statistics"

    @property
    def moves_moments(self) -> bool:
        """Whether clients send their statistics at two models, so that the average can follow."""
        return self.variant == "paired_moments"


class ClientWorkState(NamedTuple):
    """The server's state of the clients' work."""

    round_number: Any  #: Number of the next round, int64; the views depend on it.
    statistics_aggregator: Any  #: State of the statistics' aggregator.
    #: The average Q_r over rounds as centred statistics, which clients do not receive; () except in
    #: `paired_moments`.
    average: Any
    earlier: Any  #: What the clients of the next round receive from earlier rounds.


def averaged(
    parts: DCCOParts, work: ClientWorkState, mean: Any
) -> tuple[Any, Any, earlier_statistics.Earlier]:
    """The cohort's centred statistics, and the new `average` and `earlier`, from its mean."""
    reference, before = work.earlier.means, (parts, work.round_number, work.earlier)
    if not parts.hyperparameters.moves_moments:
        current = centre(parts, mean, reference)
        return current, work.average, earlier_statistics.moving_average(*before, current)
    pair = PairedStatistics(*(centre(parts, m, reference) for m in (mean.current, mean.before)))
    average, earlier = earlier_statistics.moved_average(*before, work.average, pair)
    return pair.current, average, earlier


def build_client_work(parts: DCCOParts) -> tuple[tff.Computation, tff.Computation]:
    """Builds `initialize` and `next` of a `ClientWorkProcess`."""
    initial_earlier = tff.tensorflow.computation(lambda: earlier_statistics.initial_earlier(parts))
    local_round = parts.on_client(
        one_stage_client.local_round, initial_earlier.type_signature.result
    )
    metrics_of_round = parts.on_server(round_metrics, parts.statistics_type, np.int64, np.int64)
    no_average = parts.no_statistics
    if not parts.hyperparameters.moves_moments:
        no_average = tff.tensorflow.computation(lambda: ())
    initialize = parts.initial_work(ClientWorkState, no_average, initial_earlier)
    work_type = initialize.type_signature.result
    averaged_at_server = parts.on_server(
        averaged, work_type.member, local_round.type_signature.result.statistics
    )

    @tff.federated_computation(
        work_type, parts.at_clients(parts.weights_type), parts.at_clients(parts.examples_type)
    )
    def next_work(state, weights, client_data):
        shared = tff.federated_broadcast((state.round_number, state.earlier))
        local = tff.federated_map(local_round, (weights, *shared, client_data))
        mean = parts.statistics_mean.next(
            state.statistics_aggregator, local.statistics, local.result.update_weight
        )
        statistics, average, earlier = tff.federated_map(averaged_at_server, (state, mean.result))
        counts = (parts.metric_sum(local.samples), parts.metric_sum(local.dropped))
        new_state = ClientWorkState(
            tff.federated_map(next_round_number, state.round_number),
            mean.state, average, earlier,
        )  # fmt: skip
        metrics = tff.federated_map(metrics_of_round, (statistics, *counts))
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(new_state), local.result, metrics
        )

    return initialize, next_work


def with_model(
    round_number: tf.Tensor, earlier: earlier_statistics.Earlier, weights: Any
) -> earlier_statistics.Earlier:
    """`earlier`, with the model of this round if the statistics are of this round."""
    is_new = tf.equal(earlier.round_number, round_number)
    return earlier._replace(weights=where(is_new, weights, earlier.weights))


def _keep_weights(
    process: tff.learning.templates.LearningProcess,
) -> tff.learning.templates.LearningProcess:
    """The round, in which the server also keeps the model to which the new statistics belong."""
    state_type = process.initialize.type_signature.result.member

    @tff.tensorflow.computation(state_type, state_type)
    def with_weights(before, after):
        work, number = after.client_work, before.client_work.round_number
        earlier = with_model(number, work.earlier, before.global_model_weights)
        return after._replace(client_work=work._replace(earlier=earlier))

    @tff.federated_computation(process.next.type_signature.parameter)
    def next_round(state, client_data):
        output = process.next(state, client_data)
        return tff.learning.templates.LearningProcessOutput(
            tff.federated_map(with_weights, (state, output.state)), output.metrics
        )

    return tff.learning.templates.LearningProcess(
        process.initialize, next_round, process.get_model_weights, process.set_model_weights
    )


def _plain_stage(parts: DCCOParts) -> Stage:
    """The round as functions of tensors, with plain means."""

    def received(state):
        work = state.client_work
        return {
            "weights": state.global_model_weights, "round": work.round_number,
            "earlier": work.earlier,
        }  # fmt: skip

    def work(received, _, examples):
        weights, number, earlier = received.values()
        local = one_stage_client.local_round(parts, weights, number, earlier, examples)
        delta = Mean(*local.result)
        means = {"statistics": Mean(local.statistics, delta.weight), "delta": delta}
        return Upload(means, {"samples": local.samples, "dropped": local.dropped})

    def finish(state, means, counts):
        before, weights = state.client_work, state.global_model_weights
        statistics, average, earlier = averaged(parts, before, means["statistics"].value)
        if parts.hyperparameters.pairs_models:
            earlier = with_model(before.round_number, earlier, weights)
        of_optimizer, weights, of_step = server_step(
            parts.server_optimizer, state.finalizer, weights, means["delta"].value
        )
        work = before._replace(
            round_number=before.round_number + 1, average=average, earlier=earlier
        )
        new = state._replace(global_model_weights=weights, client_work=work, finalizer=of_optimizer)
        metrics = round_metrics(parts, statistics, counts["samples"], counts["dropped"])
        return new, {**metrics, **of_step}

    return Stage("update", received, work, finish)


def build_dcco_one_stage(
    task: Task,
    hyperparameters: DCCOOneStageHyperparameters | None = None,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    statistics_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    **arguments: Any,
) -> StatelessClients:
    """Builds the round of one stage; arguments and errors are those of `two_stage.build_dcco`."""
    values = hyperparameters or DCCOOneStageHyperparameters()
    parts = build_parts(task, values, server_optimizer, statistics_aggregator, **arguments)
    sent = parts.statistics_type
    if values.moves_moments:
        sent = tff.types.to_type(PairedStatistics(sent, sent))
        factory = statistics_aggregator or tff.aggregators.MeanFactory()
        paired_mean = factory.create(sent, tff.types.TensorType(np.float32))
        parts = dataclasses.replace(parts, statistics_mean=paired_mean)
    initialize, next_work = build_client_work(parts)
    process = parts.compose(initialize, next_work)
    if values.pairs_models:
        process = _keep_weights(process)

    def replace(work, reference):
        statistics = with_means(work.earlier.statistics, reference)
        return work._replace(earlier=work.earlier._replace(statistics=statistics))

    process = with_first_reference(parts, process, replace)
    return StatelessClients(
        task.model,
        process,
        parts.initial_weights,
        downloads=(
            parts.weights_type,
            tff.types.to_type(np.int64),
            initialize.type_signature.result.member.earlier,
        ),
        uploads=(sent, parts.weights_type.trainable),
        plain_stages=(_plain_stage(parts),),
    )
