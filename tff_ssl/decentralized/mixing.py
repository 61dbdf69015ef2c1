"""Mixing matrices: how clients average their models with their neighbours'.

A mixing matrix W is float64 [K, K]. The new model of client i is sum_j W_ij theta_j. All entries
are at least 0, each row sums to 1, and W_ij is 0 where i and j are not linked. A client that has
left the network keeps its model: its row is that of the identity, and its column is otherwise 0.

The mean of the models is conserved if each column sums to 1 too. This holds for `neighbour_weights`
on regular networks (cycle, complete), and for `metropolis_weights` on any network.
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
    """Weights with which each client averages its model with those of all neighbours.

    This is the local averaging of Dec-SSL (appendix B.5), which gives no weights, and of gossip
    learning (Tang et al. 2020, in DeNAV's Figure 1c). DeNAV averages encoder blocks before
    fine-tuning with the client's row (section 4). If given, `examples` (the clients' numbers of
    examples) weight the models, as in Dec-SSL with a server.
    """
    linked = _adjacency(graph, num_clients) + np.eye(num_clients)
    return _normalized(linked * _client_weights(examples, num_clients))


def metropolis_weights(graph: nx.Graph, num_clients: int) -> MixingMatrix:
    """Metropolis-Hastings weights (Xiao, Boyd & Lall 2005).

    W_ij = 1 / (1 + max(deg i, deg j)) for neighbours i and j, and W_ii is 1 minus the rest of its
    row. W is symmetric, so it conserves the mean of the models on any network.
    """
    linked = _adjacency(graph, num_clients)
    degrees = linked.sum(axis=1)
    weights = linked / (1 + np.maximum(degrees[:, np.newaxis], degrees))
    return weights + np.diag(1 - weights.sum(axis=1))


def first_received_weights(
    graph: nx.Graph, num_clients: int, rng: np.random.Generator
) -> MixingMatrix:
    """Weights with which each client averages its model with the first one that it receives.

    This is DeNAV's gossip baseline (section 6.3). Here, the neighbour whose model arrives first is
    drawn at random.
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
    """Weights with which each client gets the mean of its component, weighted by `examples`."""
    reachable = np.eye(num_clients)
    for part in topology.components(graph):
        reachable[np.ix_(part, part)] = 1
    return _normalized(reachable * _client_weights(examples, num_clients))


def combine(models: Sequence[Model], weights: npt.NDArray[np.float64]) -> list[npt.NDArray]:
    """Sums of K models with weights float64 [..., K]: arrays [..., *shape] in the models' dtypes.

    Sums are calculated in float64.
    """
    sums = []
    for arrays in zip(*models, strict=True):
        stacked = np.stack(arrays)
        sums.append(np.tensordot(weights, stacked.astype(np.float64), 1).astype(stacked.dtype))
    return sums


def _adjacency(graph: nx.Graph, num_clients: int) -> MixingMatrix:
    """The adjacency matrix, float64 [K, K]: 1 where two clients are linked, otherwise 0."""
    linked = np.zeros((num_clients, num_clients))
    for a, b in graph.edges:
        linked[a, b] = linked[b, a] = 1
    return linked


def _client_weights(examples: Sequence[int] | None, num_clients: int) -> npt.NDArray[np.float64]:
    """The weight of each client's model, float64 [K]: its number of examples, or 1."""
    return np.ones(num_clients) if examples is None else np.asarray(examples, np.float64)


def _normalized(weights: MixingMatrix) -> MixingMatrix:
    return weights / weights.sum(axis=1, keepdims=True)
