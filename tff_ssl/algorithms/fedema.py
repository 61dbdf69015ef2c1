"""FedEMA: clients mix the global model into their own (Zhuang et al., ICLR 2022).

"Divergence-aware Federated Self-Supervised Learning", section 4. As FedU, but a client neither
takes the global online network nor keeps its own: it takes

  W_k <- mu_k W_k + (1 - mu_k) W_g,    mu_k = min(lambda_k |W_g - W_k|, 1),

for encoder and predictor alike, with the divergence of the encoders. The autoscaler sets lambda_k
once, such that mu_k is tau when the client first meets a global model that it has contributed to:
lambda_k = tau / |W_g - W_k|. The target network stays on the client.

Choice: a client that is not sampled in the round after its first one meets that model later; its
lambda_k is set then.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import Weights
from tff_ssl.templates import local_training, stateful_clients
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import encoder_of, one_tower, squared_distance


@dataclasses.dataclass(frozen=True)
class FedEMAHyperparameters(ClientHyperparameters):
    """Hyperparameters with the paper's values; those of local training are inherited.

    Attributes:
      tau: mu_k when the autoscaler sets lambda_k.
    """

    client_learning_rate: float = 0.032
    batch_size: int = 128
    local_epochs: int = 5
    tau: float = 0.7

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.tau <= 1:
            raise ValueError(f"tau must be in [0, 1]; got {self.tau}")


class ClientState(NamedTuple):
    """What a client keeps between its rounds.

    Attributes:
      rounds: Rounds that it took part in, int64.
      scaler: lambda_k, float32; 0 before it is known.
      online: W_k, its online network after its last round.
      target: Its target network.
    """

    rounds: Any
    scaler: Any
    online: Any
    target: Any


def build_fedema(
    task: Task,
    hyperparameters: FedEMAHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> stateful_clients.StatefulClients:
    """Builds FedEMA's round.

    Args:
      task: Model, views and type of the examples.
      hyperparameters: The defaults if None.
      aggregator: Weighted mean of the online networks; `MeanFactory` by default.
    """
    hyperparameters = hyperparameters or FedEMAHyperparameters()
    model = one_tower(task.model)
    training = local_training.build_local_training(task, hyperparameters, keeps_target=True)

    def initial_client_state(seed: int) -> ClientState:
        weights = model.init(seed)
        return ClientState(
            rounds=tf.constant(0, tf.int64),
            scaler=tf.constant(0.0),
            online=weights,
            target=encoder_of(model, weights),
        )

    def client_work(server, round_number, state, examples):
        divergence = tf.sqrt(
            squared_distance(
                encoder_of(model, server).trainable, encoder_of(model, state.online).trainable
            )
        )
        is_new = tf.equal(state.rounds, 0)
        # At its second time, or later where the global model was its own till then.
        unknown = tf.equal(state.scaler, 0.0) & ~is_new
        scaler = tf.where(
            unknown, tf.math.divide_no_nan(hyperparameters.tau, divergence), state.scaler
        )
        # A new client has nothing to keep.
        mu = tf.where(is_new, 0.0, tf.minimum(scaler * divergence, 1.0))
        start = tf.nest.map_structure(
            lambda own, shared: mu * own + (1 - mu) * shared, state.online, server
        )
        global_encoder = encoder_of(model, server)
        target = tf.nest.map_structure(
            lambda shared, own: tf.where(is_new, shared, own), global_encoder, state.target
        )
        own = read_all(examples)
        samples = tf.shape(own["example_id"])[0]
        trained = training.train(start, target, round_number, own)
        new_state = ClientState(
            rounds=state.rounds + 1, scaler=scaler, online=trained.weights, target=trained.target
        )
        weight = tf.constant(1.0) if training.uniform else tf.cast(samples, tf.float32)
        return stateful_clients.output_if_finite(
            [(trained.weights, weight)],
            new_state,
            state,
            trained,
            samples,
            {"divergence": divergence, "mu": mu},
        )

    return stateful_clients.build_stateful_clients(
        initial_model=model.init,
        initial_client_state=initial_client_state,
        client_work=client_work,
        server_update=lambda server, means: stateful_clients.previous_if_empty(server, means[0]),
        element_type=task.element_type,
        global_weights=lambda server: server,
        client_weights=lambda server, state: Weights(*state.online),
        aggregator=aggregator,
    )
