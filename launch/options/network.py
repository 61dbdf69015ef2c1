"""Builds the network of clients without a server."""

import re
from collections.abc import Sequence

from launch.options.run_config import RunConfig
from tff_ssl.decentralized import events, topology
from tff_ssl.decentralized.events import Cut, Leave
from tff_ssl.decentralized.schedule import ClientNetwork
from tff_ssl.errors import ConfigurationError


def build_network(config: RunConfig, volumes: Sequence[int]) -> ClientNetwork:
    """Builds the network of clients with these numbers of examples, with departures and cuts."""
    network, seed = config.network, config.seed
    if network.edge_list and network.topology != "edge_list":
        raise ConfigurationError(f"--edge_list needs --topology=edge_list, not {network.topology}")
    graph = topology.make(
        network.topology,
        len(volumes),
        connectivity=network.connectivity,
        seed=seed,
        unconnected=network.unconnected,
        edge_list=network.edge_list,
    )
    changes: list[Leave | Cut] = []
    for text in network.leave:
        changes.append(Leave(*_numbers("leave", text, r"(\d+):(\d+)", "ROUND:CLIENT")))
    for text in network.cut:
        changes.append(Cut(*_numbers("cut", text, r"(\d+):(\d+)-(\d+)", "ROUND:CLIENT-CLIENT")))
    graphs = events.with_events(graph, changes, config.rounds)
    last_graph, wanted = graphs(config.rounds), config.evaluation.personalized_clients
    for client in range(min(wanted, len(volumes))):
        if client not in last_graph:
            raise ConfigurationError(f"--personalized_clients={wanted}: client {client} leaves")
    connectivity = network.connectivity if network.topology == "erdos_renyi" else None
    return ClientNetwork(graphs, volumes, seed, network.topology, connectivity, len(changes))


def _numbers(flag: str, text: str, pattern: str, form: str) -> tuple[int, ...]:
    """The numbers of an event: the groups of a pattern, which users know as `form`."""
    match = re.fullmatch(pattern, text)
    if not match:
        raise ConfigurationError(f"--{flag} takes {form} with numbers, not {text!r}")
    return tuple(map(int, match.groups()))
