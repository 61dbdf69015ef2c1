"""L-DAWA: layers of the clients' models, weighted by their angle to the global model.

Rehman et al., "L-DAWA: Layer-wise Divergence Aware Weight Aggregation in Federated Self-Supervised
Visual Representation Learning", ICCV 2023, arXiv:2307.07393; and the authors' code
(github.com/yasar-rehman/L-DAWA). In a round, client k of the cohort S trains the broadcast model w
to w_k. For each layer l, which is one weight tensor, the server forms

  c_kl = <w_l, w_kl> / (|w_l| |w_kl|)
  w_l <- 1 / |S| sum_k c_kl w_kl.

A client whose layer has turned away counts less; a negative c_kl flips its sign. The weights
are not divided by the sum of the c_kl, so that norms shrink where clients turn.

The client itself applies the rule, because it has both w and w_k. It sends, in place of w_l - w_kl,

  w_l - c_kl w_kl = (1 - c_kl) w_l + c_kl (w_l - w_kl).

The server takes the plain mean, as in FedAvg with equal weights and a server learning rate of 1. It
thus needs no single client's model, and secure sums, robust means and folded clients work as for
FedAvg. The rest is in `fedavg`.

Choices and deviations:
- c_kl is 1 if w_l or w_kl is zero, as the biases are in the first round, and for scalar weights.
- In the first `fedavg_rounds` rounds every c_kl is 1 (3 rounds in the authors' code, none in the
  paper's equation). Clients have equal weights there too; the authors weight by examples.
- `granularity=model` has one cosine for all weights, the paper's DAWA.
- Batch norm is rejected, as in FedAvg. The authors scale its moving averages, too.
"""

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from tff_ssl.algorithms import fedavg
from tff_ssl.bounds import bounded, one_of
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.templates.task import Task


@dataclasses.dataclass(frozen=True)
class LDAWAHyperparameters(fedavg.FedAvgHyperparameters):
    """Hyperparameters with the values of the authors' code; others are inherited from FedAvg.

    Attributes:
      granularity: Weights that share a cosine c, those of a `layer` (a tensor) or of the `model`.
      fedavg_rounds: Number of first rounds with c = 1, without the rule.
    """

    client_learning_rate: float = 0.03
    client_momentum: float = 0.9
    client_weight_decay: float = 1e-4
    local_epochs: int = 1
    batch_size: int = 256
    client_weighting: str = "uniform"
    temperature: float = 0.07
    granularity: str = one_of("layer", ("layer", "model"))
    fedavg_rounds: int = bounded(3, at_least=0)


def one_minus_cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """1 - <a, b> / (|a| |b|) of two tensors of one shape, float32; 0 if one of them is zero."""
    (a, a_is_zero), (b, b_is_zero) = _direction(a), _direction(b)
    # Half of the squared distance of the unit vectors keeps its digits for small angles.
    half = 0.5 * tf.reduce_sum(tf.math.squared_difference(a, b))
    return tf.where(a_is_zero | b_is_zero, 0.0, half)


def _direction(a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The unit vector of a tensor, float32 [n]; and whether the tensor is zero."""
    a = tf.reshape(a, [-1])
    # Biases before a norm move by rounding errors alone, whose squares would underflow.
    largest = tf.reduce_max(tf.abs(a))
    return tf.math.l2_normalize(tf.math.divide_no_nan(a, largest)), tf.equal(largest, 0.0)


def angular_delta(
    granularity: str,
    fedavg_rounds: int,
    initial: tuple[tf.Tensor, ...],
    trained: tuple[tf.Tensor, ...],
    round_number: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """What a client sends, w_l - c_kl w_kl for each weight l; see the module.

    `initial` are the weights w of the broadcast model, `trained` w_k those of the client's.
    """
    if granularity == "model":
        flat = (tf.concat([tf.reshape(w, [-1]) for w in ws], 0) for ws in (initial, trained))
        turns = [one_minus_cosine(*flat)] * len(initial)
    else:
        turns = [
            one_minus_cosine(w, w_k) if w.shape.rank else tf.constant(0.0)
            for w, w_k in zip(initial, trained, strict=True)
        ]
    applies = tf.cast(round_number >= fedavg_rounds, tf.float32)
    return tuple(
        applies * turn * w + (1 - applies * turn) * (w - w_k)
        for w, w_k, turn in zip(initial, trained, turns, strict=True)
    )


def build_l_dawa(
    task: Task, hyperparameters: LDAWAHyperparameters | None = None, **arguments: Any
) -> StatelessClients:
    """Builds L-DAWA's round; further arguments and errors are those of `fedavg.build_fedavg`."""
    values = hyperparameters or LDAWAHyperparameters()
    rule = functools.partial(angular_delta, values.granularity, values.fedavg_rounds)
    return fedavg.build_fedavg(task, values, delta_rule=rule, **arguments)
