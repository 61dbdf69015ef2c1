"""The algorithms, one line each."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tff_ssl.algorithms import featarc, fedavg, fedbn, fedema, fedprox, fedu, gossip, hetero_ssfl
from tff_ssl.algorithms.dcco import one_stage, two_stage
from tff_ssl.algorithms.denav.algorithm import DeNAVHyperparameters, build_denav
from tff_ssl.errors import ConfigurationError
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.objectives.statistics import STATISTICS_LOSSES
from tff_ssl.templates.serverless import Serverless
from tff_ssl.templates.stateful_clients import StatefulClients
from tff_ssl.templates.task import Computations


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An entry of the registry.

    Attributes:
      summary: One line for `--list`.
      hyperparameters: Its frozen dataclass; an instance without arguments has the defaults.
      build: (task, hyperparameters) -> its computations.
      objectives: Losses it can train with; its default first.
      folds: Whether clients may be folded into groups, worked on in one call, with the same result.
        Clients with memory may not.
      aggregates: What clients send in a round to be averaged and nothing else, `statistics` or
        `update` (a model delta): `build` takes `statistics_aggregator`, `update_aggregator` and
        `metric_sum`. Empty where they send whole models, which can be neither clipped nor left out.
      decentralized: Whether clients are linked by a network, and there is no server.
      unlike_clients: Whether clients may have different models; the task then names the population.
    """

    summary: str
    hyperparameters: type
    build: Callable[..., Computations | StatefulClients | Serverless | hetero_ssfl.UnlikeClients]
    objectives: tuple[str, ...]
    folds: bool
    aggregates: tuple[str, ...] = ()
    decentralized: bool = False
    unlike_clients: bool = False

    def folds_with(self, hyperparameters: Any) -> bool:
        """`folds`, with these hyperparameters."""
        return self.folds and getattr(hyperparameters, "folds", True)

    def min_samples(self, objective: str, hyperparameters: Any) -> int:
        """The smallest client, or batch of one, that a run takes: 1 where they share statistics."""
        if not hasattr(hyperparameters, "min_samples"):
            return 1
        own = OBJECTIVES[objective]
        # Below `min_samples` there is no loss, whatever the user wants.
        return max(hyperparameters.min_samples or own.stable_samples, own.min_samples)


_WITH_CONTRASTIVE_FIRST = ("nt_xent", *(name for name in OBJECTIVES if name != "nt_xent"))
_WITH_AUTOENCODER_FIRST = ("mae", *(name for name in OBJECTIVES if name != "mae"))

ALGORITHMS = {
    "dcco": Algorithm(
        "large batches simulated on tiny clients by sharing encoding statistics",
        two_stage.DCCOHyperparameters,
        two_stage.build_dcco,
        objectives=tuple(STATISTICS_LOSSES),
        folds=True,
        aggregates=("statistics", "update"),
    ),
    "dcco_one_stage": Algorithm(
        "DCCO with one communication a round: the statistics of earlier rounds",
        one_stage.DCCOOneStageHyperparameters,
        one_stage.build_dcco_one_stage,
        objectives=tuple(STATISTICS_LOSSES),
        folds=True,
        aggregates=("statistics", "update"),
    ),
    "fedavg": Algorithm(
        "federated averaging with a local objective",
        fedavg.FedAvgHyperparameters,
        fedavg.build_fedavg,
        objectives=tuple(OBJECTIVES),
        folds=True,
        aggregates=("update",),
    ),
    "fedprox": Algorithm(
        "federated averaging with a proximal term",
        fedprox.FedProxHyperparameters,
        fedprox.build_fedprox,
        objectives=tuple(OBJECTIVES),
        folds=True,
        aggregates=("update",),
    ),
    "fedbn": Algorithm(
        "federated averaging with local batch norm (Dec-SSL); or every client alone",
        fedbn.FedBNHyperparameters,
        fedbn.build_fedbn,
        objectives=_WITH_CONTRASTIVE_FIRST,
        folds=False,
    ),
    "fedu": Algorithm(
        "BYOL whose clients keep their target networks, and predictors where they diverge",
        fedu.FedUHyperparameters,
        fedu.build_fedu,
        objectives=("byol",),
        folds=False,
    ),
    "fedema": Algorithm(
        "BYOL whose clients mix the global model into their own",
        fedema.FedEMAHyperparameters,
        fedema.build_fedema,
        objectives=("byol",),
        folds=False,
    ),
    "featarc": Algorithm(
        "clusters of clients by feature alignment, which regularizes their training",
        featarc.FeatARCHyperparameters,
        featarc.build_featarc,
        objectives=_WITH_CONTRASTIVE_FIRST,
        folds=False,
    ),
    "denav": Algorithm(
        "models that travel through a network, each led by a training navigator",
        DeNAVHyperparameters,
        build_denav,
        objectives=_WITH_AUTOENCODER_FIRST,
        folds=False,
        decentralized=True,
    ),
    "gossip": Algorithm(
        "gossip learning: clients of a network average with the first neighbour's model, or all",
        gossip.GossipHyperparameters,
        gossip.build_gossip,
        objectives=_WITH_AUTOENCODER_FIRST,
        folds=False,
        decentralized=True,
    ),
    "all_reduce": Algorithm(
        "clients of a network that get the mean of all models after every round",
        gossip.AllReduceHyperparameters,
        gossip.build_gossip,
        objectives=_WITH_AUTOENCODER_FIRST,
        folds=False,
        decentralized=True,
    ),
    "dfedavg": Algorithm(
        "decentralized FedAvg: averages over neighbours, with local batch norm (Dec-SSL)",
        gossip.DFedAvgHyperparameters,
        gossip.build_gossip,
        objectives=_WITH_CONTRASTIVE_FIRST,
        folds=False,
        decentralized=True,
    ),
    "hetero_ssfl": Algorithm(
        "clients of different architectures, which align their representations of common images",
        hetero_ssfl.HeteroSSFLHyperparameters,
        hetero_ssfl.build_hetero_ssfl,
        objectives=("byol", "simsiam"),
        folds=False,
        unlike_clients=True,
    ),
}


def find(name: str, objective: str | None) -> Algorithm:
    """The algorithm of that name, which trains with that objective (if it is not None).

    Raises:
      ConfigurationError: If there is none, or it does not train with that objective.
    """
    if name not in ALGORITHMS:
        raise ConfigurationError(
            f"--algorithm must be one of {', '.join(ALGORITHMS)}; got {name!r}"
        )
    algorithm = ALGORITHMS[name]
    if objective is not None and objective not in algorithm.objectives:
        raise ConfigurationError(
            f"--objective of {name} must be one of {', '.join(algorithm.objectives)}; "
            f"got {objective!r}"
        )
    return algorithm
