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
from tff_ssl.algorithms import finite, local_training
from tff_ssl.algorithms.task import Task
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.objectives import (
    OBJECTIVES,
    Objective,
    ObjectiveHyperparameters,
    moved_target,
)


@dataclasses.dataclass(frozen=True)
class FedAvgHyperparameters(ObjectiveHyperparameters, optimizers.ServerOptimizerHyperparameters):
    """Hyperparameters of FedAvg; those of the losses and of the server's optimizer are inherited.

    Attributes:
      client_optimizer: `sgd`, `adam`, `adamw` or `lars`, new in every round.
      client_learning_rate: 1.0 in the DCCO paper.
      client_momentum: Momentum of `sgd` and `lars`, beta_1 of the others.
      client_weight_decay: Of `adamw` and `lars`.
      local_epochs: E, passes over a client's examples in a round.
      local_steps: If positive, so many steps instead of epochs.
      batch_size: Of a local step; 0 for all examples of the client.
      client_weighting: `examples` (N_k) or `uniform`.
      mu: Of FedProx's proximal term, mu / 2 |w - w_broadcast|^2.
      target: BYOL: `server` or `local`, where the target network's moving average is kept.
      target_momentum: BYOL: tau of the moving average.
      min_samples: Clients with fewer examples are refused; 0 for the objective's own bound.
      micro_batch_size: Examples processed at a time in a round of one step; the result does not
        depend on it, memory and speed do.
    """

    client_optimizer: str = "sgd"
    client_learning_rate: float = 1.0
    client_momentum: float = 0.0
    client_weight_decay: float = 0.0
    local_epochs: int = 1
    local_steps: int = 0
    batch_size: int = 0
    client_weighting: str = "examples"
    mu: float = 0.0
    target: str = "server"
    target_momentum: float = 0.99
    min_samples: int = 0
    micro_batch_size: int = 32

    def __post_init__(self):
        ObjectiveHyperparameters.__post_init__(self)
        optimizers.ServerOptimizerHyperparameters.__post_init__(self)
        _check_choice("client_optimizer", self.client_optimizer, optimizers.OPTIMIZER_NAMES)
        _check_choice("client_weighting", self.client_weighting, ("examples", "uniform"))
        _check_choice("target", self.target, ("server", "local"))
        if self.client_learning_rate <= 0:
            raise ValueError(
                f"client_learning_rate must be positive; got {self.client_learning_rate}"
            )
        if self.client_weight_decay < 0:
            raise ValueError(
                f"client_weight_decay must not be negative; got {self.client_weight_decay}"
            )
        if not 0 <= self.target_momentum <= 1:
            raise ValueError(f"target_momentum must be in [0, 1]; got {self.target_momentum}")
        if self.mu < 0:
            raise ValueError(f"mu must not be negative; got {self.mu}")
        for name, least in (
            ("local_epochs", 1), ("local_steps", 0), ("batch_size", 0), ("min_samples", 0),
            ("micro_batch_size", 1),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}")

    @property
    def is_one_gradient_step(self) -> bool:
        """Whether a client's delta is its learning rate times one gradient on all its examples."""
        one_step = (self.local_steps or self.local_epochs) == 1 and self.batch_size == 0
        # The first step of SGD with momentum is plain; the proximal term's gradient is zero there.
        return one_step and self.client_optimizer == "sgd"

    def build_client_optimizer(self) -> tff.learning.optimizers.Optimizer:
        return optimizers.build_optimizer(
            self.client_optimizer,
            self.client_learning_rate,
            self.client_momentum,
            self.client_weight_decay,
        )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


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
) -> FedAvg:
    """Builds FedAvg's round.

    Args:
      task: Model, views, objective and type of the examples. Where an example has a `client`, one
        call may hold the examples of several clients (a folded group), each client's together.
      hyperparameters: The defaults if None.
      server_optimizer: Turns the mean delta into the new model; as the hyperparameters say if None.
      client_optimizer: Of the local steps; as the hyperparameters say if None.
      update_aggregator: Weighted mean of the deltas; `MeanFactory` by default.

    Raises:
      ValueError: If the model lacks a head that the objective needs, or has batch norm.
    """
    hyperparameters = hyperparameters or FedAvgHyperparameters()
    model, objective = task.model, OBJECTIVES[task.objective]
    _check_model(model, task.objective, objective)
    local_target = objective.target and hyperparameters.target == "local"
    server_target = objective.target and not local_target
    one_step = hyperparameters.is_one_gradient_step and client_optimizer is None
    training = local_training.LocalTraining(
        model=model,
        objective=objective,
        hyperparameters=hyperparameters,
        two_views=task.two_views,
        optimizer=client_optimizer or hyperparameters.build_client_optimizer(),
        local_epochs=hyperparameters.local_epochs,
        local_steps=hyperparameters.local_steps,
        batch_size=hyperparameters.batch_size,
        proximal=hyperparameters.mu,
        target_momentum=hyperparameters.target_momentum if local_target else None,
        uniform=hyperparameters.client_weighting == "uniform",
        seed=task.seed,
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
        values, is_finite = finite.zero_unless_finite(trained.means)
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
        means = tff.federated_map(weighted_means, tuple(tff.federated_sum(x) for x in sent))
        metrics = collections.OrderedDict(
            loss=means[0],
            encoding_std=means[1],
            samples=tff.federated_sum(local.samples),
            dropped_clients=tff.federated_sum(local.dropped),
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_map(following, round_number), local.result, tff.federated_zip(metrics)
        )

    aggregator = update_aggregator or tff.aggregators.MeanFactory()
    finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
        server_optimizer or hyperparameters.build_server_optimizer(task.rounds),
        weights_type,
        finite.reject_non_finite_update,
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


def _check_model(model: Model, name: str, objective: Objective) -> None:
    if model.norm != "group":
        raise ValueError("fedavg needs --norm=group: clients without memory have no batch norm")
    if objective.predictor and not model.predictor:
        raise ValueError(f"--objective={name} needs a --predictor")
    if objective.supervised and not model.classes:
        raise ValueError(f"--objective={name} needs labels")
    if objective.decoder and not model.decoder:
        raise ValueError(f"--objective={name} needs a ViT --encoder with a decoder")
    if not (objective.supervised or objective.decoder or model.projector):
        raise ValueError(f"--objective={name} needs a --projector")
