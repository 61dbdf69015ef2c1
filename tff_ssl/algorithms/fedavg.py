"""FedAvg with a local objective (McMahan et al. 2017), and FedProx (Li et al. 2020).

A round: broadcast; every client trains on its own examples and sends its model delta; weighted mean
of the deltas; the server's optimizer takes it as a gradient. This is the DCCO paper's baseline
(section 4, with one step of gradient descent of rate 1.0 on each client) with any of
`objectives.OBJECTIVES`, and for one or many local steps.

BYOL's target network is a moving average of the online one: on the server, over rounds (it is
broadcast beside the model), or on each client, over its local steps, from the broadcast model on.

Deviations: a client whose delta is not finite gets weight 0 and is counted. Batch norm is refused:
its moving averages have no place in a round without client memory.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives.registry import OBJECTIVES, moved_target
from tff_ssl.templates import local_training, non_finite
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters, check_choice
from tff_ssl.templates.task import Task


@dataclasses.dataclass(frozen=True)
class FedAvgHyperparameters(ClientHyperparameters, optimizers.ServerOptimizerHyperparameters):
    """Hyperparameters of FedAvg; those of local training and of the server are inherited.

    Attributes:
      mu: Of FedProx's proximal term, mu / 2 |w - w_broadcast|^2.
      target: BYOL: `server` or `local`, where the target network's moving average is kept.
      micro_batch_size: Examples processed at a time in a round of one step; the result does not
        depend on it, memory and speed do.
    """

    client_learning_rate: float = 1.0  # The DCCO paper's, with one step of plain descent.
    client_momentum: float = 0.0
    mu: float = 0.0
    target: str = "server"
    micro_batch_size: int = 32

    def __post_init__(self):
        ClientHyperparameters.__post_init__(self)
        optimizers.ServerOptimizerHyperparameters.__post_init__(self)
        check_choice("target", self.target, ("server", "local"))
        if self.mu < 0:
            raise ValueError(f"mu must not be negative; got {self.mu}")
        if self.micro_batch_size < 1:
            raise ValueError(f"micro_batch_size must be at least 1; got {self.micro_batch_size}")

    @property
    def is_one_gradient_step(self) -> bool:
        """Whether a client's delta is its learning rate times one gradient on all its examples."""
        one_step = (self.local_steps or self.local_epochs) == 1 and self.batch_size == 0
        # The first step of SGD with momentum is plain; the proximal term's gradient is zero there.
        plain = self.client_optimizer == "sgd" and not self.client_weight_decay
        return one_step and plain and self.learning_rate_schedule == "constant"


class LocalUpdate(NamedTuple):
    """What a client sends.

    Attributes:
      result: `tff.learning.templates.ClientResult` with the model delta and its weight.
      loss: Weight times the mean loss of its local steps, float32.
      z_mean: Weight times the mean of its projections, float32 [d].
      z_squared: Weight times the mean of their squares, float32 [d].
      samples: N_k, int64.
      dropped: 1 where the delta is not finite, else 0; int64.
    """

    result: Any
    loss: Any
    z_mean: Any
    z_squared: Any
    samples: Any
    dropped: Any


class FedAvg(NamedTuple):
    """FedAvg's computations.

    Attributes:
      process: The round. The target network of `byol`, where the server keeps it, is the
        non-trainable part of the global model's weights.
      initial_weights: Seed -> the global model's weights.
      downloads: What a client receives in a round (TFF types).
      uploads: What a client sends in a round (TFF types), but for its weight, a scalar.
    """

    process: tff.learning.templates.LearningProcess
    initial_weights: Callable[[int], tff.learning.models.ModelWeights]
    downloads: tuple[tff.Type, ...]
    uploads: tuple[tff.Type, ...]


def build_fedavg(
    task: Task,
    hyperparameters: FedAvgHyperparameters | None = None,
    server_optimizer: tff.learning.optimizers.Optimizer | None = None,
    client_optimizer: tff.learning.optimizers.Optimizer | None = None,
    update_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
    metric_sum: Callable[[tff.Value], tff.Value] = tff.federated_sum,
) -> FedAvg:
    """Builds FedAvg's round.

    Args:
      task: Model, views, objective and type of the examples. Where an example has a `client`, one
        call may hold the examples of several clients (a folded group), each client's together.
      hyperparameters: The defaults if None.
      server_optimizer: Turns the mean delta into the new model; as the hyperparameters say if None.
      client_optimizer: Of the local steps; as the hyperparameters say if None.
      update_aggregator: Weighted mean of the deltas; `MeanFactory` by default.
      metric_sum: Sum of counts and of losses and encodings, for metrics, at the clients.

    Raises:
      ValueError: If the model lacks a head that the objective needs, or has batch norm.
    """
    hyperparameters = hyperparameters or FedAvgHyperparameters()
    model, objective = task.model, OBJECTIVES[task.objective]
    if model.norm != "group":
        raise ValueError("fedavg needs --norm=group: clients without memory have no batch norm")
    local_target = objective.target and hyperparameters.target == "local"
    server_target = objective.target and not local_target
    one_step = hyperparameters.is_one_gradient_step and client_optimizer is None
    training = local_training.build_local_training(
        task,
        hyperparameters,
        optimizer=client_optimizer,
        keeps_target=local_target,
        proximal=hyperparameters.mu,
    )

    def initial_weights(seed):
        online = model.init(seed)
        target = model.target_model.part_of(online).trainable if server_target else ()
        return tff.learning.models.ModelWeights(online.trainable, target)

    initial_model = tff.tensorflow.computation(lambda: initial_weights(0))
    weights_type = initial_model.type_signature.result
    examples_type = tff.types.SequenceType(task.element_type)

    @tff.tensorflow.computation(weights_type, np.int64, examples_type)
    @tf.function(autograph=False)
    def local_update(weights, round_number, examples):
        online = Weights(tuple(weights.trainable), ())
        target = tuple(weights.non_trainable)
        if local_target:
            target = model.target_model.part_of(online).trainable
        if one_step:
            trained = training.one_step(
                online,
                Weights(target, ()),
                round_number,
                examples,
                hyperparameters.client_learning_rate,
                hyperparameters.micro_batch_size,
            )
        else:
            trained = training.many_steps(online, Weights(target, ()), round_number, examples)
        values, is_finite = non_finite.zero_unless_finite(trained.means)
        return LocalUpdate(
            tff.learning.templates.ClientResult(values.delta, values.weight),
            loss=values.weight * values.loss,
            z_mean=values.weight * values.z_mean,
            z_squared=values.weight * values.z_squared,
            samples=trained.samples,
            dropped=1 - tf.cast(is_finite, tf.int64),
        )

    local_type = local_update.type_signature.result

    @tff.tensorflow.computation(np.int64)
    def following(round_number):
        return round_number + 1

    @tff.tensorflow.computation(
        local_type.result.update_weight, local_type.loss, local_type.z_mean, local_type.z_squared
    )
    def weighted_means(weight, loss, z_mean, z_squared):
        mean, squared = z_mean / weight, z_squared / weight
        variance = tf.nn.relu(squared - tf.square(mean))
        return loss / weight, tf.reduce_mean(tf.sqrt(variance))

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
        sent = (local.result.update_weight, local.loss, local.z_mean, local.z_squared)
        means = tff.federated_map(weighted_means, tuple(metric_sum(x) for x in sent))
        metrics = collections.OrderedDict(
            loss=means[0],
            encoding_std=means[1],
            samples=metric_sum(local.samples),
            dropped_clients=metric_sum(local.dropped),
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_map(following, round_number), local.result, tff.federated_zip(metrics)
        )

    aggregator = update_aggregator or tff.aggregators.MeanFactory()
    finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
        server_optimizer or hyperparameters.build_server_optimizer(task.rounds),
        weights_type,
        non_finite.reject_non_finite_update,
    )
    if server_target:
        finalizer = _moving_target(finalizer, model, hyperparameters.target_momentum)
    process = tff.learning.templates.compose_learning_process(
        initial_model,
        tff.learning.templates.build_broadcast_process(weights_type),
        tff.learning.templates.ClientWorkProcess(initialize, next_work),
        aggregator.create(weights_type.trainable, local_type.result.update_weight),
        finalizer,
    )
    return FedAvg(
        process,
        initial_weights,
        downloads=(weights_type, tff.types.to_type(np.int64)),
        uploads=(weights_type.trainable, local_type.loss, local_type.z_mean, local_type.z_squared),
    )


def _moving_target(
    finalizer: tff.learning.templates.FinalizerProcess, model: Model, momentum: float
) -> tff.learning.templates.FinalizerProcess:
    """`finalizer`, and after it the target network moves towards the new model."""
    _, weights_type, _ = finalizer.next.type_signature.parameter

    @tff.tensorflow.computation(weights_type.member)
    def moved(weights):
        target = moved_target(weights.non_trainable, weights.trainable, momentum)
        return tff.learning.models.ModelWeights(weights.trainable, target)

    @tff.federated_computation(finalizer.next.type_signature.parameter)
    def next_fn(state, weights, update):
        output = finalizer.next(state, weights, update)
        return tff.templates.MeasuredProcessOutput(
            output.state, tff.federated_map(moved, output.result), output.measurements
        )

    return tff.learning.templates.FinalizerProcess(finalizer.initialize, next_fn)
