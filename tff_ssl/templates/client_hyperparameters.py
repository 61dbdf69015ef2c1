"""Hyperparameters of local training that the algorithms share."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters

# These take the weight decay themselves; to the others it is a term of the loss.
_DECOUPLED_DECAY = ("adamw", "lars")


@dataclasses.dataclass(frozen=True)
class ClientHyperparameters(ObjectiveHyperparameters):
    """What a client does in a round; hyperparameters of the losses are inherited.

    Attributes:
      client_optimizer: `sgd`, `adam`, `adamw` or `lars`, new in every round.
      client_learning_rate: eta.
      client_momentum: Momentum of `sgd` and `lars`; beta_1 of the others, for which 0 stands for
        the usual 0.9.
      client_weight_decay: Of `adamw` and `lars` as these do it; for the others an L2 term.
      learning_rate_schedule: `constant`, `cosine` or `steps` (a tenth from half of the rounds on,
        a hundredth from three quarters on), over the run's rounds.
      local_epochs: E, passes over a client's examples in a round.
      local_steps: If positive, so many steps instead of epochs.
      batch_size: B, of a local step; 0 for all examples of the client.
      client_weighting: `examples` (n_k) or `uniform`.
      target_momentum: BYOL: m of the target network's moving average.
      min_samples: Clients with fewer examples are refused; 0 for the objective's own bound.
    """

    client_optimizer: str = "sgd"
    client_learning_rate: float = 0.03
    client_momentum: float = 0.9
    client_weight_decay: float = 0.0
    learning_rate_schedule: str = "constant"
    local_epochs: int = 1
    local_steps: int = 0
    batch_size: int = 0
    client_weighting: str = "examples"
    target_momentum: float = 0.99
    min_samples: int = 0

    def __post_init__(self):
        super().__post_init__()
        check_choice("client_optimizer", self.client_optimizer, optimizers.OPTIMIZER_NAMES)
        check_choice("client_weighting", self.client_weighting, ("examples", "uniform"))
        check_choice("learning_rate_schedule", self.learning_rate_schedule, tuple(_SCHEDULES))
        if self.client_learning_rate <= 0:
            raise ValueError(
                f"client_learning_rate must be positive; got {self.client_learning_rate}"
            )
        if not 0 <= self.target_momentum <= 1:
            raise ValueError(f"target_momentum must be in [0, 1]; got {self.target_momentum}")
        for name, least in (
            ("local_epochs", 1), ("local_steps", 0), ("batch_size", 0), ("min_samples", 0),
            ("client_weight_decay", 0),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}")

    @property
    def l2(self) -> float:
        """Weight of |w|^2 / 2 in the loss."""
        return 0.0 if self.client_optimizer in _DECOUPLED_DECAY else self.client_weight_decay

    def build_client_optimizer(self) -> tff.learning.optimizers.Optimizer:
        decay, momentum = self.client_weight_decay - self.l2, self.client_momentum
        if self.client_optimizer not in ("sgd", "lars"):
            # FedAvg's plain descent has no momentum by default; Adam without beta_1 is not Adam.
            momentum = momentum or 0.9
        return optimizers.build_optimizer(
            self.client_optimizer, self.client_learning_rate, momentum, decay
        )

    def build_schedule(self, rounds: int) -> Callable[[tf.Tensor], tf.Tensor] | None:
        """Round number -> learning rate of a run of so many rounds; None for a constant one."""
        return _SCHEDULES[self.learning_rate_schedule](self.client_learning_rate, rounds)


def _steps(rate: float, rounds: int) -> Callable[[tf.Tensor], tf.Tensor]:
    def schedule(round_number: tf.Tensor) -> tf.Tensor:
        passed = tf.cast(round_number, tf.float32) / rounds
        drops = tf.cast(passed >= 0.5, tf.float32) + tf.cast(passed >= 0.75, tf.float32)
        return rate * tf.pow(0.1, drops)

    return schedule


_SCHEDULES: dict[str, Callable[[float, int], Callable[[tf.Tensor], tf.Tensor] | None]] = {
    "constant": lambda rate, rounds: None,
    "cosine": optimizers.cosine_decay,
    "steps": _steps,
}


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
