"""Gossip learning: every client trains, then averages its model with its neighbours'.

In a round, each client trains its own model on its own examples for K epochs and sends it to all
its neighbours; then it averages the models with a row of a mixing matrix (`decentralized.mixing`):

- `mixing=first_received`: with the first model to arrive. This is DeNAV's baseline (section 6.3;
  Hegedus et al. 2019), in which clients still send their models to all neighbours.
- `mixing=neighbours`: with the models of all neighbours. This is decentralized FedAvg (DFedAvg; Sun
  et al. 2021), or Dec-SSL's "local averaging over neighbours" (appendix B.5).
- `mixing=metropolis`: the same with Metropolis weights.
- `mixing=all_reduce`: every client receives the mean of all models.

All clients start from one model. The defaults of local training are DeNAV's.

Choices: A run is evaluated with the first client's model, averaged with its neighbours' as in DeNAV
before fine-tuning (`evaluated=client`), or with the mean of all models (`evaluated=mean`). With
`batch_norm=local`, a client's model is evaluated with its own norms, and the mean with the mean of
all norms. The model of a client that leaves is lost; the others continue.
"""

import dataclasses
import zlib

import numpy as np

from tff_ssl.bounds import bounded, one_of
from tff_ssl.decentralized import simulated_time, topology, traffic
from tff_ssl.decentralized.mixing import (
    MixingMatrix,
    all_reduce_weights,
    first_received_weights,
    metropolis_weights,
    neighbour_weights,
)
from tff_ssl.decentralized.schedule import (
    Averaging,
    ClientNetwork,
    ScheduledRound,
    SlotWeights,
    Training,
)
from tff_ssl.kinds.decentralized.algorithm import Decentralized, build_decentralized
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.task import Task

MIXINGS = ("neighbours", "metropolis", "first_received", "all_reduce")


@dataclasses.dataclass(frozen=True)
class GossipHyperparameters(ClientHyperparameters):
    """Hyperparameters of gossip learning; those of local training are inherited.

    Attributes:
      mixing: Mixing matrix, `neighbours`, `metropolis`, `first_received` or `all_reduce`; see the
        module.
      client_weighting: Weights of the clients with `neighbours` and `all_reduce`, `uniform` or by
        `examples`.
      batch_norm: Whether batch norms are `averaged`, or `local` to each client.
      evaluated: Model to evaluate, `client` or `mean`; see the module.
      average_neighbours: Whether a client averages its model with its neighbours' at the end.
      computing_ranks: Highest rank H of computing resources, for simulated times.
    """

    client_optimizer: str = "adamw"
    client_learning_rate: float = 0.001
    client_weight_decay: float = 0.05
    local_epochs: int = 5
    batch_size: int = 64
    client_weighting: str = "uniform"
    mixing: str = one_of("first_received", MIXINGS)
    batch_norm: str = one_of("averaged", ("averaged", "local"))
    evaluated: str = one_of("client", ("client", "mean"))
    average_neighbours: bool = True
    computing_ranks: int = bounded(10, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client_weighting == "examples" and self.mixing in ("metropolis", "first_received"):
            raise ValueError(f"client_weighting must be uniform with mixing={self.mixing}")


@dataclasses.dataclass(frozen=True)
class AllReduceHyperparameters(GossipHyperparameters):
    """All-reduce: after every round, every client has the mean of all clients' models."""

    client_weighting: str = "examples"
    mixing: str = "all_reduce"


@dataclasses.dataclass(frozen=True)
class DFedAvgHyperparameters(GossipHyperparameters):
    """Dec-SSL without a server: averages over neighbours, and the values of its appendix C.1."""

    client_optimizer: str = "adam"
    client_weight_decay: float = 0.0
    learning_rate_schedule: str = "steps"
    batch_size: int = 256
    temperature: float = 0.5
    mixing: str = "neighbours"
    batch_norm: str = "local"
    evaluated: str = "mean"


class GossipSchedule:
    """The rounds of gossip learning; client k's model is in slot k."""

    routes: tuple[()] = ()
    warnings: tuple[()] = ()

    def __init__(
        self, network: ClientNetwork, model_bytes: int, hyperparameters: GossipHyperparameters
    ):
        """Draws the clients' computing resources."""
        self._network, self._model_bytes = network, model_bytes
        self._hyperparameters = hyperparameters
        self.ranks = simulated_time.draw_ranks(
            len(network.volumes), hyperparameters.computing_ranks, network.seed
        )

    @property
    def num_slots(self) -> int:
        return len(self._network.volumes)

    @property
    def _all_reduce(self) -> bool:
        return self._hyperparameters.mixing == "all_reduce"

    def _mixing_matrix(self, graph, round_number: int) -> MixingMatrix:
        num_clients, mixing = self.num_slots, self._hyperparameters.mixing
        by_examples = self._hyperparameters.client_weighting == "examples"
        examples = self._network.volumes if by_examples else None
        if mixing == "metropolis":
            return metropolis_weights(graph, num_clients)
        if mixing == "all_reduce":
            return all_reduce_weights(graph, num_clients, examples)
        if mixing == "neighbours":
            return neighbour_weights(graph, num_clients, examples)
        stream = [self._network.seed, zlib.crc32(b"first_received"), round_number]
        return first_received_weights(graph, num_clients, np.random.default_rng(stream))

    def _time(self, client: int) -> float:
        """Simulated time of a client's local training; the others wait for the slowest client."""
        volume = self._network.volumes[client]
        work = volume * self._hyperparameters.passes(volume)
        highest = self._hyperparameters.computing_ranks
        return simulated_time.training_time(work, self.ranks[client], highest)

    def round(self, round_number: int) -> ScheduledRound:
        graph = self._network.graphs(round_number + 1)
        present = tuple(sorted(graph))
        count = traffic.all_reduce if self._all_reduce else traffic.gossip
        return ScheduledRound(
            (
                Training(present, present, tuple({} for _ in present)),
                Averaging(present, self._mixing_matrix(graph, round_number)[list(present)]),
            ),
            count(graph, self._model_bytes),
            max(self._time(client) for client in present),
        )

    def evaluated(self, done: int, client: int | None = None) -> SlotWeights:
        graph = self._network.graphs(max(done, 1))
        row = np.zeros(self.num_slots)
        client = self.evaluated_slot(done, client)
        if client is None:
            row[sorted(graph)] = 1 / len(graph)
            return row
        if client not in graph:
            raise ValueError(f"client {client} has left the network")
        averaged = [client]
        if self._hyperparameters.average_neighbours:
            averaged += topology.neighbours(graph, client)
        row[averaged] = 1 / len(averaged)
        return row

    def evaluated_slot(self, done: int, client: int | None = None) -> int | None:
        if client is None and self._hyperparameters.evaluated == "client":
            return min(self._network.graphs(max(done, 1)))
        return client

    def published_transmissions(self, epochs: int) -> float | None:
        connectivity = self._network.connectivity
        if connectivity is None or self._all_reduce:
            return None
        return traffic.published_gossip(
            epochs, self._hyperparameters.local_epochs, self.num_slots, connectivity
        )


def build_gossip(task: Task, hyperparameters: GossipHyperparameters | None = None) -> Decentralized:
    """Builds the computations of gossip learning."""
    values = hyperparameters or GossipHyperparameters()

    def build_schedule(network: ClientNetwork, model_bytes: int) -> GossipSchedule:
        return GossipSchedule(network, model_bytes, values)

    local_norm = values.batch_norm == "local"
    return build_decentralized(task, values, build_schedule, local_norm=local_norm)
