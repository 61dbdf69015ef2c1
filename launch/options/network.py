"""From flags to the network of clients without a server."""

import re
from collections.abc import Sequence

from absl import flags

from tff_ssl.decentralized import events, topology
from tff_ssl.decentralized.events import Cut, Leave
from tff_ssl.decentralized.schedule import ClientNetwork
from tff_ssl.errors import ConfigurationError


def build_network(args: flags.FlagValues, volumes: Sequence[int]) -> ClientNetwork:
    """The network that the flags describe, with its departures and cuts.

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
        *(Leave(*_numbers("leave", text, r"(\d+):(\d+)", "ROUND:CLIENT")) for text in args.leave),
        *(
            Cut(*_numbers("cut", text, r"(\d+):(\d+)-(\d+)", "ROUND:CLIENT-CLIENT"))
            for text in args.cut
        ),
    ]
    graphs = events.with_events(graph, changes, args.rounds)
    last = graphs(args.rounds)
    for client in range(min(args.personalized_clients, len(volumes))):
        if client not in last:
            raise ConfigurationError(
                f"--personalized_clients={args.personalized_clients}: client {client} leaves"
            )
    connectivity = args.connectivity if args.topology == "erdos_renyi" else None
    return ClientNetwork(graphs, volumes, args.seed, args.topology, connectivity, len(changes))


def _numbers(flag: str, text: str, pattern: str, form: str) -> tuple[int, ...]:
    match = re.fullmatch(pattern, text)
    if not match:
        raise ConfigurationError(f"--{flag} takes {form} with numbers, not {text!r}")
    return tuple(map(int, match.groups()))
