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

**What the printed algorithm does.** A client's own model is part of its cluster's mean, but not of
the others. Its own cluster is therefore nearly always the closest one, and clients stay where they
were dealt first: four clients of two kinds, dealt 0, 1, 0, 1, stay there for ever. The released
code shares this. The options `exclude_own=false`, `first_cluster=parity`, `switch_probability=1`,
`warmup_rounds=0` are the printed algorithm. The defaults find clusters from any start, as long as
local training takes a client's model further away from the other kind's than averaging brings it
back by more than the noise of training. Six clients of the digits, half of which see them turned by
180 degrees, are told apart within four to seven rounds of eight local epochs, or in rare cases
sixteen, which takes a longer warm-up (`tests/algorithms/test_featarc.py`). With two local epochs,
most starts ended with wrong clusters:

- `exclude_own`: A_ij compares with the mean of cluster j *without* client i. The server broadcasts
  the total weight W_j of each mean and the round in which it was formed; the client keeps its model
  theta~ and weight w of its last round, and computes (W_j theta_j - w theta~) / (W_j - w).
  The features of the mean over all other clients, of whichever cluster, are subtracted from both
  sides of the comparison. Networks that training has moved from a common one share most of their
  features, and the larger cluster, whose mean has less noise, would else agree best with everybody.
  A client that is alone in its cluster stays. A cluster counts as empty for a client if nobody has
  taken it for as many rounds as the client needs on average to take part once: for one round, if
  all clients take part in every round. It has no mean to compare with; a client goes there with
  probability 1/4, and founds it with its own last model.
- `switch_probability`: A client that finds another cluster better switches with this probability
  only. If all switched at once, two mixed clusters would exchange their clients for ever.
- `first_cluster=random`: A client's first cluster is a random function of seed and client.
- `warmup_rounds`: In these rounds all clients train one model, the mean over all of them, and are
  divided into clusters by what training has made of it. Clusters part afterwards. Without that, a
  client resembles the cluster from whose model it started, of whichever kind, and stays there.

Choices: The server knows the model that each client took, whichever clients were sampled (the
released code goes by their position in the cohort), and weighs the clients by number of examples. A
model that no client took stays as it is. All C models start equal: with different random weights, a
client would stay for ever with the model that it took first. Where its A_ij are equal, a client
stays in its cluster. x is the first view, x+ the second. In A_ij, f is the network with its
projector. In the alignment term, z_g is the backbone's encoding of the image without augmentation,
as in Algorithm 2 and the released code, if it is as wide as the predictions, and otherwise the
projector's output for that image (`align_features`, `align_image`). Subtracting a client's share is
exact for the plain weighted mean, not for robust or compressed aggregators. Batch norm stays local
as in `fedbn`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.fedbn import FedBNHyperparameters
from tff_ssl.bounds import bounded, one_of
from tff_ssl.kinds.stateful.algorithm import StatefulClients, build_stateful_clients
from tff_ssl.losses import cosine
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.registry import OBJECTIVES, Batch, Objective
from tff_ssl.templates.client_output import ClientOutput, output_if_finite, previous_if_empty
from tff_ssl.templates.local_training import LocalTraining, Regularizer, build_local_training
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import LocalWeights, one_tower
from tff_ssl.views import augmentation

# Alignments that differ by less count as equal: two results of the same model differ by rounding.
_TIE = 1e-6
_IMAGES_AT_ONCE = 64
_SALT = 6  # Separates the draws of clusters from the draws of clients' batches.
_FOUNDING = 0.25  # Probability with which a client goes to a cluster that nobody took.
_NO_MEAN = 10.0  # Alignment with a mean of no clients; larger than any alignment, which is below 1.
_ROUNDING = 1e-5  # Share of a total weight below which a remainder counts as no weight.


@dataclasses.dataclass(frozen=True)
class FeatARCHyperparameters(FedBNHyperparameters):
    """Hyperparameters with the paper's values; those of `fedbn` are inherited.

    Attributes:
      clusters: Number of clusters C; 1 for alignment only.
      lambda_align: Weight lambda of the alignment; 0 for clustering only.
      exclude_own: Whether a client compares its model with the means of the clusters without
        itself; false in the paper.
      first_cluster: A client's first cluster, `random` by seed and client, or by `parity`: the
        client's number modulo C, as in the released code.
      switch_probability: Probability with which a client takes another cluster than before if it
        is better; 1 in the paper.
      warmup_rounds: Number of first rounds in which the clients of all clusters train one model,
        the mean over all clients; 0 in the paper.
      align_features: Layer of z_g: `encoding`, `projection`, or `auto` for the encoding where it is
        as wide as the predictions, and the projection elsewhere.
      align_image: Image of z_g, the `clean` image or the first `view`.
    """

    clusters: int = bounded(2, at_least=1)
    lambda_align: float = bounded(1.0, at_least=0)
    exclude_own: bool = True
    first_cluster: str = one_of("random", ("random", "parity"))
    switch_probability: float = bounded(0.5, above=0, at_most=1)
    warmup_rounds: int = bounded(5, at_least=0)
    align_features: str = one_of("auto", ("auto", "encoding", "projection"))
    align_image: str = one_of("clean", ("clean", "view"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.averaging != "all":
            raise ValueError("averaging=none is for fedbn; here a cluster per client does the same")


class Clusters(NamedTuple):
    """The server's model.

    Attributes:
      models: Models theta_j, a tuple of C `Weights`.
      weights: Total weight W_j of the clients in each mean, float32 [C]; 0 if there is none yet.
      formed: Round in which each mean was formed, int64 [C]; -1 if there is none yet.
      round: Number of the next round, int64.
    """

    models: Any
    weights: Any
    formed: Any
    round: Any


class ClientState(NamedTuple):
    """The state of a client.

    Attributes:
      rounds: Number of rounds that the client took part in, int64.
      cluster: Index of the cluster to whose mean it contributed last, int32; -1 before its first
        round.
      last_round: Round in which it last took part, int64; -1 before its first round.
      weight: Weight of its contribution in that round, float32.
      local: Weights of its model after that round, which are its contribution.
    """

    rounds: Any
    cluster: Any
    last_round: Any
    weight: Any
    local: Any


class _Others(NamedTuple):
    """The clusters as a client compares itself with them.

    Attributes:
      models: Candidates, C `Weights`: means without the client, or the server's models.
      weights: Total weights of the other clients in each mean, float32 [C].
      is_valid: Whether there is such a mean, bool [C].
      is_empty: Whether nobody has taken the cluster for long, bool [C].
      is_alone: Whether the client is the only one of its cluster, bool.
    """

    models: list[Weights]
    weights: tf.Tensor
    is_valid: tf.Tensor
    is_empty: tf.Tensor
    is_alone: tf.Tensor


def without_client(server: Clusters, state: ClientState) -> _Others:
    """The mean of each cluster without the client: (W_j theta_j - w theta~) / (W_j - w).

    Where the client is not in a mean, this is theta_j itself.

    Args:
      server: Models of the server and total weights of their means.
      state: State of the client, with its contribution theta~ and its weight w.
    """
    was_there = tf.equal(server.formed, state.last_round) & (state.rounds > 0)
    is_member = was_there & tf.equal(tf.range(len(server.models)), state.cluster)
    # The client takes part once in so many rounds, on average.
    interval = tf.math.floordiv(server.round + state.rounds - 1, tf.maximum(state.rounds, 1))
    is_recent = tf.reduce_max(server.formed) - server.formed < interval
    is_empty = tf.equal(server.weights, 0.0) | ~(is_recent | is_member)
    own = tf.where(is_member, state.weight, 0.0)
    others = server.weights - own
    is_valid = ~is_empty & (others > _ROUNDING * server.weights)
    # In a mean of which the client is no part, own is 0 and the factors are exactly 1 and 0.
    factors = own / tf.where(is_valid, others, 1.0)

    def mean(j, shared, kept):
        return tf.where(is_member[j] & is_valid[j], shared + factors[j] * (shared - kept), shared)

    models = [
        tf.nest.map_structure(
            lambda shared, kept, j=j: mean(j, shared, kept), Weights(*model), Weights(*state.local)
        )
        for j, model in enumerate(server.models)
    ]
    is_alone = tf.reduce_any(is_member & ~is_valid)
    return _Others(models, tf.where(is_valid, others, 0.0), is_valid, is_empty, is_alone)


def mean_over_clusters(models: Sequence[Weights], weights: tf.Tensor) -> Weights:
    """The mean over the clients of all clusters: sum_j W_j theta_j / sum_j W_j.

    Args:
      models: Means theta_j of the clusters.
      weights: Total weights W_j of the clients in them, float32 [C]. If all are 0, as before the
        first round, the result is theta_0.
    """
    total = tf.reduce_sum(weights)
    first = tf.one_hot(0, len(models))
    shares = tf.where(total > 0, tf.math.divide_no_nan(weights, total), first)
    return tf.nest.map_structure(
        lambda *values: tf.add_n([shares[j] * value for j, value in enumerate(values)]),
        *(Weights(*model) for model in models),
    )


def _best(alignments: tf.Tensor, default: tf.Tensor) -> tf.Tensor:
    """Index of the smallest alignment, or `default` if all are equal; int32."""
    equal = tf.reduce_max(alignments) - tf.reduce_min(alignments) < _TIE
    return tf.where(equal, default, tf.argmin(alignments, output_type=tf.int32))


def _aligns_encoding(
    model: DualEncoder, objective: Objective, options: FeatARCHyperparameters
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


def _chosen(candidates: list[Weights], index: tf.Tensor) -> Weights:
    """The candidate with an index, int32."""
    return tf.nest.map_structure(lambda *options: tf.gather(tf.stack(options), index), *candidates)


class _Taken(NamedTuple):
    """The model that a client takes.

    Attributes:
      cluster: Index of the cluster, int32.
      start: Weights of the model, with the client's own batch norms.
      alignment: Alignment of the cluster with the client's own model, float32.
    """

    cluster: Any
    start: Any
    alignment: Any


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
        self._aligns_encoding = _aligns_encoding(model, objective, options)

    def initial_state(self, seed: int) -> ClientState:
        """The state of a client that has not taken part yet."""
        never = tf.constant(-1, tf.int64)
        return ClientState(
            tf.constant(0, tf.int64),
            tf.constant(-1),
            never,
            tf.constant(0.0),
            self._model.init(seed),
        )

    def _features(self, weights: Weights, images: tf.Tensor) -> tf.Tensor:
        """Features f of images without augmentation, float32 [n, d]; h if supervised, else z."""
        x = augmentation.to_float_of_shape(images, self._model.image_shape)
        outputs = self._model.apply(weights, x, training=False)
        return outputs.h if self._objective.supervised else outputs.z

    def _alignments(
        self,
        candidates: list[Weights],
        local: Weights,
        images: tf.Tensor,
        centre: Weights | None = None,
    ) -> tf.Tensor:
        """Alignments A_i of the candidates with the client's own model, float32 [C].

        Args:
          candidates: Models of the clusters.
          local: The client's own model.
          images: The client's images, uint8 [n, h, w, c].
          centre: Model whose features are subtracted from those of all others; None for none.
        """

        def add(start, sums):
            batch = images[start : start + _IMAGES_AT_ONCE]
            origin = 0.0 if centre is None else self._features(centre, batch)
            local_features = self._features(local, batch) - origin
            alignments = [
                -tf.reduce_sum(
                    cosine.cosine(self._features(candidate, batch) - origin, local_features)
                )
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

    def _draws(self, client: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Two random numbers in [0, 1) of a client for a number such as the round, float32 [2]."""
        key = tf.constant([self._training.seed, _SALT], tf.int64)
        for value in (client, number):
            key = tf.random.experimental.stateless_fold_in(key, tf.cast(value, tf.int64))
        return tf.random.stateless_uniform([2], key)

    def _first_cluster(self, client: tf.Tensor) -> tf.Tensor:
        """The cluster that a client takes if it has no reason to prefer one, int32."""
        clusters = self._options.clusters
        if self._options.first_cluster == "parity":
            return tf.cast(client % clusters, tf.int32)
        draw = self._draws(client, tf.constant(-1, tf.int64))[0]
        return tf.minimum(tf.cast(draw * clusters, tf.int32), clusters - 1)

    def _take_model(self, server: Clusters, state: ClientState, data: Any) -> _Taken:
        """Chooses the client's cluster for this round."""
        options, client = self._options, data["client"][0]
        is_new = tf.equal(state.rounds, 0)
        local = tf.nest.map_structure(
            lambda shared, kept: tf.where(is_new, shared, kept),
            Weights(*server.models[0]),
            Weights(*state.local),
        )
        # A client keeps its own batch norms, whichever model it takes.
        norms = self.local_weights.select(local)

        def own_norms(models):
            return [self.local_weights.restore(shared, norms) for shared in models]

        default = tf.where(state.cluster < 0, self._first_cluster(client), state.cluster)
        draws = self._draws(client, server.round)
        if options.exclude_own:
            others = without_client(server, state)
            (centre,) = own_norms([mean_over_clusters(others.models, others.weights)])
            alignments = self._alignments(own_norms(others.models), local, data["image"], centre)
            compared = tf.where(others.is_valid, alignments, _NO_MEAN)
            best = tf.where(others.is_alone, default, _best(compared, default))
            is_empty = others.is_empty
            may_found = tf.reduce_any(is_empty) & ~is_new & ~others.is_alone
            founds = may_found & (draws[0] < _FOUNDING)
        else:
            alignments = self._alignments(own_norms(server.models), local, data["image"])
            best = _best(alignments, default)
            is_empty, founds = tf.zeros([options.clusters], tf.bool), tf.constant(False)
        stays = is_new | (draws[1] >= options.switch_probability)
        cluster = tf.where(stays, default, best)
        cluster = tf.where(founds, tf.argmax(is_empty, output_type=tf.int32), cluster)
        start = tf.nest.map_structure(
            lambda kept, shared: tf.where(founds, kept, shared),
            local,
            _chosen(own_norms(server.models), cluster),
        )
        return _Taken(cluster, start, tf.gather(alignments, cluster))

    def _start(self, server: Clusters, taken: _Taken) -> Weights:
        """The model with which training starts: in the warm-up, the mean over all clients."""
        is_warmup = server.round < self._options.warmup_rounds
        norms = self.local_weights.select(taken.start)
        # Without the means of clusters that nobody took in the last round, which are older.
        is_last = tf.equal(server.formed, tf.reduce_max(server.formed))
        weights = tf.where(is_last, server.weights, 0.0)
        common = self.local_weights.restore(mean_over_clusters(server.models, weights), norms)
        return tf.nest.map_structure(
            lambda c, t: tf.where(is_warmup, c, t), common, Weights(*taken.start)
        )

    def _target_features(self, start: Weights, batch: Batch) -> tf.Tensor:
        """z_g, the features of the images in the model as it was taken, float32 [n, d]."""
        x = batch.x1
        if self._options.align_image == "clean":
            x = augmentation.to_float_of_shape(batch.images, x.shape[1:])
        outputs = self._model.apply(start, x, training=False)
        return outputs.h if self._aligns_encoding else outputs.z

    def _regularizer(self, start: Weights) -> Regularizer | None:
        """lambda times the alignment of predictions with features of the model as it was taken."""
        weight = self._options.lambda_align

        def regularizer(batch, evaluated):
            z_g = self._target_features(start, batch)
            first, second = (cosine.cosine(p, z_g) for p in evaluated.predictions)
            return -weight * (first + second) / 2

        return regularizer if weight else None

    def work(
        self,
        server: Clusters,
        round_number: tf.Tensor,
        state: ClientState,
        examples: tf.data.Dataset,
    ) -> ClientOutput:
        """Takes a model, trains it with the alignment, and sends it to its cluster's mean."""
        data = read_all(examples)
        samples = tf.shape(data["example_id"])[0]
        taken = self._take_model(server, state, data)
        cluster, alignment, start = taken.cluster, taken.alignment, self._start(server, taken)
        membership = tf.one_hot(cluster, self._options.clusters)
        target = Weights((), ())
        if self._objective.target:
            target = self._model.target_model.part_of(start)
        trained = self._training.train(start, target, round_number, data, self._regularizer(start))
        weight = self._training.client_weight(samples)
        switched = (state.cluster >= 0) & tf.not_equal(cluster, state.cluster)
        return output_if_finite(
            # The client contributes to the mean of its cluster; in the others its weight is zero.
            [(trained.weights, membership[j] * weight) for j in range(self._options.clusters)],
            ClientState(state.rounds + 1, cluster, server.round, weight, trained.weights),
            state,
            trained,
            samples,
            {
                "cluster": tf.cast(cluster, tf.float32),
                "alignment": alignment,
                "switched": tf.cast(switched, tf.float32),
            },
        )

    def evaluated_weights(self, server: Clusters, state: ClientState) -> Weights:
        """The model of the client's cluster with its own batch norms, as evaluated in the paper."""
        if int(state.rounds) == 0:
            return server.models[0]
        norms = self.local_weights.select(Weights(*state.local))
        return self.local_weights.restore(server.models[int(state.cluster)], norms)


def update_clusters(
    server: Clusters, means: tuple[Any, ...], weights: tuple[tf.Tensor, ...]
) -> Clusters:
    """The server's new models; a model that no client took stays as it is.

    Args:
      server: Models of the server.
      means: Mean of the models of each cluster's clients; NaN where there is none.
      weights: Total weight of each cluster's clients, float32.
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

    def initial_model(seed: int) -> Clusters:
        clusters = hyperparameters.clusters
        return Clusters(
            tuple(model.init(seed) for _ in range(clusters)),
            tf.zeros([clusters]),
            tf.fill([clusters], tf.constant(-1, tf.int64)),
            tf.constant(0, tf.int64),
        )

    return build_stateful_clients(
        initial_model=initial_model,
        initial_client_state=client.initial_state,
        client_work=client.work,
        server_update=update_clusters,
        element_type=task.element_type,
        global_weights=lambda server: server.models[0],
        client_weights=client.evaluated_weights,
        local_weights=lambda state: Weights(*state.local),
        sent_models=1,
        sums_weights=True,
        aggregator=aggregator,
    )
