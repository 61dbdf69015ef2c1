"""What is compared with other frameworks, and the settings of both sides."""

import importlib.metadata
from typing import Any, NamedTuple

from launch.benchmarks import cifar, programs
from launch.benchmarks.peer_process import Peer
from launch.benchmarks.programs import LEARNING_RATE, Work

_POLICY = "byol_no_blur"
# The fields of `ViewPolicy` that the policy uses, which are those of `torch_simclr.Views`.
_VIEWS = (
    "crop_area", "crop_aspect", "flip", "jitter", "brightness", "contrast", "saturation", "hue",
    "grayscale", "solarize",
)  # fmt: skip
_MOMENTUM = 0.9  # Of centralized steps, the default of `CentralizedHyperparameters`.
_ONE_STEP = Work("fedavg", "nt_xent", 128, 4)
# What is compared with each peer.
WORK = {
    "flower": (_ONE_STEP, Work("fedavg", "nt_xent", 5, 64, 4, 32)),
    "pfl": (_ONE_STEP, Work("fedavg", "nt_xent", 5, 64, 4, 32), cifar.WORK),
    "torch": (Work("dcco", "cco", 512, 1), _ONE_STEP),
}


def is_cifar(work: Work) -> bool:
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
    own = "pfl's CIFAR-10 benchmark: " if is_cifar(work) else ""
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


def of_program(
    work: Work, arrangement: Arrangement, settings: programs.ModelSettings, facts: dict[str, Any]
) -> dict[str, Any]:
    """The settings of a peer's program, equal to those of tff_ssl; without file paths.

    Args:
      facts: `gpu` and `tf32` of `programs.exact_device`.
    """
    from tff_ssl.models.resnet import RESNETS
    from tff_ssl.objectives.registry import ObjectiveHyperparameters
    from tff_ssl.views.policies import POLICIES

    spec, policy, values = RESNETS[settings.encoder], POLICIES[_POLICY], ObjectiveHyperparameters()
    return {
        "model": {
            "blocks": spec.blocks,
            "widths": spec.widths,
            "groups": spec.groups,
            "projector": settings.projector,
        },
        "views": {name: getattr(policy, name) for name in _VIEWS},
        "precision": settings.precision,
        "temperature": values.temperature,
        "lambda_": values.lambda_,
        "learning_rate": cifar.LEARNING_RATE if is_cifar(work) else LEARNING_RATE,
        "momentum": _MOMENTUM,  # Of centralized steps.
        "device": "cuda" if facts["gpu"] else "cpu",
        "tf32": facts["tf32"],
        **work._asdict(),
        **arrangement._asdict(),
    }


def our_programs(
    peer: Peer, work: Work, settings: programs.ModelSettings, facts: dict[str, Any], seed: int,
    scratch: str,
) -> dict[str, tuple[Any, ...]]:  # fmt: skip
    """Programs of tff_ssl with their arguments, by name; on a GPU, XLA compiles a second one."""
    if is_cifar(work):
        return {"tff_ssl": (cifar.rounds, work, seed)}
    found: dict[str, tuple[Any, ...]] = {}
    hyperparameters = work.hyperparameters
    if facts["gpu"]:  # As `micro_batch_size=auto` would choose.
        hyperparameters |= {"micro_batch_size": work.images}
    for xla in (False, True) if facts["gpu"] else (False,):
        suffix, model = ", XLA" * xla, settings._replace(xla=xla)
        if peer.name == "torch":
            found[f"tff_ssl, centralized{suffix}"] = (
                programs.plain_steps, work.pooled, model, seed
            )  # fmt: skip
        clients = f", {work.algorithm}" if peer.name == "torch" else ""
        found[f"tff_ssl{clients}{suffix}"] = (
            programs.federated_round, work, hyperparameters, model, seed, scratch
        )  # fmt: skip
    return found


def their_settings(
    peer: Peer, work: Work, settings: programs.ModelSettings, facts: dict[str, Any], cores: int
) -> dict[str, dict[str, Any]]:
    """Settings of the peer's programs, by name."""
    if peer.name == "torch":
        step = of_program(work, Arrangement(1, cores), settings, facts)
        return {
            f"PyTorch, {name}": step | {"compile": name == "compiled"}
            for name in ("eager", "compiled")
        }
    return {
        arrangement.name(peer): of_program(work, arrangement, settings, facts)
        for arrangement in arrangements(peer, cores, bool(facts["gpu"]))
    }


def describe(peer: Peer, versions: dict[str, str]) -> dict[str, str]:
    """What is special to each side."""
    return {
        "tff_ssl": _OUR_SETTINGS.format(
            tff=importlib.metadata.version("tensorflow-federated"),
            tf=importlib.metadata.version("tensorflow"),
        ),
        peer.name: _PEER_SETTINGS[peer.name].format(**versions),
    }


_OUR_SETTINGS = (
    "TFF {tff}, TensorFlow {tf}, in the program's own process: StatelessClientsSimulation as "
    "`launch.pretrain` runs it, all clients folded into one call (--fold=1); a round of one step "
    "computes all clients' gradients in micro-batches of 32 images, on a GPU in one; images from "
    "SQLite, for centralized steps from memory; pfl's CIFAR-10 benchmark by TFF's "
    "build_unweighted_fed_avg, images in memory"
)


def _pytorch(images: str) -> str:
    """What is special to PyTorch, with the place of its images."""
    return (
        f"channels_last on a CPU; images {images}; the order of the colour adjustments is drawn "
        "for each batch (ours: for each image)"
    )


_PEER_SETTINGS = {
    "flower": (
        "Flower {flwr}, Ray {ray}, PyTorch {torch}: run_simulation, strategy FedAvg, a ClientApp "
        "for each client, eager; each process keeps its model between clients; on a GPU all "
        "processes share it; " + _pytorch("from a memory-mapped file")
    ),
    "pfl": (
        "pfl {pfl}, PyTorch {torch}: SimulatedBackend, FederatedAveraging, eager; clients one "
        "after the other in each process, one model a process; "
        + _pytorch("from a memory-mapped file, on a GPU in its memory")
        + "; no evaluation; its CIFAR-10 benchmark with its own layout and data set"
    ),
    "torch": (
        "PyTorch {torch}: SGD with momentum 0.9, fused; compiled: torch.compile of the views' "
        "three parts and of model with loss, in its default mode; "
        + _pytorch("in memory, on a GPU in its memory")
    ),
}


def describe_both(
    work: Work, facts: dict[str, Any], settings: programs.ModelSettings, cores: int
) -> str:
    """What both sides have in common."""
    from tff_ssl.objectives.registry import ObjectiveHyperparameters

    values = ObjectiveHyperparameters()
    products = "TF32" if facts["tf32"] else "float32"
    where = f"{facts['gpu'] or 'CPU'}, {cores} cores; products in {products}"
    if is_cifar(work):
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
