"""FedCA: contrastive training with a shared dictionary and an alignment (Zhang et al., 2020).

"Federated Unsupervised Representation Learning", arXiv:2010.08982 (journal version: FITEE 2023). No
code of the authors is known. The equations, the values of hyperparameters and everything marked (M)
are from memory of the paper, and have not been compared with it.

The server keeps the model w (encoder f and projector g), and a dictionary D of unit vectors, with
rows D_k of every client. A frozen base encoder a has been trained on public images (M). A client
trains w for E epochs. With z = g(f(x)) / |g(f(x))| for both views of the images of a batch,
temperature T, and the other clients' rows of the last round,

  s_i = sum_(k != i) e^(z_i z_k / T) + sum_(v in D, not in D_k) e^(z_i v / T)
  L_con,i = -log(e^(z_i z_j / T) / s_i)
  L_align,i = |f(x_i) - a(x_i)|^2                                                             (M)
  L = mean_i (L_con,i + beta L_align,i),

where j is the other view of i. It sends w and D_k, the projections of its images. The server takes
the mean of w, weighted by n_k, and replaces the old D_k. Rows stay where a client is absent, or an
image is in no step of a round (`local_steps`).

Without the dictionary (`dictionary=false`) and with beta = 0 this is FedSimCLR: FedAvg with
`nt_xent`, and FedBN with `batch_norm=averaged`.

Choices and deviations:
- D_k are the projections of the first views in the client's last epoch, each before the step in
  which its image is used, so that no further pass over the images is needed (M).
- Before a client has taken part, it has no rows in D. In the first round, the loss is SimCLR's.
- Base encoder and client see the same views, and L_align is the mean over both views (M). The base
  encoder uses its moving averages of batch norm. Its encodings must be as wide as the clients'.
- A client receives the base encoder once, as part of its state.
- A message has as many rows as the largest client has images; smaller clients pad with zeros.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.bounds import bounded
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.stateful.algorithm import StatefulClients, build_stateful_clients
from tff_ssl.losses.nt_xent import nt_xent
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.registry import Evaluated, Objective
from tff_ssl.templates import collected_rows
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.client_output import ClientOutput, output_if_finite, previous_if_empty
from tff_ssl.templates.local_training import LocalTraining, Memory, build_local_training
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import FrozenEncoder, Task
from tff_ssl.templates.weight_groups import one_tower

_NOTHING = Weights((), ())


@dataclasses.dataclass(frozen=True)
class FedCAHyperparameters(ClientHyperparameters):
    """Hyperparameters with the paper's values from memory; those of local training are inherited.

    Attributes:
      dictionary: Whether clients share their projections as negatives.
      alignment_weight: Weight beta of the alignment to the base encoder; 0 for none.
    """

    client_learning_rate: float = 0.1
    client_weight_decay: float = 5e-4
    learning_rate_schedule: str = "cosine"
    local_epochs: int = 5
    batch_size: int = 128
    dictionary: bool = True
    alignment_weight: float = bounded(0.01, at_least=0)


class ServerModel(NamedTuple):
    """The weights w, and the dictionary, float32 [clients, rows, d] with zeros for missing rows.

    The dictionary is empty if clients share no projections.
    """

    weights: Any
    dictionary: Any


class ClientState(NamedTuple):
    """A client's number of rounds, int64; and the base encoder's weights if there is alignment."""

    rounds: Any
    base: Any


def without_client(dictionary: tf.Tensor, client: tf.Tensor) -> tf.Tensor:
    """The rows, those of a client replaced by zeros, [clients, rows, d] -> [clients * rows, d]."""
    clients, _, d = dictionary.shape
    is_own = tf.equal(tf.range(clients, dtype=tf.int64), client)[:, tf.newaxis, tf.newaxis]
    return tf.reshape(tf.where(is_own, 0.0, dictionary), [-1, d])


@dataclasses.dataclass(frozen=True)
class FedCAClient:
    """The client's part of the round.

    The objective of the training is replaced. Without alignment, there is no base encoder. `rows`
    is the number of rows of a client in the dictionary.
    """

    training: LocalTraining
    values: FedCAHyperparameters
    base: FrozenEncoder | None
    rows: int

    def initial_state(self, seed: int) -> ClientState:
        """The state of a client that has not taken part yet: the base encoder."""
        base = _NOTHING
        if self.base:
            base = tf.nest.map_structure(
                lambda w: tf.constant(np.asarray(w)), Weights(*map(tuple, self.base.weights))
            )
        return ClientState(tf.constant(0, tf.int64), base)

    def _alignment(self, base: Weights, x: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        """L_align of each view, float32 [n]."""
        assert self.base is not None
        encodings = tf.stop_gradient(self.base.model.apply(base, x, training=False).h)
        return tf.reduce_sum(tf.math.squared_difference(h, encodings), 1)

    def _objective(self, base: Weights, others: tf.Tensor | None) -> Objective:
        """The loss L with these rows of other clients."""

        def evaluate(model, weights, target, batch, hyperparameters):
            first, second = model.apply_pair(weights, batch.x1, batch.x2, training=True)
            losses = nt_xent(first.z, second.z, batch.segments, self.values.temperature, others)
            if self.base:
                first_term = self._alignment(base, batch.x1, first.h)
                second_term = self._alignment(base, batch.x2, second.h)
                losses += self.values.alignment_weight * (first_term + second_term) / 2
            return Evaluated.of_pair(losses, first, second)

        return Objective("contrastive, with a dictionary and an alignment", evaluate)

    def work(
        self, server: ServerModel, round_number: tf.Tensor, state: ClientState, examples: Any
    ) -> ClientOutput:
        """Trains the model with the others' rows, and sends it with rows of its own."""
        data = read_all(examples)
        samples = tf.shape(data["example_id"])[0]
        others, memory = None, None
        if self.values.dictionary:
            others = without_client(server.dictionary, data["client"][0])
            memory = Memory(tf.zeros([self.rows, server.dictionary.shape[-1]]), _write_projections)
        objective = self._objective(Weights(*map(tuple, state.base)), others)
        training = dataclasses.replace(self.training, objective=objective)
        trained = training.train(
            Weights(*server.weights), _NOTHING, round_number, data, memory=memory
        )
        updates = [(trained.weights, training.client_weight(samples))]
        new_state = ClientState(state.rounds + 1, state.base)
        rows = collected_rows.rows_of(data, trained.memory) if self.values.dictionary else ()
        return output_if_finite(updates, new_state, state, trained, samples, {}, rows)


def _write_projections(rows: tf.Tensor, batch: Any, evaluated: Evaluated) -> tf.Tensor:
    """D_k with the projections of the batch's first views; those of the last epoch remain."""
    z = tf.math.l2_normalize(evaluated.z, 1)
    return tf.tensor_scatter_nd_update(rows, batch.positions[:, tf.newaxis], z)


def server_update(
    server: ServerModel, means: tuple[Weights], rows: tf.Tensor | None = None
) -> ServerModel:
    """The mean of the models, which is NaN without clients, and the dictionary with the new rows.

    Rows are float32 [clients, rows, d], or None if there is no dictionary. Where they are zeros,
    for absent clients and for images that were in no step, the old ones stay.
    """
    weights = previous_if_empty(server.weights, means[0])
    if rows is None:
        return ServerModel(weights, ())
    is_new = tf.reduce_any(tf.not_equal(rows, 0.0), 2, keepdims=True)
    return ServerModel(weights, tf.where(is_new, rows, server.dictionary))


def _base_encoder(task: Task, values: FedCAHyperparameters, model: DualEncoder) -> FrozenEncoder:
    """The base encoder of the task; a ConfigurationError if it does not fit the model."""
    base = task.base_encoder
    if base is None:
        raise ConfigurationError(
            f"--hparam=alignment_weight={values.alignment_weight} needs "
            "--alignment_encoder=FOLDER, a run on public images; --hparam=alignment_weight=0 "
            "trains without an alignment"
        )
    found, needed = ((m.features, m.image_shape) for m in (base.model, model))
    if found != needed:
        raise ConfigurationError(
            f"--alignment_encoder has encodings of {found[0]} values for images of {found[1]}; the "
            f"clients' have {needed[0]} for {needed[1]}: take one of the same width and view size"
        )
    return base


def build_fedca(
    task: Task,
    hyperparameters: FedCAHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Builds FedCA's round; the aggregator of the models is `MeanFactory` by default.

    Raises:
      ConfigurationError: If the dictionary is used and the task does not name its clients, or the
        alignment is used and the task has no base encoder that fits.
    """
    values = hyperparameters or FedCAHyperparameters()
    model = one_tower(task.model)
    base = _base_encoder(task, values, model) if values.alignment_weight else None
    population = collected_rows.check_population(task, "fedca") if values.dictionary else 0
    rows = max(task.client_sizes) if values.dictionary else 0
    client = FedCAClient(build_local_training(task, values), values, base, rows)

    def initial_model(seed: int) -> ServerModel:
        shape = [population, rows, model.projector[-1]]
        return ServerModel(model.init(seed), tf.zeros(shape) if values.dictionary else ())

    return build_stateful_clients(
        initial_model=initial_model,
        initial_client_state=client.initial_state,
        client_work=client.work,
        server_update=server_update,
        element_type=task.element_type,
        global_weights=lambda server: Weights(*server.weights),
        client_weights=lambda server, state: Weights(*server.weights),
        collects_from=population,
        aggregator=aggregator,
    )
