"""The computations of algorithms with a server and clients that keep a state between rounds."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import tensorflow_federated as tff

from tff_ssl.kinds.protocol import FederatedAlgorithm, Need, RoundToLower
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.simulation import state_files


class ServerState(NamedTuple):
    """The state of the server."""

    round_number: Any  #: Number of the next round, int64; views and schedules depend on it.
    model: Any  #: Model of the server, of the algorithm's type.
    aggregators: Any  #: State of each mean's aggregator.


class RoundOutput(NamedTuple):
    """The result of `next`."""

    state: Any  #: New `ServerState`, at the server.
    client_states: Any  #: New states of the clients, at the clients.
    client_metrics: Any  #: Metrics by name, at the clients.
    metrics: Any  #: Means and sums of the metrics, at the server.


@dataclasses.dataclass(frozen=True)
class StatefulComputations(FederatedAlgorithm):
    """The computations of an algorithm whose clients keep a state between rounds."""

    kind: ClassVar[str] = "stateful_clients"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.COHORTS})
    has_client_models: ClassVar[bool] = True

    #: A `tff.templates.IterativeProcess`, whose `next` is described in `algorithm`.
    process: tff.templates.IterativeProcess
    initial_model: Callable[[int], Any]  #: Seed -> the server's model before the first round.
    #: Seed -> the state of a client that has not taken part yet.
    initial_client_state: Callable[[int], Any]
    #: Server's model -> weights of the global model; None if there is none.
    global_weights: Callable[[Any], Weights] | None
    #: (server's model, a client's state) -> weights of the client's own model.
    client_weights: Callable[[Any, Any], Weights]
    #: A client's state -> the weights after its last local training; None if states do not hold
    #: them, or if they are the client's own model.
    local_weights: Callable[[Any], Weights] | None
    downloads: Sequence[tff.Type]  #: Types that a client receives in a round.
    uploads: Sequence[tff.Type]  #: Types that a client sends in a round.

    def rounds_to_lower(self) -> dict[str, RoundToLower]:
        process = self.process
        return {
            "round": RoundToLower("the whole round", process.initialize, process.next),
            "round_with_stored_states": RoundToLower(
                "the round whose clients keep their states in files of their own",
                process.initialize,
                state_files.round_with_stored_states(process.next),
            ),
        }
