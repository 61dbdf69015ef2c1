"""Mixing matrices: how clients average their models with their neighbours'.

Row i of a mixing matrix W, float64 [K, K], has the weights with which client i averages: its new
model is sum_j W_ij theta_j. All entries are at least 0, rows sum to 1, and W_ij is 0 where i and j
are not linked. A client that is not in the network any more keeps its model: its row is that of the
identity, and nobody else's has it.

Columns that sum to 1 too conserve the mean of the models. Those of `neighbour_weights` do on
regular networks (cycle, complete), those of `metropolis_weights` on any.
"""

from collections.abc import Sequence

import networkx as nx
import numpy as np
import numpy.typing as npt

from tff_ssl.decentralized import topology

MixingMatrix = npt.NDArray[np.float64]
Model = Sequence[npt.NDArray]


def neighbour_weights(
    graph: nx.Graph, num_clients: int, examples: Sequence[int] | None = None
) -> MixingMatrix:
    """Each client averages its model with those of all its neighbours.

    Local averaging of Dec-SSL (appendix B.5), which gives no weights, and of gossip learning (Tang
    et al. 2020, in DeNAV's Figure 1c). The row of a client is also how DeNAV averages encoder
    blocks before fine-tuning (section 4).

    Args:
      graph: The network, of clients below `num_clients`.
      num_clients: K.
      examples: n of each client, above 0: models are weighted by them, as in Dec-SSL with a server.
        All alike if None.
    """
    weights = np.ones(num_clients) if examples is None else np.asarray(examples, np.float64)
    linked = _adjacency(graph, num_clients) + np.eye(num_clients)
    return _normalized(linked * weights)


def metropolis_weights(graph: nx.Graph, num_clients: int) -> MixingMatrix:
    """W_ij = 1 / (1 + max(deg i, deg j)) of neighbours, the rest on the diagonal.

    Metropolis-Hastings weights (Xiao, Boyd & Lall 2005): symmetric, so that the mean of the models
    is conserved on any network.
    """
    linked = _adjacency(graph, num_clients)
    degrees = linked.sum(axis=1)
    weights = linked / (1 + np.maximum(degrees[:, np.newaxis], degrees))
    return weights + np.diag(1 - weights.sum(axis=1))


def first_received_weights(
    graph: nx.Graph, num_clients: int, rng: np.random.Generator
) -> MixingMatrix:
    """Each client averages its model with that of one neighbour, whose model came first.

    DeNAV's gossip baseline (section 6.3). Which one is the first is random here.
    """
    weights = np.eye(num_clients)
    for client in sorted(graph):
        linked = topology.neighbours(graph, client)
        if linked:
            weights[client, client] = 0.5
            weights[client, rng.choice(linked)] = 0.5
    return weights


def all_reduce_weights(
    graph: nx.Graph, num_clients: int, examples: Sequence[int] | None = None
) -> MixingMatrix:
    """Each client gets the mean of all clients that it has a route to.

    Args:
      graph: The network; in a connected one all clients get the same model.
      num_clients: K.
      examples: n of each client, above 0, as weights. All alike if None.
    """
    weights = np.ones(num_clients) if examples is None else np.asarray(examples, np.float64)
    reached = np.eye(num_clients)
    for part in topology.components(graph):
        reached[np.ix_(part, part)] = 1
    return _normalized(reached * weights)


def combine(models: Sequence[Model], weights: npt.NDArray[np.float64]) -> list[npt.NDArray]:
    """Weighted sums of models, array by array.

    Args:
      models: K models, each a list of floating-point arrays; the same shapes for all.
      weights: [..., K].

    Returns:
      Arrays [..., shape] of the models' dtypes, calculated in float64.
    """
    sums = []
    for arrays in zip(*models, strict=True):
        stacked = np.stack(arrays)
        sums.append(np.tensordot(weights, stacked.astype(np.float64), 1).astype(stacked.dtype))
    return sums


def _adjacency(graph: nx.Graph, num_clients: int) -> MixingMatrix:
    """1 where two clients are linked, float64 [K, K]."""
    linked = np.zeros((num_clients, num_clients))
    for a, b in graph.edges:
        linked[a, b] = linked[b, a] = 1
    return linked


def _normalized(weights: MixingMatrix) -> MixingMatrix:
    return weights / weights.sum(axis=1, keepdims=True)
