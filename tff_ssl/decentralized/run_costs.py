"""The costs of a run without a server, as fields of its results and as text."""

import itertools
from collections.abc import Sequence
from typing import Any

from tff_ssl.decentralized.schedule import ClientNetwork, Schedule, total_costs


def run_costs(
    network: ClientNetwork, schedule: Schedule, rounds: int, local_epochs: int | None
) -> dict[str, Any]:
    """A run's traffic, local epochs, simulated time and routes.

    `local_epochs` is that of each local training; None if clients train for a number of steps.
    """
    traffic, time = total_costs(schedule, rounds)
    epochs = published = None
    if local_epochs is not None:
        trainings = sum(schedule.round(number).trainings for number in range(rounds))
        epochs = trainings * local_epochs
        if not network.events:  # The paper's counts apply to networks that do not change.
            published = schedule.published_transmissions(epochs)
    return {
        "topology": network.topology,
        "links": network.graphs(1).number_of_edges(),
        "communications": traffic.models,
        "communication_bytes": traffic.model_bytes,
        "navigator_messages": traffic.messages,
        "navigator_message_bytes": traffic.message_bytes,
        "communications_as_published": published,
        "local_epochs_in_all": epochs,
        "simulated_time": time,
        **route_counts(schedule.routes),
    }


def route_counts(routes: Sequence[Sequence[int]]) -> dict[str, int | None]:
    """How the models travel, from the clients that train each of them; all None if none travels.

    Returns:
      `visited_clients`, the number of clients that train any model; `moves`, the number of steps
      after the first of each model; and `moves_to_same_client`, how many of these stay in place.
    """
    if not routes:
        return dict.fromkeys(("visited_clients", "moves", "moves_to_same_client"))
    hops = [hop for route in routes for hop in itertools.pairwise(route)]
    return {
        "visited_clients": len(set(itertools.chain.from_iterable(routes))),
        "moves": len(hops),
        "moves_to_same_client": sum(a == b for a, b in hops),
    }


def describe(network: ClientNetwork, costs: dict[str, Any], rounds: int) -> str:
    """A run's network and communication in one line, for its announcement."""
    events = network.events
    chance = "" if network.connectivity is None else f" of connectivity {network.connectivity}"
    return (
        f"{rounds} rounds on a network of {len(network.graphs(1))} clients with {costs['links']} "
        f"links ({network.topology}{chance})"
        f"{f'; {events} clients leave or links are cut' if events else ''}; "
        f"{costs['communications']:,} models sent from client to client, "
        f"{costs['communication_bytes'] / 1e6:,.1f} MB in all"
    )


def table(costs: dict[str, Any]) -> str:
    """A table of the costs, including `parameters` and `gflops` of the model."""
    published, epochs = costs["communications_as_published"], costs["local_epochs_in_all"]
    moves, stays = costs["moves"], costs["moves_to_same_client"]
    rows = {
        "communications": f"{costs['communications']:,}",
        "as DeNAV's Table 3 counts": None if published is None else f"{published:,.0f}",
        "MB of models and logs": f"{costs['communication_bytes'] / 1e6:,.1f}",
        "navigator's messages": f"{costs['navigator_messages']:,} "
        f"({costs['navigator_message_bytes'] / 1e3:,.1f} kB)",
        "local epochs in all": None if epochs is None else f"{epochs:,}",
        "simulated time": f"{costs['simulated_time']:,.0f} (examples x epochs of a slow client)",
        "clients with a model": costs["visited_clients"],
        "steps on the same client": f"{stays:,} of {moves:,}" if moves else None,
        "parameters": f"{costs['parameters']:,}",
        "GFLOPs an image": None if costs["gflops"] is None else f"{costs['gflops']:.4g}",
    }
    return "\n".join(f"{name:30}{text}" for name, text in rows.items() if text is not None)
