"""Simulation of a server and clients that keep nothing between rounds."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_ssl.kinds.server_rounds import ServerRun
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.runtime.sliced_rounds import Slicing, Stage
from tff_ssl.runtime.slices import to_bytes
from tff_ssl.simulation import cohort
from tff_ssl.simulation.dropouts import Reports
from tff_ssl.simulation.metrics_log import flatten_metrics
from tff_ssl.simulation.training_loop import Simulation

# The number of groups is a multiple of this if cohorts vary in size; see `cohort.fold`.
_GROUPS = 8


class StatelessClientsRun(ServerRun):
    """A run of an algorithm whose clients keep nothing between rounds."""

    def simulate(
        self, group_data: tff.Computation, folder: pathlib.Path, slicing: Slicing | None = None
    ) -> "StatelessClientsSimulation":
        return StatelessClientsSimulation(self, group_data, slicing)


class StatelessClientsSimulation(Simulation):
    """A `tff.learning` process on stored client data."""

    def __init__(
        self, run: StatelessClientsRun, group_data: tff.Computation, slicing: Slicing | None
    ):
        """Composes the process with the clients' data; see `PlannedRun.simulate`."""
        self._run, self._algorithm = run, run.algorithm
        self._dropouts = run.participation.dropouts
        # Slices, and clients that drop out between two stages, need a computation for each stage.
        in_stages = slicing or self._dropouts.dropout
        stages = list(self._algorithm.stages.values()) if in_stages else []
        compose = tff.simulation.compose_dataset_computation_with_learning_process
        processes = [compose(group_data, s) for s in stages or [self._algorithm.process]]
        self._next: list[Callable[..., Any]] = [
            _in_slices(process, slicing) if slicing else process.next for process in processes
        ]
        self._multiple = _GROUPS if run.participation.varies or self._dropouts.dropout else 1

    def initialize(self, seed: int) -> Any:
        return self._algorithm.initial_states(seed)[0]

    def run_round(self, state: Any, round_number: int) -> tuple[Any, dict[str, float]]:
        invited = self._run.participation.cohorts(round_number)
        reports = self._dropouts.reports(round_number, invited)

        def run(clients: cohort.Cohort) -> Any:
            return self._round(state, reports.among(clients))

        output, failed = self._dropouts.run_without_failing(round_number, reports.invited, run)
        metrics = flatten_metrics(output.metrics)
        remaining = np.isin(reports.last, failed, invert=True).sum().item()
        metrics["dropped_clients"] += len(reports.invited) - remaining
        metrics["clients"] = len(reports.invited)
        metrics["bytes"] = len(reports.invited) * sum(self._run.client_bytes)
        self._dropouts.check_metrics(round_number, metrics)
        if self._run.setting.epsilon:
            metrics["epsilon"] = self._run.setting.epsilon(round_number + 1)
        return output.state, metrics

    def _round(self, state: Any, reports: Reports) -> Any:
        """The round of these clients; its `dropped_clients` counts those among `reports.last`."""
        groups = self._run.setting.groups
        output = self._folded_round(state, reports, groups)
        if groups and flatten_metrics(output.metrics)["dropped_clients"]:
            # A client whose values are not finite has spoilt the sums of its whole group.
            output = self._folded_round(state, reports, 0)
        return output

    def _folded_round(self, state: Any, reports: Reports, groups: int) -> Any:
        reporting = [reports.first, reports.last][-len(self._next) :]
        rescale = self._algorithm.with_group_size
        size = 0.0  # Mean number of clients of a group in the stage before.
        for next_round, clients in zip(self._next, reporting, strict=True):
            folded = cohort.fold(clients, min(groups, len(clients)), self._multiple)
            size_before, size = size, len(clients) / max(sum(len(g) > 0 for g in folded), 1)
            if rescale and size and size_before not in (0.0, size):
                state = rescale(state, size / size_before)
            output = next_round(state, folded)
            state = output.state
        metrics = flatten_metrics(output.metrics)
        # Groups without clients count as dropped in the computation.
        metrics["dropped_clients"] -= sum(len(group) == 0 for group in folded)
        return output._replace(metrics=metrics)

    def encoder_weights(self, state: Any, client_id: str | None = None) -> Weights:
        return self._algorithm.model.part_of(state.global_model_weights)


def _in_slices(
    process: tff.learning.templates.LearningProcess, slicing: Slicing
) -> Callable[[Any, Sequence[cohort.Cohort]], tff.learning.templates.LearningProcessOutput]:
    """A stage of the round, computed in slices: (state, groups) -> state and metrics."""
    stage = Stage(process.next)

    def run(state, groups):
        content = to_bytes(state)
        partials = slicing.work_on(stage.program, content, groups)
        return tff.learning.templates.LearningProcessOutput(*stage.finish(content, partials))

    return run
