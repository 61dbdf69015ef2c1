"""Builds the network of clients without a server from the flags."""

import re
from collections.abc import Sequence

from absl import flags

from tff_ssl.decentralized import events, topology
from tff_ssl.decentralized.events import Cut, Leave
from tff_ssl.decentralized.schedule import ClientNetwork
from tff_ssl.errors import ConfigurationError


def build_network(args: flags.FlagValues, volumes: Sequence[int]) -> ClientNetwork:
    """Builds the network that the flags describe, with departures of clients and cuts of links.

    Args:
      args: The flags.
      volumes: Number of examples of each client.

    Raises:
      ConfigurationError: If the network or an event is impossible.
    """
    if args.edge_list and args.topology != "edge_list":
        raise ConfigurationError(f"--edge_list needs --topology=edge_list, not {args.topology}")
    graph = topology.make(
        args.topology,
        len(volumes),
        connectivity=args.connectivity,
        seed=args.seed,
        unconnected=args.unconnected,
        edge_list=args.edge_list,
    )
    changes: list[Leave | Cut] = [
        *(
            Leave(*_parse_numbers("leave", text, r"(\d+):(\d+)", "ROUND:CLIENT"))
            for text in args.leave
        ),
        *(
            Cut(*_parse_numbers("cut", text, r"(\d+):(\d+)-(\d+)", "ROUND:CLIENT-CLIENT"))
            for text in args.cut
        ),
    ]
    graphs = events.with_events(graph, changes, args.rounds)
    last_graph = graphs(args.rounds)
    for client in range(min(args.personalized_clients, len(volumes))):
        if client not in last_graph:
            raise ConfigurationError(
                f"--personalized_clients={args.personalized_clients}: client {client} leaves"
            )
    connectivity = args.connectivity if args.topology == "erdos_renyi" else None
    return ClientNetwork(graphs, volumes, args.seed, args.topology, connectivity, len(changes))


def _parse_numbers(flag: str, text: str, pattern: str, form: str) -> tuple[int, ...]:
    """The numbers of an event.

    Args:
      flag: Name of the flag.
      text: A value of the flag.
      pattern: Regular expression of the value, with a group for each number.
      form: The pattern in words, for the error message.
    """
    match = re.fullmatch(pattern, text)
    if not match:
        raise ConfigurationError(f"--{flag} takes {form} with numbers, not {text!r}")
    return tuple(map(int, match.groups()))
