"""What a partition looks like, before training on it.

    python -m launch.partition_report --dataset=cifar10 --data_dir=... --partition=skew \
        --beta=0.5 --num_clients=5 --output_dir=/tmp/report

Writes `partition.json` and `partition.png` (a bar per client, a colour per class).
"""

from typing import Any

from absl import flags

import launch.flags
from launch import app

launch.flags.define_common_flags()
launch.flags.define_data_flags()
flags.adopt_module_key_flags(launch.flags)


def main() -> None:
    from datasets import describe, partition
    from launch import data, run_folder

    values = flags.FLAGS
    settings = _settings(values, partition.PARTITIONS[data.partition_name(values)].flags)
    folder = data.default_output_dir("partition", values)
    used = "".join(f", {flag}={value}" for flag, value in settings["flags"].items())
    what = f"{values.dataset}: {settings['partition']}{used}, seed {values.seed}"
    print(f"Partitions the training examples of {what}")
    print(f"and writes partition.json and partition.png to {folder}/", flush=True)
    dataset = data.load_dataset(values)
    clients = data.partition_dataset(dataset, values)
    counts = describe.histograms(dataset.train.labels, clients, len(dataset.class_names))
    report = settings | describe.summary(counts, clients, len(dataset.train))
    title = what if report["emd"] is None else f"{what}, EMD {report['emd']:.3f}"
    folder.mkdir(parents=True, exist_ok=True)
    describe.draw(counts, dataset.class_names, folder / "partition.png", title, clients)
    run_folder.write_json(folder / "partition.json", report)
    _print_table(report)
    print(f"wrote {folder / 'partition.json'}\nwrote {folder / 'partition.png'}")


def _settings(values: flags.FlagValues, used: tuple[str, ...]) -> dict[str, Any]:
    """What determines the partition; the flags that it does not use are left out."""
    from launch import data, run_folder

    read = {flag: values[flag].value for flag in used}
    return {
        "dataset": values.dataset,
        "data_dir": values.data_dir,
        "image_size": values.image_size,
        "partition": data.partition_name(values),
        "flags": {
            flag: run_folder.json_value(value) for flag, value in read.items() if value is not None
        },
        "seed": values.seed,
    }


def _print_table(report: dict[str, Any]) -> None:
    sizes, classes = report["client_sizes"], report["classes_per_client"]
    distance = "no labels" if report["emd"] is None else f"{report['emd']:.3f} (0 IID, 2 disjoint)"
    for name, value in (
        ("clients", f"{report['clients']:,}"),
        ("examples", f"{report['examples']:,} ({report['examples_left_out']:,} left out)"),
        ("examples per client", _spread(sizes)),
        ("classes per client", _spread(classes)),
        ("earth mover's distance", distance),
    ):
        print(f"  {name:<24}{value}")


def _spread(values: dict[str, float]) -> str:
    return f"{values['min']:g} / {values['median']:g} / {values['max']:g} (min / median / max)"


if __name__ == "__main__":
    app.run(main)
