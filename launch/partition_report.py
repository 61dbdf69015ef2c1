"""Describes a partition before training on it: clients, classes and their distances.

    python -m launch.partition_report --dataset=cifar10 --data_dir=... --partition=skew \
        --beta=0.5 --num_clients=5 --output_dir=/tmp/report

Writes `partition.json` and `partition.png` (a bar for each client, coloured by class, or by cluster
with `--partition=feature_clusters`), and with --shift `images.png` (some images of the first
clients).
"""

import dataclasses
import textwrap
from typing import Any

import numpy as np

from datasets import describe, partition
from launch.options import app, data, defaults, settings
from launch.options.image_config import ClientsConfig, DataConfig
from launch.options.run_config import ScriptConfig
from launch.options.settings import section
from launch.outputs import output_folder, plots, run_folder


@dataclasses.dataclass(frozen=True)
class PartitionReportConfig(ScriptConfig):
    """The partition that is described."""

    data: DataConfig = section(DataConfig)
    clients: ClientsConfig = section(ClientsConfig)


def main(config: PartitionReportConfig) -> None:
    from launch.options import clients as clients_options

    config = defaults.resolve(config, None)
    report, seed, own = _settings(config), config.seed, config.clients
    folder = output_folder.choose(config.output.output_dir, f"partition-{config.data.dataset}")
    used = "".join(f", {flag}={value}" for flag, value in report["flags"].items())
    description = f"{config.data.dataset}: {own.partition}{used}, seed {seed}"
    title = textwrap.fill(description, 90)
    pictures = ["partition.png"] + (["images.png"] if own.shift != "none" else [])
    print(f"Partitions the training examples of {description}")
    print(f"and writes partition.json and {' and '.join(pictures)} to {folder}/", flush=True)
    dataset = data.load_dataset(config.data)
    clusters = clients_options.cluster_ids(dataset, own, seed)
    clients = clients_options.partition_dataset(dataset, own, seed, clusters)
    client_images = clients_options.client_images(dataset.train, clients, own)
    report |= _figures(dataset, clients, clusters)
    if own.min_client_size > 1:
        unfilled = clients_options.partition_dataset(dataset, own, seed, clusters, 1)
        report["clients_filled_up"] = sum(len(one) < own.min_client_size for one in unfilled)
    folder.mkdir(parents=True, exist_ok=True)
    report["picture"] = _picture(dataset, clients, clusters, title)
    plots.save(describe.draw(report["picture"]), folder / "partition.png", dpi=120)
    if own.shift != "none":
        shown = describe.draw_images(client_images.images, clients, title)
        plots.save(shown, folder / "images.png", private=True, dpi=120)
    run_folder.write_json(folder / "partition.json", report)
    _print_table(report)
    for name in ["partition.json", *pictures]:
        print(f"wrote {folder / name}")


def _settings(config: PartitionReportConfig) -> dict[str, Any]:
    """The settings that determine the partition, with only the flags it uses."""
    clients, images = config.clients, config.data
    used = partition.flags_of(clients.partition, clients.cluster_partition)
    used += ("min_client_size",) if clients.min_client_size != 1 else ()
    used += ("data_fraction",) if clients.data_fraction != 1 else ()
    used += ("shift", "shifts") if clients.shift != "none" else ()
    values = {flag: settings.json_value(getattr(clients, flag)) for flag in used}
    return {
        "dataset": images.dataset,
        "data_dir": images.data_dir,
        "image_size": images.image_size,
        **{name: True for name in ("follow_links", "skip_broken") if getattr(images, name)},
        "partition": clients.partition,
        "flags": {flag: value for flag, value in values.items() if value is not None},
        "seed": config.seed,
    }


def _figures(dataset, clients, clusters) -> dict[str, Any]:
    """The partition's figures by class, and by cluster if there are clusters."""
    counts = describe.histograms(dataset.train.labels, clients, len(dataset.class_names))
    figures = describe.summary(counts, clients, len(dataset.train))
    if clusters is None:
        return figures
    sizes = np.bincount(clusters)
    cluster_counts = describe.histograms(clusters, clients, len(sizes))
    return figures | {
        "cluster_sizes": sizes.tolist(),
        "cluster_emd": describe.earth_movers_distance(cluster_counts),
    }


def _picture(dataset, clients, clusters, title: str) -> dict[str, Any]:
    """The bars of the clients, coloured by cluster if there are clusters, otherwise by class."""
    labels, names = dataset.train.labels, dataset.class_names
    if clusters is not None:
        labels, names = clusters, [f"cluster {k}" for k in range(clusters.max() + 1)]
    counts = describe.histograms(labels, clients, len(names))
    distance = describe.earth_movers_distance(counts)
    title += f", EMD {distance:.3f}" if counts.any() else ""
    return describe.picture(counts, names, title, clients)


def _print_table(report: dict[str, Any]) -> None:
    rows = [
        ("clients", f"{report['clients']:,}"),
        ("examples", f"{report['examples']:,} ({report['examples_left_out']:,} left out)"),
        ("examples per client", _spread(report["client_sizes"])),
        ("classes per client", _spread(report["classes_per_client"])),
        ("earth mover's distance", _distance(report["emd"])),
    ]
    if "clients_filled_up" in report:
        least = report["flags"]["min_client_size"]
        rows.append((f"filled up to {least}", f"{report['clients_filled_up']:,} clients"))
    if "cluster_emd" in report:
        rows += [
            ("cluster sizes", ", ".join(f"{size:,}" for size in report["cluster_sizes"])),
            ("distance by cluster", _distance(report["cluster_emd"])),
        ]
    for name, value in rows:
        print(f"  {name:<24}{value}")


def _distance(value: float | None) -> str:
    return "no labels" if value is None else f"{value:.3f} (0 IID, 2 disjoint)"


def _spread(values: dict[str, float]) -> str:
    return f"{values['min']:g} / {values['median']:g} / {values['max']:g} (min / median / max)"


SCRIPT = app.Script("partition_report", main, PartitionReportConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
