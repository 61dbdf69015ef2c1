"""Communication of decentralized training, counted in models, messages and bytes.

A transmission is one model that crosses one link (DeNAV, Table 3: "the total number of
client-to-client communications").
"""

import dataclasses

import networkx as nx


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Counts over all links, which can be added."""

    models: int = 0  #: Number of transmissions of a model.
    #: Bytes of these transmissions, including the state logs sent with the models.
    model_bytes: int = 0
    #: Number of the navigator's questions and answers, which DeNAV does not count.
    messages: int = 0
    message_bytes: int = 0  #: Bytes of these messages.

    def __add__(self, other: "Traffic") -> "Traffic":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Traffic(*(a + b for a, b in pairs))


def gossip(graph: nx.Graph, model_bytes: int) -> Traffic:
    """A round of gossip learning: every client sends its model to all its neighbours."""
    models = 2 * graph.number_of_edges()
    return Traffic(models, models * model_bytes)


def all_reduce(graph: nx.Graph, model_bytes: int) -> Traffic:
    """A round in which every model reaches all clients that it has a route to.

    A client gets each model once, from a neighbour that has it. A model therefore crosses the c - 1
    links of a tree to reach the c clients of its component: one transmission for each ordered pair
    of clients, whatever the network.
    """
    models = sum(len(c) * (len(c) - 1) for c in nx.connected_components(graph))
    return Traffic(models, models * model_bytes)


def published_gossip(
    epochs: int, local_epochs: int, num_clients: int, connectivity: float
) -> float:
    """DeNAV's Table 3 for gossip learning: the expected count over random networks.

    In a round, each of M clients trains for K epochs and sends its model to all its neighbours, of
    which an Erdos-Renyi network of connectivity omega has omega * (M - 1) on average. `gossip`
    counts a given network's links instead. `epochs` is summed over all clients; a ValueError if it
    is not a whole number of rounds.
    """
    rounds = whole_number(epochs, local_epochs * num_clients, "rounds")
    return rounds * num_clients * (num_clients - 1) * connectivity


def whole_number(epochs: int, epochs_each: int, unit: str) -> int:
    """The number of units of `epochs_each` in `epochs`; a ValueError if it is not whole."""
    if epochs % epochs_each:
        raise ValueError(
            f"{epochs} epochs are not a whole number of {unit} of {epochs_each} epochs"
        )
    return epochs // epochs_each
