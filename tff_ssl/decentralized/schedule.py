"""What happens in the rounds of decentralized training, known before anything is trained.

Models lie in slots: one per client, or one per client and model where several models travel. In a
round, clients train the models in some slots, and put averages of models into slots. Which ones
depends on network, volumes and seed alone, so a plan is a pure function of the round, and a run
that is resumed follows the plan that it began with.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tff_ssl.decentralized.traffic import Traffic

SlotWeights = npt.NDArray[np.float64]


class Training(NamedTuple):
    """Clients train, at the same time, and leave the results where the models were.

    Attributes:
      slots: Of each model.
      clients: Who trains each; may occur more than once.
      notes: Of each, what the log of clients shows beside its metrics.
    """

    slots: tuple[int, ...]
    clients: tuple[int, ...]
    notes: tuple[Mapping[str, int], ...]


class Averaging(NamedTuple):
    """Slots get weighted means of the models that were in the slots before, all at the same time.

    Attributes:
      targets: Slots, each once.
      weights: A row per target over all slots, float64 [targets, slots]; rows sum to 1.
    """

    targets: tuple[int, ...]
    weights: SlotWeights


class ScheduledRound(NamedTuple):
    """A round: its operations in order.

    Attributes:
      operations: What is done.
      traffic: What is sent.
      time: Simulated time that it takes, see `navigator.training_time`.
    """

    operations: tuple[Training | Averaging, ...]
    traffic: Traffic
    time: float


class Schedule(Protocol):
    """The rounds of a run; rounds are counted from 0."""

    @property
    def num_slots(self) -> int:
        """Number of slots."""

    @property
    def routes(self) -> Sequence[Sequence[int]]:
        """The clients that trained each model that travels, in order; none where none does."""

    def round(self, round_number: int) -> ScheduledRound:
        """What happens in a round."""

    def evaluated(self, done: int, client: int | None = None) -> SlotWeights:
        """Whose mean is evaluated after so many rounds, [slots].

        Args:
          done: Rounds that are over.
          client: The model of this client; None for the one that stands for the run.

        Raises:
          ValueError: The client has left.
        """


def summed(plan: Schedule, rounds: int) -> tuple[Traffic, float]:
    """Traffic and simulated time of the first rounds of a plan."""
    total, time = Traffic(), 0.0
    for number in range(rounds):
        planned = plan.round(number)
        total, time = total + planned.traffic, time + planned.time
    return total, time
