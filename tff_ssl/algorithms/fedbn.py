"""FedAvg of models with batch norm, which stays on the clients (FedBN, Li et al., ICLR 2021).

This is Dec-SSL's FedAvg (Wang et al., "Does Learning from Decentralized Non-IID Unlabeled Data
Benefit from Self Supervision?", section 2 and appendix C.1): every client trains for E epochs with
an optimizer that restarts in each round, the server averages the models, and each client keeps
its own batch norms (scale, offset and moving averages). With mu > 0 it is FedProx. With the
objective `supervised` it is Dec-SL, and its encoder is Dec-SLRep.

With `batch_norm=averaged`, batch norms are averaged too. With `averaging=none`, nothing is shared
and each client trains alone (FedU's single-client training).

Choices: Clients send their batch norms beside the other weights. The global model contains their
mean, without which it could not be evaluated; clients that have taken part never read this mean.
BYOL's target network starts in every round from the model with which the client starts.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.fedprox import proximal_terms
from tff_ssl.bounds import bounded, one_of
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
from tff_ssl.templates.local_training import LocalModel, LocalTraining, build_local_training
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import LocalWeights, one_tower, where

_NOTHING = Weights((), ())


@dataclasses.dataclass(frozen=True)
class FedBNHyperparameters(ClientHyperparameters):
    """Hyperparameters with Dec-SSL's values (appendix C.1); others are inherited.

    Attributes:
      batch_norm: Whether batch norms are `local` or `averaged`.
      averaging: Clients whose models are averaged, `all`, or `none` for clients that train alone.
      keep_local: Whether a client's state holds the whole model after its local training, for the
        comparison with the global one (`launch.visualize`; the paper's appendix B.3).
      mu: Weight mu of FedProx's proximal term, mu / 2 |w - w_broadcast|^2.
    """

    client_optimizer: str = "adam"
    client_learning_rate: float = 0.001
    learning_rate_schedule: str = "steps"
    local_epochs: int = 5
    batch_size: int = 256
    temperature: float = 0.5
    batch_norm: str = one_of("local", ("local", "averaged"))
    averaging: str = one_of("all", ("all", "none"))
    keep_local: bool = False
    mu: float = bounded(0.0, at_least=0)


class ClientState(NamedTuple):
    """The state of a client."""

    rounds: Any  #: Number of rounds that the client took part in, int64.
    own: Any  #: Weights that stay with the client; all weights with `averaging=none`.
    target: Any  #: Weights of BYOL's target network if the client trains alone; otherwise empty.
    #: The whole model's weights after the client's last round with `keep_local`; otherwise empty.
    local: Any


class FedBNClient:
    """The client's part of the round."""

    def __init__(self, model: DualEncoder, training: LocalTraining, options: FedBNHyperparameters):
        """Chooses the weights that stay with the client."""
        self._model, self._training, self._options = model, training, options
        self.alone = options.averaging == "none"
        self.local_weights = LocalWeights(
            model, everything=self.alone, batch_norm=options.batch_norm == "local"
        )

    def _kept(self, weights: Weights) -> Weights:
        return weights if self._options.keep_local else _NOTHING

    def initial_state(self, seed: int) -> ClientState:
        """The state of a client that has not taken part yet."""
        weights = self._model.init(seed)
        target = self._training.first_target(weights) if self.alone else _NOTHING
        kept = self.local_weights.select(weights)
        return ClientState(tf.constant(0, tf.int64), kept, target, self._kept(weights))

    def start_round(self, server: Weights, state: ClientState) -> ClientStart:
        """Starts from the global model, except for the weights that stay with the client."""
        is_new = tf.equal(state.rounds, 0)
        kept = where(is_new, self.local_weights.select(server), state.own)
        weights = self.local_weights.restore(server, kept)
        target = self._training.first_target(weights)
        if self.alone:
            target = where(is_new, target, Weights(*state.target))
        return ClientStart(weights, target)

    def end_round(self, state: ClientState, start: ClientStart, trained: LocalModel) -> ClientEnd:
        """Keeps the client's own weights and sends the model, or 0 if the client trains alone."""
        own, target = self.local_weights.select(trained.weights), trained.target
        new_state = ClientState(
            state.rounds + 1, own, target if self.alone else _NOTHING, self._kept(trained.weights)
        )
        sent = tf.constant(0.0) if self.alone else trained.weights
        return ClientEnd(new_state, sent, {})


def build_fedbn(
    task: Task,
    hyperparameters: FedBNHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Builds the round; the aggregator of the models is `MeanFactory` by default."""
    values = hyperparameters or FedBNHyperparameters()
    model, terms = one_tower(task.model), proximal_terms(values.mu)
    training = build_local_training(task, values, keeps_target=True, weight_terms=terms)
    client = FedBNClient(model, training, values)
    return build_stateful_clients(
        initial_model=model.init,
        initial_client_state=client.initial_state,
        client_work=client_work_around_training(training, client.start_round, client.end_round),
        server_update=lambda server, means: (
            server if client.alone else previous_if_empty(server, means[0])
        ),
        element_type=task.element_type,
        global_weights=None if client.alone else lambda server: server,
        client_weights=lambda server, state: client.local_weights.restore(server, state.own),
        local_weights=(lambda state: Weights(*state.local)) if values.keep_local else None,
        communicates=not client.alone,
        aggregator=aggregator,
    )
