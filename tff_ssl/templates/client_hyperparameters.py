"""Hyperparameters of local training that the algorithms share."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.bounds import bounded, one_of
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters

# Optimizers that apply the weight decay themselves; with others it is a term of the loss.
_DECOUPLED_DECAY = ("adamw", "lars")


def client_weight(samples: tf.Tensor, weighting: str) -> tf.Tensor:
    """Weight in means of a client, or of each client, with `samples` examples; 0 without any.

    `weighting` is `client_weighting`; the result is float32.
    """
    return tf.cast(samples > 0 if weighting == "uniform" else samples, tf.float32)


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


@dataclasses.dataclass(frozen=True)
class ClientHyperparameters(ObjectiveHyperparameters):
    """Hyperparameters of a client's local training; those of the losses are inherited.

    Attributes:
      client_optimizer: Name of the optimizer, `sgd`, `adam`, `adamw` or `lars`, which restarts in
        every round.
      client_learning_rate: Learning rate eta.
      client_momentum: Momentum of `sgd` and `lars`; beta_1 of the others, for which 0 means the
        usual 0.9.
      client_weight_decay: Weight decay, which `adamw` and `lars` apply themselves; with the other
        optimizers, weight of an L2 term of the loss.
      learning_rate_schedule: Schedule over the run's rounds, `constant`, `cosine` or `steps` (a
        tenth of the rate from half of the rounds on, a hundredth from three quarters on).
      local_epochs: Number of passes E over a client's examples in a round.
      local_steps: Number of local steps in a round, which replaces `local_epochs` if positive.
      batch_size: Number of examples B of a local step; 0 for all examples of the client.
      client_weighting: Weights of the clients in means, by `examples` (n_k) or `uniform`.
      target_momentum: Momentum m of BYOL's target network, a moving average.
      min_samples: Smallest accepted number of examples of a client; 0 for the objective's bound.
    """

    client_optimizer: str = one_of("sgd", optimizers.OPTIMIZER_NAMES)
    client_learning_rate: float = bounded(0.03, above=0)
    client_momentum: float = bounded(0.9, at_least=0, below=1)
    client_weight_decay: float = bounded(0.0, at_least=0)
    learning_rate_schedule: str = one_of("constant", _SCHEDULES)
    local_epochs: int = bounded(1, at_least=1)
    local_steps: int = bounded(0, at_least=0)
    batch_size: int = bounded(0, at_least=0)
    client_weighting: str = one_of("examples", ("examples", "uniform"))
    target_momentum: float = bounded(0.99, at_least=0, at_most=1)
    min_samples: int = bounded(0, at_least=0)

    @property
    def l2(self) -> float:
        """Weight of the L2 term |w|^2 / 2 of the loss."""
        return 0.0 if self.client_optimizer in _DECOUPLED_DECAY else self.client_weight_decay

    def passes(self, examples: int) -> float:
        """Number of passes over n_k examples in a round; whole unless `local_steps` is set."""
        if not self.local_steps:
            return float(self.local_epochs)
        return self.local_steps / (max(examples // self.batch_size, 1) if self.batch_size else 1)

    def build_client_optimizer(self, xla: bool = False) -> tff.learning.optimizers.Optimizer:
        decay, momentum = self.client_weight_decay - self.l2, self.client_momentum
        if self.client_optimizer not in ("sgd", "lars"):
            momentum = momentum or 0.9  # Adam without beta_1 is not Adam.
        return optimizers.build_optimizer(
            self.client_optimizer, self.client_learning_rate, momentum, decay, xla
        )

    def build_schedule(self, rounds: int) -> Callable[[tf.Tensor], tf.Tensor] | None:
        """The schedule (round number -> learning rate) of a run; None if the rate is constant."""
        return _SCHEDULES[self.learning_rate_schedule](self.client_learning_rate, rounds)
