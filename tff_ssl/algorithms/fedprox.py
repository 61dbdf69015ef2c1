"""FedProx: FedAvg with a proximal term (Li et al., MLSys 2020, arXiv:1812.06127).

A client minimizes its loss L_k and a term that keeps it near the broadcast model w_0 (Eq. 2),

  L_k(w) + mu / 2 |w - w_0|^2.

With one local step FedProx equals FedAvg, because the term's gradient is zero where local training
starts. The paper's inexact solutions, fewer local steps on some clients, are not implemented.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from tff_ssl.algorithms import fedavg
from tff_ssl.bounds import bounded
from tff_ssl.kinds.stateless.algorithm import StatelessClients
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.templates.local_training import WeightTerm
from tff_ssl.templates.task import Task
from tff_ssl.templates.weight_groups import squared_distance


@dataclasses.dataclass(frozen=True)
class FedProxHyperparameters(fedavg.FedAvgHyperparameters):
    """FedAvg's hyperparameters, with a proximal term.

    Attributes:
      mu: Weight mu of the term; 0.01 is the middle of the paper's values.
    """

    mu: float = bounded(0.01, at_least=0)


def proximal_terms(mu: float) -> tuple[WeightTerm, ...]:
    """The term mu / 2 |w - w_0|^2; none if mu is 0."""

    def term(weights: Weights, initial: Weights) -> tf.Tensor:
        return mu / 2 * squared_distance(weights.trainable, initial.trainable)

    return (term,) if mu else ()


def build_fedprox(
    task: Task, hyperparameters: FedProxHyperparameters | None = None, **arguments: Any
) -> StatelessClients:
    """Builds FedProx's round; further arguments and errors are those of `fedavg.build_fedavg`."""
    values = hyperparameters or FedProxHyperparameters()
    # The gradient of the term is zero in a round of one step.
    terms = () if values.is_one_gradient_step else proximal_terms(values.mu)
    return fedavg.build_fedavg(task, values, weight_terms=terms, **arguments)
