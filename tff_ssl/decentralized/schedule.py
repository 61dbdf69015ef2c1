"""The schedule of decentralized training, which is known before anything is trained.

Models lie in slots: one for each client, or one for each client and model where several models
travel. In a round, clients train the models in some slots, and averages of models are put into
slots. These operations depend only on the network, the clients' numbers of examples and the seed.
A schedule is therefore a pure function of the round, and a resumed run keeps its schedule.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import networkx as nx
import numpy as np
import numpy.typing as npt

from tff_ssl.decentralized.traffic import Traffic

SlotWeights = npt.NDArray[np.float64]


class ClientNetwork(NamedTuple):
    """The network of a run's clients."""

    graphs: Callable[[int], nx.Graph]  #: Round number, from 1 -> the network in that round; pure.
    volumes: Sequence[int]  #: Number of examples n of each client.
    seed: int  #: Seed of all random choices.
    topology: str = ""  #: Name of the topology.
    #: Probability of a link in a random network; None for other topologies.
    connectivity: float | None = None
    events: int = 0  #: Number of clients that leave and of links that are cut.


class Training(NamedTuple):
    """Simultaneous local training; each result stays in its model's slot."""

    slots: tuple[int, ...]  #: Slot of each model.
    clients: tuple[int, ...]  #: Client that trains each model; a client may occur more than once.
    #: For each model, columns of the clients' log beside its metrics.
    notes: tuple[Mapping[str, int], ...]


class Averaging(NamedTuple):
    """Weighted means of the models in all slots, put into several slots simultaneously."""

    targets: tuple[int, ...]  #: Slots that change, each once.
    #: Weights of all slots for each target, float64 [targets, slots]; rows sum to 1.
    weights: SlotWeights


class ScheduledRound(NamedTuple):
    """The schedule of one round."""

    operations: tuple[Training | Averaging, ...]  #: Trainings and averagings, in order.
    traffic: Traffic  #: Models and messages that are sent.
    time: float  #: Simulated time of the round, see `simulated_time.training_time`.

    @property
    def trainings(self) -> int:
        """Number of local trainings."""
        return sum(len(op.clients) for op in self.operations if isinstance(op, Training))


class Schedule(Protocol):
    """The rounds of a run, counted from 0."""

    @property
    def num_slots(self) -> int:
        """Number of slots."""

    @property
    def routes(self) -> Sequence[Sequence[int]]:
        """Clients that train each travelling model, in order; empty where no model travels."""

    @property
    def ranks(self) -> Sequence[int]:
        """Computing rank of each client, see `simulated_time.draw_ranks`."""

    @property
    def warnings(self) -> Sequence[str]:
        """Lines for the announcement on settings that defeat the algorithm; mostly empty."""

    def round(self, round_number: int) -> ScheduledRound:
        """The operations of a round."""

    def evaluated(self, done: int, client: int | None = None) -> SlotWeights:
        """Weights [slots] of the mean model that is evaluated after `done` rounds.

        It is a client's model, or for None the model that represents the run. Raises a ValueError
        if the client has left.
        """

    def evaluated_slot(self, done: int, client: int | None = None) -> int | None:
        """Slot whose batch norms the model of `evaluated` has, where clients keep their own.

        None if it is no single client's model, and has the mean of the norms.
        """

    def published_transmissions(self, epochs: int) -> float | None:
        """DeNAV's count (Table 3) for a total number of local epochs; None if it has none."""


def total_costs(schedule: Schedule, rounds: int) -> tuple[Traffic, float]:
    """The total traffic and simulated time of the first `rounds` rounds."""
    traffic, time = Traffic(), 0.0
    for number in range(rounds):
        scheduled = schedule.round(number)
        traffic, time = traffic + scheduled.traffic, time + scheduled.time
    return traffic, time
