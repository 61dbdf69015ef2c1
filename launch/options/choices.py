"""Prints what can be chosen, for `--list`."""

import sys
import textwrap
from typing import Any

from datasets import catalog
from datasets.partition import PARTITIONS
from launch.options import hyperparameters
from launch.options.run_config import TOPICS, AlgorithmConfig, RunConfig
from tff_ssl.algorithms import registry
from tff_ssl.decentralized.topology import TOPOLOGIES
from tff_ssl.models.dual_encoder import ENCODERS, DualEncoder
from tff_ssl.objectives.registry import OBJECTIVES, unused_hyperparameters
from tff_ssl.views.policies import POLICIES, ViewPolicy

_IMAGE = (32, 32, 3)  # Shape for which encoders are described; features do not depend on it.
_OTHER_ENCODERS = {
    "keras:NAME": "model of Keras Applications, such as keras:EfficientNetV2B0",
    "MODULE:FUNCTION": "function that returns a Keras model or an encoder of your own",
}
# Fields of a `ViewPolicy`, in words.
_STEPS = {
    "crop_area": "crop", "flip": "flip", "rotation": "rotation", "shear": "shear",
    "scale": "zoom", "shift": "shift", "grayscale": "grayscale", "blur": "blur",
    "solarize": "solarization",
}  # fmt: skip


def show(config: RunConfig) -> None:
    """Prints what `--list` asks for: all names, a topic, or an algorithm's hyperparameters."""
    if isinstance(config.output.list, str):
        print_topic(config.output.list)
    elif "algorithm" in config.given:
        print_hyperparameters(config.algorithm)
    else:
        print_all()


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
    """Prints the names of all topics, and how to see more; in a pipe, a line for each name."""
    if not sys.stdout.isatty():
        for topic in TOPICS:
            kind = {"topologies": "topology"}.get(topic, topic.removesuffix("s"))
            for name, text in _describe(topic).items():
                print(f"{kind} {name}  {text}")
        return
    width = max(map(len, TOPICS)) + 2
    for topic in TOPICS:
        text = f"{topic:{width}}{', '.join(_describe(topic))}"
        print(textwrap.fill(text, 100, subsequent_indent=" " * width))
    print(
        f"\n--list=TOPIC, such as --list={TOPICS[0]}, describes each name in a line;\n"
        "--list --algorithm=NAME explains the hyperparameters of an algorithm"
    )


def print_topic(topic: str) -> None:
    """Prints a line for each name of a topic."""
    texts = _describe(topic)
    width = max(map(len, texts))
    for name, text in texts.items():
        print(f"{name:{width}}  {text}")


def _describe(topic: str) -> dict[str, str]:
    """The names of a topic, each with its description."""
    if topic == "datasets":
        return catalog.names()
    if topic == "encoders":
        return {name: _describe_encoder(name) for name in ENCODERS} | _OTHER_ENCODERS
    if topic == "views":
        return {name: _describe_views(policy) for name, policy in POLICIES.items()}
    if topic in ("partitions", "topologies"):
        entries: Any = {"partitions": PARTITIONS, "topologies": TOPOLOGIES}[topic]
        return {name: entry.description for name, entry in entries.items()}
    entries = {"algorithms": registry.ALGORITHMS, "objectives": OBJECTIVES}[topic]
    return {name: entry.summary for name, entry in entries.items()}


def _describe_encoder(name: str) -> str:
    kind = "vision transformer" if name.startswith("vit") else "convolutional network"
    return f"{kind} with {DualEncoder(name, _IMAGE).features} features"


def _describe_views(policy: ViewPolicy) -> str:
    """The random steps of a policy that change something."""
    own, default = vars(policy), vars(ViewPolicy())
    steps = [word for name, word in _STEPS.items() if own[name] != default[name]]
    if policy.jitter:
        steps.append(f"colour jitter (brightness {policy.brightness})")
    return ", ".join(steps) or "the image as it is"
