"""Clients that do not do their part: who reports, and how a round goes on without the rest.

A client may drop out by chance (simulated), fail in its computation, take too long, or send what is
not finite. None of them is averaged, all are counted, and the round is that of the others; the run
ends only if a round loses more than `max_dropped` of its clients.
"""

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import grpc
import numpy as np

from tff_ssl.errors import ClientFailedError, ClientTimeoutError, TrainingError
from tff_ssl.simulation.cohort import Cohort

_LOG = logging.getLogger(__name__)
_DROPOUT = 0x64726F70  # So that who drops out has nothing to do with who was sampled.

T = TypeVar("T")

# What TFF raises when a client's computation fails, and with it the round's.
CLIENT_ERRORS = (grpc.RpcError, ClientFailedError, ClientTimeoutError)


class Reports(NamedTuple):
    """A round's clients.

    Attributes:
      invited: The cohort, int64 [k].
      first: Those that report in the first of two stages; all of them report in the only one.
      last: Those of `first` that report in the last stage.
    """

    invited: Cohort
    first: Cohort
    last: Cohort

    def among(self, clients: Cohort) -> "Reports":
        """The same for a part of the cohort."""
        return Reports(*(part[np.isin(part, clients)] for part in self))


@dataclasses.dataclass(frozen=True)
class Dropouts:
    """What is simulated, and what is borne.

    Attributes:
      dropout: Probability with which a client does not finish its round: half of those drop out
        before their first report, half after it and before their last.
      max_dropped: Share of a round's clients that may be dropped before the run ends.
      seed: Of who drops out.
    """

    dropout: float = 0.0
    max_dropped: float = 0.5
    seed: int = 0

    def reports(self, round_number: int, cohort: Cohort) -> Reports:
        """Who reports: a pure function of seed, round and client."""
        if not self.dropout:
            return Reports(cohort, cohort, cohort)
        draws = np.array(
            [
                np.random.default_rng([_DROPOUT, self.seed, round_number, client]).random()
                for client in cohort.tolist()
            ]
        )
        first, last = cohort[draws >= self.dropout / 2], cohort[draws >= self.dropout]
        return Reports(cohort, first, last)

    def check(self, round_number: int, invited: int, dropped: int, reason: str = "") -> None:
        """Raises a `TrainingError` if that many of the invited clients are too many to lose."""
        if dropped > self.max_dropped * invited:
            raise TrainingError(
                f"round {round_number + 1}: {dropped} of {invited} clients were dropped, more than "
                f"--max_dropped={self.max_dropped:g}{f'; {reason}' if reason else ''} (the "
                "checkpoints are of earlier rounds)"
            )

    def check_metrics(self, round_number: int, metrics: Mapping[str, float]) -> None:
        """`check` of a round's metrics; where nobody has a finite loss, training has diverged."""
        if math.isfinite(metrics["loss"]):
            self.check(round_number, int(metrics["clients"]), int(metrics["dropped_clients"]))

    def run_without_failing(
        self, round_number: int, clients: Cohort, run: Callable[[Cohort], T]
    ) -> tuple[T, Cohort]:
        """Runs a round; if it fails, finds the clients that make it fail, and runs it without them.

        TFF says that a computation failed, not whose. Halves of the cohort are tried, and halves
        of those that fail, until single clients are left.

        Args:
          round_number: For messages.
          clients: The cohort.
          run: Clients -> the round's result; pure.

        Returns:
          The result, and the clients that were left out.

        Raises:
          TrainingError: If too many fail.
        """
        try:
            return run(clients), clients[:0]
        except CLIENT_ERRORS as error:
            reason = first_line(error)
        failing: list[int] = []
        pending = list(_halves(clients))
        while pending:
            part = pending.pop()
            try:
                run(part)
            except CLIENT_ERRORS as error:
                reason = first_line(error)
                if len(part) == 1:
                    failing.append(int(part[0]))
                    self.check(round_number, len(clients), len(failing), f"the last: {reason}")
                pending += _halves(part)
        if not failing:
            raise TrainingError(f"round {round_number + 1} failed, and no client alone: {reason}")
        left = clients[~np.isin(clients, failing)]
        names = ", ".join(map(str, sorted(failing)))
        _LOG.warning("round %d goes on without clients %s: %s", round_number + 1, names, reason)
        return run(left), np.array(sorted(failing), np.int64)


def clients_to_invite(clients_per_round: int, dropout: float) -> int:
    """Clients to invite so that on average `clients_per_round` of them finish."""
    return math.ceil(clients_per_round / (1 - dropout))


def _halves(clients: Cohort) -> list[Cohort]:
    return np.array_split(clients, 2) if len(clients) > 1 else []


def first_line(error: BaseException) -> str:
    """What a failure says, cut short."""
    text = error.details() if isinstance(error, grpc.Call) else str(error)
    lines = (text or type(error).__name__).strip().splitlines()
    return lines[0][:300]
