"""FedAvg of models with batch norm, which stays on the clients (FedBN, Li et al., ICLR 2021).

This is Dec-SSL's FedAvg (Wang et al., "Does Learning from Decentralized Non-IID Unlabeled Data
Benefit from Self Supervision?", section 2 and appendix C.1): every client trains for E epochs with
an optimizer that starts anew in each round, the server averages the models, and all variables of
batch norms (scale, offset and moving averages) are the client's own. With mu > 0 it is FedProx.
With an objective `supervised` it is Dec-SL, and its encoder Dec-SLRep.

`batch_norm=averaged` shares them too; `averaging=none` shares nothing: each client trains alone
(FedU's single-client training).

Choices: clients send their batch norms beside the rest. Their mean belongs to the global model,
which could not be evaluated without; clients that have taken part never read it. BYOL's target
network starts in every round from the model that the client starts from.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.templates import local_training, stateful_clients
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters, check_choice
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import one_tower


@dataclasses.dataclass(frozen=True)
class FedBNHyperparameters(ClientHyperparameters):
    """Hyperparameters with Dec-SSL's values (appendix C.1); others are inherited.

    Attributes:
      batch_norm: `local` or `averaged`.
      averaging: `all`, or `none` for clients that train alone.
      keep_local: Whether a client's state has the whole model with which its local training ended,
        to be compared with the global one (`launch.visualize`; the paper's appendix B.3).
      mu: Of FedProx's proximal term, mu / 2 |w - w_broadcast|^2.
    """

    client_optimizer: str = "adam"
    client_learning_rate: float = 0.001
    learning_rate_schedule: str = "steps"
    local_epochs: int = 5
    batch_size: int = 256
    temperature: float = 0.5
    batch_norm: str = "local"
    averaging: str = "all"
    keep_local: bool = False
    mu: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        check_choice("batch_norm", self.batch_norm, ("local", "averaged"))
        check_choice("averaging", self.averaging, ("all", "none"))
        if self.mu < 0:
            raise ValueError(f"mu must not be negative; got {self.mu}")


class ClientState(NamedTuple):
    """What a client keeps between its rounds.

    Attributes:
      rounds: Rounds that it took part in, int64.
      own: The weights that are its own, in the order of the model's; all of them without averaging.
      target: BYOL's target network, where the client trains alone; else empty.
      local: With `keep_local`, the model after its last round; else empty.
    """

    rounds: Any
    own: Any
    target: Any
    local: Any


def build_fedbn(
    task: Task,
    hyperparameters: FedBNHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> stateful_clients.StatefulClients:
    """Builds the round.

    Args:
      task: Model, views, objective and type of the examples.
      hyperparameters: The defaults if None.
      aggregator: Weighted mean of the models; `MeanFactory` by default.
    """
    hyperparameters = hyperparameters or FedBNHyperparameters()
    model, objective = one_tower(task.model), OBJECTIVES[task.objective]
    alone = hyperparameters.averaging == "none"
    split = OwnWeights(model, everything=alone, local_norm=hyperparameters.batch_norm == "local")
    training = local_training.build_local_training(
        task, hyperparameters, keeps_target=objective.target, proximal=hyperparameters.mu
    )

    def initial_client_state(seed: int) -> ClientState:
        weights = model.init(seed)
        return ClientState(
            tf.constant(0, tf.int64), split.own_of(weights), kept_target(weights), kept(weights)
        )

    def kept(weights: Weights) -> Weights:
        return weights if hyperparameters.keep_local else Weights((), ())

    def kept_target(weights: Weights) -> Weights:
        keeps = objective.target and alone
        return model.target_model.part_of(weights) if keeps else Weights((), ())

    def client_work(server, round_number, state, examples):
        is_new = tf.equal(state.rounds, 0)
        own = tf.nest.map_structure(
            lambda shared, kept: tf.where(is_new, shared, kept), split.own_of(server), state.own
        )
        start = split.with_own(server, own)
        target = Weights((), ())
        if objective.target:
            target = model.target_model.part_of(start)
        if objective.target and alone:
            target = tf.nest.map_structure(
                lambda t, kept: tf.where(is_new, t, kept), target, Weights(*state.target)
            )
        data = read_all(examples)
        samples = tf.shape(data["example_id"])[0]
        trained = training.train(start, target, round_number, data)
        new_state = ClientState(
            state.rounds + 1,
            split.own_of(trained.weights),
            trained.target if alone else Weights((), ()),
            kept(trained.weights),
        )
        weight = tf.constant(1.0) if training.uniform else tf.cast(samples, tf.float32)
        # A client that trains alone sends nothing.
        sent = tf.constant(0.0) if alone else trained.weights
        return stateful_clients.output_if_finite(
            [(sent, weight)], new_state, state, trained, samples, {}
        )

    return stateful_clients.build_stateful_clients(
        initial_model=model.init,
        initial_client_state=initial_client_state,
        client_work=client_work,
        server_update=lambda server, means: (
            server if alone else stateful_clients.previous_if_empty(server, means[0])
        ),
        element_type=task.element_type,
        global_weights=None if alone else lambda server: server,
        client_weights=lambda server, state: split.with_own(server, state.own),
        local_weights=(lambda state: Weights(*state.local)) if hyperparameters.keep_local else None,
        communicates=not alone,
        aggregator=aggregator,
    )


class OwnWeights:
    """Which of a model's weights are a client's own: all of a batch norm's, or everything."""

    def __init__(self, model: DualEncoder, *, everything: bool, local_norm: bool):
        def mine(specs):
            return [everything or (local_norm and spec.batch_norm) for spec in specs]

        self._trainable = mine(model.trainable_specs)
        self._non_trainable = mine(model.non_trainable_specs)

    def own_of(self, weights: Any) -> Weights:
        """The client's own among the weights."""
        return Weights(
            tuple(w for w, mine in zip(weights.trainable, self._trainable, strict=True) if mine),
            tuple(
                w
                for w, mine in zip(weights.non_trainable, self._non_trainable, strict=True)
                if mine
            ),
        )

    def with_own(self, weights: Any, own: Any) -> Weights:
        """The weights with the client's own in their places."""

        def merged(shared, kept, is_mine):
            kept = iter(kept)
            return tuple(next(kept) if mine else w for w, mine in zip(shared, is_mine, strict=True))

        return Weights(
            merged(weights.trainable, own.trainable, self._trainable),
            merged(weights.non_trainable, own.non_trainable, self._non_trainable),
        )
