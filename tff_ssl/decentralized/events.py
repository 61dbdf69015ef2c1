"""Events in a network during a run: clients leave, and links are cut."""

import bisect
from collections.abc import Callable, Sequence
from typing import NamedTuple

import networkx as nx

from tff_ssl.decentralized import topology
from tff_ssl.errors import ConfigurationError

# Round number, from 1 -> the network in that round; pure.
Network = Callable[[int], nx.Graph]


class Leave(NamedTuple):
    """A client leaves before a round, with its links, data and models."""

    round_number: int
    client: int

    def __str__(self) -> str:
        return f"--leave={self.round_number}:{self.client}"


class Cut(NamedTuple):
    """The link between clients a and b is cut before a round."""

    round_number: int
    a: int
    b: int

    def __str__(self) -> str:
        return f"--cut={self.round_number}:{self.a}-{self.b}"


def with_events(graph: nx.Graph, events: Sequence[Leave | Cut], rounds: int) -> Network:
    """The network in each round of a run; the events of one round happen in the given order.

    Raises:
      ConfigurationError: If an event names a round, client or link that does not exist (any more),
        or if no client would be left.
    """
    first_rounds, graphs = [0], [nx.freeze(graph)]  # graphs[i] holds from first_rounds[i] on.
    for event in sorted(events, key=lambda event: event.round_number):
        if not 1 <= event.round_number <= rounds:
            raise ConfigurationError(f"{event}: rounds are 1 to {rounds}")
        try:
            if isinstance(event, Leave):
                graph = topology.without_client(graph, event.client)
            else:
                graph = topology.without_link(graph, event.a, event.b)
        except ValueError as error:
            raise ConfigurationError(f"{event}: {error}") from error
        if len(graph) == 0:
            raise ConfigurationError(f"{event}: no client would be left")
        first_rounds.append(event.round_number)
        graphs.append(graph)
    return lambda round_number: graphs[bisect.bisect_right(first_rounds, round_number) - 1]
