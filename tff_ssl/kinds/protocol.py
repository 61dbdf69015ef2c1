"""The protocol that all kinds of algorithms share.

An algorithm's `build_...` function returns a `FederatedAlgorithm`. Together with the clients of a
run it becomes a `PlannedRun`, which is described, drawn, cut for several nodes and simulated.
Scripts use only these two protocols, whatever an algorithm's kind. The kinds are

- `stateless.algorithm.StatelessClients`: a server, and clients that keep nothing between rounds;
- `stateful.algorithm.StatefulClients`: a server, and clients that keep a state between rounds;
- `decentralized.algorithm.Decentralized`: a network of clients without a server;
- `heterogeneous.algorithm.HeterogeneousClients`: clients of different architectures.

A further kind is one package with a class for each of the two protocols.
"""

import enum
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow_federated as tff

from tff_ssl.decentralized.schedule import ClientNetwork
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.runtime.sliced_rounds import Slicing
from tff_ssl.simulation.participation import Participation
from tff_ssl.simulation.training_loop import Simulation
from tff_ssl.templates import message_sizes
from tff_ssl.templates.stages import Stage


class Need(enum.Enum):
    """Parts of a run that a kind of algorithm needs beside the clients' examples."""

    COHORTS = "a server that samples a cohort of clients in each round"
    NETWORK = "a network of clients"
    POPULATION = "clients of several architectures, and unlabeled images at the server"


class RoundToLower(NamedTuple):
    """A computation that can be lowered for production stacks."""

    summary: str  #: Description of the computation in one line.
    #: () -> the server's state before the first round; None without a server.
    initialize: tff.framework.ConcreteComputation | None
    next: tff.framework.ConcreteComputation  #: The round, a `tff.Computation`.


class RunSetting(NamedTuple):
    """The clients of a run, as known before training."""

    client_sizes: Sequence[int]  #: Number of examples of each client.
    rounds: int  #: Number of rounds of the run.
    #: Clients that take part in each round; None without a server.
    participation: Participation | None = None
    network: ClientNetwork | None = None  #: Network of the clients; None with a server.
    #: Unlabeled images that the server shows to all clients, uint8 [n, h, w, c]; None if the
    #: algorithm uses none.
    server_images: npt.NDArray[np.uint8] | None = None
    groups: int = 0  #: Number of groups into which a cohort is folded; 0 for no folding.
    #: Number of rounds -> their privacy loss epsilon; None without differential privacy.
    epsilon: Callable[[int], float] | None = None
    #: () -> client whose model is evaluated if there is no global model.
    evaluated_client: Callable[[], int] = lambda: 0


class PlannedRun(Protocol):
    """An algorithm together with the clients of a run."""

    @property
    def clients_at_once(self) -> int:
        """Number of clients or groups that can train at the same time."""

    @property
    def client_models(self) -> Sequence[DualEncoder] | None:
        """Each client's model if clients have different architectures; otherwise None."""
        return None

    @property
    def evaluated_client(self) -> int | None:
        """Client whose model is evaluated for the run; None if it is not a fixed client's."""
        return None

    @property
    def untrained_clients_have_models(self) -> bool:
        """Whether clients that never trained receive a model, which can be evaluated."""
        return True

    def describe(self) -> str:
        """Rounds, clients and bytes sent, for the announcement of a run."""

    def result_fields(self) -> dict[str, Any]:
        """Costs of the run, for each entry of `result.json`."""

    def summary(self) -> str:
        """Table of costs to print after the results; empty for none."""
        return ""

    def draw(self, folder: pathlib.Path, name: str) -> list[str]:
        """Draws the run before training, with its algorithm's name; returns the files' names."""
        return []

    def simulate(
        self, group_data: tff.Computation, folder: pathlib.Path, slicing: Slicing | None = None
    ) -> Simulation:
        """The simulation of the run.

        Args:
          group_data: (client indices int64 [k]) -> their examples; runs at the clients.
          folder: Folder of the run, for states and metrics of clients.
          slicing: The nodes, and how a cohort is cut; None to compute rounds in one TFF worker.
        """


class FederatedAlgorithm(Protocol):
    """The result of an algorithm's `build_...` function."""

    kind: ClassVar[str]  #: Name of the kind, by which default presets are found.
    needs: ClassVar[frozenset[Need]]  #: Parts of `RunSetting` that the kind needs.
    #: Whether clients have models of their own, which can be evaluated.
    has_client_models: ClassVar[bool]
    #: Types that a client receives in a round, according to the algorithm's paper.
    downloads: Sequence[tff.Type]
    #: Types that a client sends in a round, according to the algorithm's paper.
    uploads: Sequence[tff.Type]
    #: Stages of a round as functions of tensors; empty if there is no client package of it.
    plain_stages: Sequence[Stage] = ()

    def initial_states(self, seed: int, trained: Any = None) -> tuple[Any, Any]:
        """The states of the server and of a client before the first round, for `plain_stages`.

        Args:
          seed: Seed of the initial weights.
          trained: State of a simulation whose model replaces the initial weights; None for none.
        """
        return (), ()

    def encoder_weights(self, server_state: Any) -> Weights | None:
        """Weights of the global model in a server's state; None if there is no global model."""
        return None

    def client_bytes(self) -> tuple[int, int]:
        """Bytes that a client receives and sends in a round."""
        return message_sizes.total_bytes(self.downloads), message_sizes.total_bytes(self.uploads)

    def default_concurrent_calls(self) -> int | None:
        """Number of clients that should compute at the same time; None for the worker's default."""
        # Most kinds train a few clients for a long time. More clients at the same time than cores
        # took 1.44 times as long (five clients with a ResNet-18 on two cores).
        return os.cpu_count()

    def rounds_to_lower(self) -> Mapping[str, RoundToLower]:
        """Computations that `launch.lower` lowers, by name."""

    def plan_run(self, setting: RunSetting) -> PlannedRun:
        """Joins the algorithm with the clients of a run.

        Raises:
          ConfigurationError: If the algorithm cannot run with these clients.
        """
