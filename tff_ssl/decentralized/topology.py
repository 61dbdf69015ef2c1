"""Networks of clients without a server: who is linked to whom.

A network is a frozen `networkx.Graph` whose nodes are client numbers and whose edges are links that
carry both ways. A new network numbers its K clients 0 to K - 1 and is connected; what is left of it
when clients leave and links are cut keeps the clients' numbers, and may fall into components.
"""

import dataclasses
import os
import zlib
from collections.abc import Iterator

import networkx as nx
import numpy as np

from tff_ssl.errors import ConfigurationError

# What to do with a random graph that is not connected.
UNCONNECTED = ("repair", "refuse")


def erdos_renyi(
    num_clients: int, connectivity: float, seed: int, unconnected: str = "repair"
) -> nx.Graph:
    """Links each pair of clients with the same probability (Erdos & Renyi 1959), connected.

    Dec-SSL (appendix B.5) has connectivity 0.7; DeNAV (section 6.1) 100 clients and 0.15.

    Args:
      num_clients: K, at least 1.
      connectivity: Probability of a link, 0 to 1 (DeNAV's omega).
      seed: Not negative; the graph is a pure function of the arguments.
      unconnected: What to do with a draw that is not connected. `repair` joins its components by
        one link each, between random clients; `refuse` raises.

    Raises:
      ConfigurationError: An argument out of range, or a refused draw.
    """
    _check_size(num_clients)
    if not 0 <= connectivity <= 1:
        raise ConfigurationError(f"--connectivity must be from 0 to 1, not {connectivity}")
    if seed < 0:
        raise ConfigurationError(f"--seed must not be negative, not {seed}")
    if unconnected not in UNCONNECTED:
        raise ConfigurationError(
            f"--unconnected must be one of {', '.join(UNCONNECTED)}, not {unconnected!r}"
        )
    rng = np.random.default_rng([seed, zlib.crc32(b"erdos_renyi")])
    graph = nx.empty_graph(num_clients)
    first, second = np.triu_indices(num_clients, 1)
    linked = rng.random(len(first)) < connectivity
    graph.add_edges_from(zip(first[linked].tolist(), second[linked].tolist(), strict=True))
    parts = components(graph)
    if len(parts) > 1 and unconnected == "refuse":
        raise ConfigurationError(
            f"--seed={seed} gives a network of {len(parts)} components: take another seed, a higher"
            f" --connectivity than {connectivity}, or --unconnected=repair"
        )
    return nx.freeze(_joined(graph, parts, rng))


def cycle(num_clients: int) -> nx.Graph:
    """A ring; of two clients, a link."""
    _check_size(num_clients)
    graph = nx.path_graph(num_clients)
    if num_clients > 2:
        graph.add_edge(num_clients - 1, 0)
    return nx.freeze(graph)


def tree(num_clients: int) -> nx.Graph:
    """A binary tree filled level by level: client k hangs on client (k - 1) // 2."""
    _check_size(num_clients)
    graph = nx.empty_graph(num_clients)
    graph.add_edges_from((k, (k - 1) // 2) for k in range(1, num_clients))
    return nx.freeze(graph)


def star(num_clients: int) -> nx.Graph:
    """Client 0 linked to all others, which are linked to nobody else."""
    _check_size(num_clients)
    return nx.freeze(nx.star_graph(num_clients - 1))


def complete(num_clients: int) -> nx.Graph:
    """Every client linked to every other."""
    _check_size(num_clients)
    return nx.freeze(nx.complete_graph(num_clients))


def from_edge_list(path: str | os.PathLike[str], num_clients: int) -> nx.Graph:
    """Reads a network from a text file.

    A line is a link: two client numbers, separated by spaces or a comma. Empty lines and what
    follows a # are skipped. A link may be given more than once, in either direction.

    Args:
      path: The file.
      num_clients: K.

    Raises:
      ConfigurationError: The file cannot be read, a line is not a link (unknown client, a client
        linked to itself), or the network is not connected. The message names file and line.
    """
    _check_size(num_clients)
    graph = nx.empty_graph(num_clients)
    for number, text in _links(path):
        graph.add_edge(*_link(text, num_clients, f"{os.fspath(path)}, line {number}"))
    parts = components(graph)
    if len(parts) > 1:
        raise ConfigurationError(
            f"{os.fspath(path)}: the network is not connected: no route from client {parts[0][0]} "
            f"to client {parts[1][0]}"
        )
    return nx.freeze(graph)


@dataclasses.dataclass(frozen=True)
class TopologySpec:
    """An entry of `TOPOLOGIES`: what it is, and the flags that it reads beside `num_clients`."""

    description: str
    flags: tuple[str, ...] = ()


TOPOLOGIES = {
    "erdos_renyi": TopologySpec(
        "a link between two clients with probability --connectivity",
        ("connectivity", "seed", "unconnected"),
    ),
    "cycle": TopologySpec("a ring"),
    "tree": TopologySpec("a binary tree"),
    "star": TopologySpec("client 0 linked to all others"),
    "complete": TopologySpec("every client linked to every other"),
    "edge_list": TopologySpec("the links of a text file", ("edge_list",)),
}


def make(
    name: str,
    num_clients: int,
    *,
    connectivity: float = 0.15,
    seed: int = 0,
    unconnected: str = "repair",
    edge_list: str | None = None,
) -> nx.Graph:
    """The network of a name; settings that it does not use are ignored.

    Args:
      name: A key of `TOPOLOGIES`.
      num_clients: K.
      connectivity: Of `erdos_renyi`; DeNAV's by default.
      seed: Of `erdos_renyi`.
      unconnected: Of `erdos_renyi`.
      edge_list: Of `edge_list`: the file.

    Raises:
      ConfigurationError: Unknown name, missing or impossible settings.
    """
    if name == "erdos_renyi":
        return erdos_renyi(num_clients, connectivity, seed, unconnected)
    if name == "edge_list":
        if edge_list is None:
            raise ConfigurationError("--topology=edge_list needs --edge_list, a text file of links")
        return from_edge_list(edge_list, num_clients)
    fixed = {"cycle": cycle, "tree": tree, "star": star, "complete": complete}
    if name not in fixed:
        raise ConfigurationError(f"--topology must be one of {', '.join(TOPOLOGIES)}, not {name!r}")
    return fixed[name](num_clients)


def neighbours(graph: nx.Graph, client: int) -> tuple[int, ...]:
    """The clients that `client` is linked to, ascending."""
    return tuple(sorted(graph[client]))


def components(graph: nx.Graph) -> list[tuple[int, ...]]:
    """Clients that can reach each other: ascending within, in the order of their first clients."""
    return sorted(tuple(sorted(part)) for part in nx.connected_components(graph))


def without_client(graph: nx.Graph, client: int) -> nx.Graph:
    """The network when a client has left, and with it its links; `graph` stays as it is.

    Raises:
      ValueError: The client is not in the network.
    """
    if client not in graph:
        raise ValueError(f"client {client} is not in the network")
    left = nx.Graph(graph)
    left.remove_node(client)
    return nx.freeze(left)


def without_link(graph: nx.Graph, a: int, b: int) -> nx.Graph:
    """The network when the link between a and b is cut; `graph` stays as it is.

    Raises:
      ValueError: There is no such link.
    """
    if not graph.has_edge(a, b):
        raise ValueError(f"clients {a} and {b} are not linked")
    left = nx.Graph(graph)
    left.remove_edge(a, b)
    return nx.freeze(left)


def _check_size(num_clients: int) -> None:
    if num_clients < 1:
        raise ConfigurationError(f"--num_clients must be at least 1, not {num_clients}")


def _joined(graph: nx.Graph, parts: list[tuple[int, ...]], rng: np.random.Generator) -> nx.Graph:
    """Adds a link from each component to what is joined already; none where there is one only."""
    joined = list(parts[0])
    for part in parts[1:]:
        graph.add_edge(int(rng.choice(joined)), int(rng.choice(part)))
        joined += part
    return graph


def _links(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """The lines of a file that say something, with their numbers from 1."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{os.fspath(path)}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()
        if text:
            yield number, text


def _link(text: str, num_clients: int, where: str) -> tuple[int, int]:
    """The two clients of a line; raises, naming `where`."""
    words = text.replace(",", " ").split()
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise ConfigurationError(f"{where}: give two client numbers, not {text!r}")
    a, b = map(int, words)
    for client in (a, b):
        if client >= num_clients:
            raise ConfigurationError(
                f"{where}: unknown client {client}; clients are 0 to {num_clients - 1}"
            )
    if a == b:
        raise ConfigurationError(f"{where}: client {a} is linked to itself")
    return a, b
