"""Defaults that depend on the data set, without slow imports."""

from collections.abc import Collection, Mapping
from typing import Any

from datasets import catalog, partition
from datasets.listing import Layout
from launch.options import settings
from launch.options.settings import Config, Settings
from tff_ssl.errors import ConfigurationError

_DIGITS_VIEW_SIZE = 16  # At 8x8, three stages of a ResNet would see 2x2 pixels.
_PARTITIONS = {Layout.CASES: "per_case", Layout.CLASSES: "dirichlet", Layout.IMAGES: "iid"}


def resolve(config: Config, objective: str | None, kept: Collection[str] = ()) -> Config:
    """Sets the partition, the views and their size where they are not given.

    Images of your own have one client per case. In folders of classes, or with labels, clients have
    images of one class, by the default of `--alpha`; without classes they are random.

    Args:
      objective: Name of the objective, if known.
      kept: Names of further flags that keep their values.
    """
    assert isinstance(config, Settings)
    values = settings.flat(config)
    dataset, changes = values.get("dataset") or "", dict[str, Any]()
    if catalog.is_own(dataset):
        changes["partition"] = _PARTITIONS[_layout(values)]
    changes["views"] = views(dataset, objective)
    is_small = dataset == "digits" and values["image_size"] is None
    changes["view_size"] = _DIGITS_VIEW_SIZE if is_small else None
    kept = {*config.given, *kept}
    if "partition" in changes.keys() & values.keys() - kept:
        check_partition(changes["partition"], values, config.given)
    return settings.replace(config, **{n: v for n, v in changes.items() if n not in kept})


def _layout(values: Mapping[str, Any]) -> Layout:
    return catalog.layout(values["dataset"], values["data_dir"], values.get("follow_links", False))


def check_partition(name: str, values: Mapping[str, Any], given: Collection[str]) -> None:
    """Raises a ConfigurationError for a given flag of other partitions than this one."""
    clusters = values["cluster_partition"]
    for flag in sorted(partition.unread_flags(name, clusters).intersection(given)):
        own = f" with --cluster_partition={clusters}" if name == "feature_clusters" else ""
        others = [other for other, spec in partition.PARTITIONS.items() if flag in spec.flags]
        raise ConfigurationError(
            f"--{flag} is not read by --partition={name}{own}: leave it out, or take "
            f"{' or '.join(others)}"
        )


def views(dataset: str, objective: str | None) -> str:
    """The augmentation policy of a data set and an objective if `--views` is not given."""
    if catalog.has_characters(dataset):
        return "affine"
    return {"supervised": "flip", "mae": "crop_flip"}.get(objective or "", "byol_no_blur")


def objective_of(entry: Any, encoder: str, init_from: str | None) -> str:
    """The objective of an algorithm's registry entry if `--objective` is not given.

    It is the first one of the algorithm, or nt_xent if that is a masked autoencoder and the encoder
    is no vision transformer.
    """
    # Imported here, because it takes seconds.
    from launch.options import encoders, pretrained
    from tff_ssl.models.vit import VITS

    first = entry.objectives[0]
    # The encoder of a run is known only when its weights are read.
    of_run = init_from not in (None, pretrained.EFFICIENTNET, encoders.IMAGENET)
    return first if first != "mae" or of_run or encoder in VITS else "nt_xent"


def shown(config: Settings) -> dict[str, str]:
    """The values, for help texts, of flags whose defaults depend on other flags, by name."""
    values = settings.flat(config)
    dataset = values.get("dataset") or ""
    found, objective = {}, values.get("objective")
    if "algorithm" in config.given and objective is None:
        # Imported here, because it takes seconds.
        from tff_ssl.algorithms import registry

        entry = registry.find(values["algorithm"], None)
        objective = found["objective"] = objective_of(entry, values["encoder"], values["init_from"])
    resolved = settings.flat(resolve(config, objective))
    for name in ("partition", "views", "view_size"):
        if resolved.get(name):
            found[name] = str(resolved[name])
    if "per_case" in values and values["per_case"] is None:
        layout = _layout(values) if catalog.is_own(dataset) else None
        found["per_case"] = "true" if layout is Layout.CASES else "false"
    return found
