"""FedEMA: clients mix the global model into their own (Zhuang et al., ICLR 2022).

"Divergence-aware Federated Self-Supervised Learning", section 4. It differs from FedU in the online
network with which a client starts, a mixture of the global network W_g and its own W_k:

  W_k <- mu_k W_k + (1 - mu_k) W_g,    mu_k = min(lambda_k |W_g - W_k|, 1),

for encoder and predictor alike, where |W_g - W_k| is the divergence of the encoders. The autoscaler
sets lambda_k = tau / |W_g - W_k| once, so that mu_k is then tau. The target network stays on the
client.

Choice: lambda_k is set when the client first receives a global model to which it has contributed,
also if it was not sampled in the round after its first.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.bounds import bounded
from tff_ssl.kinds.stateful.algorithm import (
    ClientEnd,
    ClientStart,
    StatefulClients,
    build_stateful_clients,
    client_work_around_training,
)
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.client_output import previous_if_empty
from tff_ssl.templates.local_training import LocalModel, build_local_training
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import encoder_of, one_tower, squared_distance, where


@dataclasses.dataclass(frozen=True)
class FedEMAHyperparameters(ClientHyperparameters):
    """Hyperparameters with the paper's values; those of local training are inherited.

    Attributes:
      tau: Value tau that mu_k has when the autoscaler sets lambda_k.
    """

    client_learning_rate: float = 0.032
    batch_size: int = 128
    local_epochs: int = 5
    tau: float = bounded(0.7, at_least=0, at_most=1)


class ClientState(NamedTuple):
    """The state of a client."""

    rounds: Any  #: Number of rounds that the client took part in, int64.
    scaler: Any  #: Scaler lambda_k, float32; 0 before it is set.
    online: Any  #: Weights of the online network W_k after the client's last round.
    target: Any  #: Weights of the target network.


def initial_client_state(model: DualEncoder, seed: int) -> ClientState:
    """The state of a client that has not taken part yet."""
    weights = model.init(seed)
    rounds, scaler = tf.constant(0, tf.int64), tf.constant(0.0)
    return ClientState(rounds, scaler, weights, encoder_of(model, weights))


def start_round(model: DualEncoder, tau: float, server: Weights, state: ClientState) -> ClientStart:
    """Mixes the global model into the client's; notes are the divergence, lambda_k and mu_k."""
    global_encoder = encoder_of(model, server)
    divergence = tf.sqrt(
        squared_distance(global_encoder.trainable, encoder_of(model, state.online).trainable)
    )
    is_new = tf.equal(state.rounds, 0)
    # The client's second round, or a later one if the global model equalled its own until then.
    is_unset = tf.equal(state.scaler, 0.0) & ~is_new
    scaler = tf.where(is_unset, tf.math.divide_no_nan(tau, divergence), state.scaler)
    # A new client has no model of its own to keep.
    mu = tf.where(is_new, 0.0, tf.minimum(scaler * divergence, 1.0))
    online = tf.nest.map_structure(
        lambda local, shared: mu * local + (1 - mu) * shared, state.online, server
    )
    target = where(is_new, global_encoder, state.target)
    return ClientStart(online, target, (divergence, scaler, mu))


def end_round(state: ClientState, start: ClientStart, trained: LocalModel) -> ClientEnd:
    """Keeps both networks, and sends the online network."""
    divergence, scaler, mu = start.notes
    new_state = ClientState(state.rounds + 1, scaler, trained.weights, trained.target)
    return ClientEnd(new_state, trained.weights, {"divergence": divergence, "mu": mu})


def build_fedema(
    task: Task,
    hyperparameters: FedEMAHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Builds FedEMA's round; the aggregator of online networks is `MeanFactory` by default."""
    values = hyperparameters or FedEMAHyperparameters()
    model = one_tower(task.model)
    training = build_local_training(task, values, keeps_target=True)
    start = functools.partial(start_round, model, values.tau)
    return build_stateful_clients(
        initial_model=model.init,
        initial_client_state=functools.partial(initial_client_state, model),
        client_work=client_work_around_training(training, start, end_round),
        server_update=lambda server, means: previous_if_empty(server, means[0]),
        element_type=task.element_type,
        global_weights=lambda server: server,
        client_weights=lambda server, state: Weights(*state.online),
        aggregator=aggregator,
    )
