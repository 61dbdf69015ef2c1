"""The part of a simulation that keeps files of the clients' states between rounds."""

import pathlib
from collections.abc import Sequence
from typing import Any

from tff_ssl.simulation import metrics_log
from tff_ssl.simulation.cohort import Cohort
from tff_ssl.simulation.state_files import ClientStates, Versions
from tff_ssl.simulation.training_loop import Simulation


class StoredStatesSimulation(Simulation):
    """A simulation whose state names a version of each client's file.

    Attributes:
      folder: Folder of the run: `client_states/` and `client_metrics.csv` are written there.
      log: The file of the clients' metrics.
      stores: Files of states, which `initialize` makes.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.log = metrics_log.ClientLog(folder / "client_metrics.csv")
        self.stores: list[ClientStates] = []
        self._kept: list[Versions] = []  # Those of the last two checkpoints.

    def keep_also(self, tables: Sequence[Versions], clients: Cohort | None = None) -> None:
        """Deletes the states that neither these tables nor the checkpoints name.

        Without this, the states of all rounds since the last checkpoint would stay on the disk.
        Those of the state before a round are kept until the round is over, because a run that is
        stopped in it continues from there.

        Args:
          tables: Further versions that are kept.
          clients: Clients whose states may be deleted; None for all.
        """
        for store in self.stores:
            store.keep_only([*self._kept, *tables], clients)

    def on_start(self, states: Sequence[Any], done: int) -> None:
        self._kept = [state.versions for state in states]
        self.keep_also([])
        self.log.trim(done)

    def on_checkpoint(self, state: Any) -> None:
        # The checkpoint before the last is kept too.
        self._kept = [*self._kept[-1:], state.versions]
        self.keep_also([])
