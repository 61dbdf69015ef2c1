"""FeatARC: feature alignment regularization and clustering (Wang et al., ICLR 2023).

"Does Learning from Decentralized Non-IID Unlabeled Data Benefit from Self Supervision?",
Algorithms 1 and 2. The server keeps C models theta_j. A sampled client i

  computes how well the features of its own model of the last time agree with those of each model,
    A_ij = mean over its images x of D(f_theta_j(x), f_own(x)),  D(a, b) = -<a, b> / |a||b|,
  takes the model of the smallest A_ij, and trains it, with lambda (D(p+, z_g) / 2 + D(p, z_g) / 2)
  added to its loss, where z_g are the features that the model it took gives for x, p and p+ its own
  predictions for x and its other view x+.

The server averages each model over the clients that took it.

With C = 1 and lambda = 0 this is FedAvg; with C = K and one client for each model, local training.

Choices: models are averaged by client, whoever was sampled (the released code goes by position), by
number of examples; a model that nobody took stays. All C models start equal, and client i takes
model i mod C at its first time, when it has no model of its own yet, and where its A_ij are equal:
started from different random weights, a client would be held for ever by the one it first took. x
is the first view, x+ the second. f is the network with its projector, as in the loss. Batch norm
stays local as in `fedbn`.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.fedbn import FedBNHyperparameters, OwnWeights
from tff_ssl.losses import cosine
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.templates import local_training, stateful_clients
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import one_tower
from tff_ssl.views import augmentation

# Alignments closer than this are a tie: what the same model gives twice differs by rounding.
_TIE = 1e-6
_IMAGES_AT_ONCE = 64


@dataclasses.dataclass(frozen=True)
class FeatARCHyperparameters(FedBNHyperparameters):
    """Hyperparameters with the paper's values; those of `fedbn` are inherited.

    Attributes:
      clusters: C; 1 for alignment only.
      lambda_align: lambda of the alignment; 0 for clustering only.
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
    """What a client keeps between its rounds.

    Attributes:
      rounds: Rounds that it took part in, int64.
      cluster: The model that it took last, int32.
      local: Its model after its last round.
    """

    rounds: Any
    cluster: Any
    local: Any


def build_featarc(
    task: Task,
    hyperparameters: FeatARCHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> stateful_clients.StatefulClients:
    """Builds FeatARC's round.

    Args:
      task: Model, views, objective and type of the examples.
      hyperparameters: The defaults if None.
      aggregator: Weighted mean of each cluster's models; `MeanFactory` by default.
    """
    hyperparameters = hyperparameters or FeatARCHyperparameters()
    model, objective = one_tower(task.model), OBJECTIVES[task.objective]
    clusters = hyperparameters.clusters
    split = OwnWeights(model, everything=False, local_norm=hyperparameters.batch_norm == "local")
    training = local_training.build_local_training(
        task, hyperparameters, keeps_target=objective.target, proximal=hyperparameters.mu
    )

    def initial_client_state(seed: int) -> ClientState:
        return ClientState(tf.constant(0, tf.int64), tf.constant(-1), model.init(seed))

    def features(weights: Weights, images: tf.Tensor) -> tf.Tensor:
        x = augmentation.to_float(images, output_size=model.image_shape[0])
        outputs = model.apply(weights, x, training=False)
        return outputs.h if objective.supervised else outputs.z

    def alignments(candidates: list[Weights], local: Weights, images: tf.Tensor) -> tf.Tensor:
        """A_i, float32 [C]."""

        def add(start, sums):
            batch = images[start : start + _IMAGES_AT_ONCE]
            own = features(local, batch)
            found = [
                -tf.reduce_sum(cosine.cosine(features(candidate, batch), own))
                for candidate in candidates
            ]
            return start + _IMAGES_AT_ONCE, sums + tf.stack(found)

        n = tf.shape(images)[0]
        _, sums = tf.while_loop(
            lambda start, _: start < n, add, (0, tf.zeros([clusters])), parallel_iterations=1
        )
        return sums / tf.cast(n, tf.float32)

    def client_work(server, round_number, state, examples):
        data = read_all(examples)
        samples = tf.shape(data["example_id"])[0]
        is_new = tf.equal(state.rounds, 0)
        local = tf.nest.map_structure(
            lambda shared, own: tf.where(is_new, shared, own), server[0], Weights(*state.local)
        )
        # A client's batch norms are its own, whatever model it takes.
        candidates = [split.with_own(shared, split.own_of(local)) for shared in server]
        found = alignments(candidates, local, data["image"])
        dealt = tf.cast(data["client"][0] % clusters, tf.int32)
        cluster = tf.where(is_new, dealt, _best(found, dealt))
        start = _chosen(candidates, cluster)
        target = Weights((), ())
        if objective.target:
            target = model.target_model.part_of(start)

        def regularizer(batch, evaluated):
            z_g = model.apply(start, batch.x1, training=False).z
            first, second = (cosine.cosine(p, z_g) for p in evaluated.predictions)
            return -hyperparameters.lambda_align * (first + second) / 2

        trained = training.train(
            start, target, round_number, data,
            regularizer if hyperparameters.lambda_align else None,
        )  # fmt: skip
        weight = tf.constant(1.0) if training.uniform else tf.cast(samples, tf.float32)
        takes = tf.one_hot(cluster, clusters)
        return stateful_clients.output_if_finite(
            # Of the C means it enters the one of its cluster: elsewhere its weight is zero.
            [(trained.weights, takes[j] * weight) for j in range(clusters)],
            ClientState(state.rounds + 1, cluster, trained.weights),
            state,
            trained,
            samples,
            {
                "cluster": tf.cast(cluster, tf.float32),
                "alignment": tf.gather(found, cluster),
            },
        )

    def initial_model(seed: int) -> tuple[Weights, ...]:
        return tuple(model.init(seed) for _ in range(clusters))

    def server_update(server, means):
        return tuple(
            stateful_clients.previous_if_empty(old, mean)
            for old, mean in zip(server, means, strict=True)
        )

    def client_weights(server, state):
        """The client's cluster's model with its own batch norms (the paper evaluates these)."""
        if int(state.rounds) == 0:
            return server[0]
        return split.with_own(server[int(state.cluster)], split.own_of(Weights(*state.local)))

    return stateful_clients.build_stateful_clients(
        initial_model=initial_model,
        initial_client_state=initial_client_state,
        client_work=client_work,
        server_update=server_update,
        element_type=task.element_type,
        global_weights=lambda server: server[0],
        client_weights=client_weights,
        local_weights=lambda state: Weights(*state.local),
        sent_models=1,
        aggregator=aggregator,
    )


def _best(alignments: tf.Tensor, instead: tf.Tensor) -> tf.Tensor:
    """The index of the smallest one, or `instead` where all are equal; int32."""
    equal = tf.reduce_max(alignments) - tf.reduce_min(alignments) < _TIE
    return tf.where(equal, instead, tf.argmin(alignments, output_type=tf.int32))


def _chosen(candidates: list[Weights], index: tf.Tensor) -> Weights:
    """The candidate of that index."""
    return tf.nest.map_structure(lambda *options: tf.gather(tf.stack(options), index), *candidates)
