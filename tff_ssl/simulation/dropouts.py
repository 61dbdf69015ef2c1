"""Simulated dropout, and rounds that continue without the clients that fail.

A client may drop out at random (simulated), fail in its computation, take too long, or send values
that are not finite. Such clients are counted, and the round averages without them. The run ends
only if a round loses more than `max_dropped` of its clients.
"""

import dataclasses
import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import grpc
import numpy as np

from tff_ssl.errors import ClientFailedError, ClientTimeoutError, TrainingError
from tff_ssl.simulation.cohort import Cohort

_LOG = logging.getLogger(__name__)
# Names of the functions of a graph, in which an operation failed.
_OF_WORKER = re.compile(r"^(Failed to run computation: )?(\{\{function_node \S+\}\} )*")
_DROPOUT = 0x64726F70  # Makes the draws independent of the sampling of cohorts.

T = TypeVar("T")

# Errors of a round in which a client's computation fails.
CLIENT_ERRORS = (grpc.RpcError, ClientFailedError, ClientTimeoutError)


class Reports(NamedTuple):
    """The clients of a round that report in its stages."""

    invited: Cohort  #: Indices of the clients in the cohort, int64 [k].
    #: Indices of the clients that report in the first of two stages, int64 [at most k].
    first: Cohort
    last: Cohort  #: Indices of the clients in `first` that also report in the last (or only) stage.

    def among(self, clients: Cohort) -> "Reports":
        """The reports of some clients of the cohort."""
        return Reports(*(part[np.isin(part, clients)] for part in self))


@dataclasses.dataclass(frozen=True)
class Dropouts:
    """Simulated dropout, and the share of clients that may fail."""

    #: Probability that a client does not finish its round: half of these clients drop out before
    #: their first report, half between their first and their last report.
    dropout: float = 0.0
    #: Largest share of a round's clients that may drop out without ending the run.
    max_dropped: float = 0.5
    seed: int = 0  #: Seed of the simulated dropout.

    def reports(self, round_number: int, cohort: Cohort) -> Reports:
        """The clients that report in a round: a pure function of seed, round and client."""
        if not self.dropout:
            return Reports(cohort, cohort, cohort)
        seeds = ([_DROPOUT, self.seed, round_number, client] for client in cohort.tolist())
        draws = np.array([np.random.default_rng(seed).random() for seed in seeds])
        first, last = cohort[draws >= self.dropout / 2], cohort[draws >= self.dropout]
        return Reports(cohort, first, last)

    def check(self, round_number: int, invited: int, dropped: int, reason: str = "") -> None:
        """Checks a round's number of dropped clients; `reason` is for the message.

        Raises:
          TrainingError: If more than `max_dropped` of the invited clients were dropped.
        """
        if dropped > self.max_dropped * invited:
            raise TrainingError(
                f"round {round_number + 1}: {dropped} of {invited} clients were dropped, more than "
                f"--max_dropped={self.max_dropped:g}{f'; {reason}' if reason else ''} (the "
                "checkpoints are of earlier rounds)"
            )

    def check_metrics(self, round_number: int, metrics: Mapping[str, float]) -> None:
        """Calls `check` with the counts of a round's metrics.

        A loss of samples that is not finite is left to the training loop: training has diverged.
        """
        if math.isfinite(metrics["loss"]) or not metrics["samples"]:
            self.check(round_number, int(metrics["clients"]), int(metrics["dropped_clients"]))

    def run_without_failing(
        self, round_number: int, clients: Cohort, run: Callable[[Cohort], T]
    ) -> tuple[T, Cohort]:
        """Runs a round; if it fails, finds the failing clients and runs it without them.

        TFF reports that a computation failed, but not for which client. Bisection finds the failing
        clients: each half of a failing group is run on its own, down to single clients. `run` is a
        pure function: clients -> result of the round.

        Returns:
          The result, and the sorted indices of the clients that were left out, int64.

        Raises:
          TrainingError: If too many clients fail, or the round fails but no single client does.
        """
        try:
            return run(clients), clients[:0]
        except CLIENT_ERRORS as error:
            reason = first_line(error)
        failing: list[int] = []
        pending = _halves(clients) or [clients]
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
        remaining = clients[~np.isin(clients, failing)]
        names = ", ".join(map(str, sorted(failing)))
        _LOG.warning("round %d continues without clients %s: %s", round_number + 1, names, reason)
        return run(remaining), np.array(sorted(failing), np.int64)


def clients_to_invite(clients_per_round: int, dropout: float) -> int:
    """The number of clients to invite so that at least `clients_per_round` finish on average."""
    return math.ceil(clients_per_round / (1 - dropout))


def expected_in_first_stage(invited: int, dropout: float) -> float:
    """The expected number of clients that report in the first of two stages."""
    return invited * (1 - dropout / 2)


def expected_to_finish(invited: int, dropout: float) -> float:
    """The expected number of clients that finish; rounding (`clients_to_invite`) may raise it."""
    return invited * (1 - dropout)


def _halves(clients: Cohort) -> list[Cohort]:
    """The two halves of the clients; nothing for a single client."""
    return np.array_split(clients, 2) if len(clients) > 1 else []


def first_line(error: BaseException) -> str:
    """The first line of an error's message without what TFF's worker puts before it.

    It has at most 300 characters.
    """
    text = error.details() if isinstance(error, grpc.Call) else str(error)
    lines = (text or type(error).__name__).strip().splitlines()
    return _OF_WORKER.sub("", lines[0])[:300]
