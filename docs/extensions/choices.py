"""Tables of flags' values, made from the project's registries."""

import importlib

from markdown_tables import table

# Flag -> module and name of the registry, and the description of an entry.
_CHOICES = {
    "algorithm": ("tff_ssl.algorithms.registry", "ALGORITHMS", lambda entry: entry.summary),
    "objective": ("tff_ssl.objectives.registry", "OBJECTIVES", lambda entry: entry.summary),
    "partition": ("datasets.partition", "PARTITIONS", lambda entry: entry.description),
    "topology": ("tff_ssl.decentralized.topology", "TOPOLOGIES", lambda entry: entry.description),
    "experiment": ("launch.studies.catalog", "EXPERIMENTS", lambda entry: entry[1]),
}


def markdown(flag: str) -> list[str]:
    """The table of a flag's values."""
    module, registry, describe = _CHOICES[flag]
    entries = getattr(importlib.import_module(module), registry)
    link = "[`{0}`]({0}.md)" if flag == "algorithm" else "`{0}`"
    rows = [[link.format(name), describe(entry)] for name, entry in entries.items()]
    return table([[f"`--{flag}`", "what it is"], *rows])
