"""A federated run on this machine: joins an algorithm, the clients' data and the cohorts.

`Simulation` is the protocol that `program` drives, whatever the kind of algorithm:
`initialize(seed)`, `run_round(state, round_number)`, `encoder_weights(state)`.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow_federated as tff
import tree

from tff_ssl.errors import TrainingError
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.runtime.sliced_rounds import SlicedStatefulClients, SlicedStatelessClients
from tff_ssl.simulation import cohort, metrics_log, state_files
from tff_ssl.simulation.dropouts import Dropouts, Reports
from tff_ssl.templates.stateful_clients import StatefulClients

# Cohorts that vary in size are filled up to a multiple of this; see `cohort.fold`.
_GROUPS = 8


class Simulation(Protocol):
    """What `program` needs of a run."""

    def initialize(self, seed: int) -> Any:
        """The state before round 0."""

    def run_round(self, state: Any, round_number: int) -> tuple[Any, dict[str, float]]:
        """The state after a round, and the round's metrics; pure in its arguments."""

    def encoder_weights(self, state: Any, client_id: str | None = None) -> Weights:
        """The model's weights; of one client, where clients have models of their own."""

    def saved(self, state: Any) -> None:
        """Is told that a checkpoint holds this state."""


class StatelessClientsSimulation:
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
        *,
        stages: Sequence[tff.learning.templates.LearningProcess] = (),
        faults: Dropouts | None = None,
        cohorts_vary: bool = False,
        epsilon: Callable[[int], float] | None = None,
        next_round: SlicedStatelessClients | None = None,
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
          stages: The round in parts, of which each takes the state of the one before: run instead
            of `process` where clients drop out in between.
          faults: Which clients drop out, and how many may; none and half of them by default.
          cohorts_vary: Whether cohorts differ in size.
          epsilon: Rounds -> the privacy that they cost, a metric.
          next_round: Where rounds are cut into slices.
        """
        compose = tff.simulation.compose_dataset_computation_with_learning_process
        self._process = compose(group_data, process)
        self._stages = [compose(group_data, stage).next for stage in stages]
        if next_round and stages:
            self._stages = next_round.stages
        self._faults = faults or Dropouts()
        self._multiple = _GROUPS if cohorts_vary or self._faults.dropout else 1
        self._epsilon = epsilon
        self._model = model
        self._initial_weights = initial_weights
        self._cohorts = cohorts
        self._groups = groups
        self._bytes_per_client = bytes_per_client
        self._next = next_round or self._process.next

    def initialize(self, seed: int) -> Any:
        initial = self._initial_weights(seed)
        groups = (initial.trainable, initial.non_trainable)
        weights = tff.learning.models.ModelWeights(
            *(tuple(np.asarray(w) for w in group) for group in groups)
        )
        return self._process.set_model_weights(self._process.initialize(), weights)

    def run_round(self, state: Any, round_number: int) -> tuple[Any, dict[str, float]]:
        reports = self._faults.reports(round_number, self._cohorts(round_number))
        output, failed = self._faults.run_without_failing(
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
        self._faults.check_metrics(round_number, metrics)
        if self._epsilon:
            metrics["epsilon"] = self._epsilon(round_number + 1)
        return output.state, metrics

    def _round(self, state: Any, reports: Reports) -> Any:
        """The round of these clients; its `dropped_clients` are those among `reports.last`."""
        output = self._folded_round(state, reports, self._groups)
        if self._groups and flatten_metrics(output.metrics)["dropped_clients"]:
            # A client that is not finite has taken its whole group with it.
            output = self._folded_round(state, reports, 0)
        return output

    def _folded_round(self, state: Any, reports: Reports, groups: int) -> Any:
        in_parts = self._stages and self._faults.dropout
        rounds = self._stages if in_parts else [self._next]
        reporting = [reports.first, reports.last] if in_parts else [reports.last]
        for next_round, clients in zip(rounds, reporting, strict=True):
            folded = cohort.fold(clients, min(groups, len(clients)), self._multiple)
            output = next_round(state, folded)
            state = output.state
        metrics = flatten_metrics(output.metrics)
        # Groups of no clients count as dropped in the computation.
        metrics["dropped_clients"] -= sum(len(group) == 0 for group in folded)
        return output._replace(metrics=metrics)

    def encoder_weights(self, state: Any, client_id: str | None = None) -> Weights:
        return self._model.part_of(state.global_model_weights)

    def saved(self, state: Any) -> None:
        pass


class StatefulClientsState(NamedTuple):
    """The state of a run whose clients remember.

    Attributes:
      server: The algorithm's server state.
      versions: The round in which each client last took part, int64 [clients]; names its file.
    """

    server: Any
    versions: Any


class StatefulClientsSimulation:
    """Clients with memory: a process with client states, which are kept in files."""

    def __init__(
        self,
        computations: StatefulClients,
        group_data: tff.Computation,
        cohorts: Callable[[int], cohort.Cohort],
        num_clients: int,
        folder: pathlib.Path,
        bytes_per_client: int = 0,
        *,
        faults: Dropouts | None = None,
        next_round: SlicedStatefulClients | None = None,
    ):
        """Joins the parts.

        Args:
          computations: The algorithm.
          group_data: (client indices int64 [k]) -> their examples; runs where the clients' work
            runs.
          cohorts: Round number -> client indices.
          num_clients: Of the population.
          folder: Of the run: `client_states/` and `client_metrics.csv` are written there.
          bytes_per_client: What a client receives and sends in a round.
          faults: Which clients drop out, and how many may; none and half of them by default.
          next_round: Where rounds are cut into slices.
        """
        self._faults = faults or Dropouts()
        self._computations = computations
        self._group_data = group_data
        self._cohorts = cohorts
        self._num_clients = num_clients
        self._folder = folder
        self._bytes_per_client = bytes_per_client
        self._next_round = next_round
        self._saved: list[state_files.Versions] = []
        self._last_cohort: cohort.Cohort = np.zeros(0, np.int64)
        self._log = metrics_log.ClientLog(folder / "client_metrics.csv")

    def initialize(self, seed: int) -> StatefulClientsState:
        self._states = state_files.ClientStates(
            self._folder / "client_states", self._computations.initial_client_state(seed)
        )
        self._next = self._next_round or self._compose(self._states)
        first = self._computations.process.initialize()
        model = _to_arrays(self._computations.initial_model(seed))
        versions = np.full(self._num_clients, state_files.NEVER, np.int64)
        return StatefulClientsState(first._replace(model=model), versions)

    def _compose(self, states: state_files.ClientStates) -> tff.Computation:
        process_next = self._computations.process.next
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
    ) -> tuple[Any, dict[str, float]]:
        if not self._saved:
            self._saved = [state.versions]  # Of the checkpoint that the run goes on from.
            self._log.trim(round_number)
        # Otherwise the states of all rounds since the last checkpoint would lie there. Not at the
        # end of a round: a run that is stopped then goes on from the state before it.
        self._states.keep_only([*self._saved, state.versions], self._last_cohort)
        reports = self._reports(round_number)

        def run(clients: cohort.Cohort) -> Any:
            to_write = self._states.paths_to_write(clients, round_number)
            output = self._next(
                state.server,
                self._states.paths_to_read(clients, state.versions),
                to_write,
                cohort.fold(clients, 0),
            )
            return output, to_write

        done, failed = self._faults.run_without_failing(round_number, reports.last, run)
        (server, metrics, client_metrics, _), written = done
        clients = reports.last[~np.isin(reports.last, failed)]
        self._states.commit(written)
        self._log.write(round_number, clients, client_metrics)
        self._last_cohort = clients
        versions = state.versions.copy()
        versions[clients] = round_number
        values = flatten_metrics(metrics)
        values["dropped_clients"] += len(reports.invited) - len(clients)
        values["clients"] = len(reports.invited)
        values["bytes"] = len(reports.invited) * self._bytes_per_client
        self._faults.check_metrics(round_number, values)
        return StatefulClientsState(server, versions), values

    def _reports(self, round_number: int) -> Reports:
        reports = self._faults.reports(round_number, self._cohorts(round_number))
        if not len(reports.last):
            raise TrainingError(f"round {round_number + 1}: all clients have dropped out")
        return reports

    def encoder_weights(self, state: StatefulClientsState, client_id: str | None = None) -> Weights:
        model = state.server.model
        if client_id is None and self._computations.global_weights is not None:
            return self._computations.global_weights(model)
        # Clients that train alone have no global model: the first one stands for them.
        client = int(client_id or 0)
        own = self._states.load(client, int(state.versions[client]))
        return self._computations.client_weights(model, own)

    def local_weights(self, state: StatefulClientsState, client: int) -> Weights | None:
        """With which the client's last local training ended; None where that is not kept."""
        version = int(state.versions[client])
        if self._computations.local_weights is None or version == state_files.NEVER:
            return None
        return self._computations.local_weights(self._states.load(client, version))

    def saved(self, state: StatefulClientsState) -> None:
        # The checkpoint before the last is kept too.
        self._saved = [*self._saved[-1:], state.versions]
        self._states.keep_only(self._saved)


def _to_arrays(structure: Any) -> Any:
    return tree.map_structure(np.asarray, structure)


def flatten_metrics(metrics: Any) -> dict[str, float]:
    """Leaves of nested metrics by their own names; parts without a leaf vanish."""
    leaves: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            leaves.update(flatten_metrics(value))
        elif np.ndim(value) == 0 and not isinstance(value, tuple):
            leaves[name] = np.asarray(value).item()
    return leaves
