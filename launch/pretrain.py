"""Pretrains an encoder with one algorithm on one partitioned data set, and probes it.

Without flags, it trains DCCO on scikit-learn's digits, in clients of four images of one class. On
the digits each algorithm has a preset in launch/presets/digits/, whose flags hold unless they are
given on the command line.
"""

import pathlib

from absl import flags

import launch.options.flags
from launch.options import app, presets

launch.options.flags.define_common_flags()
launch.options.flags.define_data_flags()
launch.options.flags.define_model_flags()
launch.options.flags.define_network_flags()
launch.options.flags.define_training_flags(rounds=400, what="rounds")
launch.options.flags.define_probe_flags()
launch.options.flags.define_cohort_flags()
launch.options.flags.define_aggregation_flags()
flags.DEFINE_string("algorithm", "dcco", "The algorithm; --list shows them.")
flags.DEFINE_string(
    "objective", None, "The clients' loss; --list shows them. Default: the algorithm's own."
)
flags.DEFINE_boolean(
    "skip_small_clients",
    False,
    "Leave out clients with too few examples for the objective, instead of refusing them.",
)
flags.DEFINE_integer(
    "fold",
    1,
    "Groups into which a cohort's clients are folded, where the algorithm allows it: the same "
    "result, much faster. 0 runs each client by itself.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "max_concurrent_calls",
    None,
    "Clients or groups that compute at the same time. Default: four a core, one a core for clients "
    "with memory; -1: all.",
    lower_bound=-1,
)
flags.DEFINE_list(
    "encoders",
    [],
    "hetero_ssfl: the clients' encoders, as --encoder names them, such as resnet18,resnet34; dealt "
    "over the clients at random, in equal shares. Default: --encoder for all.",
)
flags.DEFINE_integer(
    "rad_size",
    5000,
    "hetero_ssfl: training images, drawn at random, that are the server's instead of the clients': "
    "its representation alignment dataset, used without labels.",
    lower_bound=2,
)
flags.DEFINE_string(
    "ray",
    None,
    "Work on rounds on several nodes with Ray: local:N for N nodes on this machine, or the address "
    "of a Ray cluster (10.0.0.1:6379), with a node on each of its machines. Needs the extra `ray`.",
)
flags.DEFINE_integer(
    "slices",
    16,
    "With --ray: how many slices of about equal work a round's clients or groups are cut into, at "
    "most. The weights depend on it in the last digits, and not on the number of nodes; with a "
    "slice for each client or group they are those of a run without --ray.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "personalized_clients",
    0,
    "Clients with models of their own: also evaluate those of so many clients, the first ones.",
    lower_bound=0,
)
flags.adopt_module_key_flags(launch.options.flags)


def main() -> None:
    args = flags.FLAGS
    if args.list:
        print_choices()
        return
    from launch.runs import federated

    federated.pretrain(args)


def digits_preset(algorithm: str) -> pathlib.Path | None:
    """The preset that holds on the digits for a value of `--algorithm`; "" if it is not given."""
    return presets.of_algorithm(algorithm or flags.FLAGS["algorithm"].default)


def print_choices() -> None:
    """Prints the choices of `--list`."""
    import dataclasses

    from datasets import catalog, partition
    from tff_ssl.algorithms import registry
    from tff_ssl.decentralized import topology
    from tff_ssl.models.dual_encoder import ENCODERS
    from tff_ssl.objectives.registry import OBJECTIVES
    from tff_ssl.views.policies import POLICIES

    for name, algorithm in registry.ALGORITHMS.items():
        print(f"algorithm {name}  {algorithm.summary}")
        for field in dataclasses.fields(algorithm.hyperparameters):
            print(f"hparam {name} {field.name.rstrip('_')}={field.default}")
    for name, objective in OBJECTIVES.items():
        print(f"objective {name}  {objective.summary}")
    for name, summary in catalog.names().items():
        print(f"dataset {name}  {summary}")
    for name, spec in partition.PARTITIONS.items():
        print(f"partition {name}  {spec.description}")
    for name, network in topology.TOPOLOGIES.items():
        print(f"topology {name}  {network.description}")
    for name in ENCODERS:
        print(f"encoder {name}")
    for name in POLICIES:
        print(f"views {name}")


if __name__ == "__main__":
    app.run(main, digits_preset=digits_preset)
