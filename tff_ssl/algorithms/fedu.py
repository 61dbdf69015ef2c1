"""FedU: federated BYOL whose clients keep their target networks (Zhuang et al., ICCV 2021).

"Collaborative Unsupervised Visual Representation Learning from Decentralized Data", Algorithm 1.
A client trains BYOL from the global encoder f_phi, keeps its target network xi (a moving average of
its own online network), and sends online encoder f_theta and predictor p_theta. It takes the global
predictor p_phi only where its local training has moved the encoder little (DAPU, Eq. 3):

  p_theta <- p_phi  if  |theta^r - phi^(r-1)|^2 < mu,  else p_theta.

Here, "encoder" means encoder and projector, as in BYOL's target network. The paper's ablations are
options: the encoder that is aggregated and the one that is updated (Table 4), and the rule for the
predictor (Figure 5).

Choices: SGD has momentum 0.9, where Algorithm 1 has plain steps. The divergence of Eq. 3 is the
squared distance over which a client's last local training has moved the encoder's trainable
parameters, as the paper's text says; `mean_squared` divides it by their number, which makes mu
independent of the network's size. Both divergences are logged, since the right mu depends on them,
and they on the optimizer, its rate and the number of local steps. The metric `global_predictor` is
the share of clients that took the global predictor. A client that has not taken part yet takes
everything from the server. The target network has the online network's moving averages of batch
norm, since only the online network computes them.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters, check_choice
from tff_ssl.templates.client_output import previous_if_empty
from tff_ssl.templates.local_training import LocalModel, build_local_training
from tff_ssl.templates.stateful_clients import (
    ClientEnd,
    ClientStart,
    StatefulClients,
    build_stateful_clients,
    client_work_around_training,
)
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import (
    encoder_of,
    joined,
    one_tower,
    predictor_of,
    squared_distance,
)


@dataclasses.dataclass(frozen=True)
class FedUHyperparameters(ClientHyperparameters):
    """Hyperparameters with the paper's values (section 4.1); those of local training are inherited.

    Attributes:
      aggregate: Encoder that clients send, `online` or `target`.
      update: Encoders that are replaced by the global one, `online`, `target` or `both`.
      predictor_update: Rule for the predictor, `dapu`, `global` or `local`.
      mu: Threshold mu of DAPU.
      divergence: Divergence that mu is compared with, `squared_l2` (Eq. 3) or `mean_squared`.
    """

    client_learning_rate: float = 0.032
    batch_size: int = 128
    local_epochs: int = 5
    aggregate: str = "online"
    update: str = "online"
    predictor_update: str = "dapu"
    mu: float = 0.4
    divergence: str = "squared_l2"

    def __post_init__(self):
        super().__post_init__()
        check_choice("aggregate", self.aggregate, ("online", "target"))
        check_choice("update", self.update, ("online", "target", "both"))
        check_choice("predictor_update", self.predictor_update, ("dapu", "global", "local"))
        check_choice("divergence", self.divergence, ("squared_l2", "mean_squared"))
        if self.mu < 0:
            raise ValueError(f"mu must not be negative; got {self.mu}")


class ClientState(NamedTuple):
    """The state of a client.

    Attributes:
      rounds: Number of rounds that the client took part in, int64.
      divergence: Divergence of the client's last local training, float32.
      encoder: Weights of the encoder f_theta if the client keeps it (`update=target`); else empty.
      predictor: Weights of the predictor p_theta.
      target: Weights of the target network f_xi.
    """

    rounds: Any
    divergence: Any
    encoder: Any
    predictor: Any
    target: Any


def initial_client_state(
    model: DualEncoder, options: FedUHyperparameters, seed: int
) -> ClientState:
    """The state of a client that has not taken part yet."""
    weights = model.init(seed)
    encoder = encoder_of(model, weights)
    return ClientState(
        rounds=tf.constant(0, tf.int64),
        divergence=tf.constant(0.0),
        encoder=encoder if options.update == "target" else (),
        predictor=predictor_of(model, weights),
        target=encoder,
    )


def _where(condition: tf.Tensor, yes: Any, no: Any) -> Any:
    return tf.nest.map_structure(lambda y, n: tf.where(condition, y, n), yes, no)


def start_round(
    model: DualEncoder, options: FedUHyperparameters, server: Weights, state: ClientState
) -> ClientStart:
    """Updates the client's networks with the global ones; DAPU (Eq. 3) decides on the predictor."""
    phi, p_phi = encoder_of(model, server), predictor_of(model, server)
    is_new = tf.equal(state.rounds, 0)
    encoder = phi if options.update != "target" else _where(is_new, phi, state.encoder)
    target = phi if options.update != "online" else _where(is_new, phi, state.target)
    takes_global = (
        is_new
        | {
            "global": tf.constant(True),
            "local": tf.constant(False),
            "dapu": state.divergence < options.mu,
        }[options.predictor_update]
    )
    predictor = _where(takes_global, p_phi, state.predictor)
    return ClientStart(joined(encoder, predictor), target, takes_global)


def end_round(
    model: DualEncoder,
    options: FedUHyperparameters,
    state: ClientState,
    start: ClientStart,
    trained: LocalModel,
) -> ClientEnd:
    """Keeps the client's networks and divergence, and sends an encoder and the predictor."""
    online = encoder_of(model, trained.weights)
    predictor = predictor_of(model, trained.weights)
    target = Weights(trained.target.trainable, online.non_trainable)
    squared = squared_distance(online.trainable, encoder_of(model, start.weights).trainable)
    per_parameter = squared / model.target_model.parameter_count
    new_state = ClientState(
        rounds=state.rounds + 1,
        divergence=squared if options.divergence == "squared_l2" else per_parameter,
        encoder=online if options.update == "target" else (),
        predictor=predictor,
        target=target,
    )
    metrics = {
        "squared_divergence": squared,
        "mean_squared_divergence": per_parameter,
        "global_predictor": tf.cast(start.notes, tf.float32),
    }
    sent = target if options.aggregate == "target" else online
    return ClientEnd(new_state, joined(sent, predictor), metrics)


def build_fedu(
    task: Task,
    hyperparameters: FedUHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Builds FedU's round.

    Args:
      task: Model, views and type of the examples.
      hyperparameters: Hyperparameters; the defaults if None.
      aggregator: Weighted mean of encoders and predictors; `MeanFactory` by default.
    """
    hyperparameters = hyperparameters or FedUHyperparameters()
    model = one_tower(task.model)
    training = build_local_training(task, hyperparameters, keeps_target=True)
    return build_stateful_clients(
        initial_model=model.init,
        initial_client_state=functools.partial(initial_client_state, model, hyperparameters),
        client_work=client_work_around_training(
            training,
            functools.partial(start_round, model, hyperparameters),
            functools.partial(end_round, model, hyperparameters),
        ),
        server_update=lambda server, means: previous_if_empty(server, means[0]),
        element_type=task.element_type,
        global_weights=lambda server: server,
        # The target network is the moving average of the encoders that the client has trained; its
        # online encoder is replaced by the server's in the next round.
        client_weights=lambda server, state: joined(state.target, state.predictor),
        aggregator=aggregator,
    )
