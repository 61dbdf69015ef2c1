"""FedDecorr: FedAvg whose clients decorrelate their encodings.

Shi et al., "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated
Learning", ICLR 2023, arXiv:2210.00226; and the authors' code (github.com/bytedance/FedDecorr). With
few classes on a client, encodings collapse to few dimensions. A client therefore minimizes, for a
batch of n encodings h of dimension d,

  L_k(w) + beta 1 / d^2 |K|_F^2,  K the correlations of the d dimensions over the batch.

Choices and deviations:
- The paper adds the term to cross-entropy; here any objective can have it. A batch has the
  encodings of both views.
- The authors' code omits the diagonal of K, which is constant, divides by d (d - 1), and multiplies
  by n: its beta of 0.1 with batches of 64 is about 6.4 here.
- A dimension that is constant over the batch counts as uncorrelated with all others.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from tff_ssl.algorithms import fedavg
from tff_ssl.bounds import bounded
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.templates.local_training import LocalStep
from tff_ssl.templates.task import Task

_EPSILON = 1e-8


@dataclasses.dataclass(frozen=True)
class FedDecorrHyperparameters(fedavg.FedAvgHyperparameters):
    """FedAvg's hyperparameters, with the weight of the decorrelation.

    Attributes:
      beta: Weight beta of the term; 0.1 in the paper.
    """

    beta: float = bounded(0.1, at_least=0)


def decorrelation(h: tf.Tensor) -> tf.Tensor:
    """|K|_F^2 / d^2 of encodings, float32 [n, d]; in [0, 1], and 1 / d or more if all vary."""
    mean, variance = tf.nn.moments(h, 0)
    standardized = (h - mean) * tf.math.rsqrt(variance + _EPSILON)
    correlations = tf.matmul(standardized, standardized, transpose_a=True)
    return tf.reduce_mean(tf.square(correlations / tf.cast(tf.shape(h)[0], tf.float32)))


def build_feddecorr(
    task: Task, hyperparameters: FedDecorrHyperparameters | None = None, **arguments: Any
) -> StatelessClients:
    """Builds FedDecorr's round; further arguments and errors are those of `fedavg.build_fedavg`."""
    values = hyperparameters or FedDecorrHyperparameters()

    def term(step: LocalStep) -> tf.Tensor:
        return values.beta * decorrelation(tf.concat(step.evaluated.h, 0))

    return fedavg.build_fedavg(task, values, regularizers=[term], **arguments)
