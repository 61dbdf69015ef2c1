"""The computations of algorithms without a server."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

import tensorflow_federated as tff

from tff_ssl.decentralized.schedule import ClientNetwork, Schedule
from tff_ssl.kinds.protocol import FederatedAlgorithm, Need, RoundToLower
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.templates.client_hyperparameters import ClientHyperparameters
from tff_ssl.templates.weight_groups import LocalWeights


@dataclasses.dataclass(frozen=True)
class DecentralizedComputations(FederatedAlgorithm):
    """The computations of an algorithm without a server."""

    kind: ClassVar[str] = "decentralized"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.NETWORK})
    has_client_models: ClassVar[bool] = True

    model: DualEncoder  #: Model of every client.
    hyperparameters: ClientHyperparameters  #: Hyperparameters of the algorithm.
    training: tff.Computation  #: Computation of local training; see `algorithm`.
    averaging: tff.Computation  #: Computation that averages received models; see `algorithm`.
    initial_weights: Callable[[int], Weights]  #: Seed -> the model from which all clients start.
    #: The weights that stay with a client when models are averaged, if any.
    local_weights: LocalWeights | None
    #: Network of the clients -> the rounds of the run.
    schedule: Callable[[ClientNetwork], Schedule]
    downloads: Sequence[tff.Type]  #: Types that a client receives with a model.
    uploads: Sequence[tff.Type]  #: Types that a client sends as a model.

    def rounds_to_lower(self) -> dict[str, RoundToLower]:
        return {
            "training": RoundToLower("local training from received models", None, self.training),
            "averaging": RoundToLower("means of received models", None, self.averaging),
        }
