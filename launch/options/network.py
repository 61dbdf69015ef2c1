"""Algorithms without a server, from flags: the network, what a run costs, its pictures."""

import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import networkx as nx
from absl import flags

from tff_ssl.algorithms.denav import algorithm
from tff_ssl.decentralized import plots, topology
from tff_ssl.decentralized import schedule as plan
from tff_ssl.decentralized.events import Cut, Leave, with_events
from tff_ssl.decentralized.traffic import published_denav, published_gossip
from tff_ssl.errors import ConfigurationError
from tff_ssl.models import vit
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import Model
from tff_ssl.templates.serverless import Serverless, Setting
from tff_ssl.views import patch_masks

_OF_NETWORKS = ("topology", "connectivity", "unconnected", "edge_list", "leave", "cut")
_OF_COHORTS = ("clients_per_round", "fold", "sampling", "dropout", "max_dropped")
_MAX_ROUTES = 10  # Pictures of routes; parallel models beyond that are in client_metrics.csv.


def check_flags(args: flags.FlagValues, decentralized: bool) -> None:
    """Refuses flags that the algorithm would not read.

    Raises:
      ConfigurationError: Flags of a network for an algorithm with a server, or of cohorts for one
        without.
    """
    for name in _OF_COHORTS if decentralized else _OF_NETWORKS:
        if args[name].present:
            raise ConfigurationError(
                f"--{name}: {args.algorithm} has no server that chooses clients; all of its "
                "network take part"
                if decentralized
                else f"--{name}: {args.algorithm} has a server, and no network"
            )
    if args.edge_list and args.topology != "edge_list":
        raise ConfigurationError(f"--edge_list needs --topology=edge_list, not {args.topology}")


def build_setting(args: flags.FlagValues, volumes: Sequence[int]) -> Setting:
    """The network of clients with so many examples, and what happens to it.

    Raises:
      ConfigurationError: A network or an event that cannot be.
    """
    graph = topology.make(
        args.topology,
        len(volumes),
        connectivity=args.connectivity,
        seed=args.seed,
        unconnected=args.unconnected,
        edge_list=args.edge_list,
    )
    events: list[Leave | Cut] = [
        *(Leave(*_numbers("leave", text, r"(\d+):(\d+)", "ROUND:CLIENT")) for text in args.leave),
        *(
            Cut(*_numbers("cut", text, r"(\d+):(\d+)-(\d+)", "ROUND:CLIENT-CLIENT"))
            for text in args.cut
        ),
    ]
    network = with_events(graph, events, args.rounds)
    last = network(args.rounds)
    for client in range(min(args.personalized_clients, len(volumes))):
        if client not in last:
            raise ConfigurationError(
                f"--personalized_clients={args.personalized_clients}: client {client} leaves"
            )
    return Setting(network, volumes, args.seed)


def _numbers(flag: str, text: str, pattern: str, form: str) -> tuple[int, ...]:
    found = re.fullmatch(pattern, text)
    if not found:
        raise ConfigurationError(f"--{flag} takes {form} with numbers, not {text!r}")
    return tuple(map(int, found.groups()))


def model_costs(model: Model, mask_ratio: float = 0.75) -> dict[str, Any]:
    """Parameters, and billions of multiply-adds of an image's forward pass (None for ResNets).

    Args:
      model: The model; one with a decoder does not see all patches.
      mask_ratio: Fraction of the patches that it does not see.
    """
    if not isinstance(model, DualEncoder):
        return {"parameters": model.parameter_count, "gflops": None}
    visible = None
    if model.decoder:
        height, width, _ = model.image_shape
        patches = height * width // vit.patch_size(height) ** 2
        visible = patch_masks.number_visible(patches, mask_ratio)
    operations = model.multiply_adds(visible)
    return {
        "parameters": model.parameter_count,
        "gflops": None if operations is None else operations / 1e9,
    }


def _counted(
    setting: Setting, rounds: plan.Schedule, values: Any, args: flags.FlagValues
) -> dict[str, Any]:
    """What a run sends and computes, for `result.json`."""
    traffic, time = plan.summed(rounds, args.rounds)
    epochs = _epochs(rounds, values, args)
    return {
        "topology": args.topology,
        "links": setting.network(1).number_of_edges(),
        "communications": traffic.models,
        "communication_bytes": traffic.model_bytes,
        "navigator_messages": traffic.messages,
        "navigator_message_bytes": traffic.message_bytes,
        "communications_as_published": _published(epochs, len(setting.volumes), values, args),
        "local_epochs_in_all": epochs,
        "simulated_time": time,
    }


def _epochs(rounds: plan.Schedule, values: Any, args: flags.FlagValues) -> int | None:
    """Local epochs of all clients; None where they train for a number of steps."""
    if values.local_steps:
        return None
    trained = sum(
        len(operation.clients)
        for number in range(args.rounds)
        for operation in rounds.round(number).operations
        if isinstance(operation, plan.Training)
    )
    return trained * values.local_epochs


def _published(
    epochs: int | None, num_clients: int, values: Any, args: flags.FlagValues
) -> float | None:
    """How DeNAV's Table 3 counts such a run; None where it says nothing of it."""
    if epochs is None or args.leave or args.cut:
        return None
    if isinstance(values, algorithm.DeNAVHyperparameters):
        return published_denav(epochs, values.local_epochs)
    if args.topology != "erdos_renyi" or values.mixing == "all_reduce":
        return None
    return published_gossip(epochs, values.local_epochs, num_clients, args.connectivity)


class NetworkRun(NamedTuple):
    """A run without a server.

    Attributes:
      setting: Its clients.
      plan: Its rounds.
      counted: What it sends and computes, for `result.json`.
    """

    setting: Setting
    plan: plan.Schedule
    counted: dict[str, Any]


def prepare(
    computations: Serverless,
    setting: Setting,
    model: Model,
    values: Any,
    args: flags.FlagValues,
) -> NetworkRun:
    """Plans a run.

    Args:
      computations: The algorithm.
      setting: Its clients.
      model: What is trained.
      values: The algorithm's hyperparameters.
      args: The flags.

    Raises:
      ConfigurationError: If the models cannot travel.
    """
    try:
        rounds = computations.plan(setting)
    except ValueError as error:  # More models than clients; all that had a model have left.
        raise ConfigurationError(f"--hparam or --leave: {error}") from error
    counted = _counted(setting, rounds, values, args) | model_costs(model, values.mask_ratio)
    return NetworkRun(setting, rounds, counted)


def at_once(run: NetworkRun) -> int:
    """How many clients train at the same time in the first round."""
    return sum(
        len(operation.clients)
        for operation in run.plan.round(0).operations
        if isinstance(operation, plan.Training)
    )


def describe(run: NetworkRun, args: flags.FlagValues) -> str:
    """What the announcement says of the network and of what is sent."""
    graph, counted = run.setting.network(1), run.counted
    events = len(args.leave) + len(args.cut)
    chance = f" of connectivity {args.connectivity}" if args.topology == "erdos_renyi" else ""
    return (
        f"{args.rounds} rounds on a network of {len(graph)} clients with {counted['links']} links "
        f"({args.topology}{chance})"
        f"{f'; {events} clients leave or links are cut' if events else ''}; "
        f"{counted['communications']:,} models sent from client to client, "
        f"{counted['communication_bytes'] / 1e6:,.1f} MB in all"
    )


def table(counted: dict[str, Any]) -> str:
    """What a run has sent and computed."""
    published, epochs = counted["communications_as_published"], counted["local_epochs_in_all"]
    rows = {
        "communications": f"{counted['communications']:,}",
        "as DeNAV's Table 3 counts": None if published is None else f"{published:,.0f}",
        "MB of models and logs": f"{counted['communication_bytes'] / 1e6:,.1f}",
        "navigator's messages": f"{counted['navigator_messages']:,} "
        f"({counted['navigator_message_bytes'] / 1e3:,.1f} kB)",
        "local epochs in all": None if epochs is None else f"{epochs:,}",
        "simulated time": f"{counted['simulated_time']:,.0f} (examples x epochs of a slow client)",
        "parameters": f"{counted['parameters']:,}",
        "GFLOPs an image": None if counted["gflops"] is None else f"{counted['gflops']:.4g}",
    }
    return "\n".join(f"{name:30}{text}" for name, text in rows.items() if text is not None)


def draw(folder: pathlib.Path, run: NetworkRun, args: flags.FlagValues) -> list[str]:
    """Pictures of the network as it is at the end, and of the models' routes; the files' names."""
    positions = plots.layout(run.setting.network(1))
    last = run.setting.network(args.rounds)
    title = f"{args.algorithm} on {args.topology}"
    names = ["network.png"]
    _draw(last, folder / names[0], title, (), positions)
    for model, route in enumerate(run.plan.routes[:_MAX_ROUTES]):
        names.append(f"route_{model}.png")
        _draw(last, folder / names[-1], f"{title}: model {model}", route, positions)
    return names


def _draw(
    graph: nx.Graph, path: pathlib.Path, title: str, route: Sequence[int], positions: Any
) -> None:
    temporary = path.with_name(f".{path.name}")
    plots.draw(graph, temporary, title, route, positions)
    os.replace(temporary, path)
