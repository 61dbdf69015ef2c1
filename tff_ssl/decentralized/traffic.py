"""What decentralized training costs in communication, counted: DeNAV, gossip and all-reduce.

A transmission is one model that crosses one link, from a client to another (DeNAV, Table 3: "the
total number of client-to-client communications").
"""

import dataclasses
from collections.abc import Iterable, Sequence

import networkx as nx

from tff_ssl.algorithms.denav.route import Step
from tff_ssl.algorithms.denav.state_log import log_bytes


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Counts over all links; they add up.

    Attributes:
      models: Transmissions of a model.
      model_bytes: Bytes of these, with the state logs that went with them.
      messages: Questions and answers of the navigator; the paper does not count them.
      message_bytes: Bytes of these.
    """

    models: int = 0
    model_bytes: int = 0
    messages: int = 0
    message_bytes: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Traffic(*(a + b for a, b in pairs))


def denav(steps: Iterable[Step], model_bytes: int) -> Traffic:
    """Traffic of a model's steps: the model and its log, wherever it did not stay where it was.

    Args:
      steps: Of `journey.travel`.
      model_bytes: Size of the model.
    """
    total = Traffic()
    for step in steps:
        sent = step.sender is not None and step.sender != step.client
        size = model_bytes + log_bytes(len(step.received.visits))
        total += Traffic(sent, sent * size, step.messages, step.message_bytes)
    return total


def synchronization(graph: nx.Graph, starts: Sequence[int], model_bytes: int) -> Traffic:
    """Before parallel training the first client sends its model to the others (DeNAV, A.4.1).

    Args:
      graph: The network; connected.
      starts: The clients of the first step; the first one initializes the model.
      model_bytes: Size of the model; a log without entries goes with it.
    """
    hops = nx.single_source_shortest_path_length(graph, starts[0])
    models = sum(hops[client] for client in starts[1:])
    return Traffic(models, models * (model_bytes + log_bytes(0)))


def gossip(graph: nx.Graph, model_bytes: int) -> Traffic:
    """A round of gossip learning: every client sends its model to all its neighbours."""
    models = 2 * graph.number_of_edges()
    return Traffic(models, models * model_bytes)


def all_reduce(graph: nx.Graph, model_bytes: int) -> Traffic:
    """A round in which every client's model reaches all others that it has a route to.

    Models are handed on by clients on the shortest way, one transmission a link; where all clients
    are linked that is one for each ordered pair.
    """
    distances = nx.all_pairs_shortest_path_length(graph)
    models = sum(sum(hops.values()) for _, hops in distances)
    return Traffic(models, models * model_bytes)


def published_denav(epochs: int, local_epochs: int) -> int:
    """Table 3's count for DeNAV: one transmission a step, of K epochs each.

    It is an upper bound of what `denav` counts: it has a transmission after the last step too, and
    one where the model stays with its client.

    Args:
      epochs: Local epochs, summed over all clients that trained.
      local_epochs: K.

    Raises:
      ValueError: That is not a whole number of steps.
    """
    return _whole(epochs, local_epochs, "steps")


def published_gossip(
    epochs: int, local_epochs: int, num_clients: int, connectivity: float
) -> float:
    """Table 3's count for gossip learning: the expectation over random networks.

    In a round, each of M clients trains for K epochs and sends its model to all its neighbours, of
    which an Erdos-Renyi network of connectivity omega has omega * (M - 1) on average. `gossip`
    counts the links that a network really has.

    Args:
      epochs: Local epochs, summed over all clients.
      local_epochs: K.
      num_clients: M.
      connectivity: omega.

    Raises:
      ValueError: That is not a whole number of rounds.
    """
    rounds = _whole(epochs, local_epochs * num_clients, "rounds")
    return rounds * num_clients * (num_clients - 1) * connectivity


def _whole(epochs: int, each: int, what: str) -> int:
    if epochs % each:
        raise ValueError(f"{epochs} epochs are not a whole number of {what} of {each} epochs")
    return epochs // each
