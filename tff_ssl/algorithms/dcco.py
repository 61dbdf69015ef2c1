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

Deviations: `losses.cco.VARIANCE_EPSILON` keeps a variance of zero from giving NaN; a client whose
statistics or delta are not finite gets weight 0 and is counted. Batch norm is refused: it would
need one more communication per layer (section 3.2).
"""

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.algorithms import finite
from tff_ssl.algorithms.micro_batches import mean_over_examples
from tff_ssl.algorithms.task import Task
from tff_ssl.losses import cco
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.views import TwoViews


@dataclasses.dataclass(frozen=True)
class DCCOHyperparameters:
    """Hyperparameters with the paper's values for CIFAR-100 (section 4.3, Appendix B).

    Attributes:
      lambda_: Tradeoff parameter lambda of Eq. 1.
      client_learning_rate: Learning rate of the clients' one step of gradient descent.
      server_optimizer: `adam`, `lars` or `sgd`, with cosine decay over the run's rounds.
      server_learning_rate: Initial learning rate of the server's optimizer.
      server_momentum: Momentum of `lars` and `sgd`.
      warmup_rounds: Rounds of linear warm-up of the server's learning rate.
      micro_batch_size: Examples that a client processes at a time; the result does not depend on
        it, memory and speed do.
    """

    lambda_: float = 20.0
    client_learning_rate: float = 1.0
    server_optimizer: str = "adam"
    server_learning_rate: float = 5e-3
    server_momentum: float = 0.9
    warmup_rounds: int = 0
    micro_batch_size: int = 32

    def __post_init__(self):
        if self.lambda_ < 0:
            raise ValueError(f"lambda must not be negative; got {self.lambda_}")
        if self.micro_batch_size < 1:
            raise ValueError(f"micro_batch_size must be at least 1; got {self.micro_batch_size}")
        if self.server_optimizer not in optimizers.SERVER_OPTIMIZER_NAMES:
            raise ValueError(
                f"server_optimizer must be one of {', '.join(optimizers.SERVER_OPTIMIZER_NAMES)}; "
                f"got {self.server_optimizer!r}"
            )
        if self.server_learning_rate <= 0 or self.client_learning_rate <= 0:
            raise ValueError("learning rates must be positive")


class ClientWorkState(NamedTuple):
    """What the server keeps for the clients' work.

    Attributes:
      round_number: int64, the round that comes next; the views depend on it.
      statistics_aggregator: State of the statistics' aggregator.
      statistics: `EncodingStatistics` of the last cohort, <.>_A.
    """

    round_number: Any
    statistics_aggregator: Any
    statistics: Any


class LocalStatistics(NamedTuple):
    """What a client sends in the first stage.

    Attributes:
      statistics: `EncodingStatistics` of its examples.
      weight: N_k, or 0 where the statistics are not finite; float32.
    """

    statistics: Any
    weight: Any


class LocalUpdate(NamedTuple):
    """What a client sends in the second stage.

    Attributes:
      result: `tff.learning.templates.ClientResult` with the model delta and N_k, or with zeros.
      samples: N_k, int64.
      dropped: 1 where the delta is not finite, else 0; int64.
    """

    result: Any
    samples: Any
    dropped: Any


class DCCO(NamedTuple):
    """DCCO's computations; all three share one state, a `LearningAlgorithmState`.

    Attributes:
      process: The two-stage round.
      statistics_round: Its first stage: `next` puts the cohort's statistics into the state.
      update_round: Its second stage: `next` updates the model with the statistics in the state. On
        the same cohort, `statistics_round.next` and then `update_round.next` equal `process.next`.
      downloads: What a client receives in a round (TFF types).
      uploads: What a client sends in a round (TFF types), but for its weight, a scalar.
    """

    process: tff.learning.templates.LearningProcess
    statistics_round: tff.templates.IterativeProcess
    update_round: tff.learning.templates.LearningProcess
    downloads: tuple[tff.Type, ...]
    uploads: tuple[tff.Type, ...]


def client_computations(
    model: DualEncoder,
    two_views: TwoViews,
    hyperparameters: DCCOHyperparameters,
    weights_type: tff.Type,
    statistics_type: tff.Type,
    examples_type: tff.Type,
) -> tuple[tff.Computation, tff.Computation]:
    """A client's work in the two stages.

    Returns:
      (weights, round number, examples) -> `LocalStatistics`, and
      (weights, round number, aggregated statistics, examples) -> `LocalUpdate`.
    """
    batch_size = hyperparameters.micro_batch_size

    def statistics_of(weights, round_number, batch):
        views = two_views(batch["image"], batch["example_id"], round_number)
        f, g = tf.split(model.apply(weights, tf.concat(views, 0), training=True).z, 2)
        return cco.encoding_statistics(f, g)

    @tff.tensorflow.computation(weights_type, np.int64, examples_type)
    @tf.function(autograph=False)
    def local_statistics(weights, round_number, examples):
        mean, samples = mean_over_examples(
            examples,
            lambda batch: statistics_of(weights, round_number, batch),
            cco.zero_statistics(model.projector[-1]),
            batch_size,
        )
        statistics, is_finite = finite.zero_unless_finite(mean)
        return LocalStatistics(statistics, tf.where(is_finite, tf.cast(samples, tf.float32), 0.0))

    @tff.tensorflow.computation(weights_type, np.int64, statistics_type, examples_type)
    @tf.function(autograph=False)
    def local_update(weights, round_number, aggregated, examples):
        def gradient(batch):
            with tf.GradientTape() as tape:
                tape.watch(weights.trainable)
                local = statistics_of(weights, round_number, batch)
                combined = cco.combined_statistics(local, aggregated)
                loss = cco.cco_from_statistics(combined, hyperparameters.lambda_).loss
            return tape.gradient(loss, weights.trainable)

        zeros = tf.nest.map_structure(tf.zeros_like, weights.trainable)
        mean, samples = mean_over_examples(examples, gradient, zeros, batch_size)
        # TFF's convention: initial minus final weights, which the server takes as a gradient.
        delta, is_finite = finite.zero_unless_finite(
            tf.nest.map_structure(lambda g: hyperparameters.client_learning_rate * g, mean)
        )
        weight = tf.where(is_finite, tf.cast(samples, tf.float32), 0.0)
        return LocalUpdate(
            tff.learning.templates.ClientResult(delta, weight),
            samples,
            1 - tf.cast(is_finite, tf.int64),
        )

    return local_statistics, local_update


def build_dcco(
    model: DualEncoder,
    two_views: TwoViews,
    element_type: tff.Type,
    server_optimizer: tff.learning.optimizers.Optimizer,
    hyperparameters: DCCOHyperparameters | None = None,
    statistics_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> DCCO:
    """Builds DCCO's computations.

    Args:
      model: The dual encoder, with group norm and a projector.
      two_views: (images uint8 [b, h, w, c], example ids int64 [b], round int64 []) -> two views,
        each float32 [b, *model.image_shape]. Must be pure: both stages call it.
      element_type: TFF type of a client's example: a struct with `image` and `example_id`.
      server_optimizer: Turns the mean model delta into the new model.
      hyperparameters: The paper's by default.
      statistics_aggregator: Weighted mean of the statistics; `MeanFactory` by default.
      update_aggregator: Weighted mean of the model deltas; `MeanFactory` by default.

    Raises:
      ValueError: If the model has batch norm or fewer than two outputs.
    """
    if model.norm != "group":
        raise ValueError("dcco needs --norm=group: batch norm would mix the clients' statistics")
    if not model.projector or model.projector[-1] < 2:
        raise ValueError("dcco needs a --projector with at least 2 outputs")
    hyperparameters = hyperparameters or DCCOHyperparameters()

    @tff.tensorflow.computation
    def initial_weights():
        return tff.learning.models.ModelWeights(*model.init(seed=0))

    weights_type = initial_weights.type_signature.result
    d = model.projector[-1]
    statistics_type = tff.types.to_type(
        tf.nest.map_structure(lambda t: (np.float32, t.shape.as_list()), cco.zero_statistics(d))
    )
    mean = tff.aggregators.MeanFactory()
    weight_type = tff.types.TensorType(np.float32)
    statistics_mean = (statistics_aggregator or mean).create(statistics_type, weight_type)
    update_mean = (update_aggregator or mean).create(weights_type.trainable, weight_type)
    examples_type = tff.types.SequenceType(element_type)
    local_statistics, local_update = client_computations(
        model, two_views, hyperparameters, weights_type, statistics_type, examples_type
    )
    data_type = tff.types.FederatedType(examples_type, tff.CLIENTS)

    @tff.tensorflow.computation
    def first_round():
        return tf.constant(0, tf.int64)

    @tff.tensorflow.computation
    def no_statistics():
        return cco.zero_statistics(d)

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            ClientWorkState(
                tff.federated_eval(first_round, tff.SERVER),
                statistics_mean.initialize(),
                tff.federated_eval(no_statistics, tff.SERVER),
            )
        )

    work_state_type = initialize.type_signature.result
    weights_at_clients = tff.types.FederatedType(weights_type, tff.CLIENTS)

    def aggregate_statistics(state, weights, client_data):
        """Stage 1: the clients' statistics and their mean, now in the state (Eq. 3)."""
        round_number = tff.federated_broadcast(state.round_number)
        local = tff.federated_map(local_statistics, (weights, round_number, client_data))
        mean = statistics_mean.next(state.statistics_aggregator, local.statistics, local.weight)
        return tff.federated_zip(ClientWorkState(state.round_number, mean.state, mean.result))

    def update_locally(state, weights, client_data):
        """Stage 2: the clients' model deltas with the aggregated statistics."""
        shared = tff.federated_broadcast((state.round_number, state.statistics))
        local = tff.federated_map(local_update, (weights, shared[0], shared[1], client_data))
        metrics = tff.federated_map(
            server_metrics,
            (state.statistics, tff.federated_sum(local.samples), tff.federated_sum(local.dropped)),
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(
                ClientWorkState(
                    tff.federated_map(following, state.round_number),
                    state.statistics_aggregator,
                    state.statistics,
                )
            ),
            local.result,
            metrics,
        )

    @tff.tensorflow.computation(np.int64)
    def following(round_number):
        return round_number + 1

    @tff.tensorflow.computation(statistics_type, np.int64, np.int64)
    def server_metrics(statistics, samples, dropped):
        terms = cco.cco_from_statistics(statistics, hyperparameters.lambda_)
        return collections.OrderedDict(
            loss=terms.loss,
            on_diagonal=terms.on_diagonal,
            off_diagonal=terms.off_diagonal,
            encoding_std=cco.encoding_std(statistics),
            samples=samples,
            dropped_clients=dropped,
        )

    @tff.federated_computation(work_state_type, weights_at_clients, data_type)
    def next_both(state, weights, client_data):
        state = aggregate_statistics(state, weights, client_data)
        return update_locally(state, weights, client_data)

    @tff.federated_computation(work_state_type, weights_at_clients, data_type)
    def next_update(state, weights, client_data):
        return update_locally(state, weights, client_data)

    def compose(next_fn):
        return tff.learning.templates.compose_learning_process(
            initial_weights,
            tff.learning.templates.build_broadcast_process(weights_type),
            tff.learning.templates.ClientWorkProcess(initialize, next_fn),
            update_mean,
            tff.learning.templates.build_apply_optimizer_finalizer(
                server_optimizer, weights_type, finite.reject_non_finite_update
            ),
        )

    process = compose(next_both)

    @tff.federated_computation(process.initialize.type_signature.result, data_type)
    def next_statistics(state, client_data):
        weights = tff.federated_broadcast(state.global_model_weights)
        client_work = aggregate_statistics(state.client_work, weights, client_data)
        return tff.federated_zip(
            tff.learning.templates.LearningAlgorithmState(
                state.global_model_weights,
                state.distributor,
                client_work,
                state.aggregator,
                state.finalizer,
            )
        )

    return DCCO(
        process=process,
        statistics_round=tff.templates.IterativeProcess(process.initialize, next_statistics),
        update_round=compose(next_update),
        downloads=(weights_type, tff.types.to_type(np.int64), statistics_type),
        uploads=(statistics_type, weights_type.trainable),
    )


def build(task: Task, hyperparameters: DCCOHyperparameters) -> DCCO:
    """DCCO for the registry."""
    server_optimizer = optimizers.build_server_optimizer(
        hyperparameters.server_optimizer,
        hyperparameters.server_learning_rate,
        task.rounds,
        hyperparameters.warmup_rounds,
        hyperparameters.server_momentum,
    )
    return build_dcco(
        task.model, task.two_views, task.element_type, server_optimizer, hyperparameters
    )
