"""A federated run on this machine: joins an algorithm, the clients' data and the cohorts.

`Simulation` is the protocol that `program` drives, whatever the kind of algorithm:
`initialize(seed)`, `run_round(state, round_number)`, `encoder_weights(state)`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow_federated as tff

from tff_ssl import cohort
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model


class Simulation(Protocol):
    """What `program` needs of a run."""

    def initialize(self, seed: int) -> Any:
        """The state before round 0."""

    def run_round(self, state: Any, round_number: int) -> tuple[Any, dict[str, float]]:
        """The state after a round, and the round's metrics; pure in its arguments."""

    def encoder_weights(self, state: Any, client_id: str | None = None) -> Weights:
        """The model's weights; of one client, where clients have models of their own."""


class LearningProcessSimulation:
    """Clients without memory: a `tff.learning` process on stored client data."""

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        group_data: tff.Computation,
        model: Model,
        initial_weights: Callable[[int], tff.learning.models.ModelWeights],
        cohorts: Callable[[int], cohort.Cohort],
        groups: int,
        bytes_per_client: int = 0,
    ):
        """Joins the parts.

        Args:
          process: An algorithm's process over clients' examples.
          group_data: (client indices int64 [k]) -> their examples; runs where the clients' work
            runs, so that a round sends indices and not images.
          model: The model that the process trains.
          initial_weights: Seed -> the weights before the first round.
          cohorts: Round number -> client indices.
          groups: How many groups a cohort is folded into; 0 for none.
          bytes_per_client: What a client receives and sends in a round, folded or not.
        """
        self._process = tff.simulation.compose_dataset_computation_with_learning_process(
            group_data, process
        )
        self._model = model
        self._initial_weights = initial_weights
        self._cohorts = cohorts
        self._groups = groups
        self._bytes_per_client = bytes_per_client

    def initialize(self, seed: int) -> Any:
        initial = self._initial_weights(seed)
        groups = (initial.trainable, initial.non_trainable)
        weights = tff.learning.models.ModelWeights(
            *(tuple(np.asarray(w) for w in group) for group in groups)
        )
        return self._process.set_model_weights(self._process.initialize(), weights)

    def run_round(self, state: Any, round_number: int) -> tuple[Any, dict[str, float]]:
        clients = self._cohorts(round_number)
        output = self._process.next(state, cohort.fold(clients, self._groups))
        metrics = flatten_metrics(output.metrics)
        metrics["clients"] = len(clients)
        metrics["bytes"] = len(clients) * self._bytes_per_client
        return output.state, metrics

    def encoder_weights(self, state: Any, client_id: str | None = None) -> Weights:
        return self._model.part_of(state.global_model_weights)


def flatten_metrics(metrics: Any) -> dict[str, float]:
    """Leaves of nested metrics by their own names; parts without a leaf vanish."""
    leaves: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            leaves.update(flatten_metrics(value))
        elif np.ndim(value) == 0 and not isinstance(value, tuple):
            leaves[name] = np.asarray(value).item()
    return leaves
