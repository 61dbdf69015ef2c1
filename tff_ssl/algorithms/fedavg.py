"""FedAvg with a local objective (McMahan et al., AISTATS 2017, Algorithm 1).

In a round, the server broadcasts the model w; every client k trains it for E epochs in batches of B
examples and sends its model delta; the server forms the weighted mean,

  w <- w - sum_k (n_k / n) (w - w_k),  with w_k the model of client k after its local training.

The objective is any of `objectives.registry.OBJECTIVES`. An optimizer of the server may take the
mean delta as its gradient. With one step of gradient descent on all examples of a client, this is
FedSGD; with Adam at the server, FedSGD is the baseline of the DCCO paper (section 4; the preset
digits/fedsgd).

Algorithms that change what clients minimize are built on this one: `build_fedavg` takes another
objective and regularizers (see `fedprox` and `feddecorr`).

BYOL's target network, a moving average of the online network, is kept either on the server, over
rounds, and broadcast beside the model; or on each client, over its local steps, starting from the
broadcast model.

Deviations: A client whose delta is not finite gets weight 0 and is counted. Batch norm is rejected,
because a round without client state has no place for its moving averages.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.bounds import bounded, one_of
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.registry import OBJECTIVES, Objective, moved_target
from tff_ssl.templates import group_training, non_finite
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.group_training import DeltaRule, Trained
from tff_ssl.templates.local_training import Regularizer, WeightTerm, build_local_training
from tff_ssl.templates.server_step import build_server_step, next_round_number, server_step
from tff_ssl.templates.stages import Mean, Stage, Upload
from tff_ssl.templates.task import Task

# (online network, target network, round number, examples) -> `Trained`.
Train = Callable[[Weights, Weights, tf.Tensor, tf.data.Dataset], Trained]


@dataclasses.dataclass(frozen=True)
class FedAvgHyperparameters(ClientHyperparameters, optimizers.ServerOptimizerHyperparameters):
    """Hyperparameters of FedAvg; those of local training and of the server are inherited.

    Attributes:
      target: Place of BYOL's target network, `server` or `local`.
      micro_batch_size: Number of examples processed at a time in a round of one step; affects
        memory and speed, but not the result. With `auto`, the scripts use as many as fit into the
        memory of a GPU, or this number on a CPU.
    """

    client_learning_rate: float = 0.1
    client_momentum: float = 0.0
    local_epochs: int = 5
    batch_size: int = 64
    target: str = one_of("server", ("server", "local"))
    micro_batch_size: int = bounded(32, at_least=1)

    @property
    def is_one_gradient_step(self) -> bool:
        """Whether a client's delta is its learning rate times one gradient on all its examples."""
        one_step = (self.local_steps or self.local_epochs) == 1 and self.batch_size == 0
        # The first step of SGD with momentum is plain.
        plain = self.client_optimizer == "sgd" and not self.client_weight_decay
        return one_step and plain and self.learning_rate_schedule == "constant"


class LocalUpdate(NamedTuple):
    """The values that a client sends."""

    result: Any  #: `tff.learning.templates.ClientResult` with the model delta and its weight.
    loss: Any  #: Mean loss of its local steps times the weight, float32.
    z_mean: Any  #: Mean of its projections z times the weight, float32 [d].
    z_squared: Any  #: Mean of z^2 times the weight, float32 [d].
    samples: Any  #: Number of examples N_k, int64.
    dropped: Any  #: 1 if the delta is not finite, otherwise 0; int64.


@dataclasses.dataclass(frozen=True)
class TargetNetwork:
    """The place of BYOL's target network."""

    model: Model  #: Model to train.
    #: Whether the server keeps the target network, behind the model's own weights that are not
    #: trained, which are those of frozen stages.
    on_server: bool
    on_client: bool  #: Whether each client starts a target network from the broadcast model.

    def initial_weights(self, seed: int) -> tff.learning.models.ModelWeights:
        """The global model's weights before the first round."""
        online = self.model.init(seed)
        target = self.model.target_model.part_of(online).trainable if self.on_server else ()
        return tff.learning.models.ModelWeights(online.trainable, (*online.non_trainable, *target))

    def split(self, weights: tff.learning.models.ModelWeights) -> tuple[Weights, Weights]:
        """The online and the target network with which a client starts."""
        fixed, target = self._fixed_and_target(weights)
        online = Weights(tuple(weights.trainable), fixed)
        if not self.on_client and not self.on_server:
            return online, Weights((), ())
        start = self.model.target_model.part_of(online)
        return online, start if self.on_client else Weights(target, start.non_trainable)

    def followed(
        self, weights: tff.learning.models.ModelWeights, momentum: float
    ) -> tff.learning.models.ModelWeights:
        """The weights after a target network on the server has moved to the new model."""
        if not self.on_server:
            return weights
        fixed, target = self._fixed_and_target(weights)
        moved = moved_target(target, weights.trainable, momentum)
        return tff.learning.models.ModelWeights(weights.trainable, (*fixed, *moved))

    def _fixed_and_target(self, weights: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The model's own weights that are not trained, and those of a target on the server."""
        count, both = len(self.model.non_trainable_specs), tuple(weights.non_trainable)
        return both[:count], both[count:]

    def finalizer(
        self, finalizer: tff.learning.templates.FinalizerProcess, momentum: float
    ) -> tff.learning.templates.FinalizerProcess:
        """`finalizer`, and then the step of a target network on the server to the new model."""
        if not self.on_server:
            return finalizer
        _, weights_type, _ = finalizer.next.type_signature.parameter

        moved = tff.tensorflow.computation(
            lambda weights: self.followed(weights, momentum), weights_type.member
        )

        @tff.federated_computation(finalizer.next.type_signature.parameter)
        def next_fn(state, weights, update):
            output = finalizer.next(state, weights, update)
            return tff.templates.MeasuredProcessOutput(
                output.state, tff.federated_map(moved, output.result), output.measurements
            )

        return tff.learning.templates.FinalizerProcess(finalizer.initialize, next_fn)


def update_locally(
    train: Train,
    target_network: TargetNetwork,
    weights: Any,
    round_number: tf.Tensor,
    examples: Any,
) -> LocalUpdate:
    """The client's work in a round."""
    online, target = target_network.split(weights)
    trained = train(online, target, round_number, examples)
    values, is_finite = non_finite.zero_unless_finite(trained.means)
    return LocalUpdate(
        tff.learning.templates.ClientResult(values.delta, values.weight),
        loss=values.weight * values.loss,
        z_mean=values.weight * values.z_mean,
        z_squared=values.weight * values.z_squared,
        samples=trained.samples,
        dropped=1 - tf.cast(is_finite, tf.int64),
    )


def loss_and_spread(
    weight: tf.Tensor, loss: tf.Tensor, z_mean: tf.Tensor, z_squared: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The mean loss and the spread of the encodings, from the sums of `LocalUpdate`'s fields."""
    mean, squared = z_mean / weight, z_squared / weight
    variance = tf.nn.relu(squared - tf.square(mean))
    return loss / weight, tf.reduce_mean(tf.sqrt(variance))


def build_client_work(
    local_update: tff.Computation, metric_sum: Callable[[tff.Value], tff.Value]
) -> tff.learning.templates.ClientWorkProcess:
    """Builds the client work: broadcast of the round number, local updates, and their metrics."""
    weights_type, _, examples_type = local_update.type_signature.parameter

    def sent(local):
        return local.result.update_weight, local.loss, local.z_mean, local.z_squared

    weighted_means = tff.tensorflow.computation(
        loss_and_spread, sent(local_update.type_signature.result)
    )

    @tff.federated_computation
    def initialize():
        return tff.federated_value(np.int64(0), tff.SERVER)

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.types.FederatedType(weights_type, tff.CLIENTS),
        tff.types.FederatedType(examples_type, tff.CLIENTS),
    )
    def next_work(round_number, weights, client_data):
        shared = tff.federated_broadcast(round_number)
        local = tff.federated_map(local_update, (weights, shared, client_data))
        loss, deviation = tff.federated_map(weighted_means, tuple(map(metric_sum, sent(local))))
        metrics = collections.OrderedDict(loss=loss, encoding_std=deviation)
        metrics["samples"] = metric_sum(local.samples)
        metrics["dropped_clients"] = metric_sum(local.dropped)
        next_number = tff.federated_map(next_round_number, round_number)
        return tff.templates.MeasuredProcessOutput(
            next_number, local.result, tff.federated_zip(metrics)
        )

    return tff.learning.templates.ClientWorkProcess(initialize, next_work)


def build_fedavg(
    task: Task,
    hyperparameters: FedAvgHyperparameters | None = None,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    client_optimizer: tff.learning.optimizers.Optimizer | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    metric_sum: Callable[[tff.Value], tff.Value] = tff.federated_sum,
    *,
    objective: Objective | None = None,
    regularizers: Sequence[Regularizer] = (),
    weight_terms: Sequence[WeightTerm] = (),
    delta_rule: DeltaRule | None = None,
) -> StatelessClients:
    """Builds FedAvg's round.

    Args:
      task: Model, views, objective and type of the examples. If examples have a field `client`, one
        call may hold those of several clients (a folded group), client by client.
      hyperparameters: Hyperparameters; the defaults if None.
      server_optimizer: Optimizer that applies the mean delta to the model; by default that of the
        hyperparameters.
      client_optimizer: Optimizer of the local steps; by default that of the hyperparameters.
      update_aggregator: Weighted mean of the deltas; `MeanFactory` by default.
      metric_sum: Sum of a metric over the clients: of counts, losses and means of encodings.
      objective: Objective that clients minimize; the task's if None.
      regularizers: Terms added to the objective.
      weight_terms: Terms of the weights alone, added to the objective.
      delta_rule: Rule for each client's delta; initial minus final weights if None.

    Raises:
      ValueError: If the model lacks a head that the objective needs, or has batch norm.
    """
    values = hyperparameters or FedAvgHyperparameters()
    minimized = objective or OBJECTIVES[task.objective]
    on_client = minimized.target and values.target == "local"
    target_network = TargetNetwork(task.model, minimized.target and not on_client, on_client)
    training = build_local_training(
        task,
        values,
        optimizer=client_optimizer,
        keeps_target=on_client,
        objective=minimized,
        regularizers=regularizers,
        weight_terms=weight_terms,
    )
    by_client = client_optimizer or regularizers or weight_terms or delta_rule
    further_images = minimized.others or minimized.third_view
    if values.is_one_gradient_step and not (by_client or further_images):
        train: Train = functools.partial(
            group_training.one_step,
            training,
            learning_rate=values.client_learning_rate,
            micro_batch_size=values.micro_batch_size,
        )
    else:
        train = functools.partial(group_training.many_steps, training, delta_rule=delta_rule)
    return compose_fedavg(
        task, train, target_network, values, server_optimizer, update_aggregator, metric_sum
    )


def compose_fedavg(
    task: Task,
    train: Train,
    target_network: TargetNetwork,
    hyperparameters: Any,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    metric_sum: Callable[[tff.Value], tff.Value] = tff.federated_sum,
) -> StatelessClients:
    """Composes a round in which the server takes the mean of the clients' deltas.

    The optimizer, the aggregator and the sum are those of `build_fedavg`.

    Raises:
      ConfigurationError: If the model has batch norm.
    """
    if task.model.has_batch_norm:
        raise ConfigurationError(
            f"clients without memory have no batch norm, and need {task.model.batch_norm_remedy}"
        )
    initial_model = tff.tensorflow.computation(lambda: target_network.initial_weights(0))
    weights_type = initial_model.type_signature.result
    local_update = tff.tensorflow.computation(
        tf.function(functools.partial(update_locally, train, target_network), autograph=False),
        weights_type, np.int64, tff.types.SequenceType(task.element_type),
    )  # fmt: skip
    local_type = local_update.type_signature.result
    aggregator = update_aggregator or tff.aggregators.MeanFactory()
    optimizer = server_optimizer or hyperparameters.build_server_optimizer(
        task.rounds, task.model.xla
    )
    server_step = build_server_step(optimizer, weights_type)
    process = tff.learning.templates.compose_learning_process(
        initial_model,
        tff.learning.templates.build_broadcast_process(weights_type),
        build_client_work(local_update, metric_sum),
        aggregator.create(weights_type.trainable, local_type.result.update_weight),
        target_network.finalizer(server_step, hyperparameters.target_momentum),
    )
    return StatelessClients(
        task.model,
        process,
        target_network.initial_weights,
        downloads=(weights_type, tff.types.to_type(np.int64)),
        uploads=(weights_type.trainable, local_type.loss, local_type.z_mean, local_type.z_squared),
        plain_stages=(_plain_stage(train, target_network, optimizer, hyperparameters),),
    )


def _plain_stage(
    train: Train,
    target_network: TargetNetwork,
    optimizer: tff.learning.optimizers.Optimizer,
    hyperparameters: Any,
) -> Stage:
    """The round as functions of tensors, with the plain mean."""

    def received(state):
        return {"weights": state.global_model_weights, "round": state.client_work}

    def work(received, _, examples):
        local = update_locally(
            train, target_network, received["weights"], received["round"], examples
        )
        return Upload(
            {"delta": Mean(*local.result)}, {f: getattr(local, f) for f in local._fields[1:]}
        )

    def finish(state, means, sums):
        delta, weights = means["delta"], state.global_model_weights
        of_optimizer, weights, metrics = server_step(
            optimizer, state.finalizer, weights, delta.value
        )
        weights = target_network.followed(weights, hyperparameters.target_momentum)
        loss, deviation = loss_and_spread(
            delta.weight, sums["loss"], sums["z_mean"], sums["z_squared"]
        )
        metrics |= {"loss": loss, "encoding_std": deviation}
        metrics |= {"samples": sums["samples"], "dropped_clients": sums["dropped"]}
        new = state._replace(
            global_model_weights=weights, client_work=state.client_work + 1, finalizer=of_optimizer
        )
        return new, metrics

    return Stage("update", received, work, finish)
