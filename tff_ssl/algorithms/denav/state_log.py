"""The state log that travels with a model through a network (DeNAV, sections 4 and 5)."""

import dataclasses
from typing import NamedTuple

_BYTES_PER_NUMBER = 8


class Visits(NamedTuple):
    """What a log knows of a client that has trained the model.

    Attributes:
      client: m.
      last_step: L(m), the last step at which it trained; steps count from 1.
      selections: Z(m), how often it has trained.
      time: t_m, what its last training took, in seconds (or any unit, the same for all).
    """

    client: int
    last_step: int
    selections: int
    time: float


# Of a client that the log does not know. L(m) = 0 is what Eq. 4 and 5 test for.
NEVER = Visits(-1, 0, 0, 0.0)


@dataclasses.dataclass(frozen=True)
class StateLog:
    """Written by the clients that trained the model, read by the client that holds it.

    Attributes:
      model_id: psi^ID; tells the models of parallel training apart.
      steps: psi^Steps: the last step that trained the model.
      volume: psi^Volume: examples of the clients that trained it, summed over steps.
      visits: One entry per client that trained it, ascending.
    """

    model_id: int = 0
    steps: int = 0
    volume: int = 0
    visits: tuple[Visits, ...] = ()

    def of(self, client: int) -> Visits:
        """What is known of a client; `NEVER` where it has not trained the model."""
        return next((known for known in self.visits if known.client == client), NEVER)

    def after_training(self, client: int, step: int, volume: int, time: float) -> "StateLog":
        """The log after a client's local training: "the state log is updated at its end".

        Args:
          client: m.
          step: s, from 1, after the log's last one.
          volume: n_m, the client's number of examples.
          time: t_m, above 0.

        Raises:
          ValueError: The step is not after the last one, or the time not above 0.
        """
        if step <= self.steps:
            raise ValueError(f"step {step} is not after the log's last one, {self.steps}")
        if not time > 0:
            raise ValueError(f"time must be above 0, not {time}")
        trained = Visits(client, step, self.of(client).selections + 1, time)
        others = [known for known in self.visits if known.client != client]
        return StateLog(
            self.model_id, step, self.volume + volume, tuple(sorted([*others, trained]))
        )


def log_bytes(clients: int) -> int:
    """Bytes of a log that knows so many clients: three numbers, and four a client, 64 bits each."""
    return _BYTES_PER_NUMBER * (3 + 4 * clients)
