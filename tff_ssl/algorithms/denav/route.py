"""The route of a model through a network in which clients leave and links are cut (DeNAV).

A route depends on the clients' volumes, simulated times and network, all known before training. It
is computed before training, and a resumed run follows the same route. The models of parallel
training travel independently: each has its own log, and two models may meet at a client.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import networkx as nx
import numpy as np

from tff_ssl.algorithms.denav import navigator
from tff_ssl.algorithms.denav.navigator import NavigatorHyperparameters
from tff_ssl.algorithms.denav.state_log import StateLog


class Step(NamedTuple):
    """A step of one model."""

    step: int  #: Number s of the step, counted from 1.
    #: Client that had the model before, which may be `client` itself; None in step 1.
    sender: int | None
    client: int  #: Client that trains the model.
    received: StateLog  #: State log that came with the model.
    log: StateLog  #: State log after training; the client keeps a copy of it and of the model.
    #: Number of the navigator's questions and answers before this step; see `Choice`.
    messages: int
    message_bytes: int  #: Bytes of these messages.


def last_present(route: list[int], graph: nx.Graph) -> int:
    """The last client on the route that is in the network; a ValueError if none is."""
    for client in reversed(route):
        if client in graph:
            return client
    raise ValueError("no client that has the model is left in the network")


def travel(
    network: Callable[[int], nx.Graph],
    volumes: Mapping[int, int],
    times: Callable[[int], float],
    start: int,
    hyperparameters: NavigatorHyperparameters,
    seed: int,
    model_id: int = 0,
) -> Iterator[Step]:
    """The steps 1 to S of a model.

    The client of a step is chosen in the network of that step. If the client that trained last has
    left this network, the last client on the route that is still there sends its own copy of model
    and log instead. Only the training of clients that left can be lost.

    Args:
      network: Number of a step -> the network in that step; pure.
      volumes: Number of examples n of each client.
      times: Client -> time t of its local training, see `simulated_time.training_time`.
      start: Client that trains first.
      hyperparameters: Number of steps S, and hyperparameters of the navigator.
      seed: Seed of the navigator's random choices; not negative.
      model_id: Number of the model in parallel training.

    Raises:
      ValueError: If the first client is not in the network, or all clients on the route have left.
    """
    copies: dict[int, StateLog] = {}
    route: list[int] = []
    for step in range(1, hyperparameters.steps + 1):
        graph = network(step)
        if route:
            sender = last_present(route, graph)
            received, ask = copies[sender], navigator.asking(graph, volumes)
            rng = np.random.default_rng([seed, zlib.crc32(b"navigator"), model_id, step])
            choice = navigator.choose_next(sender, received, ask, hyperparameters, rng)
        else:
            sender, received = None, StateLog(model_id)
            choice = navigator.Choice(last_present([start], graph), 1, 0, 0)
        client = choice.client
        copies[client] = received.after_training(client, step, volumes[client], times(client))
        route.append(client)
        yield Step(
            step, sender, client, received, copies[client], choice.messages, choice.message_bytes
        )
