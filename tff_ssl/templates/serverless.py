"""What the clients of a network without a server compute, as typed TFF computations.

  training: (round@SERVER, model@CLIENTS, examples@CLIENTS) -> (model@CLIENTS, metrics@CLIENTS)
  averaging: (own model@CLIENTS, sequence of (weight, model)@CLIENTS) -> model@CLIENTS

There is no server that holds a model: the only value at SERVER is the number of the round, which
each client could count for itself. Models go from client to client; which ones a client receives
says the algorithm's `plan`. Sums are calculated in float64, as in `averaging.combine`.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.fedbn import OwnWeights
from tff_ssl.decentralized.schedule import Schedule
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.templates import local_training, stateful_clients
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import one_tower

WEIGHT, MODEL = "weight", "model"


class Setting(NamedTuple):
    """The clients of a run.

    Attributes:
      network: Round, from 1 -> the network in it.
      volumes: n, the number of examples of each client.
      seed: Of all that is drawn.
    """

    network: Callable[[int], nx.Graph]
    volumes: Sequence[int]
    seed: int


class Serverless(NamedTuple):
    """An algorithm without a server.

    Attributes:
      training: See the module.
      averaging: See the module.
      initial_weights: Seed -> the model that all clients start from.
      keeps_own: Whether an average depends on the client's own model beside those received.
      plan: The clients of a run -> its rounds.
      downloads: Types of what a client receives with a model.
      uploads: Types of what a client sends as a model.
    """

    training: tff.Computation
    averaging: tff.Computation
    initial_weights: Callable[[int], Weights]
    keeps_own: bool
    plan: Callable[[Setting], Schedule]
    downloads: Sequence[tff.Type]
    uploads: Sequence[tff.Type]


def build_serverless(
    task: Task,
    hyperparameters: ClientHyperparameters,
    plan: Callable[[Setting, int], Schedule],
    own_norm: bool = False,
) -> Serverless:
    """Builds the computations of an algorithm.

    Args:
      task: Model, views, objective and type of the examples.
      hyperparameters: Of local training.
      plan: (the clients of a run, bytes of a model) -> its rounds.
      own_norm: Whether a client's batch norms stay its own in an average.

    Raises:
      ValueError: If the model lacks a head that the objective needs.
    """
    model = one_tower(task.model)
    training = _build_training(task, hyperparameters, model)
    model_type = training.type_signature.parameter[1].member
    size = sum(np.prod(s.shape, dtype=int) * 4 for s in model.specs)
    return Serverless(
        training,
        _build_averaging(model, model_type, own_norm),
        model.init,
        own_norm,
        lambda setting: plan(setting, int(size)),
        downloads=(model_type,),
        uploads=(model_type,),
    )


def _build_training(
    task: Task, hyperparameters: ClientHyperparameters, model: DualEncoder
) -> tff.Computation:
    objective = OBJECTIVES[task.objective]
    local = local_training.build_local_training(
        task, hyperparameters, keeps_target=objective.target
    )
    model_type = tff.tensorflow.computation(lambda: model.init(0)).type_signature.result
    examples_type = tff.types.SequenceType(task.element_type)

    @tff.tensorflow.computation(model_type, np.int64, examples_type)
    @tf.function(autograph=False)
    def train(weights, round_number, examples):
        start = Weights(tuple(weights.trainable), tuple(weights.non_trainable))
        # A moving average of the online network from the received model on.
        target = model.target_model.part_of(start) if objective.target else Weights((), ())
        data = read_all(examples)
        trained = local.train(start, target, round_number, data)
        samples = tf.shape(data["example_id"])[0]
        sent = [
            (tf.constant(0.0), tf.cast(samples, tf.float32))
        ]  # Of which only the weight counts.
        output = stateful_clients.output_if_finite(
            sent, trained.weights, start, trained, samples, {}
        )
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


def _received_type(model_type: tff.Type) -> tff.SequenceType:
    """Of what a client averages: models as the flat tuples of their tensors, with weights."""
    leaves = tuple(tff.types.TensorType(t.dtype.type, t.shape) for t in _tensors(model_type))
    return tff.types.SequenceType(
        tff.types.to_type(collections.OrderedDict([(WEIGHT, np.float64), (MODEL, leaves)]))
    )


def _build_averaging(model: DualEncoder, model_type: tff.Type, own_norm: bool) -> tff.Computation:
    split = OwnWeights(model, everything=False, local_norm=own_norm)
    sequence_type = _received_type(model_type)

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
        return split.with_own(Weights(tuple(mean[:cut]), tuple(mean[cut:])), split.own_of(own))

    @tff.federated_computation(
        tff.types.FederatedType(model_type, tff.CLIENTS),
        tff.types.FederatedType(sequence_type, tff.CLIENTS),
    )
    def averaging(own, received):
        return tff.federated_map(average, (own, received))

    return averaging


def _tensors(type_spec: tff.Type) -> list[tff.TensorType]:
    if isinstance(type_spec, tff.types.TensorType):
        return [type_spec]
    parts: list[Any] = [part for _, part in tff.structure.iter_elements(type_spec)]
    return [tensor for part in parts for tensor in _tensors(part)]
