"""FeatARC: feature alignment regularization and clustering (Wang et al., ICLR 2023).

"Does Learning from Decentralized Non-IID Unlabeled Data Benefit from Self Supervision?",
Algorithms 1 and 2. The server keeps C models theta_j. A sampled client i

1. compares the features of each model with those of the model that it trained last,
     A_ij = mean over its images x of D(f_theta_j(x), f_own(x)),  D(a, b) = -<a, b> / |a||b|;
2. takes the model of the smallest A_ij, and trains it with an alignment term added to its loss,
     lambda (D(p+, z_g) / 2 + D(p, z_g) / 2),
   where z_g are the features of x in the model as the client took it, and p and p+ are the client's
   own predictions for x and for its other view x+.

The server averages each model over the clients that took it.

With C = 1 and lambda = 0 this is FedAvg. With C = K and one client for each model it is local
training.

Choices: The server knows the model that each client took, whichever clients were sampled (the
released code goes by their position in the cohort), and weighs the clients by number of examples. A
model that no client took stays as it is. All C models start equal: with different random weights, a
client would stay for ever with the model that it took first. Client i takes model i mod C in its
first round, when it has no model of its own yet, and wherever its A_ij are equal. x is the first
view, x+ the second. f is the network with its projector, as in the loss. Batch norm stays local as
in `fedbn`.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.fedbn import FedBNHyperparameters
from tff_ssl.losses import cosine
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.registry import OBJECTIVES, Objective
from tff_ssl.templates.client_output import ClientOutput, output_if_finite, previous_if_empty
from tff_ssl.templates.local_training import LocalTraining, Regularizer, build_local_training
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.stateful_clients import StatefulClients, build_stateful_clients
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import LocalWeights, one_tower
from tff_ssl.views import augmentation

# Alignments that differ by less count as equal: two results of the same model differ by rounding.
_TIE = 1e-6
_IMAGES_AT_ONCE = 64


@dataclasses.dataclass(frozen=True)
class FeatARCHyperparameters(FedBNHyperparameters):
    """Hyperparameters with the paper's values; those of `fedbn` are inherited.

    Attributes:
      clusters: Number of clusters C; 1 for alignment only.
      lambda_align: Weight lambda of the alignment; 0 for clustering only.
    """

    clusters: int = 2
    lambda_align: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        if self.clusters < 1:
            raise ValueError(f"clusters must be at least 1; got {self.clusters}")
        if self.lambda_align < 0:
            raise ValueError(f"lambda_align must not be negative; got {self.lambda_align}")
        if self.averaging != "all":
            raise ValueError("averaging=none is for fedbn; here a cluster per client does the same")


class ClientState(NamedTuple):
    """The state of a client.

    Attributes:
      rounds: Number of rounds that the client took part in, int64.
      cluster: Index of the model that it took last, int32; -1 before its first round.
      local: Weights of its model after its last round.
    """

    rounds: Any
    cluster: Any
    local: Any


def _best(alignments: tf.Tensor, default: tf.Tensor) -> tf.Tensor:
    """Index of the smallest alignment, or `default` if all are equal; int32."""
    equal = tf.reduce_max(alignments) - tf.reduce_min(alignments) < _TIE
    return tf.where(equal, default, tf.argmin(alignments, output_type=tf.int32))


def _chosen(candidates: list[Weights], index: tf.Tensor) -> Weights:
    """The candidate with an index, int32."""
    return tf.nest.map_structure(lambda *options: tf.gather(tf.stack(options), index), *candidates)


class FeatARCClient:
    """The client's part of the round (Algorithms 1 and 2)."""

    def __init__(
        self,
        model: DualEncoder,
        objective: Objective,
        training: LocalTraining,
        options: FeatARCHyperparameters,
    ):
        """Chooses the weights that stay with the client.

        Args:
          model: Model of the clients.
          objective: Objective of local training.
          training: Local training.
          options: Hyperparameters.
        """
        self._model, self._objective, self._training = model, objective, training
        self._options = options
        self.local_weights = LocalWeights(model, batch_norm=options.batch_norm == "local")

    def initial_state(self, seed: int) -> ClientState:
        """The state of a client that has not taken part yet."""
        return ClientState(tf.constant(0, tf.int64), tf.constant(-1), self._model.init(seed))

    def _features(self, weights: Weights, images: tf.Tensor) -> tf.Tensor:
        """Features f of images without augmentation, float32 [n, d]; h if supervised, else z."""
        x = augmentation.to_float(images, output_size=self._model.image_shape[0])
        outputs = self._model.apply(weights, x, training=False)
        return outputs.h if self._objective.supervised else outputs.z

    def _alignments(
        self, candidates: list[Weights], local: Weights, images: tf.Tensor
    ) -> tf.Tensor:
        """Alignments A_i of the candidates with the client's own model, float32 [C]."""

        def add(start, sums):
            batch = images[start : start + _IMAGES_AT_ONCE]
            local_features = self._features(local, batch)
            alignments = [
                -tf.reduce_sum(cosine.cosine(self._features(candidate, batch), local_features))
                for candidate in candidates
            ]
            return start + _IMAGES_AT_ONCE, sums + tf.stack(alignments)

        n = tf.shape(images)[0]
        _, sums = tf.while_loop(
            lambda start, _: start < n,
            add,
            (0, tf.zeros([self._options.clusters])),
            parallel_iterations=1,
        )
        return sums / tf.cast(n, tf.float32)

    def _take_model(
        self, server: tuple[Weights, ...], state: ClientState, data: Any
    ) -> tuple[tf.Tensor, Weights, tf.Tensor]:
        """The client's cluster, the cluster's model, and its alignment with the client's model."""
        is_new = tf.equal(state.rounds, 0)
        local = tf.nest.map_structure(
            lambda shared, kept: tf.where(is_new, shared, kept), server[0], Weights(*state.local)
        )
        # A client keeps its own batch norms, whichever model it takes.
        norms = self.local_weights.select(local)
        candidates = [self.local_weights.restore(shared, norms) for shared in server]
        alignments = self._alignments(candidates, local, data["image"])
        first = tf.cast(data["client"][0] % self._options.clusters, tf.int32)
        cluster = tf.where(is_new, first, _best(alignments, first))
        return cluster, _chosen(candidates, cluster), tf.gather(alignments, cluster)

    def _regularizer(self, start: Weights) -> Regularizer | None:
        """lambda times the alignment of predictions with features of the model as it was taken."""
        weight = self._options.lambda_align

        def regularizer(batch, evaluated):
            z_g = self._model.apply(start, batch.x1, training=False).z
            first, second = (cosine.cosine(p, z_g) for p in evaluated.predictions)
            return -weight * (first + second) / 2

        return regularizer if weight else None

    def work(
        self,
        server: tuple[Weights, ...],
        round_number: tf.Tensor,
        state: ClientState,
        examples: tf.data.Dataset,
    ) -> ClientOutput:
        """Takes a model, trains it with the alignment, and sends it to its cluster's mean."""
        data = read_all(examples)
        samples = tf.shape(data["example_id"])[0]
        cluster, start, alignment = self._take_model(server, state, data)
        target = Weights((), ())
        if self._objective.target:
            target = self._model.target_model.part_of(start)
        trained = self._training.train(start, target, round_number, data, self._regularizer(start))
        weight = self._training.client_weight(samples)
        membership = tf.one_hot(cluster, self._options.clusters)
        return output_if_finite(
            # The client contributes to the mean of its cluster; in the others its weight is zero.
            [(trained.weights, membership[j] * weight) for j in range(self._options.clusters)],
            ClientState(state.rounds + 1, cluster, trained.weights),
            state,
            trained,
            samples,
            {"cluster": tf.cast(cluster, tf.float32), "alignment": alignment},
        )

    def evaluated_weights(self, server: tuple[Weights, ...], state: ClientState) -> Weights:
        """The model of the client's cluster with its own batch norms, as evaluated in the paper."""
        if int(state.rounds) == 0:
            return server[0]
        norms = self.local_weights.select(Weights(*state.local))
        return self.local_weights.restore(server[int(state.cluster)], norms)


def build_featarc(
    task: Task,
    hyperparameters: FeatARCHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Builds FeatARC's round.

    Args:
      task: Model, views, objective and type of the examples.
      hyperparameters: Hyperparameters; the defaults if None.
      aggregator: Weighted mean of each cluster's models; `MeanFactory` by default.
    """
    hyperparameters = hyperparameters or FeatARCHyperparameters()
    model, objective = one_tower(task.model), OBJECTIVES[task.objective]
    training = build_local_training(
        task, hyperparameters, keeps_target=objective.target, proximal=hyperparameters.mu
    )
    client = FeatARCClient(model, objective, training, hyperparameters)

    def initial_model(seed: int) -> tuple[Weights, ...]:
        return tuple(model.init(seed) for _ in range(hyperparameters.clusters))

    def server_update(server, means):
        return tuple(previous_if_empty(old, mean) for old, mean in zip(server, means, strict=True))

    return build_stateful_clients(
        initial_model=initial_model,
        initial_client_state=client.initial_state,
        client_work=client.work,
        server_update=server_update,
        element_type=task.element_type,
        global_weights=lambda server: server[0],
        client_weights=client.evaluated_weights,
        local_weights=lambda state: Weights(*state.local),
        sent_models=1,
        aggregator=aggregator,
    )
