"""Help texts of the flags: the names in them exist, and scripts print them without slow imports."""

import re
import subprocess
import sys

import pytest

from datasets import catalog, shift
from datasets.partition import PARTITIONS
from launch.options import settings
from launch.options.run_config import RunConfig
from launch.probes import probing
from tests.launch import configs
from tff_ssl.aggregation.aggregators import AGGREGATORS
from tff_ssl.algorithms.registry import ALGORITHMS
from tff_ssl.decentralized.topology import TOPOLOGIES
from tff_ssl.models.dual_encoder import ENCODERS
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.views.policies import POLICIES

REGISTRIES = [
    ENCODERS, POLICIES, OBJECTIVES, PARTITIONS, TOPOLOGIES, ALGORITHMS, AGGREGATORS, shift.SHIFTS,
    catalog.names(), probing.WITHOUT_TRAINING,
]  # fmt: skip
# Flags that only some entries of a registry read: their help texts begin with the names of these.
READERS = [
    (
        PARTITIONS,
        "alpha balance_sizes beta samples_per_client random_sizes classes_per_client "
        "cluster_encoder clusters cluster_partition",
    ),
    (TOPOLOGIES, "connectivity unconnected edge_list"),
    (ALGORITHMS, "encoders alignment_encoder rad_size symmetric_statistics"),
    (AGGREGATORS, "quantization_bits"),
    (shift.SHIFTS, "shifts"),
]
# Flags with a name of a registry: their help texts have a part "NAME: " for each entry.
CHOICES = {
    "partition": PARTITIONS,
    "topology": TOPOLOGIES,
    "aggregator": AGGREGATORS,
    "shift": shift.SHIFTS,
}


FLAGS = settings.settings(RunConfig, "pretrain")


def _help(flag):
    return FLAGS[flag].help


@pytest.mark.parametrize(
    ("flag", "registry"),
    [(flag, registry) for registry, names in READERS for flag in names.split()],
)
def test_the_entries_that_read_a_flag_exist(flag, registry):
    readers = re.match(r"(\w+(?:, \w+)*)(?: with [^:]+)?: ", _help(flag))
    assert readers, _help(flag)
    assert set(readers[1].split(", ")) <= set(registry)


@pytest.mark.parametrize("flag", CHOICES)
def test_every_choice_of_a_flag_is_explained(flag):
    choices = set(FLAGS[flag].choices) - {"none"}
    explained = set(re.findall(r"(\w+): ", _help(flag)))
    assert choices == set(CHOICES[flag])
    assert choices <= explained


def test_the_help_of_encoder_and_views_has_the_names_of_their_registries():
    encoders = re.findall(r"(?<=[:,] )\w+(?=[,;.])", _help("encoder").split("keras:")[0])
    assert sorted(encoders) == sorted(ENCODERS)
    listed, defaults = _help("views").split(". Default: ")
    assert sorted(re.findall(r"(?<=[:,] )\w+", listed)) == sorted(POLICIES)
    names = set(re.findall(r"(\w+) (?:for|with)|otherwise (\w+)", defaults))
    named = {name for pair in names for name in pair}
    assert {"affine", "flip", "crop_flip", "byol_no_blur"} <= named & set(POLICIES)


def test_the_objectives_in_help_texts_exist():
    (predicting,) = re.findall(r"\((\w+), (\w+)\)", _help("predictor"))
    assert {name for name, entry in OBJECTIVES.items() if entry.predictor} == set(predicting)
    (statistics,) = re.findall(r" with (\w+):", _help("symmetric_statistics"))
    named = re.findall(r"the objective (\w+), \w+ with (\w+)", _help("views"))
    assert {statistics, *named[0]} <= set(OBJECTIVES)


def test_names_with_underscores_in_help_texts_exist():
    known = set(FLAGS).union(*REGISTRIES)
    for flag in FLAGS.values():
        known |= set(flag.choices)
        known |= set(flag.default if isinstance(flag.default, tuple) else ())
    for flag in FLAGS.values():
        names = re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)+", flag.help)
        assert set(names) <= known, (flag.name, set(names) - known)


@pytest.mark.slow
@pytest.mark.parametrize("script", ["pretrain", "centralized", "lower", "reproduce", "sweep"])
def test_a_script_prints_its_help_without_slow_imports(project_root, script):
    code = (
        f"import runpy, sys; sys.argv = ['{script}', '--help']\n"
        "try:\n"
        f"    runpy.run_module('launch.{script}', run_name='__main__')\n"
        "finally:\n"
        "    print('slow:', sorted({'tensorflow', 'tensorflow_federated'} & sys.modules.keys()))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=project_root, capture_output=True, text=True, check=False
    )
    assert "--output_dir" in result.stdout, result.stderr
    assert result.stdout.splitlines()[-1] == "slow: []"


@pytest.mark.parametrize(
    ("given", "labels", "per_class"),
    [
        ((), (), (1, 5)),
        (("--labels=5000", "--labels_per_class=2"), (), (2,)),
        (("--labels_per_class=2", "--labels=50"), (50,), (1, 5)),
        (("--labels_per_class=2", "--labels="), (), (2,)),
    ],
)
def test_the_last_of_two_alternative_flags_counts(given, labels, per_class):
    evaluation = configs.run(*given).evaluation
    assert (evaluation.labels, evaluation.labels_per_class) == (labels, per_class)
