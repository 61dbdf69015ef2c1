"""The kind of algorithms whose clients have different architectures.

Clients send representations of images that the server shows to all of them, and never weights. Each
architecture has a typed computation `train` over its clients; `aggregate` works at the server on
the representations of all clients. TFF has no operator that gives the values of single clients to
the server (an aggregation of N slots keeps N copies of all of them). Therefore `train` returns the
representations at the clients, and the program that runs the computations keeps them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.kinds.heterogeneous.simulation import HeterogeneousClientsRun
from tff_ssl.kinds.protocol import FederatedAlgorithm, Need, RoundToLower, RunSetting
from tff_ssl.models.dual_encoder import DualEncoder, Weights


class TrainOutput(NamedTuple):
    """The result of `Architecture.train`."""

    client_states: Any  #: New states of the clients, at the clients.
    #: Representations A_k that the clients send, float32 [RAD, d], at the clients.
    representations: Any
    client_metrics: Any  #: Metrics by name, at the clients.
    metrics: Any  #: Means and sums of the metrics, at the server.


class Architecture(NamedTuple):
    """The computations for the clients of one architecture."""

    model: DualEncoder  #: Model of these clients.
    #: (round number int64@SERVER, factor of K-bar float32 [RAD, m]@SERVER, X uint8 [RAD, h, w,
    #: c]@SERVER, client_states@CLIENTS, client_data@CLIENTS) -> `TrainOutput`; a `tff.Computation`.
    train: tff.Computation
    #: Seed -> the state of a client that has not taken part yet.
    initial_client_state: Callable[[int], Any]
    #: (client's state, X) -> representations A, float32 [RAD, d].
    representations: Callable[[Any, tf.Tensor], tf.Tensor]
    client_weights: Callable[[Any], Weights]  #: Client's state -> weights of its model.
    downloads: Sequence[tff.Type]  #: Types that a client of this architecture receives in a round.
    uploads: Sequence[tff.Type]  #: Types that it sends in a round.


@dataclasses.dataclass(frozen=True)
class HeterogeneousClients(FederatedAlgorithm):
    """An algorithm whose clients have different architectures, for the clients of one run."""

    kind: ClassVar[str] = "heterogeneous_clients"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.COHORTS, Need.POPULATION})
    has_client_models: ClassVar[bool] = True

    architectures: tuple[Architecture, ...]  #: Computations of each architecture.
    model_of_client: np.ndarray  #: Each client's index into `architectures`, int64 [N].
    #: (A_1, ..., A_N) -> a factor of K-bar, float32 [RAD, m], which all clients receive; a
    #: `tff.tensorflow.computation` for the server.
    aggregate: tff.Computation
    downloads: Sequence[tff.Type]  #: Types that each client receives in a round.
    #: Types that clients of the architecture that sends the most bytes send in a round.
    uploads: Sequence[tff.Type]

    def rounds_to_lower(self) -> dict[str, RoundToLower]:
        trains = {a.model.encoder_name: a.train for a in self.architectures}
        return {
            encoder: RoundToLower(f"the round of clients with {encoder}", None, train)
            for encoder, train in trains.items()
        }

    def plan_run(self, setting: RunSetting) -> HeterogeneousClientsRun:
        return HeterogeneousClientsRun(self, setting)
