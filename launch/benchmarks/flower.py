"""Rounds in another framework, measured by `benchmark` in turn with the same ones in ours.

Flower (Beutel et al. 2020, arXiv:2007.14390) runs FedAvg with SimCLR in its simulation on Ray, its
clients in PyTorch. The programs are in `launch.benchmarks.flower_side` and run in an environment of
their own.
"""

import dataclasses
import importlib.metadata
import os
import pathlib
import statistics
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil

from launch.benchmarks import processes
from launch.benchmarks.flower_process import FlowerProcess, process_tree
from tff_ssl.errors import TrainingError

_POLICY = "byol_no_blur"
_LEARNING_RATE = 0.01
_REFERENCE_IMAGES = 8
# Of losses and (relative) gradients of the same weights and views, in float32.
_LOSS_TOLERANCE, _GRADIENT_TOLERANCE = 1e-4, 1e-3
_MEGABYTE = 1e6


class Work(NamedTuple):
    """A round: local steps of `batch_size` images (0: all of a client's) on each client."""

    clients: int
    samples: int
    steps: int
    batch_size: int

    @property
    def name(self) -> str:
        batch = f" of {self.batch_size}" if self.batch_size else ""
        steps = f"{self.steps} step{'s' * (self.steps > 1)}{batch}"
        return f"{self.clients} clients x {self.samples} images, {steps}"


WORK = (Work(128, 4, 1, 0), Work(5, 64, 4, 32))


class Arrangement(NamedTuple):
    """How Flower's clients share the cores: so many at a time, each with so many threads."""

    actors: int
    threads: int

    @property
    def name(self) -> str:
        actors, threads = "s" * (self.actors > 1), "s" * (self.threads > 1)
        return f"Flower, {self.actors} actor{actors} x {self.threads} thread{threads}"


def arrangements(cores: int) -> list[Arrangement]:
    """The ways that are measured: a client for each core, or one at a time on all cores."""
    return list(dict.fromkeys([Arrangement(cores, 1), Arrangement(1, cores)]))


def settings(work: Work, how: Arrangement, network: processes.Network) -> dict[str, Any]:
    """What Flower's rounds are told, but for the files: the same as ours."""
    from tff_ssl.models.resnet import RESNETS
    from tff_ssl.objectives.registry import ObjectiveHyperparameters
    from tff_ssl.views import augmentation

    spec, policy = RESNETS[network.encoder], dataclasses.asdict(augmentation.POLICIES[_POLICY])
    names = ("crop_area", "crop_aspect", "flip", "jitter", "brightness", "contrast")
    return {
        "model": {
            "blocks": spec.blocks,
            "widths": spec.widths,
            "groups": spec.groups,
            "projector": network.projector,
        },
        "views": {
            name: policy[name] for name in (*names, "saturation", "hue", "grayscale", "solarize")
        },
        "temperature": ObjectiveHyperparameters().temperature,
        "learning_rate": _LEARNING_RATE,
        **work._asdict(),
        **how._asdict(),
    }


def our_hyperparameters(work: Work) -> dict[str, Any]:
    """FedAvg's: the new model is the mean of the clients', as in Flower's FedAvg."""
    return {
        "local_steps": work.steps,
        "batch_size": work.batch_size,
        "client_learning_rate": _LEARNING_RATE,
        "server_optimizer": "sgd",
        "server_learning_rate": 1.0,
        "server_momentum": 0.0,
    }


def compare(
    args: Any, scratch: str, works: Sequence[Work] = WORK, cores: int | None = None
) -> dict[str, Any]:
    """Rounds of ours and of Flower's, in turn.

    Args:
      args: The flags: projection, seed, repetitions, peer_python.
      scratch: A folder; its path must be short, for Ray's sockets.
      works: Each a table of its own.
      cores: Those of this process by default.

    Returns:
      What stands in `benchmark.json` as `peer`.

    Raises:
      TrainingError: If Flower's rounds fail, or compute something else than ours.
    """
    cores = cores or len(os.sched_getaffinity(0))
    network = processes.Network("small", (args.projection,) * 3)
    stored = pathlib.Path(scratch) / "reference.npz"
    child = processes.Child(reference, network, args.seed, str(stored))
    child.close()
    ours, tables, theirs = child.facts, [], {}
    for number, work in enumerate(works):
        count = work.clients * work.samples
        images = pathlib.Path(scratch) / f"images{number}.npy"
        np.save(images, processes.images(count, args.seed))
        programs: dict[str, Counted] = {}
        print(f"{work.name}: tff_ssl starts", flush=True)
        try:
            programs["tff_ssl"] = Counted(
                processes.Child(
                    processes.federated_round, "fedavg", "nt_xent", our_hyperparameters(work),
                    work.clients, work.samples, network, args.seed, scratch,
                )
            )  # fmt: skip
            for how in arrangements(cores):
                print(f"{work.name}: {how.name} starts", flush=True)
                files = {"images": str(images), "reference": str(stored)}
                folder = f"{scratch}/r{number}{len(programs)}"
                told = {**settings(work, how, network), **files, "temp_dir": folder}
                peer = FlowerProcess(args.peer_python, told)
                programs[how.name] = Counted(peer)
                theirs = peer.facts
                check_same(ours, theirs)
            print(f"{work.name}: {args.repetitions + 1} rounds of each, in turn", flush=True)
            tables.append(table(work, programs, args.repetitions))
        finally:
            for program in programs.values():
                program.close()
    return {
        "name": "flower",
        "settings": {
            "both": _both(ours, network, cores),
            "tff_ssl": _OURS.format(
                tff=importlib.metadata.version("tensorflow-federated"),
                tf=importlib.metadata.version("tensorflow"),
            ),
            "flower": _THEIRS.format(**theirs["versions"]),
        },
        "same_weights_and_views": {
            name: {key: facts[key] for key in ("loss", "gradient_norm")}
            for name, facts in (("tff_ssl", ours), ("flower", theirs))
        },
        "work": tables,
    }


_OURS = (
    "TFF {tff}, TensorFlow {tf}: StatelessClientsSimulation as `launch.pretrain` runs it, all "
    "clients folded into one call of the TFF worker (--fold=1); a round of one step computes all "
    "clients' gradients in micro-batches of 32 images; images from SQLite"
)
_THEIRS = (
    "Flower {flwr}, Ray {ray}, PyTorch {torch}: run_simulation, strategy FedAvg, a ClientApp for "
    "each client, eager, channels_last; each process keeps its model between clients; images from "
    "a memory-mapped file; the order of the colour adjustments is drawn for each batch (ours: for "
    "each image)"
)


def _both(facts: dict[str, Any], network: processes.Network, cores: int) -> str:
    from tff_ssl.objectives.registry import ObjectiveHyperparameters

    return (
        f"cores: {cores}; float32; FedAvg of SimCLR (NT-Xent, temperature "
        f"{ObjectiveHyperparameters().temperature}); {network.encoder} ResNet with group norm and "
        f"weight standardization, projector {' x '.join(map(str, network.projector))}, "
        f"{facts['parameters']:,} parameters, from the same weights; 32x32x3 images, two views "
        f"each ({_POLICY}: crop, flip, colour jitter, grayscale, solarization) anew in each step; "
        f"SGD of rate {_LEARNING_RATE} on the clients, the mean of their models weighted by images"
    )


def check_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Complains if the loss and gradient of the same weights and views are not the same.

    Raises:
      TrainingError: See there.
    """
    same = (
        ours["parameters"] == theirs["parameters"]
        and abs(ours["loss"] - theirs["loss"]) <= _LOSS_TOLERANCE
        and abs(theirs["gradient_norm"] / ours["gradient_norm"] - 1) <= _GRADIENT_TOLERANCE
    )
    if not same:
        raise TrainingError(
            "Flower's rounds compute something else than ours: parameters, loss and gradient norm "
            f"of the same weights and views are {_numbers(theirs)} against {_numbers(ours)}"
        )


def _numbers(facts: dict[str, Any]) -> str:
    return f"{facts['parameters']}, {facts['loss']:.6f}, {facts['gradient_norm']:.4f}"


def reference(
    network: processes.Network, seed: int, path: str
) -> Generator[dict[str, Any], None, None]:
    """Yields our loss and gradient's norm, and writes the weights and views that they are of."""
    processes.quiet()
    import tensorflow as tf

    from tff_ssl.losses import segments
    from tff_ssl.objectives.registry import OBJECTIVES, Batch, ObjectiveHyperparameters
    from tff_ssl.runtime import local_worker  # noqa: F401

    model, two_views = processes.model_and_views(network, seed)
    weights = model.init(seed)
    ids = np.arange(_REFERENCE_IMAGES)
    x1, x2 = two_views(processes.images(len(ids), seed), ids, 0)
    batch = Batch(x1, x2, segments.one(len(ids)), None, ids, 0, seed)
    with tf.GradientTape() as tape:
        tape.watch(weights.trainable)
        evaluate = OBJECTIVES["nt_xent"].evaluate
        loss = tf.reduce_mean(
            evaluate(model, weights, None, batch, ObjectiveHyperparameters()).losses
        )
    gradient = tape.gradient(loss, weights.trainable)
    arrays = {f"weight{i}": weight.numpy() for i, weight in enumerate(weights.trainable)}
    np.savez(path, x1=x1, x2=x2, **arrays)
    yield {
        "parameters": model.parameter_count,
        "loss": float(loss),
        "gradient_norm": float(tf.linalg.global_norm(gradient)),
    }


class Counted:
    """A program whose processor time is taken beside its seconds."""

    def __init__(self, program: Any):
        self._program = program
        self._cpu: list[float] = []

    def step(self) -> float:
        """See `measure.Child`."""
        before = self._cpu_seconds()
        seconds = self._program.step()
        self._cpu.append(self._cpu_seconds() - before)
        return seconds

    def facts(self) -> dict[str, float]:
        """Of the steps so far."""
        return {
            "cpu_seconds": statistics.median(self._cpu),
            "first_round_seconds": self._program.first_seconds,
            "peak_rss_mb": self._program.peak_rss_mb(),
            "pss_mb": sum(_pss(p) for p in process_tree(self._program.pid)) / _MEGABYTE,
        }

    def close(self) -> None:
        self._program.close()

    def _cpu_seconds(self) -> float:
        return sum(_cpu(process) for process in process_tree(self._program.pid))


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


def _pss(process: psutil.Process) -> int:
    """Memory in bytes, a page that several processes share divided among them."""
    try:
        return process.memory_full_info().pss
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def table(work: Work, programs: dict[str, Counted], repetitions: int) -> dict[str, Any]:
    """Measures `programs`, of which `tff_ssl` is compared with each of the others."""
    seconds = processes.in_turn(programs, repetitions)
    ours = seconds.pop("tff_ssl")
    first = {"name": "tff_ssl", "seconds": statistics.median(ours)}
    rows: list[dict[str, Any]] = [{**first, **programs["tff_ssl"].facts()}]
    for name, theirs in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        row = {"name": name, "seconds": statistics.median(theirs), "ratio": ratio}
        rows.append({**row, **programs[name].facts()})
    best = min(rows[1:], key=lambda row: row["seconds"])
    return {
        **work._asdict(),
        "name": work.name,
        "ratio": best["ratio"],
        "best_arrangement": best["name"],
        "programs": rows,
    }


def describe(results: dict[str, Any]) -> str:
    """The settings and a table for each work, of `compare`'s results."""
    lines = [""]
    lines += [f"{name}: {text}" for name, text in results["settings"].items()]
    values = results["same_weights_and_views"]
    pairs = [
        f"{key.replace('_', ' ')} {values['tff_ssl'][key]:.6f} and {values['flower'][key]:.6f}"
        for key in ("loss", "gradient_norm")
    ]
    lines.append(f"the same weights and views, tff_ssl and flower: {', '.join(pairs)}")
    for work in results["work"]:
        header = ("s/round", "ours/it", "CPU s", "start s", "peak MB", "PSS MB")
        lines += ["", f"{work['name']:36}" + "".join(f"{title:>9}" for title in header)]
        for row in work["programs"]:
            best = " *" if row["name"] == work["best_arrangement"] else ""
            ratio = f"{row['ratio']:9.2f}" if "ratio" in row else " " * 9
            lines.append(
                f"  {row['name'] + best:34}{row['seconds']:9.2f}{ratio}{row['cpu_seconds']:9.2f}"
                f"{row['first_round_seconds']:9.1f}{row['peak_rss_mb']:9.0f}{row['pss_mb']:9.0f}"
            )
    lines += [
        "",
        "* the faster arrangement. start: process to the end of round 1. peak: resident memory of "
        "all processes,",
        "shared pages counted in each; PSS: after the last round, shared pages counted once.",
    ]
    return "\n".join(lines)
