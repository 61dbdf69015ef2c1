"""The round of algorithms whose clients remember: typed states in and out of a TFF computation.

  next(server_state@SERVER, client_states@CLIENTS, client_data@CLIENTS)
    -> (server_state@SERVER, client_states@CLIENTS, client_metrics@CLIENTS, metrics@SERVER)

A round: broadcast of the server's model; every client of the cohort works on its own examples with
its own state; weighted means of what clients send; the server's update. What clients and server
compute is the algorithm's; `client_states` (of this package) keeps the states between rounds.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import Weights
from tff_ssl.templates import non_finite
from tff_ssl.templates.local_training import LocalModel


class ServerState(NamedTuple):
    """What the server keeps.

    Attributes:
      round_number: int64, the round that comes next; views and schedules depend on it.
      model: The algorithm's.
      aggregators: A state per mean.
    """

    round_number: Any
    model: Any
    aggregators: Any


class ClientOutput(NamedTuple):
    """What a client's work gives.

    Attributes:
      state: Its new state.
      updates: What is sent: a `tff.learning.templates.ClientResult` per mean.
      metrics: Name -> float32 of this client; with `loss`, `weight`, `samples` and `dropped`.
    """

    state: Any
    updates: tuple[tff.learning.templates.ClientResult, ...]
    metrics: Any


class RoundOutput(NamedTuple):
    """What `next` gives; see the module."""

    state: Any
    client_states: Any
    client_metrics: Any
    metrics: Any


class StatefulClients(NamedTuple):
    """An algorithm whose clients remember.

    Attributes:
      process: A `tff.templates.IterativeProcess`; see the module.
      initial_model: Seed -> the server's model before the first round.
      initial_client_state: Seed -> the state of a client that has not taken part yet.
      global_weights: Server's model -> weights of the global model; None where there is none.
      client_weights: (server's model, a client's state) -> weights of the client's own model.
      local_weights: A client's state -> the weights with which its last local training ended; None
        where states do not have them, or the client's own model is just that.
      downloads: Types that a client receives in a round.
      uploads: Types that a client sends in a round.
    """

    process: tff.templates.IterativeProcess
    initial_model: Callable[[int], Any]
    initial_client_state: Callable[[int], Any]
    global_weights: Callable[[Any], Weights] | None
    client_weights: Callable[[Any, Any], Weights]
    local_weights: Callable[[Any], Weights] | None
    downloads: Sequence[tff.Type]
    uploads: Sequence[tff.Type]


def build_stateful_clients(
    *,
    initial_model: Callable[[int], Any],
    initial_client_state: Callable[[int], Any],
    client_work: Callable[[Any, tf.Tensor, Any, tf.data.Dataset], ClientOutput],
    server_update: Callable[[Any, tuple[Any, ...]], Any],
    element_type: tff.Type,
    global_weights: Callable[[Any], Weights] | None,
    client_weights: Callable[[Any, Any], Weights],
    local_weights: Callable[[Any], Weights] | None = None,
    sent_models: int = 1,
    communicates: bool = True,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Composes a round from TensorFlow functions.

    Args:
      initial_model: Seed -> the server's model.
      initial_client_state: Seed -> a new client's state.
      client_work: (server's model, round number int64, the client's state, its examples) -> its
        output, all of fixed shapes.
      server_update: (model, means of the updates) -> model. A mean of no weight is NaN; what to do
        then is the function's.
      element_type: Of a client's examples.
      global_weights: As in `StatefulClients`.
      client_weights: As in `StatefulClients`.
      local_weights: As in `StatefulClients`.
      sent_models: How many of the updates a client really sends. Several means of which a client
        enters one are written as sums of all with weights of zero.
      communicates: False where clients get nothing after their first round, and send nothing.
      aggregator: Of each mean; `MeanFactory` by default.
    """
    model_type = _type_of(initial_model)
    state_type = _type_of(initial_client_state)
    examples_type = tff.types.SequenceType(element_type)

    @tff.tensorflow.computation(model_type, np.int64, state_type, examples_type)
    @tf.function(autograph=False)
    def work(model, round_number, state, examples):
        return client_work(model, round_number, state, examples)

    output_type = work.type_signature.result
    factory = aggregator or tff.aggregators.MeanFactory()
    aggregators = [
        factory.create(update.update, update.update_weight) for update in output_type.updates
    ]

    @tff.tensorflow.computation(model_type, tuple(update.update for update in output_type.updates))
    def update_model(model, means):
        return server_update(model, means)

    @tff.tensorflow.computation(np.int64)
    def following(round_number):
        return round_number + 1

    @tff.tensorflow.computation
    def first_model():
        return initial_model(0)

    @tff.federated_computation
    def initialize():
        states = tuple(aggregator.initialize() for aggregator in aggregators)
        return tff.federated_zip(
            ServerState(
                tff.federated_value(np.int64(0), tff.SERVER),
                tff.federated_eval(first_model, tff.SERVER),
                tff.federated_zip(states),
            )
        )

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.types.FederatedType(state_type, tff.CLIENTS),
        tff.types.FederatedType(examples_type, tff.CLIENTS),
    )
    def next_round(server, client_states, client_data):
        model = tff.federated_broadcast(server.model)
        round_number = tff.federated_broadcast(server.round_number)
        output = tff.federated_map(work, (model, round_number, client_states, client_data))
        means = [
            aggregator.next(
                server.aggregators[i], output.updates[i].update, output.updates[i].update_weight
            )
            for i, aggregator in enumerate(aggregators)
        ]
        new_model = tff.federated_map(
            update_model, (server.model, tff.federated_zip(tuple(m.result for m in means)))
        )
        state = tff.federated_zip(
            ServerState(
                tff.federated_map(following, server.round_number),
                new_model,
                tff.federated_zip(tuple(m.state for m in means)),
            )
        )
        return RoundOutput(state, output.state, output.metrics, server_metrics(output.metrics))

    return StatefulClients(
        tff.templates.IterativeProcess(initialize, next_round),
        initial_model,
        initial_client_state,
        global_weights,
        client_weights,
        local_weights,
        downloads=(model_type, tff.types.to_type(np.int64)) if communicates else (),
        uploads=tuple(
            update.update for update in output_type.updates[: sent_models if communicates else 0]
        ),
    )


def _type_of(initial: Callable[[int], Any]) -> tff.Type:
    return tff.tensorflow.computation(lambda: initial(0)).type_signature.result


def server_metrics(client_metrics: tff.Value) -> tff.Value:
    """Means over the clients by weight; sums of samples and of dropped clients."""
    names = tff.structure.name_list(client_metrics.type_signature.member)
    weight = client_metrics.weight
    metrics = collections.OrderedDict()
    for name in names:
        if name in ("samples", "dropped"):
            metrics[name] = tff.federated_sum(client_metrics[name])
        elif name != "weight":
            metrics[name] = tff.federated_mean(client_metrics[name], weight)
    metrics["dropped_clients"] = metrics.pop("dropped")
    return tff.federated_zip(metrics)


def output_if_finite(
    updates: Sequence[tuple[Any, tf.Tensor]],
    new_state: Any,
    old_state: Any,
    trained: LocalModel,
    samples: tf.Tensor,
    extra: Mapping[str, tf.Tensor],
) -> ClientOutput:
    """A client's output; where its training went to NaN or infinity it keeps its old state.

    Args:
      updates: (what is sent, its weight float32) per mean.
      new_state: The client's state after the round.
      old_state: And before.
      trained: Its local training, for loss and spread.
      samples: n_k, int.
      extra: Further metrics, float32.
    """
    _, is_finite = non_finite.zero_unless_finite((tuple(updates), trained))

    def kept(value, instead):
        return tf.nest.map_structure(lambda v, i: tf.where(is_finite, v, i), value, instead)

    zeros = tf.nest.map_structure(tf.zeros_like, (tuple(updates), trained))
    sent, trained = kept((tuple(updates), trained), zeros)
    extra = {name: tf.where(is_finite, value, 0.0) for name, value in extra.items()}
    variance = tf.nn.relu(trained.z_squared - tf.square(trained.z_mean))
    metrics = collections.OrderedDict(
        loss=trained.loss,
        encoding_std=tf.reduce_mean(tf.sqrt(variance)),
        **extra,
        weight=tf.reduce_max(tf.stack([weight for _, weight in sent])),
        samples=tf.cast(samples, tf.int64),
        dropped=1 - tf.cast(is_finite, tf.int64),
    )
    return ClientOutput(
        kept(new_state, old_state),
        tuple(tff.learning.templates.ClientResult(*update) for update in sent),
        metrics,
    )


def previous_if_empty(old: Any, mean: Any) -> Any:
    """`mean`, or `old` where nobody sent anything (a mean of no weight is NaN)."""
    _, is_finite = non_finite.zero_unless_finite(mean)
    return tf.nest.map_structure(lambda o, m: tf.where(is_finite, m, o), old, mean)
