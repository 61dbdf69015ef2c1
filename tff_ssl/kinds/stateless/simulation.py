"""Simulation of a server and clients that keep nothing between rounds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.simulation import cohort
from tff_ssl.simulation.dropouts import Reports
from tff_ssl.simulation.metrics_log import flatten_metrics
from tff_ssl.simulation.participation import Participation
from tff_ssl.simulation.training_loop import Simulation

# Number of which the number of groups is a multiple where cohorts vary in size; see `cohort.fold`.
_GROUPS = 8


class StatelessClientsSimulation(Simulation):
    """A `tff.learning` process on stored client data."""

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        group_data: tff.Computation,
        model: Model,
        initial_weights: Callable[[int], tff.learning.models.ModelWeights],
        participation: Participation,
        groups: int = 0,
        bytes_per_client: int = 0,
        *,
        stages: Sequence[tff.learning.templates.LearningProcess] = (),
        with_group_size: Callable[[Any, float], Any] | None = None,
        epsilon: Callable[[int], float] | None = None,
        sliced: Any = None,
    ):
        """Composes the process with the clients' data.

        Args:
          process: Process of an algorithm over clients' examples.
          group_data: (client indices int64 [k]) -> their examples; runs where the clients' work
            runs, so that a round sends indices instead of images.
          model: Model that the process trains.
          initial_weights: Seed -> the weights before the first round.
          participation: Clients that take part in each round.
          groups: Number of groups into which a cohort is folded; 0 for no folding.
          bytes_per_client: Bytes that a client receives and sends in a round, folded or not.
          stages: Stages of the round, each of which takes the state of the stage before, where
            clients drop out between the stages; they then replace `process`.
          with_group_size: See `StatelessClients`; needed for stages whose clients are folded.
          epsilon: Number of rounds -> their privacy loss epsilon, a metric.
          sliced: A `sliced_rounds.SlicedStatelessClients` if rounds are cut into slices; else None.
        """
        compose = tff.simulation.compose_dataset_computation_with_learning_process
        self._process = compose(group_data, process)
        self._participation = participation
        self._dropouts = participation.dropouts
        self._stages = []
        if stages:  # Composing takes a second or more.
            self._stages = (
                sliced.stages if sliced else [compose(group_data, s).next for s in stages]
            )
        self._multiple = _GROUPS if participation.varies or self._dropouts.dropout else 1
        self._with_group_size = with_group_size
        self._epsilon = epsilon
        self._model = model
        self._initial_weights = initial_weights
        self._groups = groups
        self._bytes_per_client = bytes_per_client
        self._next = sliced or self._process.next

    def initialize(self, seed: int) -> Any:
        initial = self._initial_weights(seed)
        groups = (initial.trainable, initial.non_trainable)
        weights = tff.learning.models.ModelWeights(
            *(tuple(np.asarray(w) for w in group) for group in groups)
        )
        return self._process.set_model_weights(self._process.initialize(), weights)

    def run_round(self, state: Any, round_number: int) -> tuple[Any, dict[str, float]]:
        invited = self._participation.cohorts(round_number)
        reports = self._dropouts.reports(round_number, invited)
        output, failed = self._dropouts.run_without_failing(
            round_number,
            reports.invited,
            lambda clients: self._round(state, reports.among(clients)),
        )
        metrics = flatten_metrics(output.metrics)
        metrics["dropped_clients"] += (
            len(reports.invited) - np.isin(reports.last, failed, invert=True).sum().item()
        )
        metrics["clients"] = len(reports.invited)
        metrics["bytes"] = len(reports.invited) * self._bytes_per_client
        self._dropouts.check_metrics(round_number, metrics)
        if self._epsilon:
            metrics["epsilon"] = self._epsilon(round_number + 1)
        return output.state, metrics

    def _round(self, state: Any, reports: Reports) -> Any:
        """The round of these clients; its `dropped_clients` counts those among `reports.last`."""
        output = self._folded_round(state, reports, self._groups)
        if self._groups and flatten_metrics(output.metrics)["dropped_clients"]:
            # A client whose values are not finite has spoilt the sums of its whole group.
            output = self._folded_round(state, reports, 0)
        return output

    def _folded_round(self, state: Any, reports: Reports, groups: int) -> Any:
        rounds = self._stages or [self._next]
        reporting = [reports.first, reports.last] if self._stages else [reports.last]
        size = 0.0  # Mean number of clients of a group in the stage before.
        for next_round, clients in zip(rounds, reporting, strict=True):
            folded = cohort.fold(clients, min(groups, len(clients)), self._multiple)
            size_before, size = size, len(clients) / max(sum(len(g) > 0 for g in folded), 1)
            if self._with_group_size and size and size_before not in (0.0, size):
                state = self._with_group_size(state, size / size_before)
            output = next_round(state, folded)
            state = output.state
        metrics = flatten_metrics(output.metrics)
        # Groups without clients count as dropped in the computation.
        metrics["dropped_clients"] -= sum(len(group) == 0 for group in folded)
        return output._replace(metrics=metrics)

    def encoder_weights(self, state: Any, client_id: str | None = None) -> Weights:
        return self._model.part_of(state.global_model_weights)
