"""Participation of clients in the rounds of a run with a server."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tff_ssl.simulation.cohort import Cohort
from tff_ssl.simulation.dropouts import Dropouts


class Participation(NamedTuple):
    """The cohorts of a run."""

    #: Round number -> indices of the invited clients, int64 [k]; pure.
    cohorts: Callable[[int], Cohort]
    clients_per_round: int  #: Number of clients of a round that are expected to finish it.
    invited: int  #: Expected number of invited clients.
    varies: bool = False  #: Whether the number of invited clients varies between rounds.
    dropouts: Dropouts = Dropouts()  #: Simulated dropout, and how many clients may fail.

    def describe(self) -> str:
        """The size of a cohort and the expected number of clients that finish, as text."""
        about = "about " if self.varies else ""
        if not self.dropouts.dropout:
            return f"{about}{self.clients_per_round} clients"
        return (
            f"{about}{self.invited} clients, of which about {self.clients_per_round} finish "
            f"(dropout {self.dropouts.dropout:g})"
        )

    def most_frequent(self, rounds: int, clients: Sequence[int]) -> int:
        """The client that is invited most often in so many rounds; of several, the first."""
        counts = np.zeros(max(clients) + 1, np.int64)
        for number in range(rounds):
            invited = self.cohorts(number)
            np.add.at(counts, invited[invited < len(counts)], 1)
        return max(clients, key=lambda client: (counts[client], -client))
