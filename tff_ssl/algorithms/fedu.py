"""FedU: federated BYOL whose clients keep their target networks (Zhuang et al., ICCV 2021).

"Collaborative Unsupervised Visual Representation Learning from Decentralized Data", Algorithm 1.
A client trains BYOL from the global encoder f_phi, keeps its target network xi (a moving average of
its own online network), and sends online encoder f_theta and predictor p_theta. It takes the global
predictor p_phi only if its local training has moved the encoder little (DAPU, Eq. 3):

  p_theta <- p_phi  if  |theta^r - phi^(r-1)|^2 < mu,  else p_theta.

Here, "encoder" includes the projector, as in BYOL's target network. The paper's ablations are
options: which encoder is aggregated, which is updated (Table 4), and the predictor's rule
(Figure 5).

The loss of Eq. 1 is one-directional: the online network sees one view, and the target network the
other. As in BYOL and in the authors' code, the loss here is by default the sum over both
assignments of the views (`byol_direction=both`; `one` is Eq. 1 as printed).

The divergence of Eq. 3 is taken at the end of a client's local training, as the paper's text says,
when the encoder has moved from phi to theta:

- `squared_l2`: |theta - phi|^2 over all trainable parameters, as Eq. 3 is printed.
- `mean_squared`: the same, divided by the number of parameters.
- `mean_layer_l2`: the mean over convolutions of |theta_l - phi_l|, for layer l's kernel. This is
  the authors' code: EasyFL (github.com/weimingwill/EasyFL), `_calculate_divergence` in
  applications/fedssl/client.py. It selects parameters by `conv` in their name, which leaves out the
  1x1 convolutions of shortcuts, norms and projector. The paper's mu = 0.4 (0.6 on CIFAR-100)
  belongs to this divergence.

Where the paper says nothing, the preset fedu/paper/fedu.flags follows EasyFL's
applications/fedssl/main.py: momentum 0.9, weight decay 5e-4, and a cosine schedule over the rounds
(`compute_lr` in client.py). Algorithm 1 has plain steps. All three divergences are logged, since
the right mu depends on them, and they depend on the optimizer, its rate and the number of local
steps. The metric `global_predictor` is the share of clients that took the global predictor. A new
client takes everything from the server. The target network has the online network's moving averages
of batch norm, since only the online network computes them.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.bounds import bounded, one_of
from tff_ssl.kinds.stateful.algorithm import (
    ClientEnd,
    ClientStart,
    StatefulClients,
    build_stateful_clients,
    client_work_around_training,
)
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.layers import ParameterSpec
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.client_output import previous_if_empty
from tff_ssl.templates.local_training import LocalModel, build_local_training
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import (
    encoder_of,
    joined,
    one_tower,
    predictor_of,
    squared_distance,
    where,
)


@dataclasses.dataclass(frozen=True)
class FedUHyperparameters(ClientHyperparameters):
    """Hyperparameters with the paper's values (section 4.1); those of local training are inherited.

    Attributes:
      aggregate: Encoder that clients send, `online` or `target`.
      update: Encoders that the global one replaces, `online`, `target` or `both`.
      predictor_update: Rule for the predictor, `dapu`, `global` or `local`.
      mu: Threshold mu of DAPU.
      divergence: Divergence that is compared with mu, `squared_l2` (Eq. 3), `mean_squared` or
        `mean_layer_l2` (the authors' code).
    """

    client_learning_rate: float = 0.032
    batch_size: int = 128
    local_epochs: int = 5
    aggregate: str = one_of("online", ("online", "target"))
    update: str = one_of("online", ("online", "target", "both"))
    predictor_update: str = one_of("dapu", ("dapu", "global", "local"))
    mu: float = bounded(0.4, at_least=0)
    divergence: str = one_of("squared_l2", ("squared_l2", "mean_squared", "mean_layer_l2"))


class ClientState(NamedTuple):
    """The state of a client."""

    rounds: Any  #: Number of rounds that the client took part in, int64.
    divergence: Any  #: Divergence of the client's last local training, float32.
    encoder: Any  #: Weights of the encoder f_theta with `update=target`; otherwise empty.
    predictor: Any  #: Weights of the predictor p_theta.
    target: Any  #: Weights of the target network f_xi.


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


def start_round(
    model: DualEncoder, options: FedUHyperparameters, server: Weights, state: ClientState
) -> ClientStart:
    """Updates the client's networks with the global ones; DAPU (Eq. 3) decides on the predictor."""
    phi, p_phi = encoder_of(model, server), predictor_of(model, server)
    is_new = tf.equal(state.rounds, 0)
    encoder = phi if options.update != "target" else where(is_new, phi, state.encoder)
    target = phi if options.update != "online" else where(is_new, phi, state.target)
    rules = {
        "global": tf.constant(True),
        "local": tf.constant(False),
        "dapu": state.divergence < options.mu,
    }
    takes_global = is_new | rules[options.predictor_update]
    predictor = where(takes_global, p_phi, state.predictor)
    return ClientStart(joined(encoder, predictor), target, takes_global)


def encoder_divergences(
    model: DualEncoder, new: Sequence[tf.Tensor], old: Sequence[tf.Tensor]
) -> dict[str, tf.Tensor]:
    """The divergences of Eq. 3 by name, float32 scalars; `mean_layer_l2` is 0 without convolutions.

    `new` and `old` are the trainable weights of encoder and projector after and before training.
    """
    squared = squared_distance(new, old)
    distances = [
        tf.norm(n - o)
        for spec, n, o in zip(model.target_model.trainable_specs, new, old, strict=True)
        if _counts_as_layer(spec)
    ]
    return {
        "squared_l2": squared,
        "mean_squared": squared / model.target_model.parameter_count,
        "mean_layer_l2": tf.add_n(distances) / len(distances) if distances else tf.constant(0.0),
    }


def _counts_as_layer(spec: ParameterSpec) -> bool:
    """Whether a weight is the kernel of a convolution, other than that of a shortcut."""
    return len(spec.shape) == 4 and "/shortcut/" not in spec.name


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
    divergences = encoder_divergences(
        model, online.trainable, encoder_of(model, start.weights).trainable
    )
    new_state = ClientState(
        rounds=state.rounds + 1,
        divergence=divergences[options.divergence],
        encoder=online if options.update == "target" else (),
        predictor=predictor,
        target=target,
    )
    metrics = {
        "squared_divergence": divergences["squared_l2"],
        "mean_squared_divergence": divergences["mean_squared"],
        "mean_layer_divergence": divergences["mean_layer_l2"],
        "global_predictor": tf.cast(start.notes, tf.float32),
    }
    sent = target if options.aggregate == "target" else online
    return ClientEnd(new_state, joined(sent, predictor), metrics)


def build_fedu(
    task: Task,
    hyperparameters: FedUHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Builds FedU's round; the aggregator of encoders and predictors is `MeanFactory` by default.

    Raises:
      ValueError: If the divergence is of convolutions, and the encoder has none.
    """
    hyperparameters = hyperparameters or FedUHyperparameters()
    model = one_tower(task.model)
    if hyperparameters.divergence == "mean_layer_l2" and not any(
        map(_counts_as_layer, model.target_model.trainable_specs)
    ):
        raise ValueError("divergence=mean_layer_l2 needs an encoder with convolutions")
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
