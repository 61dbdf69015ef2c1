"""FeatARC as its paper prints it: feature alignment regularization and clustering.

Wang et al., "Does Learning from Decentralized Non-IID Unlabeled Data Benefit from Self
Supervision?", ICLR 2023, Algorithms 1 and 2. The server keeps C models theta_j. A sampled client i

1. compares the features of each model with those of the model that it trained last,
     A_ij = mean over its images x of D(f_theta_j(x), f_own(x)),  D(a, b) = -<a, b> / |a||b|;
2. takes the model of the smallest A_ij, and trains it with an alignment term added to its loss,
     lambda (D(p+, z_g) / 2 + D(p, z_g) / 2),
   where z_g are the features of x in the model as the client took it, and p and p+ are the client's
   own predictions for x and for its other view x+.

The server averages each model over the clients that took it.

With C = 1 and lambda = 0 this is FedAvg. With C = K and one client for each model it is local
training. `featarc.algorithm` explains why clients rarely find their clusters with the printed
algorithm, and adds what makes them find them.

Choices: The server knows the model that each client took, whichever clients were sampled (the
released code goes by their position in the cohort), and weights clients by their number of
examples. A model that no client took stays as it is. All C models start equal: with different
random weights, a client would keep its first model for ever. A client's first cluster is its number
modulo C, as in the released code. If its A_ij are equal, a client stays in its cluster. x is the
first view, x+ the second. In A_ij, f is the network with its projector. In the alignment term, z_g
is the backbone's encoding of the image without augmentation, as in Algorithm 2 and the released
code, if it is as wide as the predictions, and otherwise the projector's output for that image
(`align_features`, `align_image`). Batch norm stays local as in `fedbn`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_ssl.algorithms.fedbn import FedBNHyperparameters
from tff_ssl.bounds import bounded, one_of
from tff_ssl.losses import cosine
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.registry import Objective
from tff_ssl.templates.client_output import ClientOutput, output_if_finite, previous_if_empty
from tff_ssl.templates.local_training import LocalStep, LocalTraining
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.weight_groups import LocalWeights, where
from tff_ssl.views import augmentation

_TIE = 1e-6  # Alignments that differ by less count as equal: they differ by rounding.
_IMAGES_AT_ONCE = 64


@dataclasses.dataclass(frozen=True)
class PrintedHyperparameters(FedBNHyperparameters):
    """Hyperparameters with the paper's values; those of `fedbn` are inherited.

    Attributes:
      clusters: Number of clusters C; 1 for alignment only.
      lambda_align: Weight lambda of the alignment; 0 for clustering only.
      align_features: Layer of z_g: `encoding`, `projection`, or `auto` for the encoding if it is as
        wide as the predictions, otherwise the projection.
      align_image: Image of z_g, the `clean` image or the first `view`.
    """

    clusters: int = bounded(2, at_least=1)
    lambda_align: float = bounded(1.0, at_least=0)
    align_features: str = one_of("auto", ("auto", "encoding", "projection"))
    align_image: str = one_of("clean", ("clean", "view"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.averaging != "all":
            raise ValueError("averaging=none is for fedbn; here a cluster per client does the same")


class Clusters(NamedTuple):
    """The server's model."""

    models: Any  #: Models theta_j, a tuple of C `Weights`.
    #: Total weight W_j of the clients in each mean, float32 [C]; 0 if there is none yet.
    weights: Any
    formed: Any  #: Round in which each mean was formed, int64 [C]; -1 if there is none yet.
    round: Any  #: Number of the next round, int64.


class ClientState(NamedTuple):
    """The state of a client."""

    rounds: Any  #: Number of rounds that the client took part in, int64.
    #: Index of the cluster to which it contributed last, int32; -1 before its first round.
    cluster: Any
    last_round: Any  #: Round in which it last took part, int64; -1 before its first round.
    weight: Any  #: Weight of its contribution in that round, float32.
    local: Any  #: Weights of its model after that round, its contribution.


class Taken(NamedTuple):
    """The model that a client takes."""

    cluster: Any  #: Index of the cluster, int32.
    start: Any  #: Weights of the model, with the client's own batch norms.
    alignment: Any  #: Alignment of the cluster with the client's own model, float32.


def closest(alignments: tf.Tensor, default: tf.Tensor) -> tf.Tensor:
    """Index of the smallest alignment, or `default` if all are equal; int32."""
    equal = tf.reduce_max(alignments) - tf.reduce_min(alignments) < _TIE
    return tf.where(equal, default, tf.argmin(alignments, output_type=tf.int32))


def chosen(candidates: Sequence[Weights], index: tf.Tensor) -> Weights:
    return tf.nest.map_structure(lambda *options: tf.gather(tf.stack(options), index), *candidates)


class PrintedClient:
    """The client's part of the round (Algorithms 1 and 2)."""

    def __init__(
        self,
        model: DualEncoder,
        objective: Objective,
        training: LocalTraining,
        options: PrintedHyperparameters,
    ):
        """Chooses the weights that stay with the client, and the layer of z_g."""
        self.model, self.objective, self.training = model, objective, training
        self.clusters, self._weight = options.clusters, options.lambda_align
        self._aligns_clean = options.align_image == "clean"
        self._aligns_encoding = _aligns_encoding(model, objective, options)
        self._local_weights = LocalWeights(model, batch_norm=options.batch_norm == "local")

    def initial_state(self, seed: int) -> ClientState:
        """The state of a client that has not taken part yet."""
        rounds, never = tf.constant(0, tf.int64), tf.constant(-1, tf.int64)
        weights = self.model.init(seed)
        return ClientState(rounds, tf.constant(-1), never, tf.constant(0.0), weights)

    def features(self, weights: Weights, images: tf.Tensor) -> tf.Tensor:
        """Features f of images without augmentation, float32 [n, d]: z, or h if supervised."""
        x = augmentation.to_float_of_shape(images, self.model.image_shape)
        outputs = self.model.apply(weights, x, training=False)
        return outputs.h if self.objective.supervised else outputs.z

    def alignments(
        self,
        candidates: list[Weights],
        local: Weights,
        images: tf.Tensor,
        centre: Weights | None = None,
    ) -> tf.Tensor:
        """Alignments A_i of the candidates with the client's own model `local`, float32 [C].

        The client's images are uint8 [n, h, w, c]. The features of the model `centre`, if any, are
        subtracted from those of all others.
        """

        def add(start, sums):
            batch = images[start : start + _IMAGES_AT_ONCE]
            origin = 0.0 if centre is None else self.features(centre, batch)
            local_features = self.features(local, batch) - origin
            cosines = [
                cosine.cosine(self.features(candidate, batch) - origin, local_features)
                for candidate in candidates
            ]
            alignments = tf.stack([-tf.reduce_sum(c) for c in cosines])
            return start + _IMAGES_AT_ONCE, sums + alignments

        n = tf.shape(images)[0]
        _, sums = tf.while_loop(
            lambda start, _: start < n, add, (0, tf.zeros([self.clusters])), parallel_iterations=1
        )
        return sums / tf.cast(n, tf.float32)

    def own_model(self, server: Clusters, state: ClientState) -> Weights:
        """The model that the client trained last; a new client has the first cluster's."""
        is_new = tf.equal(state.rounds, 0)
        return where(is_new, Weights(*server.models[0]), Weights(*state.local))

    def with_norms(self, models: Sequence[Any], own: Weights) -> list[Weights]:
        """Models with the client's own batch norms, which it keeps whichever model it takes."""
        norms = self._local_weights.select(own)
        return [self._local_weights.restore(shared, norms) for shared in models]

    def first_cluster(self, client: tf.Tensor) -> tf.Tensor:
        """The cluster of a client's first round, int32."""
        return tf.cast(client % self.clusters, tf.int32)

    def default_cluster(self, state: ClientState, client: tf.Tensor) -> tf.Tensor:
        """The cluster that a client takes if it has no reason to prefer another one, int32."""
        return tf.where(state.cluster < 0, self.first_cluster(client), state.cluster)

    def stays(self, server: Clusters, state: ClientState, client: tf.Tensor) -> tf.Tensor:
        """Whether the client stays in its cluster even if another one is closer; bool."""
        return tf.equal(state.rounds, 0)

    def take_model(self, server: Clusters, state: ClientState, data: Any) -> Taken:
        """Chooses the client's cluster for this round."""
        client, own = data["client"][0], self.own_model(server, state)
        candidates = self.with_norms(server.models, own)
        alignments = self.alignments(candidates, own, data["image"])
        default = self.default_cluster(state, client)
        stays = self.stays(server, state, client)
        cluster = tf.where(stays, default, closest(alignments, default))
        return Taken(cluster, chosen(candidates, cluster), tf.gather(alignments, cluster))

    def start(self, server: Clusters, taken: Taken) -> Weights:
        """The model with which local training starts."""
        return taken.start

    def alignment_term(self, step: LocalStep) -> tf.Tensor:
        """lambda times the alignment of each example's predictions with z_g, float32 [n]."""
        x = step.batch.x1
        if self._aligns_clean:
            x = augmentation.to_float_of_shape(step.batch.images, x.shape[1:])
        outputs = self.model.apply(step.initial, x, training=False)
        z_g = outputs.h if self._aligns_encoding else outputs.z
        first, second = (cosine.cosine(p, z_g) for p in step.evaluated.predictions)
        return -self._weight * (first + second) / 2

    def work(
        self, server: Clusters, round_number: tf.Tensor, state: ClientState, examples: Any
    ) -> ClientOutput:
        """Takes a model, trains it with the alignment, and sends it to its cluster's mean."""
        data = read_all(examples)
        samples = tf.shape(data["example_id"])[0]
        taken = self.take_model(server, state, data)
        cluster, start = taken.cluster, self.start(server, taken)
        membership = tf.one_hot(cluster, self.clusters)
        terms = (self.alignment_term,) if self._weight else ()
        training = dataclasses.replace(self.training, regularizers=terms)
        trained = training.train(start, training.first_target(start), round_number, data)
        weight = training.client_weight(samples)
        switched = (state.cluster >= 0) & tf.not_equal(cluster, state.cluster)
        new_state = ClientState(state.rounds + 1, cluster, server.round, weight, trained.weights)
        # The client contributes to the mean of its cluster; in the others its weight is zero.
        updates = [(trained.weights, membership[j] * weight) for j in range(self.clusters)]
        metrics = {
            "cluster": tf.cast(cluster, tf.float32),
            "alignment": taken.alignment,
            "switched": tf.cast(switched, tf.float32),
        }
        return output_if_finite(updates, new_state, state, trained, samples, metrics)

    def evaluated_weights(self, server: Clusters, state: ClientState) -> Weights:
        """The model of the client's cluster with its own batch norms, as evaluated in the paper."""
        if int(state.rounds) == 0:
            return server.models[0]
        (weights,) = self.with_norms([server.models[int(state.cluster)]], Weights(*state.local))
        return weights


def _aligns_encoding(
    model: DualEncoder, objective: Objective, options: PrintedHyperparameters
) -> bool:
    """Whether z_g is the backbone's encoding rather than the projection.

    Raises:
      ValueError: If the layer that `align_features` names is not as wide as the predictions.
    """
    projection = model.projector[-1] if model.projector else model.features
    prediction = model.predictor[-1] if model.predictor else projection
    if objective.supervised:
        prediction = projection = model.features
    widths = {"encoding": model.features, "projection": projection}
    layer = options.align_features
    if layer == "auto":
        layer = "encoding" if model.features == prediction else "projection"
    if options.lambda_align and widths[layer] != prediction:
        raise ValueError(
            f"align_features={layer} has {widths[layer]} features where predictions have "
            f"{prediction}; they must be equal"
        )
    return layer == "encoding" or objective.supervised


def update_clusters(
    server: Clusters, means: tuple[Any, ...], weights: tuple[tf.Tensor, ...]
) -> Clusters:
    """The server's new models; a model that no client took stays as it is.

    The means of each cluster's clients are NaN without clients; the total weights are float32.
    """
    total = tf.stack(weights)
    is_formed = total > 0
    return Clusters(
        tuple(
            previous_if_empty(Weights(*old), Weights(*mean))
            for old, mean in zip(server.models, means, strict=True)
        ),
        tf.where(is_formed, total, server.weights),
        tf.where(is_formed, server.round, server.formed),
        server.round + 1,
    )
