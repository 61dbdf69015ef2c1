"""What a partition looks like, before training on it.

    python -m launch.partition_report --dataset=cifar10 --data_dir=... --partition=skew \
        --beta=0.5 --num_clients=5 --output_dir=/tmp/report

Writes `partition.json` and `partition.png` (a bar per client, a colour per class).
"""

import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from datasets import catalog, partition
from datasets.errors import DatasetError


def _define_flags() -> None:
    flags.DEFINE_string(
        "dataset",
        "digits",
        "Data set: " + "; ".join(f"{k}: {v}" for k, v in catalog.names().items()) + "; or the name "
        "of any TFDS image-classification set that is prepared in --data_dir.",
    )
    flags.DEFINE_string("data_dir", None, "TFDS folder, or the folder of a case_folder.")
    flags.DEFINE_integer("image_size", None, "Resize images to this side in pixels.")
    flags.DEFINE_string(
        "partition",
        "dirichlet",
        "; ".join(f"{k}: {v.description}" for k, v in partition.PARTITIONS.items()) + ".",
    )
    flags.DEFINE_float("alpha", 0.0, "dirichlet: concentration, 0 (one class each) to inf (IID).")
    flags.DEFINE_float("beta", None, "skew: IID fraction, 0 (exclusive classes) to 1 (IID).")
    flags.DEFINE_integer("num_clients", None, "Number of clients; default: as many as can be.")
    flags.DEFINE_integer(
        "samples_per_client",
        None,
        "iid, dirichlet: size of a client; default: an even share of all examples where "
        f"--num_clients is given, else {partition.DEFAULT_SAMPLES_PER_CLIENT}.",
    )
    flags.DEFINE_integer("classes_per_client", None, "by_class: classes on each client.")
    flags.DEFINE_integer("seed", 0, "Seed of the partition.")
    flags.DEFINE_string("output_dir", "runs/partition_report", "Folder for what is written.")


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    # TensorFlow reads this when it is imported, which only TFDS sets need.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        _run(flags.FLAGS)
    except DatasetError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _run(values: flags.FlagValues) -> None:
    settings = _settings(values)
    folder = pathlib.Path(values.output_dir)
    used = "".join(f", {flag}={value}" for flag, value in settings["flags"].items())
    what = f"{values.dataset}: {values.partition}{used}, seed {values.seed}"
    print(f"Partitions the training examples of {what}")
    print(f"and writes partition.json and partition.png to {folder}")
    data = catalog.load(values.dataset, values.data_dir, values.image_size)
    clients = partition.make(
        values.partition,
        data.train,
        values.seed,
        alpha=values.alpha,
        beta=values.beta,
        num_clients=values.num_clients,
        samples_per_client=values.samples_per_client,
        classes_per_client=values.classes_per_client,
    )
    from datasets import describe

    counts = describe.histograms(data.train.labels, clients, len(data.class_names))
    report = settings | describe.summary(counts, clients, len(data.train))
    title = what if report["emd"] is None else f"{what}, EMD {report['emd']:.3f}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        describe.draw(counts, data.class_names, folder / "partition.png", title, clients)
        text = json.dumps(report, indent=2) + "\n"
        (folder / "partition.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise DatasetError(f"output_dir: {folder} cannot be written: {error.strerror}") from error
    _print_table(report)
    print(f"wrote {folder / 'partition.json'}\nwrote {folder / 'partition.png'}")


def _settings(values: flags.FlagValues) -> dict[str, Any]:
    """What determines the partition; the flags that it does not read are left out."""
    spec = partition.PARTITIONS.get(values.partition)
    read = {flag: values[flag].value for flag in (spec.flags if spec else ())}
    return {
        "dataset": values.dataset,
        "data_dir": values.data_dir,
        "image_size": values.image_size,
        "partition": values.partition,
        "flags": {
            # JSON has no infinity.
            flag: str(value) if isinstance(value, float) and value == float("inf") else value
            for flag, value in read.items()
            if value is not None
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
    _define_flags()
    app.run(main)
