"""DCCO with one communication in each round, which uses the statistics of earlier rounds.

The DCCO paper asks for such a form in section 6: "How can we reduce this to one round of
communication?" Here a client gets the statistics S of the round before beside the model, takes its
step with them, and sends both its delta and its statistics. This saves one of two messages in each
direction, and the round, which has one stage, lowers to the map-reduce forms. Its cost is that the
statistics belong to older weights and to other clients, so that a round no longer equals a
centralized step. Round 0 has no statistics yet and only gathers them.

Let theta_r be the model of round r, mu, v and K the means of the encodings, their variances and the
covariances of F with G, and sg the stop-gradient. DCCO's gradient of client k is, since the
derivatives of L with respect to the raw moments give those with respect to v and K,

  sum_i dL/dv_i 2 <(F_i - mu_i) dF_i>_k + sum_ij dL/dK_ij <(F_i - mu_i) dG_j + dF_i (G_j - mu'_j)>_k

and the terms of dL/dv' of G. The means enter as the centre alone. If the centre differs from the
current mean of the encodings, the mean of (F - centre) over the cohort is not zero, and the
gradient has a part that moves all encodings of the cohort together, further away from the centre.
The three variants differ in what they do against it.

`stale_statistics`: nothing. S = (mu, v, K) of earlier rounds, <.>_C = <.>_k + sg(S - <.>_k). It
needs a small server learning rate.

`paired_mean`: the centre follows the model. The client also gets theta_(r-1), to which S belongs,
and encodes the same views of its images with both models:

  delta_k = <F(theta_r)>_k - <F(theta_(r-1))>_k, likewise for G,
  centre c_k = sg(mu + delta_k), with dL/dv and dL/dK at (v, K).

The pairing takes the difference between images out of delta_k, and its mean over the clients is the
move of the cohort's mean. The mean over clients of F - c_k is then <F(theta_(r-1))>_A - mu, the
difference between two cohorts at the same model, which does not accumulate. Where the model has not
moved, delta_k = 0 and the step is that of `stale_statistics`. The centre enters example by example,
so that clients with centres of their own can be folded.

`delayed_gradient`: weights and statistics belong together, a round late. The client computes the
gradient at theta_(r-1) on the views of round r-1 with S of round r-1, and the statistics that it
sends at theta_r on the views of round r. If both rounds have the same cohort (and m is 0), the
gradient is that of DCCO in round r-1, and training is gradient descent with a delay of one round.

The server averages over rounds with momentum m: S_r = m S_(r-1) + (1 - m) <.>_A. Second moments are
averaged about the means. Averages of second moments about the origin would count the drift of the
means from round to round as variance, and a drift that F and G share as correlation. The means are
averaged by themselves in `stale_statistics`; the other variants take those of the last round, which
belong to theta_(r-1). The clients send their statistics about mu, which all of them have, so that
float32 keeps its digits where the mean is large (see `losses.cco`); in round 0, mu is the origin.

A client of `paired_mean` and `delayed_gradient` receives the weights of two models, and sends as
much as in `stale_statistics`. DCCO's client receives the model twice if it keeps nothing between
the stages, and once otherwise.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco.client import encode, loss_with
from tff_ssl.algorithms.dcco.parts import (
    DCCOHyperparameters,
    DCCOParts,
    build_centre,
    build_parts,
    build_round_metrics,
    with_client_work,
)
from tff_ssl.losses import segments as segments_lib
from tff_ssl.losses.means import Means
from tff_ssl.templates import non_finite
from tff_ssl.templates.client_hyperparameters import check_choice
from tff_ssl.templates.micro_batches import mean_over_batch, read_all
from tff_ssl.templates.round_number import next_round_number
from tff_ssl.templates.stateless_clients import StatelessClients
from tff_ssl.templates.task import Task

VARIANTS = ("stale_statistics", "paired_mean", "delayed_gradient")


@dataclasses.dataclass(frozen=True)
class DCCOOneStageHyperparameters(DCCOHyperparameters):
    """DCCO's hyperparameters, for one local step.

    Attributes:
      variant: Use of the earlier statistics: `stale_statistics`, `paired_mean` or
        `delayed_gradient`.
      statistics_momentum: Momentum m of the server's moving average; 0 for the statistics of the
        last round alone.
    """

    variant: str = "paired_mean"
    statistics_momentum: float = 0.5

    def __post_init__(self):
        super().__post_init__()
        check_choice("variant", self.variant, VARIANTS)
        if not 0 <= self.statistics_momentum < 1:
            raise ValueError(
                f"statistics_momentum must be in [0, 1); got {self.statistics_momentum}"
            )
        if self.local_steps != 1 or self.batch_size:
            raise ValueError("dcco_one_stage takes one local step on all of a client's examples")

    @property
    def pairs_models(self) -> bool:
        """Whether clients get the model that belongs to the earlier statistics."""
        return self.variant != "stale_statistics"


class Earlier(NamedTuple):
    """What a client gets from earlier rounds.

    Attributes:
      round_number: Number of the last round that gave statistics, int64; -1 before there is one.
      statistics: Centred statistics S.
      weights: Weights of the model in round `round_number`; () in `stale_statistics`.
    """

    round_number: Any
    statistics: Any
    weights: Any

    @property
    def means(self) -> Means:
        """The means mu of F and of G, the reference of the statistics of the next round."""
        return Means(self.statistics.f, self.statistics.g)


class ClientWorkState(NamedTuple):
    """The server's state of the clients' work.

    Attributes:
      round_number: Number of the next round, int64; the views depend on it.
      statistics_aggregator: State of the statistics' aggregator.
      earlier: What the clients of the next round get from earlier rounds.
    """

    round_number: Any
    statistics_aggregator: Any
    earlier: Any


class LocalRound(NamedTuple):
    """The values that a client sends.

    Attributes:
      result: `tff.learning.templates.ClientResult` with the model delta and w_k.
      statistics: Encoding statistics of its examples, about the earlier means.
      samples: Number of examples N_k, int64.
      dropped: 1 where delta or statistics are not finite, so that both weigh 0; else 0; int64.
    """

    result: Any
    statistics: Any
    samples: Any
    dropped: Any


def build_initial_earlier(parts: DCCOParts) -> tff.Computation:
    """Builds () -> `Earlier` before the first round."""
    hyperparameters: Any = parts.hyperparameters

    @tff.tensorflow.computation
    def initial_earlier():
        weights = tff.learning.models.ModelWeights(*parts.task.model.init(0))
        return Earlier(
            tf.constant(-1, tf.int64),
            parts.loss.zero(parts.task.model.projector[-1]),
            weights if hyperparameters.pairs_models else (),
        )

    return initial_earlier


def _mean_moves(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, earlier: Earlier, examples: Any
) -> tf.Tensor:
    """Delta_k of F and of G for the client of each example, float32 [n, 2, d]."""
    n = tf.shape(examples["example_id"])[0]
    clients = (
        segments_lib.by_client(examples["client"]) if "client" in examples else segments_lib.one(n)
    )
    d = parts.task.model.projector[-1]

    def moves(batch):
        now = tf.stack(encode(parts, weights, round_number, batch), 1)
        before = tf.stack(encode(parts, earlier.weights, round_number, batch), 1)
        count = tf.shape(clients.sizes)[0]
        total = tf.math.unsorted_segment_sum(now - before, batch["segment"], count)
        return total / tf.cast(tf.shape(now)[0], tf.float32)

    with_segments = collections.OrderedDict(examples, segment=clients.ids)
    mean, _ = mean_over_batch(
        with_segments,
        moves,
        tf.zeros([tf.shape(clients.sizes)[0], 2, d]),
        parts.hyperparameters.micro_batch_size,
    )
    total = mean * tf.cast(n, tf.float32)
    return tf.gather(total / tf.reshape(clients.sizes, [-1, 1, 1]), clients.ids)


def _stale_statistics(parts: DCCOParts, weights, round_number, earlier: Earlier, examples):
    """The statistics and the gradient with a fixed centre; see the module."""

    def statistics_and_gradient(batch):
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            encodings = encode(parts, weights, round_number, batch)
            value = loss_with(parts, earlier.statistics, *encodings)
        statistics = parts.loss.of_batch(*encodings, earlier.means)
        return statistics, tape.gradient(value, weights.trainable)

    return examples, statistics_and_gradient


def _paired_mean(parts: DCCOParts, weights, round_number, earlier: Earlier, examples):
    """The statistics and the gradient with a centre that follows the model; see the module."""
    moves = _mean_moves(parts, weights, round_number, earlier, examples)

    def statistics_and_gradient(batch):
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            encodings = encode(parts, weights, round_number, batch)
            moves = tf.unstack(batch["moves"], 2, axis=1)
            centre = Means(*(a + b for a, b in zip(earlier.means, moves, strict=True)))
            value = loss_with(parts, earlier.statistics, *encodings, centre)
        statistics = parts.loss.of_batch(*encodings, earlier.means)
        return statistics, tape.gradient(value, weights.trainable)

    return collections.OrderedDict(examples, moves=moves), statistics_and_gradient


def _delayed_gradient(parts: DCCOParts, weights, round_number, earlier: Earlier, examples):
    """The statistics of this round and the gradient of the earlier one; see the module."""
    # Before there is an earlier round, the gradient is not used.
    earlier_round = tf.maximum(earlier.round_number, 0)

    def statistics_and_gradient(batch):
        with tf.GradientTape() as tape:
            tape.watch(earlier.weights.trainable)
            encodings = encode(parts, earlier.weights, earlier_round, batch)
            value = loss_with(parts, earlier.statistics, *encodings)
        current = encode(parts, weights, round_number, batch)
        statistics = parts.loss.of_batch(*current, earlier.means)
        return statistics, tape.gradient(value, earlier.weights.trainable)

    return examples, statistics_and_gradient


_CLIENT_WORK: dict[str, Callable[..., tuple[Any, Callable[[Any], Any]]]] = {
    "stale_statistics": _stale_statistics,
    "paired_mean": _paired_mean,
    "delayed_gradient": _delayed_gradient,
}


def build_local_round(parts: DCCOParts, earlier_type: tff.Type) -> tff.Computation:
    """Builds the client's work: (weights, round number, earlier, examples) -> `LocalRound`."""
    hyperparameters: Any = parts.hyperparameters
    work = _CLIENT_WORK[hyperparameters.variant]
    d = parts.task.model.projector[-1]

    @tff.tensorflow.computation(parts.weights_type, np.int64, earlier_type, parts.examples_type)
    @tf.function(autograph=False)
    def local_round(weights, round_number, earlier, examples):
        everything, statistics_and_gradient = work(
            parts, weights, round_number, earlier, read_all(examples)
        )
        zeros = (parts.loss.zero(d), tf.nest.map_structure(tf.zeros_like, weights.trainable))
        means, samples = mean_over_batch(
            everything, statistics_and_gradient, zeros, hyperparameters.micro_batch_size
        )
        (statistics, gradient), is_finite = non_finite.zero_unless_finite(means)
        rate = tf.where(earlier.round_number < 0, 0.0, hyperparameters.client_learning_rate)
        delta = tf.nest.map_structure(lambda g: rate * g, gradient)
        weight = hyperparameters.client_weight(samples, is_finite)
        return LocalRound(
            tff.learning.templates.ClientResult(delta, weight),
            statistics,
            samples,
            1 - tf.cast(is_finite, tf.int64),
        )

    return local_round


def build_moving_average(parts: DCCOParts, earlier_type: tff.Type) -> tff.Computation:
    """Builds the server's moving average: (round number, earlier, cohort's statistics) -> earlier.

    The cohort's statistics are centred too. The weights of the result are still the earlier ones.
    """
    hyperparameters: Any = parts.hyperparameters

    @tff.tensorflow.computation(np.int64, earlier_type, parts.statistics_type)
    def moving_average(round_number, earlier, current):
        m = tf.where(earlier.round_number < 0, 0.0, hyperparameters.statistics_momentum)
        moved = tf.nest.map_structure(lambda a, b: m * a + (1 - m) * b, earlier.statistics, current)
        if hyperparameters.pairs_models:
            moved = moved._replace(f=current.f, g=current.g)
        # The statistics of a cohort without any finite client are NaN and are not kept.
        finite_values, is_finite = non_finite.zero_unless_finite(moved)
        kept = tf.nest.map_structure(
            lambda new, old: tf.where(is_finite, new, old), finite_values, earlier.statistics
        )
        number = tf.where(is_finite, round_number, earlier.round_number)
        return Earlier(number, kept, earlier.weights)

    return moving_average


def build_client_work(parts: DCCOParts) -> tuple[tff.Computation, tff.Computation]:
    """Builds `initialize` and `next` of a `ClientWorkProcess`."""
    initial_earlier = build_initial_earlier(parts)
    earlier_type = initial_earlier.type_signature.result
    local_round = build_local_round(parts, earlier_type)
    moving_average = build_moving_average(parts, earlier_type)
    round_metrics = build_round_metrics(parts)
    centre = build_centre(parts)

    @tff.tensorflow.computation(earlier_type)
    def reference_of(earlier):
        return earlier.means

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            ClientWorkState(
                tff.federated_value(np.int64(0), tff.SERVER),
                parts.statistics_mean.initialize(),
                tff.federated_eval(initial_earlier, tff.SERVER),
            )
        )

    @tff.federated_computation(
        initialize.type_signature.result,
        parts.at_clients(parts.weights_type),
        parts.at_clients(parts.examples_type),
    )
    def next_work(state, weights, client_data):
        shared = tff.federated_broadcast((state.round_number, state.earlier))
        local = tff.federated_map(local_round, (weights, shared[0], shared[1], client_data))
        mean = parts.statistics_mean.next(
            state.statistics_aggregator, local.statistics, local.result.update_weight
        )
        reference = tff.federated_map(reference_of, state.earlier)
        statistics = tff.federated_map(centre, (mean.result, reference))
        counts = (parts.metric_sum(local.samples), parts.metric_sum(local.dropped))
        new_state = ClientWorkState(
            tff.federated_map(next_round_number, state.round_number),
            mean.state,
            tff.federated_map(moving_average, (state.round_number, state.earlier, statistics)),
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(new_state),
            local.result,
            tff.federated_map(round_metrics, (statistics, *counts)),
        )

    return initialize, next_work


def _keep_weights(
    parts: DCCOParts, process: tff.learning.templates.LearningProcess
) -> tff.learning.templates.LearningProcess:
    """Adds to a round that the server keeps the model to which the new statistics belong."""
    earlier_type = process.initialize.type_signature.result.member.client_work.earlier

    @tff.tensorflow.computation(np.int64, earlier_type, parts.weights_type)
    def with_weights(round_number, earlier, weights):
        is_new = tf.equal(earlier.round_number, round_number)
        kept = tf.nest.map_structure(
            lambda new, old: tf.where(is_new, new, old), weights, earlier.weights
        )
        return earlier._replace(weights=kept)

    @tff.federated_computation(
        process.initialize.type_signature.result, parts.at_clients(parts.examples_type)
    )
    def next_round(state, client_data):
        output = process.next(state, client_data)
        work = output.state.client_work
        earlier = tff.federated_map(
            with_weights,
            (state.client_work.round_number, work.earlier, state.global_model_weights),
        )
        client_work = tff.federated_zip(
            ClientWorkState(work.round_number, work.statistics_aggregator, earlier)
        )
        return tff.learning.templates.LearningProcessOutput(
            with_client_work(output.state, client_work), output.metrics
        )

    return tff.learning.templates.LearningProcess(
        process.initialize, next_round, process.get_model_weights, process.set_model_weights
    )


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
    initialize, next_work = build_client_work(parts)
    process = parts.compose(initialize, next_work)
    if hyperparameters.pairs_models:
        process = _keep_weights(parts, process)
    return StatelessClients(
        task.model,
        process,
        parts.initial_weights,
        downloads=(
            parts.weights_type,
            tff.types.to_type(np.int64),
            initialize.type_signature.result.member.earlier,
        ),
        uploads=(parts.statistics_type, parts.weights_type.trainable),
    )
