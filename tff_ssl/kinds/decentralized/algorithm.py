"""The kind of algorithms without a server: the clients of a network send models to each other.

They have two typed computations:

  training: (round@SERVER, model@CLIENTS, examples@CLIENTS) -> (model@CLIENTS, metrics@CLIENTS)
  averaging: (own model@CLIENTS, sequence of (weight, model)@CLIENTS) -> model@CLIENTS

No server holds a model: the only value at SERVER is the number of the round, which clients could
count themselves. The algorithm's `Schedule` determines the models that each client trains, receives
and averages. Averages are calculated in float64, as in `decentralized.mixing.combine`.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.decentralized.schedule import ClientNetwork, Schedule
from tff_ssl.kinds.decentralized.simulation import DecentralizedRun
from tff_ssl.kinds.protocol import FederatedAlgorithm, Need, RoundToLower, RunSetting
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.client_output import output_if_finite
from tff_ssl.templates.local_training import build_local_training
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import LocalWeights, one_tower

WEIGHT, MODEL = "weight", "model"


@dataclasses.dataclass(frozen=True)
class Decentralized(FederatedAlgorithm):
    """An algorithm without a server."""

    kind: ClassVar[str] = "decentralized"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.NETWORK})
    has_client_models: ClassVar[bool] = True

    model: DualEncoder  #: Model of every client.
    hyperparameters: ClientHyperparameters  #: Hyperparameters of the algorithm.
    training: tff.Computation  #: Computation of local training; see the module.
    averaging: tff.Computation  #: Averages received models; see the module.
    initial_weights: Callable[[int], Weights]  #: Seed -> the model from which all clients start.
    #: The weights that stay with a client when models are averaged, if any.
    local_weights: LocalWeights | None
    #: Network of the clients -> the rounds of the run.
    schedule: Callable[[ClientNetwork], Schedule]
    downloads: Sequence[tff.Type]  #: Types that a client receives with a model.
    uploads: Sequence[tff.Type]  #: Types that a client sends as a model.

    def rounds_to_lower(self) -> dict[str, RoundToLower]:
        return {
            "training": RoundToLower("local training from received models", None, self.training),
            "averaging": RoundToLower("means of received models", None, self.averaging),
        }

    def plan_run(self, setting: RunSetting) -> DecentralizedRun:
        return DecentralizedRun(self, setting)


def _build_training(
    task: Task, hyperparameters: ClientHyperparameters, model: DualEncoder
) -> tff.Computation:
    """Builds `Decentralized.training`."""
    local = build_local_training(task, hyperparameters, keeps_target=True)
    model_type = tff.tensorflow.computation(lambda: model.init(0)).type_signature.result
    examples_type = tff.types.SequenceType(task.element_type)

    @tff.tensorflow.computation(model_type, np.int64, examples_type)
    @tf.function(autograph=False)
    def train(weights, round_number, examples):
        start = Weights(tuple(weights.trainable), tuple(weights.non_trainable))
        # The target network, a moving average of the online network, starts as the received model.
        batch, target = read_all(examples), local.first_target(start)
        trained = local.train(start, target, round_number, batch)
        samples = tf.shape(batch["example_id"])[0]
        # Nothing is averaged at a server; only the weight of this update enters the metrics.
        updates = [(tf.constant(0.0), tf.cast(samples, tf.float32))]
        output = output_if_finite(updates, trained.weights, start, trained, samples, {})
        return output.state, output.metrics

    @tff.federated_computation(
        tff.types.FederatedType(np.int64, tff.SERVER),
        tff.types.FederatedType(model_type, tff.CLIENTS),
        tff.types.FederatedType(examples_type, tff.CLIENTS),
    )
    def training(round_number, models, client_data):
        shared = tff.federated_broadcast(round_number)
        output = tff.federated_map(train, (models, shared, client_data))
        return output[0], output[1]

    return training


def _build_averaging(
    model: DualEncoder, model_type: tff.Type, local_weights: LocalWeights | None
) -> tff.Computation:
    """Builds `Decentralized.averaging`; models are received as flat tuples of their tensors."""
    specs = tf.nest.flatten(tff.types.type_to_tf_tensor_specs(model_type))
    leaves_type = tuple(map(tff.types.tensorflow_to_type, specs))
    element_type = collections.OrderedDict([(WEIGHT, np.float64), (MODEL, leaves_type)])
    sequence_type = tff.types.SequenceType(tff.types.to_type(element_type))

    @tff.tensorflow.computation(model_type, sequence_type)
    @tf.function(autograph=False)
    def average(own, received):
        leaves = tuple(tf.nest.flatten((own.trainable, own.non_trainable)))

        def add(total, element):
            return tuple(
                t + element[WEIGHT] * tf.cast(leaf, tf.float64)
                for t, leaf in zip(total, element[MODEL], strict=True)
            )

        zeros = tuple(tf.zeros(leaf.shape, tf.float64) for leaf in leaves)
        total = received.reduce(zeros, add)
        mean = [tf.cast(t, leaf.dtype) for t, leaf in zip(total, leaves, strict=True)]
        cut = len(model.trainable_specs)
        averaged = Weights(tuple(mean[:cut]), tuple(mean[cut:]))
        if local_weights is None:
            return averaged
        return local_weights.restore(averaged, local_weights.select(own))

    @tff.federated_computation(
        tff.types.FederatedType(model_type, tff.CLIENTS),
        tff.types.FederatedType(sequence_type, tff.CLIENTS),
    )
    def averaging(own, received):
        return tff.federated_map(average, (own, received))

    return averaging


def build_decentralized(
    task: Task,
    hyperparameters: ClientHyperparameters,
    build_schedule: Callable[[ClientNetwork, int], Schedule],
    local_norm: bool = False,
) -> Decentralized:
    """Builds the computations of an algorithm without a server.

    Args:
      task: Model, views, objective and type of the examples.
      hyperparameters: Hyperparameters of local training.
      build_schedule: (network of the clients, bytes of a model) -> the schedule of the rounds.
      local_norm: Whether clients keep their own batch norms when they average models.

    Raises:
      ValueError: If the model lacks a head that the objective needs.
    """
    model = one_tower(task.model)
    training = _build_training(task, hyperparameters, model)
    model_type = training.type_signature.parameter[1].member
    model_bytes = int(sum(np.prod(s.shape, dtype=int) * 4 for s in model.specs))
    local_weights = LocalWeights(model, batch_norm=True) if local_norm else None
    return Decentralized(
        model,
        hyperparameters,
        training,
        _build_averaging(model, model_type, local_weights),
        model.init,
        local_weights,
        lambda network: build_schedule(network, model_bytes),
        downloads=(model_type,),
        uploads=(model_type,),
    )
