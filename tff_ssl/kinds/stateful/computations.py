"""The computations of algorithms with a server and clients that keep a state between rounds."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import tensorflow_federated as tff

from tff_ssl.kinds.protocol import FederatedAlgorithm, Need, RoundToLower
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.simulation import state_files


class ServerState(NamedTuple):
    """The state of the server.

    Attributes:
      round_number: Number of the next round, int64; views and schedules depend on it.
      model: Model of the server, of the algorithm's type.
      aggregators: State of each mean's aggregator.
    """

    round_number: Any
    model: Any
    aggregators: Any


class RoundOutput(NamedTuple):
    """The result of `next`.

    Attributes:
      state: New `ServerState`, at the server.
      client_states: New states of the clients, at the clients.
      client_metrics: Metrics by name, at the clients.
      metrics: Means and sums of the metrics, at the server.
    """

    state: Any
    client_states: Any
    client_metrics: Any
    metrics: Any


@dataclasses.dataclass(frozen=True)
class StatefulComputations(FederatedAlgorithm):
    """The computations of an algorithm whose clients keep a state between rounds.

    Attributes:
      process: A `tff.templates.IterativeProcess`, whose `next` is described in `algorithm`.
      initial_model: Seed -> the server's model before the first round.
      initial_client_state: Seed -> the state of a client that has not taken part yet.
      global_weights: Server's model -> weights of the global model; None if there is none.
      client_weights: (server's model, a client's state) -> weights of the client's own model.
      local_weights: A client's state -> the weights after its last local training; None if states
        do not hold them, or if they are the client's own model.
      downloads: Types that a client receives in a round.
      uploads: Types that a client sends in a round.
    """

    kind: ClassVar[str] = "stateful_clients"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.COHORTS})
    has_client_models: ClassVar[bool] = True

    process: tff.templates.IterativeProcess
    initial_model: Callable[[int], Any]
    initial_client_state: Callable[[int], Any]
    global_weights: Callable[[Any], Weights] | None
    client_weights: Callable[[Any, Any], Weights]
    local_weights: Callable[[Any], Weights] | None
    downloads: Sequence[tff.Type]
    uploads: Sequence[tff.Type]

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
