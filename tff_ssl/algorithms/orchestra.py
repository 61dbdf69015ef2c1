"""Orchestra: clusters of all clients' images (Lubana et al., ICML 2022).

"Orchestra: Unsupervised Federated Learning via Globally Consistent Clustering", arXiv:2205.11506,
and the authors' code (github.com/akhilmathurs/orchestra). The server keeps a network, a target
network (the network's moving average in local training), a linear rotation head and G global
centroids C, unit rows. With encoder f and projector g, z = g(f(x)) / |g(f(x))|. A client keeps a
memory M of its last m projections by the target network.

From round 1 on, a client trains for E epochs on views x1, x2 of each image, and a third view x3
rotated by a random number k of quarter turns. In each step

  target <- tau target + (1 - tau) online
  p1 = softmax(C z_target(x1) / T),   q2 = softmax(C z(x2) / T)
  L = -mean p1 . log q2 + w CE(head(g(f(x3))), k)
  online <- online - eta gradient of L,   M <- M without its oldest rows, and z_target(x1).

It then divides M into L clusters of equal size (`clusters.local_centroids`), and sends its networks
and the L centroids. The server averages the networks, collects the centroids of all clients as rows
Z, and trains C to predict the clusters of equal size that Sinkhorn's iterations find for Z
(`clusters.global_centroids`). Round 0 trains nothing: clients fill M with projections of the
initial network, and the server finds the first clusters. Of `--rounds=R`, R - 1 therefore train.

With `target=server` the target network travels with the model and is averaged like it, as in the
authors' simulation of stateless clients. With `target=client` each client keeps its own.

Choices and deviations:
- M, of min(m, n_k) rows, is part of the client's state, as in the paper. The authors' simulation of
  stateless clients rebuilds it in each round. A client that joins later fills M before it trains.
  With L > n_k, clusters start from repeated rows.
- Clients are weighted by their numbers of images n_k, not of batches.
- The network is not applied to x1, whose projections the loss does not use. The authors do so,
  which moves the averages of batch norm.
- The rotation head has no bias, like all layers here without a norm after them.
- Batches of an epoch differ in size by at most one; the authors' last batch may be smaller.
- Where a rotated image may be another one, as 6 and 9 among digits, `rotation_weight=0` drops the
  third term and the rotation head.
- The target network has the online network's moving averages of batch norm. They have no effect,
  since it is always applied with the statistics of the batch.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.bounds import bounded, one_of
from tff_ssl.kinds.stateful.algorithm import StatefulClients, build_stateful_clients
from tff_ssl.losses import clusters
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.registry import Evaluated, Objective
from tff_ssl.templates import collected_rows
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.client_output import ClientOutput, output_if_finite, previous_if_empty
from tff_ssl.templates.local_training import LocalModel, LocalTraining, Memory, build_local_training
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import encoder_of, one_tower, where
from tff_ssl.views import quarter_turns, seeds

_CLUSTERING_STEPS = 5  # Steps of a client's clustering.
_SALT = 7  # Separates the draws of clusterings from those of other algorithms.


@dataclasses.dataclass(frozen=True)
class OrchestraHyperparameters(ClientHyperparameters):
    """Hyperparameters with the values of the authors' code; those of local training are inherited.

    Attributes:
      global_clusters: Number G of the server's clusters.
      local_clusters: Number L of the clusters of a client.
      memory_size: Number m of projections that a client keeps; fewer if it has fewer images.
      rotation_weight: Weight w of the prediction of rotations.
      target: Place of the target network between rounds, `server` or `client`.
      server_steps: Number of the server's training steps on its centroids in a round.
      server_learning_rate: Learning rate of these steps.
    """

    client_learning_rate: float = 0.003
    client_weight_decay: float = 1e-4
    local_epochs: int = 10
    batch_size: int = 16
    target_momentum: float = 0.996
    global_clusters: int = bounded(128, at_least=1)
    local_clusters: int = bounded(16, at_least=1)
    memory_size: int = bounded(128, at_least=1)
    rotation_weight: float = bounded(1.0, at_least=0)
    target: str = one_of("server", ("server", "client"))
    server_steps: int = bounded(500, at_least=0)
    server_learning_rate: float = bounded(0.01, above=0)


class Networks(NamedTuple):
    """The networks that the server and a client send each other.

    The online network is encoder, projector and rotation head; of the target network, these are the
    trainable weights, or nothing if clients keep them.
    """

    online: Any
    target: Any


class ServerModel(NamedTuple):
    """The server's model: its networks, and the global centroids C, float32 [G, d]."""

    networks: Any
    centroids: Any


class ClientState(NamedTuple):
    """The state of a client."""

    rounds: Any  #: Number of rounds that the client took part in, int64.
    #: Projections M, float32 [m, d], oldest first, after m - n_k rows of zeros if n_k < m.
    memory: Any
    #: Trainable weights of the target network if the client keeps them; otherwise empty.
    target: Any


def with_rotation_head(model: DualEncoder, rotation_weight: float) -> DualEncoder:
    """The model with a linear head on the projector's output, if rotations are predicted.

    The head is a predictor of one layer, whose outputs p are the logits of the four rotations.
    """
    head = (quarter_turns.TURNS,) if rotation_weight else ()
    return dataclasses.replace(model.target_model, predictor=head)


class OrchestraClient:
    """The client's part of the round."""

    def __init__(
        self, model: DualEncoder, training: LocalTraining, values: OrchestraHyperparameters
    ):
        """Takes a model with the rotation head; the objective of its training is replaced."""
        self._model, self._training, self._values = model, training, values

    def initial_state(self, seed: int) -> ClientState:
        """The state of a client that has not taken part yet."""
        memory = tf.zeros([self._values.memory_size, self._model.projector[-1]])
        target = self._kept(encoder_of(self._model, self._model.init(seed)).trainable)
        return ClientState(tf.constant(0, tf.int64), memory, target)

    def _kept(self, target: Any) -> Any:
        """The weights of a target network that stay on the client: all or none."""
        return tuple(target) if self._values.target == "client" else ()

    def _start_target(self, server: Networks, state: ClientState) -> Weights:
        """The target network with which the client starts."""
        encoder = encoder_of(self._model, server.online)
        target = tuple(server.target)
        if self._values.target == "client":
            target = where(tf.equal(state.rounds, 0), encoder.trainable, tuple(state.target))
        return Weights(target, encoder.non_trainable)

    def _projections(self, target: Weights, x: tf.Tensor) -> tf.Tensor:
        """The target network's unit projections, with the batch's statistics: float32 [n, d]."""
        return clusters.unit_rows(self._model.target_model.apply(target, x, training=True).z)

    def _first_memory(self, target: Weights, round_number: tf.Tensor, examples: Any) -> tf.Tensor:
        """The memory of a new client: projections of its first m images."""
        size = self._values.memory_size
        images, ids = (examples[name][:size] for name in ("image", "example_id"))
        x1, _ = self._training.two_views(images, ids, round_number * self._training.passes)
        return self._padded(self._projections(target, x1))

    def _padded(self, rows: tf.Tensor) -> tf.Tensor:
        """The rows after rows of zeros, float32 [m, D]."""
        size = self._values.memory_size
        memory = tf.pad(rows, [[size - tf.shape(rows)[0], 0], [0, 0]])
        return tf.ensure_shape(memory, [size, self._model.projector[-1]])

    def _in_use(self, memory: tf.Tensor, samples: tf.Tensor) -> tf.Tensor:
        """The filled rows of the memory of a client of n_k `samples`, float32 [min(m, n_k), D]."""
        return memory[self._values.memory_size - tf.minimum(samples, self._values.memory_size) :]

    def _centroids(self, rows: tf.Tensor, client: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
        """The centroids of the client's clusters, which start from random rows of the memory."""
        key = tf.stack([seeds.current(self._training.seed), tf.constant(_SALT, tf.int64)])
        for value in (client, round_number):
            key = tf.random.experimental.stateless_fold_in(key, value)
        n, size = tf.shape(rows)[0], self._values.local_clusters
        order = tf.argsort(tf.random.stateless_uniform([n], key))
        first = tf.ensure_shape(tf.gather(order, tf.range(size) % n), [size])
        key = tf.random.experimental.stateless_fold_in(key, 1)
        spare = tf.random.stateless_uniform([_CLUSTERING_STEPS, size], key, 0, n, tf.int32)
        return clusters.local_centroids(rows, first, spare)

    def _objective(self, centroids: tf.Tensor) -> Objective:
        """The loss L for these global centroids."""
        values = self._values

        def evaluate(model, weights, target, batch, hyperparameters):
            target_z1 = self._projections(target, batch.x1)
            second = model.apply(weights, batch.x2, training=True)
            non_trainable = second.non_trainable
            losses = clusters.assignment_losses(target_z1, second.z, centroids, values.temperature)
            if values.rotation_weight:
                x3, quarters = quarter_turns.turned(
                    batch.x3, batch.example_ids, seed=batch.seed, round_number=batch.pass_number
                )
                # Batch norm takes the views one after the other, as in the authors' code.
                third = model.apply(Weights(weights.trainable, non_trainable), x3, training=True)
                non_trainable = third.non_trainable
                losses += values.rotation_weight * tf.nn.sparse_softmax_cross_entropy_with_logits(
                    quarters, third.p
                )
            z2, h = clusters.unit_rows(second.z), (second.h, second.h)
            return Evaluated(losses, z2, (z2, z2), non_trainable, h, noted=target_z1)

        rotates = bool(values.rotation_weight)
        return Objective("clusters and rotations", evaluate, target=True, third_view=rotates)

    def _train(
        self, server: ServerModel, target: Weights, memory: tf.Tensor, round_number: tf.Tensor,
        examples: Any,
    ) -> LocalModel:  # fmt: skip
        """The model after local training, with the new M; without a step in round 0."""
        online = Weights(*(tuple(w) for w in server.networks.online))
        samples = tf.shape(examples["example_id"])[0]

        def untrained():
            rows = self._in_use(memory, samples)
            spread = (tf.reduce_mean(rows, 0), tf.reduce_mean(tf.square(rows), 0))
            return LocalModel(online, target, tf.constant(0.0), *spread, memory)

        def remember(kept, batch, evaluated):
            rows = self._in_use(kept, samples)
            return self._padded(tf.concat([rows, evaluated.noted], 0)[-tf.shape(rows)[0] :])

        def trained():
            objective = self._objective(server.centroids)
            training = dataclasses.replace(self._training, objective=objective)
            return training.train(
                online, target, round_number, examples, memory=Memory(memory, remember)
            )

        return tf.cond(tf.equal(round_number, 0), untrained, trained)

    def work(
        self, server: ServerModel, round_number: tf.Tensor, state: ClientState, examples: Any
    ) -> ClientOutput:
        """Trains the networks, clusters the memory, and sends networks and centroids."""
        data = read_all(examples)
        samples = tf.shape(data["example_id"])[0]
        target = self._start_target(server.networks, state)

        def first_memory():
            return self._first_memory(target, round_number, data)

        memory = tf.cond(tf.equal(state.rounds, 0), first_memory, lambda: state.memory)
        trained = self._train(server, target, memory, round_number, data)
        used = self._in_use(trained.memory, samples)
        centroids = self._centroids(used, data["client"][0], round_number)
        kept = self._kept(trained.target.trainable)
        sent = Networks(trained.weights, () if kept else tuple(trained.target.trainable))
        updates = [(sent, self._training.client_weight(samples))]
        new_state = ClientState(state.rounds + 1, trained.memory, kept)
        rows = collected_rows.rows_of(data, centroids)
        return output_if_finite(updates, new_state, state, trained, samples, {}, rows)


def initial_server_model(
    model: DualEncoder, values: OrchestraHyperparameters, seed: int
) -> ServerModel:
    """The networks of the seed, a target network equal to them, and random centroids."""
    weights = model.init(seed)
    target = encoder_of(model, weights).trainable if values.target == "server" else ()
    shape = [values.global_clusters, model.projector[-1]]
    centroids = tf.random.stateless_normal(shape, tf.constant([seed, _SALT], tf.int64))
    return ServerModel(Networks(weights, target), clusters.unit_rows(centroids))


def server_update(
    values: OrchestraHyperparameters,
    server: ServerModel,
    means: tuple[Networks],
    round_number: tf.Tensor,
    rows: tf.Tensor,
) -> ServerModel:
    """The mean of the networks, which stay in round 0, and the new global centroids.

    `means` is the one mean of the clients' networks, NaN without clients; `rows` has the centroids
    of each client, float32 [clients, L, d], zeros for absent clients.
    """
    mean = previous_if_empty(server.networks, means[0])
    networks = where(tf.equal(round_number, 0), server.networks, mean)
    flat = tf.reshape(rows, [-1, rows.shape[-1]])
    present = tf.boolean_mask(flat, tf.reduce_any(tf.not_equal(flat, 0.0), 1))
    centroids = tf.cond(
        tf.shape(present)[0] > 0,
        lambda: clusters.global_centroids(
            present,
            server.centroids,
            values.temperature,
            values.server_steps,
            values.server_learning_rate,
        ),
        lambda: server.centroids,
    )
    return ServerModel(networks, centroids)


def build_orchestra(
    task: Task,
    hyperparameters: OrchestraHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Builds Orchestra's round; the aggregator of the networks is `MeanFactory` by default.

    Raises:
      ConfigurationError: If the task does not name its clients; see `check_population`.
      ValueError: If the model has no projector, or predicts rotations of images that are not
        square.
    """
    values = hyperparameters or OrchestraHyperparameters()
    population = collected_rows.check_population(task, "orchestra")
    model = with_rotation_head(one_tower(task.model), values.rotation_weight)
    training = build_local_training(task._replace(model=model), values, keeps_target=True)
    training = dataclasses.replace(training, target_first=True)
    client = OrchestraClient(model, training, values)
    return build_stateful_clients(
        initial_model=lambda seed: initial_server_model(model, values, seed),
        initial_client_state=client.initial_state,
        client_work=client.work,
        server_update=lambda server, means, **received: server_update(
            values, server, means, **received
        ),
        element_type=task.element_type,
        global_weights=lambda server: encoder_of(model, server.networks.online),
        client_weights=lambda server, state: encoder_of(model, server.networks.online),
        numbers_rounds=True,
        collects_from=population,
        aggregator=aggregator,
    )
