"""FeatARC, changed so that clients find their clusters.

`featarc.printed` has the paper's algorithm. In it, a client's own model is part of its cluster's
mean, but not of the others. Its own cluster is therefore nearly always the closest one, and clients
stay in their first: four clients of two kinds that start with clusters 0, 1, 0, 1 keep them for
ever. The released code shares this. The options `exclude_own=false`, `first_cluster=parity`,
`switch_probability=1`, `warmup_rounds=0` are the printed algorithm. The defaults find clusters if
local training moves a client's model away from the other kind's further than averaging brings it
back, by more than the noise of training. Of six clients of the digits, half see them rotated by 180
degrees. With eight local epochs, ten of eleven starts ended with the right clusters within seven
rounds; from one, 001010, a client stayed in the wrong one. With a warm-up of 12 rounds all of
twelve did (`tests/algorithms/test_featarc.py` has four of them). With two local epochs it was five
of twelve.

- `exclude_own`: A_ij compares with the mean of cluster j *without* client i. The server broadcasts
  the total weight W_j of each mean and the round in which it was formed; the client keeps its model
  theta~ and weight w of its last round, and computes (W_j theta_j - w theta~) / (W_j - w).
  The features of the mean over all other clients, of any cluster, are subtracted from both sides of
  the comparison: networks trained from a common one share most of their features, and the larger
  cluster, whose mean has less noise, would otherwise agree best with everybody. A client that is
  alone in its cluster stays. A cluster counts as empty for a client if nobody has taken it for as
  many rounds as the client needs on average to take part once (one, if all clients take part in
  every round). It has no mean to compare with; a client goes there with probability 1/4, and starts
  it with its own last model.
- `switch_probability`: A client that finds another cluster better switches with this probability
  only. If all switched at once, two mixed clusters would exchange their clients for ever.
- `first_cluster=random`: A client's first cluster is a random function of seed and client.
- `warmup_rounds`: In these rounds all clients train one model, the mean over all of them, and are
  divided into clusters by the result. Clusters separate afterwards. Without a warm-up, a client
  resembles the cluster from whose model it started, of whichever kind, and stays there.

Subtracting a client's share is exact for the plain weighted mean, not for robust or compressed
aggregators.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.featarc.printed import (
    ClientState,
    Clusters,
    PrintedClient,
    PrintedHyperparameters,
    Taken,
    chosen,
    closest,
    update_clusters,
)
from tff_ssl.algorithms.fedprox import proximal_terms
from tff_ssl.bounds import bounded, one_of
from tff_ssl.kinds.stateful.algorithm import StatefulClients, build_stateful_clients
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.templates.local_training import build_local_training
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import one_tower, where
from tff_ssl.views import seeds

_SALT = 6  # Separates the draws of clusters from the draws of clients' batches.
_FOUNDING = 0.25  # Probability with which a client goes to an empty cluster.
_NO_MEAN = 10.0  # Alignment with a mean of no clients; above all others, which are at most 1.
_ROUNDING = 1e-5  # Share of a total weight below which a remainder counts as no weight.


@dataclasses.dataclass(frozen=True)
class FeatARCHyperparameters(PrintedHyperparameters):
    """Hyperparameters of the printed algorithm, and what makes it find clusters.

    Attributes:
      exclude_own: Whether a client compares its model with the means of the clusters without
        itself; false in the paper.
      first_cluster: A client's first cluster, `random` by seed and client, or by `parity`: the
        client's number modulo C, as in the released code.
      switch_probability: Probability with which a client switches to a better cluster; 1 in the
        paper.
      warmup_rounds: Number of first rounds in which all clients train one model, the mean over all
        of them; 0 in the paper.
    """

    exclude_own: bool = True
    first_cluster: str = one_of("random", ("random", "parity"))
    switch_probability: float = bounded(0.5, above=0, at_most=1)
    warmup_rounds: int = bounded(5, at_least=0)


class _Others(NamedTuple):
    """The clusters as a client compares itself with them."""

    #: Candidates, C `Weights`: means without the client, or the server's models.
    models: list[Weights]
    weights: tf.Tensor  #: Total weights of the other clients in each mean, float32 [C].
    is_valid: tf.Tensor  #: Whether there is such a mean, bool [C].
    is_empty: tf.Tensor  #: Whether the cluster counts as empty, bool [C]; see the module.
    is_alone: tf.Tensor  #: Whether the client is the only one of its cluster, bool.


def without_client(server: Clusters, state: ClientState) -> _Others:
    """The mean of each cluster without the client: (W_j theta_j - w theta~) / (W_j - w).

    For a mean without the client, this is theta_j itself.
    """
    was_there = tf.equal(server.formed, state.last_round) & (state.rounds > 0)
    is_member = was_there & tf.equal(tf.range(len(server.models)), state.cluster)
    # Average number of rounds in which the client takes part once.
    interval = tf.math.floordiv(server.round + state.rounds - 1, tf.maximum(state.rounds, 1))
    is_recent = tf.reduce_max(server.formed) - server.formed < interval
    is_empty = tf.equal(server.weights, 0.0) | ~(is_recent | is_member)
    own = tf.where(is_member, state.weight, 0.0)
    others = server.weights - own
    is_valid = ~is_empty & (others > _ROUNDING * server.weights)
    # In a mean without the client, own is 0 and the factors are exactly 1 and 0.
    factors = own / tf.where(is_valid, others, 1.0)

    def mean(j, shared, kept):
        return tf.where(is_member[j] & is_valid[j], shared + factors[j] * (shared - kept), shared)

    local = Weights(*state.local)
    models = [
        tf.nest.map_structure(functools.partial(mean, j), Weights(*model), local)
        for j, model in enumerate(server.models)
    ]
    is_alone = tf.reduce_any(is_member & ~is_valid)
    return _Others(models, tf.where(is_valid, others, 0.0), is_valid, is_empty, is_alone)


def mean_over_clusters(models: Sequence[Weights], weights: tf.Tensor) -> Weights:
    """The mean over the clients of all clusters: sum_j W_j theta_j / sum_j W_j.

    The weights W_j are float32 [C]. If all are 0, as before the first round, the result is theta_0.
    """
    total = tf.reduce_sum(weights)
    first = tf.one_hot(0, len(models))
    shares = tf.where(total > 0, tf.math.divide_no_nan(weights, total), first)
    return tf.nest.map_structure(
        lambda *values: tf.add_n([shares[j] * value for j, value in enumerate(values)]),
        *(Weights(*model) for model in models),
    )


class FeatARCClient(PrintedClient):
    """The client's part of the round, with the means of the others."""

    def __init__(self, model, objective, training, options: FeatARCHyperparameters):
        super().__init__(model, objective, training, options)
        self._options = options

    def _draws(self, client: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Two random numbers of a client for a number such as the round, float32 [2] in [0, 1)."""
        key = tf.stack([seeds.current(self.training.seed), tf.constant(_SALT, tf.int64)])
        for value in (client, number):
            key = tf.random.experimental.stateless_fold_in(key, tf.cast(value, tf.int64))
        return tf.random.stateless_uniform([2], key)

    def first_cluster(self, client: tf.Tensor) -> tf.Tensor:
        if self._options.first_cluster == "parity":
            return super().first_cluster(client)
        draw = self._draws(client, tf.constant(-1, tf.int64))[0]
        return tf.minimum(tf.cast(draw * self.clusters, tf.int32), self.clusters - 1)

    def stays(self, server: Clusters, state: ClientState, client: tf.Tensor) -> tf.Tensor:
        draw = self._draws(client, server.round)[1]
        return super().stays(server, state, client) | (draw >= self._options.switch_probability)

    def take_model(self, server: Clusters, state: ClientState, data: Any) -> Taken:
        if not self._options.exclude_own:
            return super().take_model(server, state, data)
        client, own = data["client"][0], self.own_model(server, state)
        default, others = self.default_cluster(state, client), without_client(server, state)
        (centre,) = self.with_norms([mean_over_clusters(others.models, others.weights)], own)
        candidates = self.with_norms(others.models, own)
        alignments = self.alignments(candidates, own, data["image"], centre)
        compared = tf.where(others.is_valid, alignments, _NO_MEAN)
        best = tf.where(others.is_alone, default, closest(compared, default))
        cluster = tf.where(self.stays(server, state, client), default, best)
        may_found = tf.reduce_any(others.is_empty) & (state.rounds > 0) & ~others.is_alone
        founds = may_found & (self._draws(client, server.round)[0] < _FOUNDING)
        cluster = tf.where(founds, tf.argmax(others.is_empty, output_type=tf.int32), cluster)
        start = where(founds, own, chosen(self.with_norms(server.models, own), cluster))
        return Taken(cluster, start, tf.gather(alignments, cluster))

    def start(self, server: Clusters, taken: Taken) -> Weights:
        """The model with which training starts: in the warm-up, the mean over all clients."""
        # Means of clusters that nobody took in the last round are older, and do not count.
        is_last = tf.equal(server.formed, tf.reduce_max(server.formed))
        mean = mean_over_clusters(server.models, tf.where(is_last, server.weights, 0.0))
        (common,) = self.with_norms([mean], taken.start)
        return where(server.round < self._options.warmup_rounds, common, Weights(*taken.start))


def build_featarc(
    task: Task,
    hyperparameters: FeatARCHyperparameters | None = None,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Builds FeatARC's round; the aggregator of each cluster is `MeanFactory` by default."""
    values = hyperparameters or FeatARCHyperparameters()
    model, objective = one_tower(task.model), OBJECTIVES[task.objective]
    terms = proximal_terms(values.mu)
    training = build_local_training(task, values, keeps_target=True, weight_terms=terms)
    client = FeatARCClient(model, objective, training, values)

    def initial_model(seed: int) -> Clusters:
        models = tuple(model.init(seed) for _ in range(values.clusters))
        never = tf.fill([values.clusters], tf.constant(-1, tf.int64))
        return Clusters(models, tf.zeros([values.clusters]), never, tf.constant(0, tf.int64))

    return build_stateful_clients(
        initial_model=initial_model,
        initial_client_state=client.initial_state,
        client_work=client.work,
        server_update=update_clusters,
        element_type=task.element_type,
        global_weights=lambda server: server.models[0],
        client_weights=client.evaluated_weights,
        local_weights=lambda state: Weights(*state.local),
        sums_weights=True,
        aggregator=aggregator,
    )
