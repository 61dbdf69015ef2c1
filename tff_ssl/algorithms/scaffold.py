"""SCAFFOLD: local training with control variates (Karimireddy et al., ICML 2020).

"SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", arXiv:1910.06378, Algorithm 1.
The server keeps the model x and the control variate c, client i its own c_i; both control variates
start at zero. A client of the cohort S starts from y = x and takes K local steps

  y <- y - eta_l (g_i(y) - c_i + c),

whose correction c - c_i removes the client's drift from its gradients. Then the client and the
server update (option II of the paper):

  c_i+ = c_i - c + (x - y) / (K eta_l)
  x <- x + eta_g mean_S(y - x),    c <- c + |S| / N mean_S(c_i+ - c_i).

While c_i = c, as in a client's first round before c has changed, local training is FedAvg's.

Choices:
- There is no option I, whose c_i+ = g_i(x) needs a second pass over the examples.
- Option II takes y for the sum of K corrected gradients, so that local training must be plain
  gradient descent of constant rate: other optimizers, momentum and schedules are rejected. An L2
  term (`client_weight_decay`) is part of g_i.
- |S| / N is the fraction of clients that a round is expected to have (`Task.participation`), even
  if some of them fail.
- Clients are weighted uniformly, as in the paper. Weights by examples apply to both means.
- Clients send y instead of y - x, which gives the same step. Moving averages of batch norms become
  the mean of the clients', without eta_g, and have no control variate.
- BYOL's target network starts in every round from the global model, as the client's model does;
  clients keep none.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.bounds import bounded
from tff_ssl.kinds.stateful.algorithm import StatefulClients, build_stateful_clients
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.client_output import ClientOutput, output_if_finite, previous_if_empty
from tff_ssl.templates.local_training import LocalTraining, build_local_training
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import one_tower


@dataclasses.dataclass(frozen=True)
class ScaffoldHyperparameters(ClientHyperparameters):
    """Hyperparameters; those of local training are inherited.

    Attributes:
      server_learning_rate: Learning rate eta_g; 1 in the paper's experiments.
    """

    client_momentum: float = 0.0
    client_weighting: str = "uniform"
    server_learning_rate: float = bounded(1.0, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("client_optimizer", "client_momentum", "learning_rate_schedule")
        for name, value in zip(names, ("sgd", 0, "constant"), strict=True):
            if getattr(self, name) != value:
                raise ValueError(f"{name} of SCAFFOLD must be {value}; got {getattr(self, name)}")


class ServerModel(NamedTuple):
    """What the server broadcasts: the model x, and c, a tuple like its trainable weights."""

    weights: Any
    control: Any


class ClientState(NamedTuple):
    """The state of a client: its control variate c_i."""

    control: Any


class Sent(NamedTuple):
    """What a client sends: its model y, and the change c_i+ - c_i of its control variate."""

    weights: Any
    control_delta: Any


def initial_client_state(model: DualEncoder, seed: int) -> ClientState:
    """The state of a client that has not taken part yet: zeros."""
    return ClientState(tuple(tf.zeros_like(w) for w in model.init(seed).trainable))


def initial_server_model(model: DualEncoder, seed: int) -> ServerModel:
    """The model of the seed, and a control variate of zeros."""
    return ServerModel(model.init(seed), initial_client_state(model, seed).control)


def client_work(
    training: LocalTraining,
    learning_rate: float,
    server: ServerModel,
    round_number: tf.Tensor,
    state: ClientState,
    examples: Any,
) -> ClientOutput:
    """Trains with the corrected gradients of rate eta_l, and updates the control variate."""
    batch = read_all(examples)
    samples = tf.shape(batch["example_id"])[0]
    x, c, c_i = Weights(*server.weights), tuple(server.control), tuple(state.control)
    correction = tf.nest.map_structure(tf.subtract, c, c_i)
    target = training.first_target(x)
    trained = training.train(x, target, round_number, batch, correction=correction)
    y = trained.weights
    distance = tf.cast(training.steps(samples), tf.float32) * learning_rate
    # c_i+ - c_i = (x - y) / (K eta_l) - c.
    delta = tf.nest.map_structure(
        lambda x, y, c: (x - y) / distance - c, tuple(x.trainable), y.trainable, c
    )
    new_state = ClientState(tf.nest.map_structure(tf.add, c_i, delta))
    updates = [(Sent(y, delta), training.client_weight(samples))]
    return output_if_finite(updates, new_state, state, trained, samples, {})


def server_update(
    learning_rate: float, participation: float, server: ServerModel, means: tuple[Sent]
) -> ServerModel:
    """The server's step of rate eta_g; without clients, model and control variate stay.

    `participation` is the fraction |S| / N of the clients that take part in a round; `means` is the
    one mean of what the clients sent, NaN without clients.
    """
    (mean,) = means
    trainable = tf.nest.map_structure(
        lambda x, y: x + learning_rate * (y - x),
        tuple(server.weights.trainable),
        tuple(mean.weights.trainable),
    )
    control = tf.nest.map_structure(
        lambda c, delta: c + participation * delta, tuple(server.control), tuple(mean.control_delta)
    )
    weights = Weights(trainable, tuple(mean.weights.non_trainable))
    return previous_if_empty(server, ServerModel(weights, control))


def without_control(server: ServerModel) -> ServerModel:
    """The server's model for clients that start anew, whose control variates are zero.

    c is the mean of the c_i only if both start together; otherwise each step would be biased by c.
    """
    return server._replace(control=tf.nest.map_structure(np.zeros_like, server.control))


def build_scaffold(
    task: Task,
    hyperparameters: ScaffoldHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Builds SCAFFOLD's round; the aggregator of both means is `MeanFactory` by default."""
    values = hyperparameters or ScaffoldHyperparameters()
    model = one_tower(task.model)
    training = build_local_training(task, values, keeps_target=True)
    update = functools.partial(server_update, values.server_learning_rate, task.participation)
    algorithm = build_stateful_clients(
        initial_model=functools.partial(initial_server_model, model),
        initial_client_state=functools.partial(initial_client_state, model),
        client_work=functools.partial(client_work, training, values.client_learning_rate),
        server_update=update,
        element_type=task.element_type,
        global_weights=lambda server: Weights(*server.weights),
        client_weights=lambda server, state: Weights(*server.weights),
        aggregator=aggregator,
    )
    return dataclasses.replace(algorithm, for_new_clients=without_control)
