"""Pretrains an encoder with one algorithm on one partitioned data set, and probes it.

Without flags, it trains DCCO on scikit-learn's digits, divided into clients of four images of one
class. For the digits, each algorithm has a default preset in launch/presets/digits/, whose flags
hold unless they are given on the command line. With --dataset=case_folder --data_dir=FOLDER, it
trains on your own images, with a default preset in launch/presets/case_folder/.
"""

import pathlib

from absl import flags

import launch.options.flags
from launch.options import app, presets

launch.options.flags.define_common_flags()
launch.options.flags.define_data_flags()
launch.options.flags.define_model_flags()
launch.options.flags.define_network_flags()
launch.options.flags.define_training_flags(rounds=400, unit="rounds")
launch.options.flags.define_probe_flags()
launch.options.flags.define_cohort_flags()
launch.options.flags.define_aggregation_flags()
flags.DEFINE_string(
    "algorithm",
    "dcco",
    "Name of the algorithm; --list shows all, and --list --algorithm=NAME the hyperparameters of "
    "one. package.module:ENTRY is an algorithm of your own, the registry entry of that name in a "
    "module on PYTHONPATH.",
)
flags.DEFINE_string(
    "objective",
    None,
    "Name of the clients' loss; --list shows all. Default: the algorithm's default objective.",
)
flags.DEFINE_boolean(
    "skip_small_clients",
    False,
    "Leave out clients that have too few examples for the objective, instead of ending with an "
    "error.",
)
flags.DEFINE_integer(
    "fold",
    1,
    "Number of groups into which the clients of a cohort are folded, if the algorithm allows it. A "
    "group is computed like one client, which is much faster and gives the same result up to "
    "rounding. 0: clients are not folded.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "max_concurrent_calls",
    None,
    "Number of clients or groups that are computed at the same time; -1 for all. Default: four per "
    "core, or one per core if clients keep a state between rounds.",
    lower_bound=-1,
)
flags.DEFINE_list(
    "encoders",
    [],
    "hetero_ssfl: encoders of the clients, by the names of --encoder, such as resnet18,resnet34. "
    "They are assigned to the clients at random, in equal shares. Default: --encoder for all "
    "clients.",
)
flags.DEFINE_string(
    "alignment_encoder",
    None,
    "fedca: the frozen encoder to which clients align their encodings, trained on public images, "
    "given as the folder of a run or of its encoder/.",
)
flags.DEFINE_integer(
    "rad_size",
    5000,
    "hetero_ssfl: number of training images that belong to the server instead of the clients. They "
    "are drawn at random and used without labels, as the representation alignment dataset (RAD).",
    lower_bound=2,
)
flags.DEFINE_string(
    "ray",
    None,
    "Compute rounds on several nodes with Ray: local:N for N nodes on this machine, or the address "
    "of a Ray cluster such as 10.0.0.1:6379 for a node on each of its machines. Needs the extra "
    "`ray`.",
)
flags.DEFINE_integer(
    "slices",
    None,
    "Largest number of slices into which the clients or groups of a round are divided; all slices "
    "have about the same work. With --ray a slice is computed on one node, and there are at most "
    "16 by default. Without --ray, slices are computed one after another, so that a round holds "
    "the contributions of one slice in memory at a time; by default it is not divided. The weights "
    "depend on the number of slices in their last digits, but not on the number of nodes. With one "
    "slice per client or group, they equal those of a round that is not divided.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "personalized_clients",
    0,
    "Number of clients whose own models are also evaluated, for algorithms whose clients have "
    "models of their own: the first clients that have trained or, without a server, the first.",
    lower_bound=0,
)
flags.adopt_module_key_flags(launch.options.flags)


def main() -> None:
    args = flags.FLAGS
    if args.list and args["algorithm"].present:
        print_hyperparameters(args)
        return
    if args.list:
        print_choices()
        return
    from launch.runs import federated

    federated.pretrain(args)


def default_preset(algorithm: str, dataset: str) -> pathlib.Path | None:
    """The default preset for a value of `--algorithm`, "" if it is not given, and a data set."""
    return presets.of_algorithm(algorithm or flags.FLAGS["algorithm"].default, dataset)


def print_hyperparameters(args: flags.FlagValues) -> None:
    """Prints an algorithm's hyperparameters, for `--list --algorithm=NAME`."""
    from launch.options import hyperparameters
    from tff_ssl.algorithms import registry
    from tff_ssl.objectives.registry import unused_hyperparameters

    algorithm = registry.find(args.algorithm, args.objective)
    objective = args.objective or algorithm.objectives[0]
    print(f"algorithm {args.algorithm}  {algorithm.summary}")
    print(f"objective {objective}  of {', '.join(algorithm.objectives)}")
    values = hyperparameters.parse(algorithm.hyperparameters, args.hparam)
    for line in hyperparameters.listed(values, unused_hyperparameters(objective)):
        print(f"hparam {args.algorithm} {line}")


def print_choices() -> None:
    """Prints all names that can be chosen, for `--list`."""
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
    app.run(main, default_preset=default_preset, resumes="pretrain")
