"""FedProx (Li et al. 2020): FedAvg with a proximal term.

The term mu / 2 |w - w_broadcast|^2 is added to the clients' loss (Eq. 2 of the paper). With one
local step FedProx equals FedAvg, since the term's gradient is zero where local training starts.
"""

import dataclasses

from tff_ssl.algorithms import fedavg


@dataclasses.dataclass(frozen=True)
class FedProxHyperparameters(fedavg.FedAvgHyperparameters):
    """FedAvg's hyperparameters, with a proximal term.

    Attributes:
      mu: Weight mu of the term; 0.01 is the middle of the values that the paper tries.
    """

    mu: float = 0.01


build_fedprox = fedavg.build_fedavg
