"""Prints what can be chosen, for `--list`."""

import dataclasses

from datasets import catalog, partition
from launch.options import hyperparameters
from launch.options.run_config import AlgorithmConfig
from tff_ssl.algorithms import registry
from tff_ssl.decentralized import topology
from tff_ssl.models.dual_encoder import ENCODERS
from tff_ssl.objectives.registry import OBJECTIVES, unused_hyperparameters
from tff_ssl.views.policies import POLICIES


def print_hyperparameters(config: AlgorithmConfig) -> None:
    """Prints an algorithm's hyperparameters, for `--list --algorithm=NAME`."""
    name = config.algorithm
    algorithm = registry.find(name, config.objective)
    objective = config.objective or algorithm.objectives[0]
    print(f"algorithm {name}  {algorithm.summary}")
    print(f"objective {objective}  of {', '.join(algorithm.objectives)}")
    values = hyperparameters.parse(algorithm.hyperparameters, config.hparam)
    for line in hyperparameters.listed(values, unused_hyperparameters(objective)):
        print(f"hparam {name} {line}")


def print_all() -> None:
    """Prints all names that can be chosen."""
    for name, algorithm in registry.ALGORITHMS.items():
        print(f"algorithm {name}  {algorithm.summary}")
        for field in dataclasses.fields(algorithm.hyperparameters):
            print(f"hparam {name} {field.name.rstrip('_')}={field.default}")
    described = {
        "objective": {name: objective.summary for name, objective in OBJECTIVES.items()},
        "dataset": catalog.names(),
        "partition": {name: spec.description for name, spec in partition.PARTITIONS.items()},
        "topology": {name: network.description for name, network in topology.TOPOLOGIES.items()},
    }
    for kind, texts in described.items():
        for name, text in texts.items():
            print(f"{kind} {name}  {text}")
    for name in ENCODERS:
        print(f"encoder {name}")
    for name in POLICIES:
        print(f"views {name}")
