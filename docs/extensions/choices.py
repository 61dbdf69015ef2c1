"""Tables of what a flag can choose, made from the project's registries."""

from markdown_tables import table


def _algorithms():
    from tff_ssl.algorithms.registry import ALGORITHMS

    return {f"[`{name}`]({name}.md)": e.summary for name, e in ALGORITHMS.items()}


def _objectives():
    from tff_ssl.objectives.registry import OBJECTIVES

    return {f"`{name}`": entry.summary for name, entry in OBJECTIVES.items()}


def _partitions():
    from datasets.partition import PARTITIONS

    return {f"`{name}`": entry.description for name, entry in PARTITIONS.items()}


def _topologies():
    from tff_ssl.decentralized.topology import TOPOLOGIES

    return {f"`{name}`": entry.description for name, entry in TOPOLOGIES.items()}


def _experiments():
    from launch.studies.catalog import EXPERIMENTS

    return {f"`{name}`": text for name, (_, text) in EXPERIMENTS.items()}


_CHOICES = {
    "algorithm": _algorithms,
    "objective": _objectives,
    "partition": _partitions,
    "topology": _topologies,
    "experiment": _experiments,
}


def markdown(flag: str) -> list[str]:
    """The table of a flag's values."""
    rows = [[name, text] for name, text in _CHOICES[flag]().items()]
    return table([[f"`--{flag}`", "what it is"], *rows])
