"""The kind of algorithms whose clients have different architectures.

Clients send representations of images that the server shows to all of them, and never weights. Each
architecture has a typed computation `train` over its clients; `aggregate` works at the server on
the representations of all clients. TFF has no operator that hands the values of single clients to
the server (an aggregation of N slots keeps N copies of all of them). Therefore `train` returns the
representations at the clients, and the program that runs the computations keeps them.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.kinds.heterogeneous.simulation import HeterogeneousClientsSimulation
from tff_ssl.kinds.heterogeneous.slices import SlicedHeterogeneousClients
from tff_ssl.kinds.protocol import (
    FederatedAlgorithm,
    Need,
    PlannedRun,
    RoundToLower,
    RunSetting,
)
from tff_ssl.kinds.server_rounds import ServerRounds
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.runtime.sliced_rounds import Slicing
from tff_ssl.templates import message_sizes


class TrainOutput(NamedTuple):
    """The result of `Architecture.train`.

    Attributes:
      client_states: New states of the clients, at the clients.
      representations: Representations A_k that the clients send, float32 [RAD, d], at the clients.
      client_metrics: Metrics by name, at the clients.
      metrics: Means and sums of the metrics, at the server.
    """

    client_states: Any
    representations: Any
    client_metrics: Any
    metrics: Any


class Architecture(NamedTuple):
    """The computations for the clients of one architecture.

    Attributes:
      model: Model of these clients.
      train: (round number int64@SERVER, factor of K-bar float32 [RAD, m]@SERVER, X uint8
        [RAD, h, w, c]@SERVER, client_states@CLIENTS, client_data@CLIENTS) -> `TrainOutput`; a
        `tff.Computation`.
      initial_client_state: Seed -> the state of a client that has not taken part yet.
      representations: (client's state, X) -> representations A, float32 [RAD, d].
      client_weights: Client's state -> weights of its model.
      downloads: Types that a client of this architecture receives in a round.
      uploads: Types that it sends in a round.
    """

    model: DualEncoder
    train: tff.Computation
    initial_client_state: Callable[[int], Any]
    representations: Callable[[Any, tf.Tensor], tf.Tensor]
    client_weights: Callable[[Any], Weights]
    downloads: Sequence[tff.Type]
    uploads: Sequence[tff.Type]


@dataclasses.dataclass(frozen=True)
class HeterogeneousClients(FederatedAlgorithm):
    """An algorithm whose clients have different architectures, for the clients of one run.

    Attributes:
      architectures: Computations of each architecture.
      model_of_client: Index into `architectures` of each client, int64 [N].
      aggregate: (A_1, ..., A_N) -> a factor of K-bar, float32 [RAD, m], which all clients receive;
        a `tff.tensorflow.computation` for the server.
    """

    kind: ClassVar[str] = "heterogeneous_clients"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.COHORTS, Need.POPULATION})
    has_client_models: ClassVar[bool] = True

    architectures: tuple[Architecture, ...]
    model_of_client: np.ndarray
    aggregate: tff.Computation

    @property
    def downloads(self) -> Sequence[tff.Type]:
        return self.architectures[0].downloads

    @property
    def uploads(self) -> Sequence[tff.Type]:
        """The uploads of the architecture whose clients send the most bytes."""
        return max((a.uploads for a in self.architectures), key=message_sizes.total_bytes)

    def client_bytes(self) -> tuple[int, int]:
        return message_sizes.total_bytes(self.downloads), message_sizes.total_bytes(self.uploads)

    def default_concurrent_calls(self) -> int | None:
        return os.cpu_count()  # For the reason given in `stateful_clients`.

    def rounds_to_lower(self) -> dict[str, RoundToLower]:
        return {
            a.model.encoder: RoundToLower(
                f"the round of clients with {a.model.encoder}", None, a.train
            )
            for a in self.architectures
        }

    def plan_run(self, setting: RunSetting) -> "HeterogeneousClientsRun":
        return HeterogeneousClientsRun(self, setting)


class HeterogeneousClientsRun(ServerRounds, PlannedRun):
    """A run of an algorithm whose clients have different architectures."""

    def __init__(self, algorithm: HeterogeneousClients, setting: RunSetting):
        super().__init__(setting, algorithm.client_bytes())
        if setting.server_images is None:
            raise ValueError("heterogeneous clients need images of the server")
        self._algorithm, self._server_images = algorithm, setting.server_images

    @property
    def client_models(self) -> list[DualEncoder]:
        return [self._algorithm.architectures[m].model for m in self._algorithm.model_of_client]

    @property
    def evaluated_client(self) -> int:
        return self.setting.evaluated_client

    def result_fields(self) -> dict[str, Any]:
        return super().result_fields() | {
            "rad_size": len(self._server_images),
            "encoder_of_client": [model.encoder for model in self.client_models],
        }

    def slice_rounds(
        self, group_data: tff.Computation, slicing: Slicing
    ) -> SlicedHeterogeneousClients:
        trainings = [architecture.train for architecture in self._algorithm.architectures]
        return SlicedHeterogeneousClients(trainings, group_data, slicing)

    def simulate(
        self, group_data: tff.Computation, folder: pathlib.Path, sliced: Any = None
    ) -> HeterogeneousClientsSimulation:
        architectures = self._algorithm.architectures
        sent_bytes = [message_sizes.total_bytes((*a.downloads, *a.uploads)) for a in architectures]
        return HeterogeneousClientsSimulation(
            self._algorithm,
            group_data,
            self.participation.cohorts,
            self._server_images,
            folder,
            [sent_bytes[m] for m in self._algorithm.model_of_client],
            sliced,
            self.evaluated_client,
        )
