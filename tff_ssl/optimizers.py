"""Additions to `tff.learning.optimizers`: LARS, cosine decay, and optimizers by name.

Sources: Y. You, I. Gitman, B. Ginsburg, "Large Batch Training of Convolutional Networks", 2017
(arXiv:1708.03888), for LARS; I. Loshchilov, F. Hutter, "SGDR", 2017 (arXiv:1608.03983), Eq. 5
with one period, for cosine decay.

Nothing here creates a `tf.Variable`: all memory of an optimizer is in its state, so that it works
in eager code, in a `tf.function` and in TFF computations.
"""

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compiled
from tff_ssl.bounds import Bounded, bounded, one_of

_LEARNING_RATE = tff.learning.optimizers.LEARNING_RATE_KEY
_HPARAMS = (_LEARNING_RATE, "momentum", "weight_decay", "trust_coefficient", "epsilon")
_ACCUMULATOR = "accumulator"

Schedule = Callable[[Any], tf.Tensor]


def build_lars(
    learning_rate: float,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    trust_coefficient: float = 0.001,
    epsilon: float = 0.0,
    adapt_1d: bool = False,
) -> tff.learning.optimizers.Optimizer:
    """LARS, layer-wise adaptive rate scaling (You et al. 2017, Algorithm 1).

    For each floating-point weight tensor `w` with gradient `g` and accumulator `v`, initially zero:

    ```
    ratio = trust_coefficient * ||w|| / (||g|| + weight_decay * ||w|| + epsilon)
    v = momentum * v + learning_rate * ratio * (g + weight_decay * w)
    w = w - v
    ```

    Two cases that the paper leaves open follow the usual practice. If `||w||` or `||g||` is zero,
    the ratio is 1, so that a tensor that starts at zero can leave it. A tensor of at most one
    dimension (a bias, the scale or offset of a normalization) gets ratio 1 and no weight decay,
    which is plain momentum SGD, as in SimCLR and BYOL; `adapt_1d=True` treats it like any other, as
    in the paper.

    The learning rate is inside the accumulator, as in the paper: under a schedule, past gradients
    keep the rate of their step.

    Args:
      learning_rate: The paper's gamma, not negative.
      momentum: The paper's m, in [0, 1).
      weight_decay: The paper's beta, not negative.
      trust_coefficient: The paper's eta, positive.
      epsilon: Added to the denominator of the ratio, not negative.
      adapt_1d: Whether tensors of at most one dimension are adapted and decayed too.

    Raises:
      ValueError: If a hyperparameter is out of its range.
    """
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"LARS momentum must be in [0, 1), found {momentum}.")
    if not trust_coefficient > 0.0:
        raise ValueError(f"LARS trust_coefficient must be positive, found {trust_coefficient}.")
    values = map(float, (learning_rate, momentum, weight_decay, trust_coefficient, epsilon))
    hparams = collections.OrderedDict(zip(_HPARAMS, values, strict=True))
    for name, value in hparams.items():
        if not 0.0 <= value < math.inf:
            raise ValueError(f"LARS {name} must be finite and not negative, found {value}.")
    return _Lars(hparams, adapt_1d)


class _Lars(tff.learning.optimizers.Optimizer):
    """See `build_lars`."""

    def __init__(self, hparams: collections.OrderedDict[str, float], adapt_1d: bool):
        self._hparams = hparams
        self._adapt_1d = adapt_1d

    def initialize(self, specs: Any) -> collections.OrderedDict[str, Any]:
        """The hyperparameters (float32 scalars) and zero accumulators shaped as `specs`."""
        hparams = ((name, tf.constant(v, tf.float32)) for name, v in self._hparams.items())
        accumulator = tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs)
        return collections.OrderedDict([*hparams, (_ACCUMULATOR, accumulator)])

    def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
        """(state, weights) after one step; a gradient of None keeps its weight."""
        gradients = tff.learning.optimizers.handle_indexed_slices_gradients(gradients)
        tff.learning.optimizers.check_weights_gradients_match(weights, gradients)
        tf.nest.assert_same_structure(state[_ACCUMULATOR], weights)
        hparams = self.get_hparams(state)
        flat = map(tf.nest.flatten, (weights, state[_ACCUMULATOR], gradients))
        steps = [self._step(hparams, w, v, g) for w, v, g in zip(*flat, strict=True)]
        new_weights = tf.nest.pack_sequence_as(weights, [w for w, _ in steps])
        accumulator = tf.nest.pack_sequence_as(state[_ACCUMULATOR], [v for _, v in steps])
        return collections.OrderedDict([*hparams.items(), (_ACCUMULATOR, accumulator)]), new_weights

    def _step(self, hparams: Any, w: Any, v: Any, g: Any) -> tuple[Any, Any]:
        """One tensor's weight and accumulator after a step."""
        if g is None:
            return w, v
        lr, momentum, decay, eta, epsilon = (tf.cast(hparams[name], w.dtype) for name in _HPARAMS)
        if w.shape.rank > 1 or self._adapt_1d:
            w_norm, g_norm = tf.norm(w), tf.norm(g)
            adapted = tf.math.divide_no_nan(eta * w_norm, g_norm + decay * w_norm + epsilon)
            ratio = tf.where((w_norm > 0) & (g_norm > 0), adapted, tf.ones_like(adapted))
            v = momentum * v + lr * ratio * (g + decay * w)
        else:
            v = momentum * v + lr * g
        return w - v, v

    def get_hparams(self, state: Any) -> collections.OrderedDict[str, Any]:
        return collections.OrderedDict((name, state[name]) for name in _HPARAMS)

    def set_hparams(self, state: Any, hparams: Any) -> collections.OrderedDict[str, Any]:
        return collections.OrderedDict(
            (name, hparams[name] if name in _HPARAMS else value) for name, value in state.items()
        )


def cosine_decay(initial_learning_rate: float, decay_steps: int, warmup_steps: int = 0) -> Schedule:
    """The learning rate as a function of the step, counted from 0.

    With `W = warmup_steps` and `T = decay_steps - W`, the rate of step t is `(t + 1) / W` of the
    initial one for `t < W` (no step is lost on a rate of zero), and then `0.5 *
    initial_learning_rate * (1 + cos(pi * min(t - W, T) / T))`: the initial rate at first, half of
    it in the middle, and zero from step `decay_steps` on.

    The function maps a step (an int or an integer scalar tensor) to a float32 scalar tensor.

    Raises:
      ValueError: Unless `0 <= warmup_steps < decay_steps` and the rate is not negative.
    """
    if not 0 <= warmup_steps < decay_steps:
        raise ValueError(
            "warmup_steps, the rounds or steps of warm-up, must be at least 0 and below all "
            f"{decay_steps}, found {warmup_steps}."
        )
    if not initial_learning_rate >= 0.0:
        raise ValueError(f"The learning rate must not be negative: {initial_learning_rate}.")

    def schedule(step: Any) -> tf.Tensor:
        t = tf.cast(step, tf.float32)
        decayed = tf.clip_by_value((t - warmup_steps) / (decay_steps - warmup_steps), 0.0, 1.0)
        rate = 0.5 * initial_learning_rate * (1.0 + tf.math.cos(math.pi * decayed))
        if warmup_steps:
            rate *= tf.minimum((t + 1.0) / warmup_steps, 1.0)
        return rate

    return schedule


def _build_adam(lr: float, momentum: float, decay: float) -> tff.learning.optimizers.Optimizer:
    if decay:
        raise ValueError(f"Adam takes no weight_decay (found {decay}); adamw and lars do.")
    return tff.learning.optimizers.build_adam(lr, beta_1=momentum)


def _build_adamw(lr: float, momentum: float, decay: float) -> tff.learning.optimizers.Optimizer:
    return tff.learning.optimizers.build_adamw(lr, beta_1=momentum, weight_decay=decay)


def _build_sgd(lr: float, momentum: float, decay: float) -> tff.learning.optimizers.Optimizer:
    if decay:
        raise ValueError(f"SGD takes no weight_decay (found {decay}); adamw and lars do.")
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"SGD momentum must be in [0, 1), found {momentum}.")
    return tff.learning.optimizers.build_sgdm(lr, momentum=momentum)


_Builder = Callable[[float, float, float], tff.learning.optimizers.Optimizer]
_OPTIMIZERS: dict[str, _Builder] = {
    "adam": _build_adam,
    "adamw": _build_adamw,
    "lars": build_lars,
    "sgd": _build_sgd,
}
OPTIMIZER_NAMES = tuple(_OPTIMIZERS)


def build_optimizer(
    name: str,
    learning_rate: float,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    xla: bool = False,
) -> tff.learning.optimizers.Optimizer:
    """An optimizer of `OPTIMIZER_NAMES` with a constant learning rate.

    The momentum is beta_1 of Adam and AdamW; only LARS and AdamW take a weight decay other than 0.
    With `xla`, XLA compiles a step.

    Raises:
      ValueError: If the name is unknown, or a value is out of range for that optimizer.
    """
    if name not in _OPTIMIZERS:
        known = ", ".join(OPTIMIZER_NAMES)
        raise ValueError(f"Unknown optimizer {name!r}; known are {known}.")
    optimizer = _OPTIMIZERS[name](learning_rate, momentum, weight_decay)
    return _Compiled(optimizer) if xla else optimizer


def build_scheduled_optimizer(
    name: str,
    learning_rate: float,
    steps: int,
    warmup_steps: int = 0,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    xla: bool = False,
) -> tff.learning.optimizers.Optimizer:
    """An optimizer with cosine decay over `steps` steps (rounds for a server).

    Its state is `<round_num=int32, optimizer=<learning_rate=float32, ...>>`, that of
    `tff.learning.optimizers.schedule_learning_rate`. `xla` and the errors are those of
    `build_optimizer`, and further errors those of `cosine_decay`.
    """
    optimizer = build_optimizer(name, learning_rate, momentum, weight_decay, xla)
    return _Scheduled(optimizer, cosine_decay(learning_rate, steps, warmup_steps))


class _Scheduled(tff.learning.optimizers.Optimizer):
    """An optimizer with a schedule that may change between two steps.

    TFF's scheduled optimizer stores the rate of the next step. A run that is continued with more
    steps would make one step with the rate of the shorter schedule, which is often 0.
    """

    def __init__(self, optimizer: tff.learning.optimizers.Optimizer, schedule: Schedule):
        self._optimizer, self._schedule = optimizer, schedule
        self._scheduled = tff.learning.optimizers.schedule_learning_rate(optimizer, schedule)

    def initialize(self, specs: Any) -> Any:
        return self._scheduled.initialize(specs)

    def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
        step, inner = state["round_num"], state["optimizer"]
        hparams = self._optimizer.get_hparams(inner)
        hparams[_LEARNING_RATE] = self._schedule(step)
        inner = self._optimizer.set_hparams(inner, hparams)
        state = collections.OrderedDict(round_num=step, optimizer=inner)
        return self._scheduled.next(state, weights, gradients)


class _Compiled(tff.learning.optimizers.Optimizer):
    """An optimizer whose step XLA compiles: one operation in place of several for each weight."""

    def __init__(self, optimizer: tff.learning.optimizers.Optimizer):
        self._optimizer = optimizer
        self._step = compiled.compiled(optimizer.next)

    def initialize(self, specs: Any) -> Any:
        return self._optimizer.initialize(specs)

    def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
        return self._step(state, weights, gradients)

    def get_hparams(self, state: Any) -> collections.OrderedDict[str, Any]:
        return self._optimizer.get_hparams(state)

    def set_hparams(self, state: Any, hparams: collections.OrderedDict[str, Any]) -> Any:
        return self._optimizer.set_hparams(state, hparams)


@dataclasses.dataclass(frozen=True)
class ServerOptimizerHyperparameters(Bounded):
    """The server's optimizer, by default plain averaging of the clients' models.

    Attributes:
      server_optimizer: Name of the optimizer, `sgd`, `adam`, `adamw` or `lars`. `sgd` with rate 1,
        momentum 0 and the schedule `constant` sets the model to the mean of the clients' models.
      server_learning_rate: Initial learning rate.
      server_schedule: Schedule of the learning rate over the run's rounds, `constant` or `cosine`
        (decay to 0).
      server_momentum: Momentum of `sgd` and `lars`; beta_1 of the others, for which 0 means the
        usual 0.9.
      server_weight_decay: Weight decay of `adamw` and `lars`; 0 for the others.
      warmup_rounds: Number of rounds of linear warm-up of the learning rate.
    """

    server_optimizer: str = one_of("sgd", OPTIMIZER_NAMES)
    server_learning_rate: float = bounded(1.0, above=0)
    server_schedule: str = one_of("constant", ("constant", "cosine"))
    server_momentum: float = bounded(0.0, at_least=0, below=1)
    server_weight_decay: float = bounded(0.0, at_least=0)
    warmup_rounds: int = bounded(0, at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server_schedule == "constant" and self.warmup_rounds:
            raise ValueError("warmup_rounds are for server_schedule=cosine")
        if self.server_weight_decay and self.server_optimizer not in ("adamw", "lars"):
            raise ValueError(
                "server_weight_decay must be 0, or positive with adamw and lars; got "
                f"{self.server_weight_decay} with {self.server_optimizer}"
            )

    def build_server_optimizer(
        self, rounds: int, xla: bool = False
    ) -> tff.learning.optimizers.Optimizer:
        name, rate = self.server_optimizer, self.server_learning_rate
        # Adam without beta_1 is not Adam.
        momentum = self.server_momentum or (0.9 if name in ("adam", "adamw") else 0.0)
        if self.server_schedule == "constant":
            return build_optimizer(name, rate, momentum, self.server_weight_decay, xla)
        return build_scheduled_optimizer(
            name, rate, rounds, self.warmup_rounds, momentum, self.server_weight_decay, xla
        )
