"""The part of a simulation that keeps the clients' states in files between rounds."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_ssl.simulation import metrics_log
from tff_ssl.simulation.cohort import Cohort
from tff_ssl.simulation.state_files import ClientStates, Versions
from tff_ssl.simulation.training_loop import Simulation


class StoredStatesSimulation(Simulation):
    """A simulation whose state names a version of each client's file.

    Attributes:
      folder: Folder of the run, for `client_states/` and `client_metrics.csv`.
      log: The file of the clients' metrics.
      stores: Files of states, which `initialize` makes.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.log = metrics_log.ClientLog(folder / "client_metrics.csv")
        self.stores: list[ClientStates] = []
        self._kept: list[Versions] = []  # Those of the last two checkpoints.

    def keep_also(self, tables: Sequence[Versions], clients: Cohort | None = None) -> None:
        """Deletes the clients' states (None: all clients') that no table or checkpoint names.

        Otherwise, the states of all rounds since the last checkpoint would stay on the disk. Those
        before a round are kept until it is over: a run that stops in it continues from there.
        """
        for store in self.stores:
            store.keep_only([*self._kept, *tables], clients)

    def on_start(self, states: Sequence[Any], done: int) -> None:
        self._kept = [state.versions for state in states]
        self.keep_also([])
        self.log.trim(done)

    def on_checkpoint(self, state: Any) -> None:
        self._kept = [*self._kept[-1:], state.versions]
        self.keep_also([])


def with_state_files(
    states: ClientStates,
    group_data: tff.Computation,
    server_type: tff.Type,
    work: Callable[[tff.Value, tff.Value, tff.Value], tuple[tff.Value, tuple[tff.Value, ...]]],
) -> tff.Computation:
    """Composes work with files of states: (server, paths to read, paths to write, indices).

    `work` gets the server's value, and states and examples of the clients; it gives their new
    states, and the results of the computation, which are followed by the numbers of bytes written.
    """
    paths_type = tff.types.FederatedType(np.str_, tff.CLIENTS)
    indices_type = tff.types.FederatedType(group_data.type_signature.parameter, tff.CLIENTS)

    @tff.federated_computation(server_type, paths_type, paths_type, indices_type)
    def run(server, to_read, to_write, indices):
        old_states = tff.federated_map(states.read, to_read)
        new_states, results = work(server, old_states, tff.federated_map(group_data, indices))
        return *results, tff.federated_map(states.write, (to_write, new_states))

    return run
