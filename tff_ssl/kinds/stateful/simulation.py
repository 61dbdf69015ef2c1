"""Simulation of a server and clients that keep a state between rounds, stored in files."""

import math
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

from tff_ssl.kinds.server_rounds import ServerRun
from tff_ssl.kinds.stored_states import StoredStatesSimulation, with_state_files
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.runtime.sliced_rounds import ClientFiles, Slicing, Stage, write_states
from tff_ssl.runtime.slices import to_bytes
from tff_ssl.simulation import cohort, state_files
from tff_ssl.simulation.metrics_log import flatten_metrics


class StatefulClientsState(NamedTuple):
    """The server's state; and each client's last round, which names its file, int64 [clients]."""

    server: Any
    versions: Any


class StatefulClientsRun(ServerRun):
    """A run of an algorithm whose clients keep a state between rounds."""

    @property
    def evaluated_client(self) -> int | None:
        return None if self.algorithm.global_weights else self.setting.evaluated_client()

    def simulate(
        self, group_data: tff.Computation, folder: pathlib.Path, slicing: Slicing | None = None
    ) -> "StatefulClientsSimulation":
        return StatefulClientsSimulation(self, group_data, folder, slicing)


class StatefulClientsSimulation(StoredStatesSimulation):
    """A process whose clients' states are kept in files."""

    def __init__(
        self,
        run: StatefulClientsRun,
        group_data: tff.Computation,
        folder: pathlib.Path,
        slicing: Slicing | None,
    ):
        """Joins the algorithm with the clients' data; see `PlannedRun.simulate`."""
        super().__init__(folder)
        self._run, self._algorithm, self._group_data = run, run.algorithm, group_data
        self._dropouts = run.participation.dropouts
        self._sliced = slicing and _in_slices(self._algorithm.process.next, group_data, slicing)
        self._last_cohort: cohort.Cohort = np.zeros(0, np.int64)

    def initialize(self, seed: int) -> StatefulClientsState:
        server, of_client = self._algorithm.initial_states(seed)
        self._states = state_files.ClientStates(self.folder / "client_states", of_client)
        self.stores = [self._states]
        self._next = self._sliced or self._compose(self._states)
        versions = np.full(len(self._run.setting.client_sizes), state_files.NEVER, np.int64)
        return StatefulClientsState(server, versions)

    def _compose(self, states: state_files.ClientStates) -> tff.Computation:
        """The round with files of states; its results are those of `_sliced`."""
        process_next = self._algorithm.process.next

        def work(server, client_states, client_data):
            output = process_next(server, client_states, client_data)
            return output.client_states, (output.state, output.metrics, output.client_metrics)

        server_type = process_next.type_signature.parameter[0]
        return with_state_files(states, self._group_data, server_type, work)

    def run_round(
        self, state: StatefulClientsState, round_number: int
    ) -> tuple[StatefulClientsState, dict[str, float]]:
        self.keep_also([state.versions], self._last_cohort)
        invited = self._run.participation.cohorts(round_number)
        reports = self._dropouts.reports(round_number, invited)
        if not len(reports.last):
            return self._without_clients(state, round_number, len(invited))
        before = state_files.healed([self._states], reports.last, state.versions)

        def run(clients: cohort.Cohort) -> Any:
            if not len(clients):
                return None
            to_read = self._states.paths_to_read(clients, before)
            to_write = self._states.paths_to_write(clients, round_number)
            return self._next(state.server, to_read, to_write, cohort.fold(clients, 0)), to_write

        result, failed = self._dropouts.run_without_failing(round_number, reports.last, run)
        if result is None:  # All clients failed.
            return self._without_clients(state, round_number, len(invited))
        (server, metrics, client_metrics, _), written = result
        clients = reports.last[~np.isin(reports.last, failed)]
        self._states.commit(written)
        self.log.write(round_number, clients, client_metrics)
        self._last_cohort = clients
        versions = state_files.with_version(before, clients, round_number)
        values = flatten_metrics(metrics)
        values["dropped_clients"] += len(reports.invited) - len(clients)
        values["clients"] = len(reports.invited)
        values["bytes"] = len(reports.invited) * sum(self._run.client_bytes)
        self._dropouts.check_metrics(round_number, values)
        return StatefulClientsState(server, versions), values

    def _without_clients(
        self, state: StatefulClientsState, round_number: int, invited: int
    ) -> tuple[StatefulClientsState, dict[str, float]]:
        """A round without clients, which TFF cannot compute: the server only counts it.

        A server that needs more than the means of its clients does not count it before the first
        client has taken part: Orchestra finds in round 0 the centroids of all later rounds.
        """
        self._dropouts.check(round_number, invited, invited)
        self._last_cohort = np.zeros(0, np.int64)
        metrics_type = self._algorithm.process.next.type_signature.result.metrics.member
        values = dict.fromkeys(tff.structure.name_list(metrics_type), math.nan)
        counts = {
            "samples": 0,
            "dropped_clients": invited,
            "clients": invited,
            "bytes": invited * sum(self._run.client_bytes),
        }
        number = state.server.round_number
        is_counted = bool(self._algorithm.plain_stages) or number > 0
        server = state.server._replace(round_number=np.int64(number + is_counted))
        return state._replace(server=server), values | counts

    def encoder_weights(self, state: StatefulClientsState, client_id: str | None = None) -> Weights:
        model = state.server.model
        if client_id is None and self._algorithm.global_weights is not None:
            return self._algorithm.global_weights(model)
        # Clients that train alone have no global model; one of them stands for it.
        client = self._run.setting.evaluated_client() if client_id is None else int(client_id)
        client_state = self._states.load(client, int(state.versions[client]))
        return self._algorithm.client_weights(model, client_state)

    def local_weights(self, state: StatefulClientsState, client: int) -> Weights | None:
        if self._algorithm.local_weights is None:
            return None
        version = state_files.healed_version([self._states], client, int(state.versions[client]))
        if version == state_files.NEVER:
            return None
        return self._algorithm.local_weights(self._states.load(client, version))


def _in_slices(
    process_next: tff.Computation, group_data: tff.Computation, slicing: Slicing
) -> Callable[..., Any]:
    """The round in slices, with the arguments and results of the computation with files."""
    server_type, states_type, _ = process_next.type_signature.parameter
    metrics_type = process_next.type_signature.result.client_metrics
    files = ClientFiles(states_type.member, metrics_type.member, group_data)

    @tff.federated_computation(server_type, files.type)
    def next_round(server, clients):
        output = process_next(server, *files.read(clients))
        written = files.write(clients, output.client_states, output.client_metrics)
        return output.state, tff.federated_zip((output.metrics, written))

    stage = Stage(next_round)

    def run(server, to_read, to_write, groups):
        content = to_bytes(server)
        partials = slicing.work_on(stage.program, content, groups, to_read)
        server, (metrics, _) = stage.finish(content, partials)
        return server, metrics, files.metrics(partials), write_states(to_write, partials)

    return run
