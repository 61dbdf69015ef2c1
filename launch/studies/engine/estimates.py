"""What an experiment would take in memory and hours, from two to six rounds of each cell.

Each cell is trained on a few random images in place of its data, with its own network, clients and
flags. This shows that every cell builds and trains, also without its data, and what an image takes
in the rounds after the first one, which prepares graphs. Where a round takes minutes, one does.
"""

import functools
import hashlib
import json
import os
import pathlib
import platform
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from launch.outputs import run_folder, tables
from launch.runs import scripts
from launch.studies.engine import runner, stand_ins
from tff_ssl import whole_files
from tff_ssl.algorithms import registry
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting import checked_files, records
from tff_ssl.reporting.document import Document
from tff_ssl.reporting.experiment import Cell, Experiment
from tff_ssl.runtime.process_memory import MemoryWatch

_FILE = "measurements.jsonl"
_HEADER = ("cell", "MB in the trial", "ms an image", "images times epochs", "hours")
# Flags that change neither what a round computes nor the size of its data: of cells that differ in
# these alone, one is measured.
_SAME_COST = {
    "alpha", "beta", "rounds", "labels", "labels_per_class", "label_draws", "probe", "baselines",
    "also_logistic", "checkpoint_every", "eval_every", "encoder_round", "personalized_clients",
    "dp_epsilon", "dp_noise_multiplier", "hparam.client_learning_rate",
    "hparam.server_learning_rate", "hparam.learning_rate", "hparam.temperature", "hparam.lambda",
    "hparam.mu", "hparam.tau", "hparam.target_momentum", "hparam.local_epochs",
    "hparam.client_weight_decay", "hparam.selection_limit", "hparam.learning_rate_schedule",
    "hparam.staleness_bound", "hparam.route", "hparam.use_history", "hparam.use_time",
    "hparam.use_volume", "hparam.switch_probability", "hparam.statistics_momentum",
    # Which of FedU's two networks are sent: 7 % of the time of a round, and 4 % of its memory.
    "hparam.update", "hparam.predictor_update", "hparam.divergence",
    "connectivity", "data_fraction", "min_client_size", "random_sizes", "quantization_bits",
}  # fmt: skip
# Cases are images of a side of 224 pixels, and clients that are folded. From 64 to 128 of them,
# memory grew by 1 %, and the time of an image fell by 7 %.
_MOST_CASES = 64
# A trial that takes longer, in seconds, has failed.
_LONGEST = 600
# On a GPU, clients have some batches, because a step takes as long with few images; and rounds
# after the first one, which compiles, are short and differ.
_GPU_IMAGES, _GPU_ROUNDS = 256, 6
# Partitions of all images over a fixed number of clients, which differ in what each client has.
_SAME_SIZES = ("iid", "skew", "dirichlet", "dirichlet_per_class")


class Estimate(NamedTuple):
    """What one run of a cell would take."""

    cell: str
    failed: str = ""  # Why it does not train; empty if it does, else nothing else is known.
    megabytes: int = 0  # Peak memory of its processes in the trial.
    milliseconds: float = 0.0  # What an image took in the trial's last round.
    images: float | None = None  # Images times epochs of all rounds; None if that is not known.

    @property
    def hours(self) -> float | None:
        """Hours of the run's training; None where the number of images is not known."""
        return None if self.images is None else self.images * self.milliseconds / 3_600_000


def run(
    experiment: Experiment, cells: Sequence[Cell], folder: pathlib.Path, images: int | None = None
) -> None:
    """Measures the cells that are not measured yet, and prints and writes the estimates.

    Args:
      experiment, cells: The experiment and its cells.
      folder: Folder of the estimates of all experiments, which share the rounds measured in it.
      images: Largest number of images of a client in a trial, see `stand_ins.images_per_client`.

    Raises:
      TrainingError: If a cell does not train. The others are measured nevertheless.
    """
    images = _images(images)
    run_folder.make(folder)
    run_folder.lock(folder)
    path = folder / _FILE
    rows = _read(path)
    groups = groups_of(cells, images)
    pending = {key: group[0] for key, group in groups.items() if key not in rows}
    print(
        f"{experiment.title}: {_rounds()} rounds of each of {len(cells)} cells on random images, "
        f"{len(groups)} of which differ in what they compute, {len(pending)} to do, each for "
        f"{_LONGEST // 60} minutes at most, on {machine()}; results go to {folder}/",
        flush=True,
    )
    for number, (key, cell) in enumerate(pending.items(), start=1):
        print(f"[{number}/{len(pending)}] {cell.name}", flush=True)
        measured = _measure(cell, cells, folder, images)
        if scripts.is_ending():
            print("stopped; the same command measures the cells that are left", flush=True)
            break
        rows[key] = {"cell": f"{experiment.name}/{cell.name}"} | measured
        whole_files.write(path, to_text(machine(), rows))
    grid = [list(_HEADER), *map(_row, estimates_of(groups, rows))]
    document = Document(f"What it would take: {experiment.title}", folder)
    document.add_paragraph(_explanation())
    document.add_grid(grid, "measured")
    markdown, page = document.write(experiment.name)
    print(f"\n{tables.aligned(grid)}")
    print(f"\nwritten to {markdown}, {page} and {path}")
    failed = [cell.name for key, cell in pending.items() if "failed" in rows.get(key, {})]
    if failed:
        raise TrainingError(f"{len(failed)} cells do not train: {', '.join(failed)}")


def summary(experiments: Sequence[Experiment], folder: pathlib.Path, images: int | None) -> str:
    """A table of the hours of one seed of experiments, as far as their cells were measured."""
    rows = _read(folder / _FILE)
    grid = [["experiment", "cells measured", "hours of training, one seed"]]
    for one in experiments:
        found = estimates_of(groups_of(one.cells, _images(images)), rows)
        hours = [estimate.hours for estimate in found if estimate.hours is not None]
        total = format_hours(sum(hours)) if hours else "-"
        grid.append([one.name, f"{len(found)} of {len(one.cells)}", total])
    return f"on {machine()}:\n{tables.aligned(grid)}"


@functools.cache
def _gpu() -> str:
    """The GPU on which runs compute; "" without one."""
    from tff_ssl.runtime import devices

    return str(devices.find_gpu() or "")


def _images(images: int | None) -> int | None:
    """The largest number of images of a trial's client, if it is not that of `stand_ins`."""
    return images or (_GPU_IMAGES if _gpu() else None)


def _rounds() -> int:
    """Number of rounds of a trial."""
    return _GPU_ROUNDS if _gpu() else 2


def machine() -> str:
    """The GPU, if there is one, the processor, and the number of cores of this process."""
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    processor = models[0] if models else platform.machine()
    with_gpu = f"{_gpu()}; " if _gpu() else ""
    return f"{with_gpu}{cores} {'core' if cores == 1 else 'cores'}, {processor}"


def _read(path: pathlib.Path) -> dict[str, Any]:
    """The rounds that this machine has measured; those that failed are measured again.

    Raises:
      ConfigurationError: If another machine has measured them.
    """
    if not path.exists():
        return {}
    before, rows = read(path)
    if before != machine():
        raise ConfigurationError(
            f"{path} has the rounds of {before}, and this is {machine()}: choose another "
            "--output_dir"
        )
    return {key: row for key, row in rows.items() if "failed" not in row}


def read(path: pathlib.Path) -> tuple[str, dict[str, dict[str, Any]]]:
    """Reads a file of measured rounds.

    Returns:
      The machine that measured them; and by the key of a round (see `groups_of`) the result of
      `_measure`, with the experiment and cell that was measured as `cell`.

    Raises:
      ConfigurationError: The file cannot be read.
    """
    (_, head), *lines = records.read_lines(path)
    return head["machine"], {line.pop("round"): line for _, line in lines}


def to_text(machine: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of a file that `read` reads, sorted by cell, with a line for each round."""
    rounds = [{"round": key, **row} for key, row in rows.items()]
    lines = [{"machine": machine}, *sorted(rounds, key=lambda r: (r["cell"], r["round"]))]
    return "".join(json.dumps(line) + "\n" for line in lines)


def groups_of(cells: Sequence[Cell], images: int | None = None) -> dict[str, list[Cell]]:
    """Cells that compute the same in a round, in the order of their first, by a key of the round.

    The key is the same in all experiments that have such a round; `images` as for `run`.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        own = runner.effective_flags(cell.flags)
        ignored = set(_SAME_COST)
        if "num_clients" in own and own.get("partition") in _SAME_SIZES:
            ignored.add("partition")
        in_trial = own | _clients_of_trial(own)
        computed = sorted(flag for flag in in_trial.items() if flag[0] not in ignored)
        further = [value for value in (cell.needs, images) if value]
        text = json.dumps([cell.script, computed, *further])
        groups.setdefault(hashlib.sha256(text.encode()).hexdigest()[:16], []).append(cell)
    return groups


def _measure(
    cell: Cell, cells: Sequence[Cell], folder: pathlib.Path, images: int | None
) -> dict[str, Any]:
    """Trains a cell for a few rounds, after the cell that it needs.

    Returns:
      `peak_rss_mb`, `round_seconds`, the median of the rounds after the first one, and
      `round_images` of the last one; or `failed`, the reason.
    """
    root = folder / "trial"
    shutil.rmtree(root, ignore_errors=True)  # Of a trial that was killed.
    needed = [("needed", other) for other in cells if other.name == cell.needs]
    try:
        for name, one in (*needed, ("run", cell)):
            failure, peak = _train(one, root, name, images)
            if failure:
                return {"failed": failure}
        rounds = checked_files.read_metrics(root / "run" / "metrics.csv")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {
        "peak_rss_mb": round(peak / 1e6),
        "round_seconds": round(statistics.median(r["seconds"] for r in rounds[1:] or rounds), 4),
        "round_images": round(rounds[-1]["samples"]),
    }


def _train(cell: Cell, root: pathlib.Path, name: str, images: int | None) -> tuple[str | None, int]:
    """Trains a cell on its stand-in; the reason of a failure or None, and the peak of memory."""
    own = runner.effective_flags(cell.flags)
    given = [flag.replace("{needed}", str(root / "needed")) for flag in cell.flags]
    changes = trial_flags(cell.script, own, images)
    if own.get("dataset") != "digits":
        data, stand_in = root / f"{name}_data", stand_ins.of_cell(cell.script, own, images)
        stand_ins.write(data, stand_in)
        size = f"--image_size={stand_in.size}"
        changes += ["--dataset=case_folder", f"--data_dir={data}", size]
    watches: list[MemoryWatch] = []
    try:
        arguments = [cell.script, *given, *changes, f"--output_dir={root / name}"]
        failure = runner.run_script(
            arguments, root.parent / "log.txt", lambda pid: watches.append(MemoryWatch(pid)),
            seconds=_LONGEST,
        )  # fmt: skip
    finally:
        for watch in watches:
            watch.stop()
    return failure, max((watch.peak for watch in watches), default=0)


def trial_flags(script: str, own: Mapping[str, str], images: int | None = None) -> list[str]:
    """Flags that make a cell's training short, and its evaluation as small as possible."""
    per_client = stand_ins.images_per_client(own, images)
    # The first of two rounds prepares graphs. One round of a ResNet-50 on large images takes
    # minutes, of which preparation is a small part: 123 s, and 110 s in the second one.
    is_slow = not _gpu() and own.get("encoder") == "resnet50" and int(own.get("image_size", 0)) > 32
    changes = [
        f"--rounds={1 if is_slow else _rounds()}", "--eval_every=0", "--checkpoint_every=1000",
        "--labels=", "--labels_per_class=1", "--label_draws=1", "--probe=logistic", "--baselines=",
        "--encoder_round=last",
    ]  # fmt: skip
    if "data_fraction" in own:
        changes.append("--data_fraction=1")
    if "min_client_size" in own:
        changes.append("--min_client_size=2")
    if script == "centralized" and stand_ins.is_large(own):
        changes.append(f"--batch_size={per_client}")  # Whole batches do not fit into 23 GB.
    if script == "pretrain":
        changes.append("--personalized_clients=0")
        changes += [f"--{name}={value}" for name, value in _clients_of_trial(own).items()]
        if _local_epochs(own):
            changes.append("--hparam=local_epochs=1")
        if "num_clients" in own and "samples_per_client" in own:
            changes.append(f"--samples_per_client={per_client}")
        rad = stand_ins.rad_images(own, images)
        if rad and own.get("dataset") != "digits":
            changes += [f"--rad_size={rad}", f"--hparam=rad_batch_size={rad}"]
    return changes


def _clients_of_trial(own: Mapping[str, str]) -> dict[str, str]:
    """The flag of a trial's clients in a round, where they are not those of the cell."""
    is_many = own.get("partition") == "per_case" and int(own["clients_per_round"]) > _MOST_CASES
    return {"clients_per_round": str(_MOST_CASES)} if is_many else {}


def images_of_run(script: str, own: Mapping[str, str]) -> float | None:
    """Images times epochs of all rounds of a cell; None where its number of images is not known."""
    rounds = int(own["rounds"])
    if script == "centralized":
        return rounds * int(own["batch_size"])
    clients = int(own.get("clients_per_round", own.get("num_clients", 0)))
    if own.get("algorithm") == "denav":
        clients = int(own.get("hparam.models", _default(own, "models")))
    total, *_ = stand_ins.DATA.get(own["dataset"], (0, 0, 0))
    if "samples_per_client" in own:
        images = float(own["samples_per_client"])
    elif own.get("partition") == "per_case":
        images = float(stand_ins.IMAGES_PER_CASE)
    elif total and "num_clients" in own:
        images = total * float(own.get("data_fraction", 1)) / int(own["num_clients"])
    else:
        return None
    most = int(own.get("hparam.examples_per_round", 0))
    images = min(images, most) if most else images
    return rounds * clients * images * (_local_epochs(own) or 1)


def _local_epochs(own: Mapping[str, str]) -> int:
    """Number of local epochs; 0 if the algorithm has none."""
    return int(own.get("hparam.local_epochs", _default(own, "local_epochs")))


def _default(own: Mapping[str, str], name: str) -> int:
    """The algorithm's own number for a hyperparameter; 0 if it has none of this name."""
    algorithm = own.get("algorithm", "dcco")  # The default of `pretrain`.
    return getattr(registry.ALGORITHMS[algorithm].hyperparameters, name, 0)


def estimates_of(
    groups: Mapping[str, Sequence[Cell]], rows: Mapping[str, Mapping[str, Any]]
) -> list[Estimate]:
    """An estimate for each cell of `groups_of` that was measured; `rows` are by the same keys."""
    found = []
    for key, group in groups.items():
        row = rows.get(key, {})
        if "failed" in row:
            found += [Estimate(cell.name, row["failed"]) for cell in group]
        elif row:
            each = 1000 * row["round_seconds"] / max(row["round_images"], 1)
            for cell in group:
                images = images_of_run(cell.script, runner.effective_flags(cell.flags))
                found.append(Estimate(cell.name, "", row["peak_rss_mb"], each, images))
    return found


def _row(estimate: Estimate) -> list[str]:
    cell, failed, megabytes, milliseconds, images = estimate
    if failed:
        return [cell, f"failed: {failed}", "-", "-", "-"]
    known = "-" if images is None else f"{images:,.0f}"
    hours = "-" if estimate.hours is None else format_hours(estimate.hours)
    return [cell, f"{megabytes:,}", f"{milliseconds:.1f}", known, hours]


def format_hours(hours: float) -> str:
    """Hours, as a text with two digits after the point below ten."""
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2f}"


def _explanation() -> str:
    return (
        f"Measured on {machine()}, with {_rounds()} rounds of each cell on random images, of which "
        "the first prepares graphs and counts only if it is the only one, as for a ResNet-50 on "
        "images above 32 pixels on a CPU. A client of the trial has "
        "fewer images, and one local epoch. Hours are those of the training of one seed: the "
        "milliseconds that an image took, times the images and epochs of all rounds. They are "
        "upper bounds where the cell's clients have many images. The memory of a run hardly "
        "depends on the number of its rounds; its data comes on top."
    )
