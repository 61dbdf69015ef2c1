"""The state log that travels with a model through a network (DeNAV, sections 4 and 5)."""

import dataclasses
from typing import NamedTuple

_BYTES_PER_NUMBER = 8


class Visits(NamedTuple):
    """The entry of a state log for a client that has trained the model."""

    client: int  #: Index m of the client.
    last_step: int  #: Last step L(m) in which the client trained; steps count from 1.
    selections: int  #: Number Z(m) of its trainings.
    #: Duration t_m of its last training, in seconds or any unit that is the same for all.
    time: float


# The entry for a client that has not trained the model. Eq. 4 and 5 test for L(m) = 0.
NEVER = Visits(-1, 0, 0, 0.0)


@dataclasses.dataclass(frozen=True)
class StateLog:
    """The state log psi of a model, written by the clients that train it."""

    model_id: int = 0  #: Number psi^ID of the model in parallel training.
    steps: int = 0  #: Last step psi^Steps in which the model was trained.
    #: Number psi^Volume of examples of the clients that trained it, summed over steps.
    volume: int = 0
    visits: tuple[Visits, ...] = ()  #: Entries of the clients that trained it, by ascending client.

    def of(self, client: int) -> Visits:
        """The entry of a client; `NEVER` if it has not trained the model."""
        return next((visit for visit in self.visits if visit.client == client), NEVER)

    def after_training(self, client: int, step: int, volume: int, time: float) -> "StateLog":
        """The log after a client's local training, with its number of examples and duration.

        Raises:
          ValueError: If the step is not after the last one, or the time is not above 0.
        """
        if step <= self.steps:
            raise ValueError(f"step {step} is not after the log's last one, {self.steps}")
        if not time > 0:
            raise ValueError(f"time must be above 0, not {time}")
        trained = Visits(client, step, self.of(client).selections + 1, time)
        others = [visit for visit in self.visits if visit.client != client]
        return StateLog(
            self.model_id, step, self.volume + volume, tuple(sorted([*others, trained]))
        )


def log_bytes(clients: int) -> int:
    """Bytes of a log with `clients` entries: 3 numbers and 4 for each entry, of 64 bits each."""
    return _BYTES_PER_NUMBER * (3 + 4 * clients)
