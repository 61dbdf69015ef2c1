"""A model's way through a network, step by step, while clients leave and links are cut (DeNAV).

What the way depends on (volumes, simulated times, the network) is known without training, so that
training follows a journey, and a run that is resumed finds the same one. The models of parallel
training travel independently: each has its own log, and two may meet at a client.
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
    """A step of one model.

    Attributes:
      step: s, from 1.
      sender: Who had the model before; None in step 1. The client itself where the model stayed.
      client: Who trains the model.
      received: The state log that came with it.
      log: The state log after training; the client keeps a copy, as of the model.
      messages: The navigator's questions and answers before this step, once for each link crossed.
      message_bytes: Their bytes.
    """

    step: int
    sender: int | None
    client: int
    received: StateLog
    log: StateLog
    messages: int
    message_bytes: int


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

    The network of a step holds from the choice of the client that trains in it. Where the client
    that trained last has left by then, the last one on the route that has not goes on from its own
    copy of model and log: only the training of clients that left can be lost.

    Args:
      network: Step -> the network in it; a pure function.
      volumes: n of each client.
      times: Client -> t of its local training, see `navigator.training_time`.
      start: Who trains first.
      hyperparameters: S and the navigator's.
      seed: Of the navigator's random choices; not negative.
      model_id: Tells the models of parallel training apart.

    Raises:
      ValueError: The first client is not in the network, or all clients on the route have left.
    """
    copies: dict[int, StateLog] = {}
    route: list[int] = []
    for step in range(1, hyperparameters.steps + 1):
        graph = network(step)
        if route:
            sender = last_present(route, graph)
            received = copies[sender]
            choice = navigator.choose_next(
                sender,
                received,
                navigator.asking(graph, volumes),
                hyperparameters,
                np.random.default_rng([seed, zlib.crc32(b"navigator"), model_id, step]),
            )
        else:
            sender, received = None, StateLog(model_id)
            choice = navigator.Choice(last_present([start], graph), 1, 0, 0)
        client = choice.client
        copies[client] = received.after_training(client, step, volumes[client], times(client))
        route.append(client)
        yield Step(
            step,
            sender,
            client,
            received,
            copies[client],
            choice.messages,
            choice.message_bytes,
        )


def last_present(route: list[int], graph: nx.Graph) -> int:
    """The last client on the route that is in the network.

    Raises:
      ValueError: None is.
    """
    for client in reversed(route):
        if client in graph:
            return client
    raise ValueError("no client that has the model is left in the network")
