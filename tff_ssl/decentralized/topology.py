"""Topologies of networks of clients without a server.

A network is a frozen `networkx.Graph`. Its nodes are client numbers, and its edges are links that
carry models in both directions. A new network is connected and has K clients, numbered 0 to K - 1.
When clients leave and links are cut, the others keep their numbers, and the network may fall into
several components.
"""

import dataclasses
import os
import zlib
from collections.abc import Iterator

import networkx as nx
import numpy as np

from tff_ssl.errors import ConfigurationError

# Values of `--unconnected`, the treatment of a random graph that is not connected.
UNCONNECTED = ("repair", "refuse")


def erdos_renyi(
    num_clients: int, connectivity: float, seed: int, unconnected: str = "repair"
) -> nx.Graph:
    """A connected random network with the same link probability for each pair of clients.

    Source: Erdos & Renyi 1959. Dec-SSL (appendix B.5) has connectivity 0.7; DeNAV (section 6.1) has
    100 clients and connectivity 0.15.

    Args:
      num_clients: K, at least 1.
      connectivity: Probability of a link, 0 to 1 (DeNAV's omega).
      seed: Seed, not negative; the graph is a pure function of the arguments.
      unconnected: What to do with a graph that is not connected. `repair` joins its components by
        one link each, between random clients; `refuse` raises.

    Raises:
      ConfigurationError: If an argument is out of range, or the graph is refused.
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
    _join(graph, parts, rng)
    return nx.freeze(graph)


def cycle(num_clients: int) -> nx.Graph:
    """A ring; two clients have a single link."""
    _check_size(num_clients)
    return nx.freeze(nx.cycle_graph(num_clients) if num_clients > 1 else nx.empty_graph(1))


def tree(num_clients: int) -> nx.Graph:
    """A binary tree, filled level by level: the parent of client k is client (k - 1) // 2."""
    _check_size(num_clients)
    return nx.freeze(nx.full_rary_tree(2, num_clients))


def star(num_clients: int) -> nx.Graph:
    """Client 0 is linked to all others; there are no other links."""
    _check_size(num_clients)
    return nx.freeze(nx.star_graph(num_clients - 1))


def complete(num_clients: int) -> nx.Graph:
    """Every client is linked to every other."""
    _check_size(num_clients)
    return nx.freeze(nx.complete_graph(num_clients))


def from_edge_list(path: str | os.PathLike[str], num_clients: int) -> nx.Graph:
    """Reads a network from a text file.

    Each line is a link: two client numbers, separated by spaces or a comma. Empty lines and the
    text after a # are skipped. A link may be given more than once, in either direction.

    Raises:
      ConfigurationError: If the file cannot be read, a line is no link (an unknown client, a client
        linked to itself), or the network is not connected. The message names file and line.
    """
    _check_size(num_clients)
    graph = nx.empty_graph(num_clients)
    for number, text in _read_lines(path):
        graph.add_edge(*_parse_link(text, num_clients, f"{os.fspath(path)}, line {number}"))
    parts = components(graph)
    if len(parts) > 1:
        raise ConfigurationError(
            f"{os.fspath(path)}: the network is not connected: no route from client {parts[0][0]} "
            f"to client {parts[1][0]}"
        )
    return nx.freeze(graph)


@dataclasses.dataclass(frozen=True)
class TopologySpec:
    """An entry of `TOPOLOGIES`."""

    description: str  #: Text for the help of `--topology`.
    #: Names of the flags that the topology reads besides `num_clients`.
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
    """Makes the network of a name; settings that it does not use are ignored.

    Arguments are those of `erdos_renyi` and `from_edge_list`; the default connectivity is DeNAV's.

    Raises:
      ConfigurationError: If the name is unknown, or a setting is missing or impossible.
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
    """The connected components, sorted, each as ascending clients."""
    return sorted(tuple(sorted(part)) for part in nx.connected_components(graph))


def without_client(graph: nx.Graph, client: int) -> nx.Graph:
    """A copy of the network without a client; a ValueError if the client is not there."""
    if client not in graph:
        raise ValueError(f"client {client} is not in the network")
    remaining = nx.Graph(graph)
    remaining.remove_node(client)
    return nx.freeze(remaining)


def without_link(graph: nx.Graph, a: int, b: int) -> nx.Graph:
    """A copy of the network without a link between two clients; a ValueError if there is none."""
    if not graph.has_edge(a, b):
        raise ValueError(f"clients {a} and {b} are not linked")
    remaining = nx.Graph(graph)
    remaining.remove_edge(a, b)
    return nx.freeze(remaining)


def _check_size(num_clients: int) -> None:
    if num_clients < 1:
        raise ConfigurationError(f"--num_clients must be at least 1, not {num_clients}")


def _join(graph: nx.Graph, parts: list[tuple[int, ...]], rng: np.random.Generator) -> None:
    """Adds a link between each component and those before it, which connects the graph."""
    joined = list(parts[0])
    for part in parts[1:]:
        graph.add_edge(int(rng.choice(joined)), int(rng.choice(part)))
        joined += part


def _read_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """The numbers (from 1) and texts of a file's lines, without comments and empty lines."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{os.fspath(path)}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if text := line.split("#")[0].strip():
            yield number, text


def _parse_link(text: str, num_clients: int, where: str) -> tuple[int, int]:
    """The two clients of a line; errors start with `where`, the file and line."""
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
