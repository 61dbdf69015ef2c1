"""Times federated rounds against the same work in plain TensorFlow, in one run.

Rounds of one local step (DCCO, and FedAvg with the contrastive loss) are compared with a
centralized step on as many samples; rounds of several local steps with the same steps in a plain
loop. With --precision=bfloat16 the rounds, and a second centralized step, are in bfloat16; the
baselines are in float32.

Each program has a process of its own, in which its memory is measured, and the programs take turns,
so that the load of the machine affects all alike. Steps include reading the data and making views.
"""

import contextlib
import dataclasses
import statistics
import tempfile
from collections.abc import Collection
from typing import Any, Literal

from launch.benchmarks import (
    peer_process,
    peers,
    processes,
    programs,
    ray_nodes,
    result_text,
    scaling,
)
from launch.benchmarks.programs import Work
from launch.options import app
from launch.options.hyperparameters import LARGEST_INTEGER
from launch.options.run_config import ScriptConfig
from launch.options.settings import flag
from launch.outputs import output_folder, run_folder
from tff_ssl.errors import ConfigurationError
from tff_ssl.runtime import ray_cluster


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig(ScriptConfig):
    """What is measured.

    Attributes:
      precision: Type in which training computes the encoder's convolutions and matrix products.
        bfloat16 is faster on CPUs that have instructions for it, and far slower on others.
        Everything else, and every evaluation, is float32.
      splits: CLIENTSxSAMPLES of the rounds of dcco and fedavg that are measured.
      parts: What to measure: dcco and fedavg, rounds of one step at each of --splits; local_steps,
        rounds of several local steps; clients, rounds of 1, 33 and 128 clients that are called one
        by one; scaling, rounds of growing cohorts and growing populations; memory, rounds of
        clients that keep a ResNet-18 each; hetero, Hetero-SSFL's aggregation of 20 clients'
        representations of 5000 images; ray, rounds on two nodes against no Ray, and against one
        node where clients are slow (needs the extra `ray`).
      peer: Also measure another framework in turn with the same work here: rounds of FedAvg with
        SimCLR, for pfl also its own CIFAR-10 benchmark, or for torch centralized steps, eager and
        compiled. Both are on a GPU if TensorFlow has one. Without --parts, nothing else is
        measured.
      peer_python: Python interpreter of --peer, from an environment with the packages of
        launch/benchmarks/peer_side/PEER_requirements.txt. Default: .venv_PEER/bin/python.
      repetitions: Timed steps of each program, after one that warms up.
      projection: Width of the projector's three layers, a multiple of 8.
      steady_rounds: Number of rounds of DCCO at the first split over which memory and time are
        reported; 0 for none.
    """

    precision: Literal["float32", "bfloat16"] = "float32"
    splits: tuple[str, ...] = ("512x1", "128x4", "32x16")
    parts: tuple[str, ...] = ("dcco",)
    peer: str | None = flag(None, choices=sorted(peer_process.PEERS))
    peer_python: str | None = None
    repetitions: int = flag(5, 1)
    projection: int = flag(512, 16)
    steady_rounds: int = flag(0, 0)

    @property
    def model(self) -> programs.ModelSettings:
        """The model of most programs."""
        return programs.ModelSettings("small", (self.projection,) * 3, precision=self.precision)

    @property
    def precisions(self) -> list[str]:
        """The precisions of the centralized steps: float32, and `--precision` if it differs."""
        return list(dict.fromkeys(["float32", self.precision]))


_PARTS = ("dcco", "fedavg", "local_steps", "clients", "scaling", "memory", "hetero", "ray")
# Hetero-SSFL's aggregation: clients, images of the RAD, width of a representation (BYOL's).
_AGGREGATION = (20, 5000, 256)


# Name -> the part of --parts that has it, and rounds that are compared with a plain loop.
_LOCAL_WORK = {
    "128 clients x 4 samples x 4 steps": ("local_steps", Work("fedavg", "nt_xent", 128, 4, 4)),
    "1 client, 64 steps of 32": ("local_steps", Work("fedavg", "nt_xent", 1, 512, 64, 32)),
    **{
        f"{clients} client{'s' * (clients > 1)} x 4 samples, not folded":
            ("clients", Work("fedavg", "nt_xent", clients, 4))
        for clients in (1, 33, 128)
    },
    # FedU's E = 5 epochs.
    "fedu, 5 clients, 5 epochs of 64": ("memory", Work("fedu", "byol", 5, 64, 10, 32)),
}  # fmt: skip


def main(config: BenchmarkConfig) -> None:
    splits = [_parse_split(text) for text in config.splits]
    if not splits:
        raise ConfigurationError("--splits is empty: it takes CLIENTSxSAMPLES such as 128x4")
    if config.projection % 8:  # Group norm has eight groups.
        raise ConfigurationError(f"--projection={config.projection} is not a multiple of 8")
    unknown = set(config.parts) - set(_PARTS)
    if unknown:
        raise ConfigurationError(f"--parts takes {', '.join(_PARTS)}; got {sorted(unknown)}")
    parts = config.parts if "parts" in config.given or not config.peer else ()
    if "ray" in parts:
        ray_cluster.check("local:2")
    if config.peer:
        peer = peer_process.PEERS[config.peer]
        peer_process.check(peer, config.peer_python or peer.python)
    folder = output_folder.choose(config.output.output_dir, "benchmark")
    run_folder.make(folder)
    print(
        f"small ResNet, 32x32x3, projector 3 x {config.projection}, views byol_no_blur; "
        f"{config.repetitions} repetitions, programs in turn",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="tff_ssl_benchmark_") as scratch:
        results = _measure(parts, splits, scratch, config)
    if "scaling" in results:
        scaling.draw(results["scaling"], folder / "scaling.png")
    run_folder.write_json(folder / "benchmark.json", results)
    _print(results)
    print(f"\nwritten to {folder / 'benchmark.json'}")
    if "scaling" in results:
        print(f"picture: {folder / 'scaling.png'}")


def _measure(
    parts: Collection[str], splits: list[tuple[int, int]], scratch: str, config: BenchmarkConfig
) -> dict[str, Any]:
    """The content of `benchmark.json`: the figures of the parts, and of `--peer`."""
    seed, repetitions = config.seed, config.repetitions
    results: dict[str, Any] = {"centralized": [], "rounds": []}
    for algorithm, objective in (("dcco", "cco"), ("fedavg", "nt_xent")):
        if algorithm in parts:
            steps, rounds = _measure_rounds(algorithm, objective, splits, scratch, config)
            results["centralized"] += steps
            results["rounds"] += rounds
    results["local_steps"] = [
        _measure_steps(name, part, work, scratch, config)
        for name, (part, work) in _LOCAL_WORK.items()
        if part in parts
    ]
    results["aggregation"] = _measure_aggregation(scratch, config) if "hetero" in parts else None
    if "scaling" in parts:
        results["scaling"] = scaling.compare(seed, repetitions, scratch)
    if "ray" in parts:
        results["ray"] = ray_nodes.compare(config.projection, seed, repetitions, scratch)
    if config.peer:
        peer = peer_process.PEERS[config.peer]
        results["peer"] = peers.compare(
            peer, config.peer_python or peer.python, config.model, seed, repetitions, scratch
        )
    return results


def _parse_split(text: str) -> tuple[int, int]:
    """CLIENTSxSAMPLES as (clients, samples)."""
    clients, _, samples = text.partition("x")
    numeric = clients.isdecimal() and samples.isdecimal()
    if not (numeric and 0 < int(clients) * int(samples) <= LARGEST_INTEGER):
        raise ConfigurationError(f"--splits takes CLIENTSxSAMPLES such as 128x4; got {text!r}")
    return int(clients), int(samples)


def _measure_rounds(algorithm, objective, splits, scratch, config):
    """Entries of the centralized steps and of the rounds, with ratios to the step in float32."""
    steps, rounds, settings, seed = [], [], config.model, config.seed
    works = [Work(algorithm, objective, *split) for split in splits]
    if algorithm != "dcco":
        works = [work for work in works if work.samples > 1]  # For a client's own loss.
    for size in sorted({work.images for work in works}):
        of_size = [work for work in works if work.images == size]
        children: dict[Any, processes.Child] = {}  # By precision, and by work.
        with processes.closing(children):
            for precision in config.precisions:
                children[precision] = processes.Child(
                    programs.plain_steps, of_size[0].pooled,
                    settings._replace(precision=precision), seed,
                )  # fmt: skip
            for work in of_size:
                children[work] = processes.Child(
                    programs.federated_round, work, work.hyperparameters, settings, seed, scratch
                )
            seconds = processes.time_in_turn(children, config.repetitions)
            measured = {
                name: {
                    "seconds": statistics.median(seconds[name]),
                    "ratio": processes.median_ratio(seconds[name], seconds["float32"]),
                    "peak_rss_mb": child.peak_rss_mb(),
                }
                for name, child in children.items()
            }
            steps += [
                {"objective": objective, "samples": size, "precision": name, **measured[name]}
                for name in config.precisions
            ]
            rounds += [
                {
                    "algorithm": algorithm,
                    "clients": work.clients,
                    "samples_per_client": work.samples,
                    "precision": config.precision,
                    **measured[work],
                    "first_round_seconds": children[work].first_seconds,
                    **children[work].facts,
                }
                for work in of_size
            ]
            if config.steady_rounds and algorithm == "dcco" and "steady" not in rounds[0]:
                rounds[0]["steady"] = processes.compare_many_rounds(
                    children[of_size[0]], config.steady_rounds
                )
    return steps, rounds


def _measure_steps(
    name: str, part: str, work: Work, scratch: str, config: BenchmarkConfig
) -> dict[str, Any]:
    """The entry of a round of local steps, against the same steps in a plain loop."""
    settings, folds = config.model, part != "clients"
    if part == "memory":
        settings = settings._replace(encoder="resnet18", projector=(512, 256), predictor=(512, 256))
    if part == "clients":
        # Clients with little work show what each client costs besides it.
        settings = settings._replace(encoder="tiny", projector=(32, 32))
    in_float32 = settings._replace(precision="float32")
    children = {
        "plain": processes.Child(programs.plain_steps, work, in_float32, config.seed),
        "round": processes.Child(
            programs.federated_round, work, work.hyperparameters, settings, config.seed, scratch,
            folds,
        ),
    }  # fmt: skip
    with processes.closing(children):
        seconds = processes.time_in_turn(children, config.repetitions)
    return {
        "name": name,
        "algorithm": work.algorithm,
        "clients": work.clients,
        "samples_per_client": work.samples,
        "local_steps": work.steps,
        "precision": config.precision,
        "plain_seconds": statistics.median(seconds["plain"]),
        "seconds": statistics.median(seconds["round"]),
        "ratio": processes.median_ratio(seconds["round"], seconds["plain"]),
        **children["round"].facts,
    }


def _measure_aggregation(scratch: str, config: BenchmarkConfig) -> dict[str, Any]:
    """The entry of Hetero-SSFL's aggregation; `added_rss_mb` is the memory above the start's."""
    clients, rad_size, width = _AGGREGATION
    child = processes.Child(programs.hetero_aggregation, clients, rad_size, width, scratch)
    with contextlib.closing(child):
        before = child.rss_mb()
        seconds = processes.time_in_turn({"aggregation": child}, config.repetitions)["aggregation"]
        peak = child.peak_rss_mb()
    return {
        "algorithm": "hetero_ssfl",
        "clients": clients,
        "rad_size": rad_size,
        "width": width,
        "seconds": statistics.median(seconds),
        "peak_rss_mb": peak,
        "added_rss_mb": peak - before,
    }


def _suffix(row: dict[str, Any]) -> str:
    """The row's precision, if it is not float32."""
    return "" if row["precision"] == "float32" else f", {row['precision']}"


def _print(results: dict[str, Any]) -> None:
    if results["rounds"]:
        print(f"\n{'':36}{'seconds':>10}{'ratio':>8}{'peak MB':>10}{'MB down':>9}{'MB up':>9}")
    for row in results["centralized"]:
        name = f"centralized {row['objective']}, {row['samples']}{_suffix(row)}"
        print(f"{name:36}{row['seconds']:10.2f}{row['ratio']:8.2f}{row['peak_rss_mb']:10.0f}")
    for row in results["rounds"]:
        name = f"{row['algorithm']}, {row['clients']} x {row['samples_per_client']}{_suffix(row)}"
        sent = "".join(f"{row[f'bytes_{way}_per_client'] / 1e6:9.2f}" for way in ("down", "up"))
        print(f"{name:36}{row['seconds']:10.2f}{row['ratio']:8.2f}{row['peak_rss_mb']:10.0f}{sent}")
        if "steady" in row:
            print(f"  {row['steady']}")
    if results["local_steps"]:
        print(f"\n{'':46}{'seconds':>10}{'ratio':>8}   (against a plain loop in float32)")
    for row in results["local_steps"]:
        name = row["name"] + _suffix(row)
        print(f"{name:46}{row['seconds']:10.2f}{row['ratio']:8.2f}")
    if results["aggregation"]:
        row = results["aggregation"]
        name = f"{row['clients']} clients x {row['rad_size']} x {row['width']}"
        print(f"\n{'':36}{'seconds':>10}{'':8}{'peak MB':>10}{'added':>8}   (all processes)")
        print(
            f"{name:36}{row['seconds']:10.2f}{'':8}{row['peak_rss_mb']:10.0f}"
            f"{row['added_rss_mb']:8.0f}"
        )
    if "scaling" in results:
        print(scaling.describe(results["scaling"]))
    for row in results.get("ray", []):
        print(f"{row['name']:36}{row['seconds']:10.2f}{row['ratio']:8.2f}")
    if "peer" in results:
        print(result_text.of_peer(results["peer"]))


SCRIPT = app.Script("benchmark", main, BenchmarkConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
