"""Simulation of a server and clients that keep a state between rounds, in files."""

import math
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff
import tree

from tff_ssl.models.dual_encoder import Weights
from tff_ssl.simulation import cohort, metrics_log, state_files
from tff_ssl.simulation.metrics_log import flatten_metrics
from tff_ssl.simulation.participation import Participation
from tff_ssl.simulation.training_loop import Simulation


class StatefulClientsState(NamedTuple):
    """The state of a run.

    Attributes:
      server: The algorithm's server state.
      versions: Round in which each client last took part, int64 [clients]; the name of its file.
    """

    server: Any
    versions: Any


class StatefulClientsSimulation(Simulation):
    """A process whose clients' states are kept in files."""

    def __init__(
        self,
        algorithm: Any,
        group_data: tff.Computation,
        participation: Participation,
        num_clients: int,
        folder: pathlib.Path,
        bytes_per_client: int = 0,
        *,
        sliced: Any = None,
        evaluated_client: int = 0,
    ):
        """Joins the algorithm with the clients' data.

        Args:
          algorithm: A `kinds.stateful.algorithm.StatefulClients`.
          group_data: (client indices int64 [k]) -> their examples; runs where the clients' work
            runs.
          participation: Clients that take part in each round.
          num_clients: Size of the population.
          folder: Folder of the run: `client_states/` and `client_metrics.csv` are written there.
          bytes_per_client: Bytes that a client receives and sends in a round.
          sliced: A `sliced_rounds.SlicedStatefulClients` if rounds are cut into slices; else None.
          evaluated_client: Client whose model stands for the run where there is no global one.
        """
        self._evaluated_client = evaluated_client
        self._participation = participation
        self._dropouts = participation.dropouts
        self._algorithm = algorithm
        self._group_data = group_data
        self._num_clients = num_clients
        self._folder = folder
        self._bytes_per_client = bytes_per_client
        self._sliced = sliced
        self._kept: list[state_files.Versions] = []
        self._last_cohort: cohort.Cohort = np.zeros(0, np.int64)
        self._log = metrics_log.ClientLog(folder / "client_metrics.csv")

    def initialize(self, seed: int) -> StatefulClientsState:
        self._states = state_files.ClientStates(
            self._folder / "client_states", self._algorithm.initial_client_state(seed)
        )
        self._next = self._sliced or self._compose(self._states)
        first = self._algorithm.process.initialize()
        model = tree.map_structure(np.asarray, self._algorithm.initial_model(seed))
        versions = np.full(self._num_clients, state_files.NEVER, np.int64)
        return StatefulClientsState(first._replace(model=model), versions)

    def _compose(self, states: state_files.ClientStates) -> tff.Computation:
        """The round with files of states: (server, paths to read, paths to write, indices)."""
        process_next = self._algorithm.process.next
        paths_type = tff.types.FederatedType(np.str_, tff.CLIENTS)
        indices_type = self._group_data.type_signature.parameter

        @tff.federated_computation(
            process_next.type_signature.parameter[0],
            paths_type,
            paths_type,
            tff.types.FederatedType(indices_type, tff.CLIENTS),
        )
        def run(server, to_read, to_write, indices):
            output = process_next(
                server,
                tff.federated_map(states.read, to_read),
                tff.federated_map(self._group_data, indices),
            )
            written = tff.federated_map(states.write, (to_write, output.client_states))
            return output.state, output.metrics, output.client_metrics, written

        return run

    def run_round(
        self, state: StatefulClientsState, round_number: int
    ) -> tuple[StatefulClientsState, dict[str, float]]:
        # Without this, the states of all rounds since the last checkpoint would stay on the disk.
        # They are not deleted at the end of a round, because a run that is stopped there goes on
        # from the state before the round.
        self._states.keep_only([*self._kept, state.versions], self._last_cohort)
        invited = self._participation.cohorts(round_number)
        reports = self._dropouts.reports(round_number, invited)
        if not len(reports.last):
            return self._without_clients(state, round_number, len(invited))
        before = state_files.healed([self._states], reports.last, state.versions)

        def run(clients: cohort.Cohort) -> Any:
            to_write = self._states.paths_to_write(clients, round_number)
            output = self._next(
                state.server,
                self._states.paths_to_read(clients, before),
                to_write,
                cohort.fold(clients, 0),
            )
            return output, to_write

        result, failed = self._dropouts.run_without_failing(round_number, reports.last, run)
        (server, metrics, client_metrics, _), written = result
        clients = reports.last[~np.isin(reports.last, failed)]
        self._states.commit(written)
        self._log.write(round_number, clients, client_metrics)
        self._last_cohort = clients
        versions = before.copy()
        versions[clients] = round_number
        values = flatten_metrics(metrics)
        values["dropped_clients"] += len(reports.invited) - len(clients)
        values["clients"] = len(reports.invited)
        values["bytes"] = len(reports.invited) * self._bytes_per_client
        self._dropouts.check_metrics(round_number, values)
        return StatefulClientsState(server, versions), values

    def _without_clients(
        self, state: StatefulClientsState, round_number: int, invited: int
    ) -> tuple[StatefulClientsState, dict[str, float]]:
        """A round in which no client takes part: only the server's round number changes.

        The computation is not called, since TFF cannot call it without clients.
        """
        self._dropouts.check(round_number, invited, invited)
        self._last_cohort = np.zeros(0, np.int64)
        metrics_type = self._algorithm.process.next.type_signature.result.metrics.member
        values = dict.fromkeys(tff.structure.name_list(metrics_type), math.nan)
        counts = {
            "samples": 0,
            "dropped_clients": invited,
            "clients": invited,
            "bytes": invited * self._bytes_per_client,
        }
        server = state.server._replace(round_number=np.int64(state.server.round_number + 1))
        return state._replace(server=server), values | counts

    def encoder_weights(self, state: StatefulClientsState, client_id: str | None = None) -> Weights:
        model = state.server.model
        if client_id is None and self._algorithm.global_weights is not None:
            return self._algorithm.global_weights(model)
        # Clients that train alone have no global model; that of one of them is used instead.
        client = self._evaluated_client if client_id is None else int(client_id)
        client_state = self._states.load(client, int(state.versions[client]))
        return self._algorithm.client_weights(model, client_state)

    def local_weights(self, state: StatefulClientsState, client: int) -> Weights | None:
        if self._algorithm.local_weights is None:
            return None
        version = state_files.healed_version([self._states], client, int(state.versions[client]))
        if version == state_files.NEVER:
            return None
        return self._algorithm.local_weights(self._states.load(client, version))

    def on_start(self, states: Sequence[StatefulClientsState], done: int) -> None:
        self._kept = [state.versions for state in states]
        self._states.keep_only(self._kept)
        self._log.trim(done)

    def on_checkpoint(self, state: StatefulClientsState) -> None:
        # The checkpoint before the last is kept too.
        self._kept = [*self._kept[-1:], state.versions]
        self._states.keep_only(self._kept)
