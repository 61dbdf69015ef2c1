"""Programs of other frameworks, measured by `benchmark` in turn with the same work in tff_ssl.

Flower (Beutel et al. 2020, arXiv:2007.14390) and pfl (Granqvist et al. 2024, arXiv:2404.06430)
simulate FedAvg with SimCLR, with clients in PyTorch; pfl also its own CIFAR-10 benchmark. Plain
PyTorch computes centralized steps. Their programs are in `launch.benchmarks.peer_side`; each runs
in a Python environment of its own, and on a GPU where TensorFlow has one.
"""

import contextlib
import os
import pathlib
import statistics
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Any

import numpy as np

from launch.benchmarks import cifar, peer_process, peer_settings, processes, programs
from launch.benchmarks.peer_process import Peer, PeerProcess
from launch.benchmarks.programs import Work
from tff_ssl.errors import TrainingError
from tff_ssl.runtime import temporary_folder

_REFERENCE_IMAGES = 8
# Relative tolerances for the same weights and views in float32, of the loss and of the gradient's
# norm. A loss below 1 is compared as if it were 1.
_LOSS_TOLERANCE, _GRADIENT_TOLERANCE = 1e-4, 1e-3
_MAY_FAIL = (", XLA", ", compiled")  # Ends of the names of programs that need a compiler.


def compare(
    peer: Peer,
    python: str,
    settings: programs.ModelSettings,
    seed: int,
    repetitions: int,
    scratch: str,
    works: Sequence[Work] = (),
    cores: int | None = None,
) -> dict[str, Any]:
    """Measures tff_ssl and a peer, in turn: the entry `peer` of `benchmark.json`.

    Each of `works` has its own table; by default those of `peer_settings.WORK`. The programs have
    `cores`; None for all of this process.

    Raises:
      ConfigurationError: If TensorFlow has a GPU and the peer has none.
      TrainingError: If the peer's program fails, or computes something other than tff_ssl's.
    """
    cores = cores or len(os.sched_getaffinity(0))
    tables = []
    for number, work in enumerate(works or peer_settings.WORK[peer.name]):
        title = peer_settings.title(peer, work)
        # The path must be short, for the sockets of Flower's Ray.
        temp_dir = f"{temporary_folder.use()}/r{number}"
        paths = _write_data(work, seed, pathlib.Path(scratch) / f"peer{number}")
        facts = _reference_facts(work, settings, seed, paths["reference"])
        if facts["gpu"]:
            peer_process.check_gpu(peer, python)
        ours = peer_settings.our_programs(peer, work, settings, facts, seed, scratch)
        theirs = peer_settings.their_settings(peer, work, settings, facts, cores)
        measured: dict[str, processes.Measured] = {}
        left_out: list[str] = []
        with processes.closing(measured):
            for name, (program, *arguments) in ours.items():
                print(f"{title}: {name} starts", flush=True)
                with _may_fail(name, left_out):
                    measured[name] = processes.Child(program, *arguments)
            for name, own in theirs.items():
                print(f"{title}: {name} starts", flush=True)
                own_paths = paths | {"temp_dir": f"{temp_dir}{len(measured)}"}
                with _may_fail(name, left_out):
                    measured[name] = PeerProcess(peer, python, own | own_paths)
                    peer_facts = measured[name].facts
                check_same(peer.title, facts, peer_facts)
            print(f"{title}: {repetitions + 1} steps of each, in turn", flush=True)
            # Without PyTorch's compiled step, nothing can be said about what was asked.
            most = peer_settings.asked(peer, work) if measured.keys() >= theirs.keys() else None
            row = table(title, most, measured, ours.keys(), repetitions)
        tables.append(
            {
                **work._asdict(),
                **row,
                "left_out": left_out,
                "both": peer_settings.describe_both(work, facts, settings, cores),
                "same_weights_and_batch": {
                    name: {key: values[key] for key in ("loss", "gradient_norm")}
                    for name, values in (("tff_ssl", facts), (peer.name, peer_facts))
                },
            }
        )
    return {
        "name": peer.name,
        "settings": peer_settings.describe(peer, peer_facts["versions"]),
        "work": tables,
    }


@contextlib.contextmanager
def _may_fail(name: str, left_out: list[str]) -> Iterator[None]:
    """A program that needs a compiler is left out if that fails, which is said in one line."""
    try:
        yield
    except TrainingError as error:
        if not name.endswith(_MAY_FAIL):
            raise
        left_out.append(f"{name} ({error})")
        print(f"left out: {left_out[-1]}", flush=True)


def _write_data(work: Work, seed: int, folder: pathlib.Path) -> dict[str, str]:
    """Writes images and labels; the paths in a peer's settings."""
    folder.mkdir(exist_ok=True)
    np.save(folder / "images.npy", programs.images(work.images, seed))
    np.save(folder / "labels.npy", cifar.labels(work.images, seed))
    files = {"images": "images.npy", "labels": "labels.npy", "reference": "reference.npz"}
    return {name: str(folder / file) for name, file in files.items()}


def _reference_facts(
    work: Work, settings: programs.ModelSettings, seed: int, path: str
) -> dict[str, Any]:
    """What `reference` yields, in a process of its own."""
    # In float32 for both, so that the reference shows whether the mathematics is the same.
    in_float32 = settings._replace(precision="float32")
    if peer_settings.is_cifar(work):
        child = processes.Child(cifar.reference, seed, path)
    else:
        child = processes.Child(reference, in_float32, work.objective, seed, path)
    child.close()
    return child.facts


def check_same(peer_title: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Raises TrainingError if parameters, loss or gradient norm differ by more than rounding."""
    same = (
        ours["parameters"] == theirs["parameters"]
        and abs(ours["loss"] - theirs["loss"]) <= _LOSS_TOLERANCE * max(1.0, ours["loss"])
        and abs(theirs["gradient_norm"] / ours["gradient_norm"] - 1) <= _GRADIENT_TOLERANCE
    )
    if not same:
        raise TrainingError(
            f"{peer_title}'s program computes something other than ours: parameters, loss and "
            f"gradient norm of the same weights and batch are {_numbers(theirs)} against "
            f"{_numbers(ours)}"
        )


def _numbers(facts: dict[str, Any]) -> str:
    return f"{facts['parameters']}, {facts['loss']:.6f}, {facts['gradient_norm']:.4f}"


def reference(
    settings: programs.ModelSettings, objective: str, seed: int, path: str
) -> Generator[dict[str, Any], None, None]:
    """Writes weights and two views of some images, and yields tff_ssl's loss and gradient norm.

    The batch has `x1` and `x2`; the loss is the mean over the images. The facts are those of
    `programs.write_reference` and `programs.exact_device`.
    """
    programs.quiet()
    import tensorflow as tf

    from tff_ssl.losses import segments
    from tff_ssl.objectives.registry import OBJECTIVES, Batch, ObjectiveHyperparameters
    from tff_ssl.runtime import compiling  # noqa: F401

    on_device = programs.exact_device()
    model, two_views = programs.model_and_views(settings, seed)
    weights = model.init(seed)
    ids = np.arange(_REFERENCE_IMAGES)
    x1, x2 = two_views(programs.images(len(ids), seed), ids, 0)
    batch = Batch(x1, x2, segments.one(len(ids)), None, ids, 0, seed)
    with tf.GradientTape() as tape:
        tape.watch(weights.trainable)
        evaluate = OBJECTIVES[objective].evaluate
        hyperparameters = ObjectiveHyperparameters()
        loss = tf.reduce_mean(evaluate(model, weights, None, batch, hyperparameters).losses)
    gradient = tape.gradient(loss, weights.trainable)
    arrays = [weight.numpy() for weight in weights.trainable]
    yield on_device | programs.write_reference(path, loss, gradient, arrays, x1=x1, x2=x2)


def table(
    name: str,
    most: float | None,
    measured: dict[str, processes.Measured],
    ours: Collection[str],
    repetitions: int,
) -> dict[str, Any]:
    """Measures programs by name, and compares `ours` with the fastest of the others.

    Args:
      most: Largest ratio that was asked for; None if what was measured cannot answer.
    """
    seconds = processes.time_in_turn(measured, repetitions)
    medians = {name: statistics.median(of_program) for name, of_program in seconds.items()}
    fastest = min(seconds.keys() - set(ours), key=lambda name: medians[name])
    rows: list[dict[str, Any]] = []
    for of_row in seconds:
        row: dict[str, Any] = {"name": of_row, "seconds": medians[of_row]}
        if of_row in ours:
            ratio = processes.median_ratio(seconds[of_row], seconds[fastest])
            met = None if most is None else ratio <= most
            row |= {"ratio": ratio, "asked": most, "met": met}
        rows.append(row | measured[of_row].costs())
    return {"name": name, "fastest": fastest, "programs": rows}
