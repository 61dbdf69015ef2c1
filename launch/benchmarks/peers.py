"""Programs of other frameworks, measured by `benchmark` in turn with the same work in tff_ssl.

Flower (Beutel et al. 2020, arXiv:2007.14390) and pfl (Granqvist et al. 2024, arXiv:2404.06430)
simulate FedAvg with SimCLR, with clients in PyTorch; pfl also its own CIFAR-10 benchmark. Plain
PyTorch computes centralized steps. Their programs are in `launch.benchmarks.peer_side`; each runs
in a Python environment of its own, and on a GPU where TensorFlow has one.
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import pathlib
import statistics
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from launch.benchmarks import cifar, peer_process, processes, programs
from launch.benchmarks.peer_process import Peer, PeerProcess
from launch.benchmarks.programs import LEARNING_RATE, Work
from tff_ssl.errors import TrainingError
from tff_ssl.runtime import temporary_folder

_POLICY = "byol_no_blur"
_REFERENCE_IMAGES = 8
# Relative tolerances for the same weights and views in float32, of the loss and of the gradient's
# norm. A loss below 1 is compared as if it were 1.
_LOSS_TOLERANCE, _GRADIENT_TOLERANCE = 1e-4, 1e-3
_MOMENTUM = 0.9  # Of centralized steps, the default of `CentralizedHyperparameters`.
_MAY_FAIL = (", XLA", ", compiled")  # Ends of the names of programs that need a compiler.

_ONE_STEP = Work("fedavg", "nt_xent", 128, 4)
# What is compared with each peer.
WORK = {
    "flower": (_ONE_STEP, Work("fedavg", "nt_xent", 5, 64, 4, 32)),
    "pfl": (_ONE_STEP, Work("fedavg", "nt_xent", 5, 64, 4, 32), cifar.WORK),
    "torch": (Work("dcco", "cco", 512, 1), _ONE_STEP),
}


def _is_cifar(work: Work) -> bool:
    return work.objective == cifar.WORK.objective


def asked(peer: Peer, work: Work) -> float:
    """The largest ratio of our seconds to the peer's that was asked for."""
    if peer.name == "torch":
        return 1.3
    return 0.5 if work.steps == 1 else 1.0  # Clients of one step fold into one gradient.


def title(peer: Peer, work: Work) -> str:
    """The title of a table, such as `5 clients x 64 images, 4 steps of 32`."""
    if peer.name == "torch":
        return f"{work.objective}, {work.images} images, one step"
    of_all = f"{work.cohort} of " if work.cohort else ""
    batch = f" of {work.batch_size}" if work.batch_size else ""
    steps = f"{work.steps} step{'s' * (work.steps > 1)}{batch}"
    own = "pfl's CIFAR-10 benchmark: " if _is_cifar(work) else ""
    return f"{own}{of_all}{work.clients} clients x {work.samples} images, {steps}"


class Arrangement(NamedTuple):
    """The division of the cores: clients that train at the same time, and threads of each."""

    actors: int
    threads: int

    def name(self, peer: Peer) -> str:
        """Its name in tables, such as `Flower, 2 actors x 1 thread`."""
        unit, threads = peer.units[self.actors > 1], f"thread{'s' * (self.threads > 1)}"
        return f"{peer.title}, {self.actors} {unit} x {self.threads} {threads}"


def arrangements(peer: Peer, cores: int, on_gpu: bool) -> list[Arrangement]:
    """The arrangements to measure: a client on each core, and one client on all cores.

    pfl's processes cannot share a GPU.
    """
    if peer.name == "pfl" and on_gpu:
        return [Arrangement(1, cores)]
    return list(dict.fromkeys([Arrangement(cores, 1), Arrangement(1, cores)]))


def peer_settings(
    work: Work, arrangement: Arrangement, settings: programs.ModelSettings, facts: dict[str, Any]
) -> dict[str, Any]:
    """The settings of a peer's program, equal to those of tff_ssl; without file paths.

    Args:
      facts: `gpu` and `tf32` of `programs.exact_device`.
    """
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
        "lambda_": ObjectiveHyperparameters().lambda_,
        "learning_rate": cifar.LEARNING_RATE if _is_cifar(work) else LEARNING_RATE,
        "momentum": _MOMENTUM,  # Of centralized steps.
        "device": "cuda" if facts["gpu"] else "cpu",
        "tf32": facts["tf32"],
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
    works: Sequence[Work] = (),
    cores: int | None = None,
) -> dict[str, Any]:
    """Measures tff_ssl and a peer, in turn: the entry `peer` of `benchmark.json`.

    Each of `works` has its own table; by default those of `WORK`. The programs have `cores`; None
    for all of this process.

    Raises:
      ConfigurationError: If TensorFlow has a GPU and the peer has none.
      TrainingError: If the peer's program fails, or computes something other than tff_ssl's.
    """
    cores = cores or len(os.sched_getaffinity(0))
    tables = []
    for number, work in enumerate(works or WORK[peer.name]):
        # The path must be short, for the sockets of Flower's Ray.
        temp_dir = f"{temporary_folder.use()}/r{number}"
        paths = _write_data(work, seed, pathlib.Path(scratch) / f"peer{number}")
        facts = _reference_facts(work, settings, seed, paths["reference"])
        if facts["gpu"]:
            peer_process.check_gpu(peer, python)
        ours = _our_programs(peer, work, settings, facts, seed, scratch)
        theirs = _their_settings(peer, work, settings, facts, cores)
        measured: dict[str, processes.Counted] = {}
        left_out: list[str] = []
        with processes.closing(measured):
            for name, (program, *arguments) in ours.items():
                print(f"{title(peer, work)}: {name} starts", flush=True)
                with _may_fail(name, left_out):
                    measured[name] = processes.Counted(processes.Child(program, *arguments))
            for name, own in theirs.items():
                print(f"{title(peer, work)}: {name} starts", flush=True)
                own_paths = paths | {"temp_dir": f"{temp_dir}{len(measured)}"}
                with _may_fail(name, left_out):
                    process = PeerProcess(peer, python, own | own_paths)
                    measured[name] = processes.Counted(process)
                    peer_facts = process.facts
                check_same(peer.title, facts, peer_facts)
            print(f"{title(peer, work)}: {repetitions + 1} steps of each, in turn", flush=True)
            # Without PyTorch's compiled step, nothing can be said about what was asked.
            most = asked(peer, work) if measured.keys() >= theirs.keys() else None
            row = table(title(peer, work), most, measured, ours.keys(), repetitions)
        tables.append(
            {
                **work._asdict(),
                **row,
                "left_out": left_out,
                "both": _shared_settings(work, facts, settings, cores),
                "same_weights_and_batch": {
                    name: {key: values[key] for key in ("loss", "gradient_norm")}
                    for name, values in (("tff_ssl", facts), (peer.name, peer_facts))
                },
            }
        )
    return {"name": peer.name, "settings": _settings(peer, peer_facts), "work": tables}


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
    if _is_cifar(work):
        child = processes.Child(cifar.reference, seed, path)
    else:
        child = processes.Child(reference, in_float32, work.objective, seed, path)
    child.close()
    return child.facts


def _our_programs(
    peer: Peer, work: Work, settings: programs.ModelSettings, facts: dict[str, Any], seed: int,
    scratch: str,
) -> dict[str, tuple[Any, ...]]:  # fmt: skip
    """Programs of tff_ssl with their arguments, by name; on a GPU, XLA compiles a second one."""
    if _is_cifar(work):
        return {"tff_ssl": (cifar.rounds, work, seed)}
    found: dict[str, tuple[Any, ...]] = {}
    hyperparameters = work.hyperparameters
    if facts["gpu"]:  # As `micro_batch_size=auto` would choose.
        hyperparameters |= {"micro_batch_size": work.images}
    for xla in (False, True) if facts["gpu"] else (False,):
        suffix, model = ", XLA" * xla, settings._replace(xla=xla)
        if peer.name == "torch":
            step = (programs.centralized_step, work.images, model, seed, work.objective)
            found[f"tff_ssl, centralized{suffix}"] = step
        clients = f", {work.algorithm}" if peer.name == "torch" else ""
        found[f"tff_ssl{clients}{suffix}"] = (
            programs.federated_round, work, hyperparameters, model, seed, scratch
        )  # fmt: skip
    return found


def _their_settings(
    peer: Peer, work: Work, settings: programs.ModelSettings, facts: dict[str, Any], cores: int
) -> dict[str, dict[str, Any]]:
    """Settings of the peer's programs, by name."""
    if peer.name == "torch":
        step = peer_settings(work, Arrangement(1, cores), settings, facts)
        return {
            f"PyTorch, {name}": step | {"compile": name == "compiled"}
            for name in ("eager", "compiled")
        }
    return {
        arrangement.name(peer): peer_settings(work, arrangement, settings, facts)
        for arrangement in arrangements(peer, cores, bool(facts["gpu"]))
    }


def _settings(peer: Peer, facts: dict[str, Any]) -> dict[str, str]:
    """What is special to each side."""
    return {
        "tff_ssl": _OUR_SETTINGS.format(
            tff=importlib.metadata.version("tensorflow-federated"),
            tf=importlib.metadata.version("tensorflow"),
        ),
        peer.name: _PEER_SETTINGS[peer.name].format(**facts["versions"]),
    }


_OUR_SETTINGS = (
    "TFF {tff}, TensorFlow {tf}, in the program's own process: StatelessClientsSimulation as "
    "`launch.pretrain` runs it, all clients folded into one call (--fold=1); a round of one step "
    "computes all clients' gradients in micro-batches of 32 images, on a GPU in one; images from "
    "SQLite, for centralized steps from memory; pfl's CIFAR-10 benchmark by TFF's "
    "build_unweighted_fed_avg, images in memory"
)
_PYTORCH_SETTINGS = (
    "channels_last on a CPU; images {images}; the order of the colour adjustments is drawn for "
    "each batch (ours: for each image)"
)
_PEER_SETTINGS = {
    "flower": (
        "Flower {flwr}, Ray {ray}, PyTorch {torch}: run_simulation, strategy FedAvg, a ClientApp "
        "for each client, eager; each process keeps its model between clients; on a GPU all "
        "processes share it; " + _PYTORCH_SETTINGS.replace("{images}", "from a memory-mapped file")
    ),
    "pfl": (
        "pfl {pfl}, PyTorch {torch}: SimulatedBackend, FederatedAveraging, eager; clients one "
        "after the other in each process, one model a process; "
        + _PYTORCH_SETTINGS.replace("{images}", "from a memory-mapped file, on a GPU in its memory")
        + "; no evaluation; its CIFAR-10 benchmark with its own layout and data set"
    ),
    "torch": (
        "PyTorch {torch}: SGD with momentum 0.9, fused; compiled: torch.compile of the views' "
        "three parts and of model with loss, in its default mode; "
        + _PYTORCH_SETTINGS.replace("{images}", "in memory, on a GPU in its memory")
    ),
}


def _shared_settings(
    work: Work, facts: dict[str, Any], settings: programs.ModelSettings, cores: int
) -> str:
    from tff_ssl.objectives.registry import ObjectiveHyperparameters

    values = ObjectiveHyperparameters()
    products = "TF32" if facts["tf32"] else "float32"
    where = f"{facts['gpu'] or 'CPU'}, {cores} cores; products in {products}"
    if _is_cifar(work):
        return (
            f"{where}; FedAvg, {work.cohort} random clients of {work.clients}, one epoch of SGD of "
            f"rate {cifar.LEARNING_RATE}, plain mean; CNN with dropout, {facts['parameters']:,} "
            "parameters, from the same weights; random 32x32x3 images, not shuffled"
        )
    loss = {
        "nt_xent": f"SimCLR (NT-Xent, temperature {values.temperature})",
        "cco": f"CCO, lambda {values.lambda_}",
    }[work.objective]
    return (
        f"{where}, {settings.precision}; {loss}; {settings.encoder} ResNet with group norm and "
        f"weight standardization, projector {' x '.join(map(str, settings.projector))}, "
        f"{facts['parameters']:,} parameters, from the same weights; 32x32x3 images, two views "
        f"each ({_POLICY}: crop, flip, colour jitter, grayscale, solarization) anew in each step; "
        f"SGD of rate {LEARNING_RATE}, on clients without momentum, and the mean of their models "
        "weighted by images"
    )


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

    The `.npz` file has `x1`, `x2` and `weight0`, `weight1`, ...; `loss` is the mean over the
    images. The facts have those of `programs.exact_device`, too.
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
    arrays = {f"weight{i}": weight.numpy() for i, weight in enumerate(weights.trainable)}
    np.savez(path, x1=x1, x2=x2, **arrays)
    yield on_device | {
        "parameters": model.parameter_count,
        "loss": float(loss),
        "gradient_norm": float(tf.linalg.global_norm(gradient)),
    }


def table(
    name: str,
    most: float | None,
    measured: dict[str, processes.Counted],
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
        rows.append(row | measured[of_row].facts())
    return {"name": name, "fastest": fastest, "programs": rows}
