"""Rounds in other frameworks, measured by `benchmark` in turn with the same rounds in tff_ssl.

Flower (Beutel et al. 2020, arXiv:2007.14390) and pfl (Granqvist et al. 2024, arXiv:2404.06430)
simulate FedAvg with SimCLR, with clients in PyTorch. Their programs are in
`launch.benchmarks.peer_side`; each runs in a Python environment of its own.
"""

import dataclasses
import importlib.metadata
import os
import pathlib
import statistics
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from launch.benchmarks import processes, programs
from launch.benchmarks.peer_process import Peer, PeerProcess
from launch.benchmarks.programs import LEARNING_RATE, Work
from tff_ssl.errors import TrainingError
from tff_ssl.runtime import temporary_folder

_POLICY = "byol_no_blur"
_REFERENCE_IMAGES = 8
# Tolerances for the same weights and views in float32: absolute for the loss, relative for the
# gradient's norm.
_LOSS_TOLERANCE, _GRADIENT_TOLERANCE = 1e-4, 1e-3


WORK = (Work("fedavg", "nt_xent", 128, 4), Work("fedavg", "nt_xent", 5, 64, 4, 32))


def _name(work: Work) -> str:
    """The title of its table, such as `5 clients x 64 images, 4 steps of 32`."""
    batch = f" of {work.batch_size}" if work.batch_size else ""
    steps = f"{work.steps} step{'s' * (work.steps > 1)}{batch}"
    return f"{work.clients} clients x {work.samples} images, {steps}"


class Arrangement(NamedTuple):
    """The division of the cores: clients that train at the same time, and threads of each."""

    actors: int
    threads: int

    def name(self, peer: Peer) -> str:
        """Its name in tables, such as `Flower, 2 actors x 1 thread`."""
        unit, threads = peer.units[self.actors > 1], f"thread{'s' * (self.threads > 1)}"
        return f"{peer.title}, {self.actors} {unit} x {self.threads} {threads}"


def arrangements(cores: int) -> list[Arrangement]:
    """The arrangements to measure: a client on each core, and one client on all cores."""
    return list(dict.fromkeys([Arrangement(cores, 1), Arrangement(1, cores)]))


def peer_settings(
    work: Work, arrangement: Arrangement, settings: programs.ModelSettings
) -> dict[str, Any]:
    """The settings of a peer's rounds, equal to those of tff_ssl; without file paths."""
    from tff_ssl.models.resnet import RESNETS
    from tff_ssl.objectives.registry import ObjectiveHyperparameters
    from tff_ssl.views.policies import POLICIES

    spec, policy = RESNETS[settings.encoder], dataclasses.asdict(POLICIES[_POLICY])
    names = ("crop_area", "crop_aspect", "flip", "jitter", "brightness", "contrast")
    return {
        "model": {
            "blocks": spec.blocks,
            "widths": spec.widths,
            "groups": spec.groups,
            "projector": settings.projector,
        },
        "views": {
            name: policy[name] for name in (*names, "saturation", "hue", "grayscale", "solarize")
        },
        "precision": settings.precision,
        "temperature": ObjectiveHyperparameters().temperature,
        "learning_rate": LEARNING_RATE,
        **work._asdict(),
        **arrangement._asdict(),
    }


def compare(
    peer: Peer,
    python: str,
    settings: programs.ModelSettings,
    seed: int,
    repetitions: int,
    scratch: str,
    works: Sequence[Work] = WORK,
    cores: int | None = None,
) -> dict[str, Any]:
    """Measures rounds of tff_ssl and of a peer, in turn: the entry `peer` of `benchmark.json`.

    Each of `works` has its own table. The clients share `cores`; None for all of this process.

    Raises:
      TrainingError: If the peer's rounds fail, or compute something other than tff_ssl's.
    """
    cores = cores or len(os.sched_getaffinity(0))
    reference_path = str(pathlib.Path(scratch) / "reference.npz")
    # In float32 for both, so that the reference shows whether the mathematics is the same.
    in_float32 = settings._replace(precision="float32")
    child = processes.Child(reference, in_float32, seed, reference_path)
    child.close()
    our_facts, tables, peer_facts = child.facts, [], {}
    for number, work in enumerate(works):
        measured: dict[str, processes.Counted] = {}
        print(f"{_name(work)}: tff_ssl starts", flush=True)
        with processes.closing(measured):
            measured["tff_ssl"] = processes.Counted(
                processes.Child(
                    programs.federated_round, work, work.hyperparameters, settings, seed, scratch
                )
            )
            images = pathlib.Path(scratch) / f"images{number}.npy"
            np.save(images, programs.images(work.images, seed))
            for arrangement in arrangements(cores):
                name = arrangement.name(peer)
                print(f"{_name(work)}: {name} starts", flush=True)
                round_settings = {
                    **peer_settings(work, arrangement, settings),
                    "images": str(images),
                    "reference": reference_path,
                    # The path must be short, for the sockets of Flower's Ray.
                    "temp_dir": f"{temporary_folder.use()}/r{number}{len(measured)}",
                }
                process = PeerProcess(peer, python, round_settings)
                measured[name] = processes.Counted(process)
                peer_facts = process.facts
                check_same(peer.title, our_facts, peer_facts)
            print(f"{_name(work)}: {repetitions + 1} rounds of each, in turn", flush=True)
            tables.append(table(work, measured, repetitions))
    return _report(peer, our_facts, peer_facts, tables, settings, cores)


def _report(
    peer: Peer,
    our_facts: dict[str, Any],
    peer_facts: dict[str, Any],
    tables: list[dict[str, Any]],
    settings: programs.ModelSettings,
    cores: int,
) -> dict[str, Any]:
    """The entry of `benchmark.json`: settings, figures of the same weights and views, tables."""
    return {
        "name": peer.name,
        "settings": {
            "both": _shared_settings(our_facts, settings, cores),
            "tff_ssl": _OUR_SETTINGS.format(
                tff=importlib.metadata.version("tensorflow-federated"),
                tf=importlib.metadata.version("tensorflow"),
            ),
            peer.name: _PEER_SETTINGS[peer.name].format(**peer_facts["versions"]),
        },
        "same_weights_and_views": {
            name: {key: facts[key] for key in ("loss", "gradient_norm")}
            for name, facts in (("tff_ssl", our_facts), (peer.name, peer_facts))
        },
        "work": tables,
    }


_OUR_SETTINGS = (
    "TFF {tff}, TensorFlow {tf}: StatelessClientsSimulation as `launch.pretrain` runs it, all "
    "clients folded into one call of the TFF worker (--fold=1); a round of one step computes all "
    "clients' gradients in micro-batches of 32 images; images from SQLite"
)
_PEER_SETTINGS = {
    "flower": (
        "Flower {flwr}, Ray {ray}, PyTorch {torch}: run_simulation, strategy FedAvg, a ClientApp "
        "for each client, eager, channels_last; each process keeps its model between clients; "
        "images from a memory-mapped file; the order of the colour adjustments is drawn for each "
        "batch (ours: for each image)"
    ),
    "pfl": (
        "pfl {pfl}, PyTorch {torch}: SimulatedBackend, FederatedAveraging, eager, channels_last; "
        "clients one after the other in each process, one model a process; images from a "
        "memory-mapped file; the order of the colour adjustments is drawn for each batch (ours: "
        "for each image)"
    ),
}


def _shared_settings(facts: dict[str, Any], settings: programs.ModelSettings, cores: int) -> str:
    from tff_ssl.objectives.registry import ObjectiveHyperparameters

    return (
        f"cores: {cores}; {settings.precision}; FedAvg of SimCLR (NT-Xent, temperature "
        f"{ObjectiveHyperparameters().temperature}); {settings.encoder} ResNet with group norm and "
        f"weight standardization, projector {' x '.join(map(str, settings.projector))}, "
        f"{facts['parameters']:,} parameters, from the same weights; 32x32x3 images, two views "
        f"each ({_POLICY}: crop, flip, colour jitter, grayscale, solarization) anew in each step; "
        f"SGD of rate {LEARNING_RATE} on the clients, the mean of their models weighted by images"
    )


def check_same(title: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Raises TrainingError if parameters, loss or gradient norm differ by more than rounding."""
    same = (
        ours["parameters"] == theirs["parameters"]
        and abs(ours["loss"] - theirs["loss"]) <= _LOSS_TOLERANCE
        and abs(theirs["gradient_norm"] / ours["gradient_norm"] - 1) <= _GRADIENT_TOLERANCE
    )
    if not same:
        raise TrainingError(
            f"{title}'s rounds compute something other than ours: parameters, loss and gradient "
            f"norm of the same weights and views are {_numbers(theirs)} against {_numbers(ours)}"
        )


def _numbers(facts: dict[str, Any]) -> str:
    return f"{facts['parameters']}, {facts['loss']:.6f}, {facts['gradient_norm']:.4f}"


def reference(
    settings: programs.ModelSettings, seed: int, path: str
) -> Generator[dict[str, Any], None, None]:
    """Writes weights and two views of some images, and yields tff_ssl's loss and gradient norm.

    The `.npz` file has `x1`, `x2` and `weight0`, `weight1`, ...; `loss` is the mean NT-Xent.
    """
    programs.quiet()
    import tensorflow as tf

    from tff_ssl.losses import segments
    from tff_ssl.objectives.registry import OBJECTIVES, Batch, ObjectiveHyperparameters
    from tff_ssl.runtime import compiling  # noqa: F401

    model, two_views = programs.model_and_views(settings, seed)
    weights = model.init(seed)
    ids = np.arange(_REFERENCE_IMAGES)
    x1, x2 = two_views(programs.images(len(ids), seed), ids, 0)
    batch = Batch(x1, x2, segments.one(len(ids)), None, ids, 0, seed)
    with tf.GradientTape() as tape:
        tape.watch(weights.trainable)
        evaluate = OBJECTIVES["nt_xent"].evaluate
        hyperparameters = ObjectiveHyperparameters()
        loss = tf.reduce_mean(evaluate(model, weights, None, batch, hyperparameters).losses)
    gradient = tape.gradient(loss, weights.trainable)
    arrays = {f"weight{i}": weight.numpy() for i, weight in enumerate(weights.trainable)}
    np.savez(path, x1=x1, x2=x2, **arrays)
    yield {
        "parameters": model.parameter_count,
        "loss": float(loss),
        "gradient_norm": float(tf.linalg.global_norm(gradient)),
    }


def table(work: Work, measured: dict[str, processes.Counted], repetitions: int) -> dict[str, Any]:
    """Measures programs by name, and compares `tff_ssl` with each of the others."""
    seconds = processes.time_in_turn(measured, repetitions)
    rows: list[dict[str, Any]] = []
    for name, of_program in seconds.items():
        row = {"name": name, "seconds": statistics.median(of_program)}
        if name != "tff_ssl":
            row["ratio"] = processes.median_ratio(seconds["tff_ssl"], of_program)
        rows.append(row | measured[name].facts())
    best = min(rows[1:], key=lambda row: row["seconds"])
    return {
        **work._asdict(),
        "name": _name(work),
        "ratio": best["ratio"],
        "best_arrangement": best["name"],
        "programs": rows,
    }


def describe(results: dict[str, Any]) -> str:
    """The text of `compare`'s results: the settings, and a table for each work."""
    lines = ["", *(f"{name}: {text}" for name, text in results["settings"].items())]
    values, name = results["same_weights_and_views"], results["name"]
    pairs = [
        f"{key.replace('_', ' ')} {values['tff_ssl'][key]:.6f} and {values[name][key]:.6f}"
        for key in ("loss", "gradient_norm")
    ]
    lines.append(f"the same weights and views, tff_ssl and {name}: {', '.join(pairs)}")
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
