"""Times federated rounds against the same work in plain TensorFlow, in one run.

One-step rounds (DCCO, and FedAvg with the contrastive loss) are compared with the centralized step
on as many samples; rounds of several local steps with the same steps in one plain loop.

Each measured program is a process of its own, so that its memory is its own; they take turns, so
that a noisy machine is noisy for all of them. Data reading and views are part of every step.
"""

import statistics
import tempfile
from typing import Any, NamedTuple

from absl import flags

import launch.options.flags
from launch.benchmarks import flower_process
from launch.options import app

launch.options.flags.define_common_flags()
flags.DEFINE_list("splits", ["512x1", "128x4", "32x16"], "CLIENTSxSAMPLES of the rounds measured.")
flags.DEFINE_list(
    "parts",
    ["dcco"],
    "What to measure: dcco and fedavg, rounds of one step at each of --splits; local_steps, rounds "
    "of several local steps; memory, rounds of clients with memory, a ResNet-18 each; hetero, "
    "Hetero-SSFL's aggregation of 20 clients' representations of 5000 images; ray, rounds on two "
    "nodes against none, and against one where clients are slow (needs the extra `ray`).",
)
flags.DEFINE_enum(
    "peer",
    None,
    ["flower"],
    "Measure rounds of FedAvg with SimCLR in another framework too, in turn with the same in ours; "
    "of --parts, then only those that are named.",
)
flags.DEFINE_string(
    "peer_python",
    flower_process.PYTHON,
    "Python interpreter of --peer, whose environment has "
    "launch/benchmarks/flower_side/flower_requirements.txt.",
)
flags.DEFINE_integer(
    "repetitions", 5, "Timed steps of each program, after one to warm up.", lower_bound=1
)
flags.DEFINE_integer("projection", 512, "Width of the projector's three layers.", lower_bound=8)
flags.DEFINE_integer(
    "steady_rounds",
    0,
    "Also run so many rounds of DCCO at the first split, and report memory and time over them.",
    lower_bound=0,
)
flags.adopt_module_key_flags(launch.options.flags)


_PARTS = ("dcco", "fedavg", "local_steps", "memory", "hetero", "ray")
# Clients, images of the RAD, and width of a representation (BYOL's).
_AGGREGATION = (20, 5000, 256)


class _LocalWork(NamedTuple):
    """A round of local training to measure; batch size 0 is all of a client's samples."""

    name: str
    part: str
    algorithm: str
    objective: str
    clients: int
    samples: int
    steps: int
    batch_size: int


_LOCAL_WORK = (
    _LocalWork(
        "128 clients x 4 samples x 4 steps", "local_steps", "fedavg", "nt_xent", 128, 4, 4, 0
    ),
    _LocalWork("1 client, 64 steps of 32", "local_steps", "fedavg", "nt_xent", 1, 512, 64, 32),
    # FedU's E = 5 epochs.
    _LocalWork("fedu, 5 clients, 5 epochs of 64", "memory", "fedu", "byol", 5, 64, 10, 32),
)


def main() -> None:
    from launch.benchmarks import flower, processes, ray_nodes
    from launch.outputs import run_folder
    from tff_ssl.errors import ConfigurationError
    from tff_ssl.runtime import ray_cluster

    args = flags.FLAGS
    splits = [_parse_split(text) for text in args.splits]
    if not splits:
        raise ConfigurationError("--splits is empty: it takes CLIENTSxSAMPLES such as 128x4")
    unknown = set(args.parts) - set(_PARTS)
    if unknown:
        raise ConfigurationError(f"--parts takes {', '.join(_PARTS)}; got {sorted(unknown)}")
    parts = args.parts if args["parts"].present or not args.peer else []
    if "ray" in parts:
        ray_cluster.check("local:2")
    if args.peer:
        flower_process.check(args.peer_python)
    folder = processes.output_folder(args.output_dir)
    print(
        f"small ResNet, 32x32x3, projector 3 x {args.projection}, views byol_no_blur; "
        f"{args.repetitions} repetitions, programs in turn",
        flush=True,
    )
    results: dict[str, Any] = {
        "centralized": None,
        "rounds": [],
        "local_steps": [],
        "aggregation": None,
    }
    with tempfile.TemporaryDirectory(prefix="tff_ssl_benchmark_") as scratch:
        for algorithm, objective in (("dcco", "cco"), ("fedavg", "nt_xent")):
            if algorithm in parts:
                step, rounds = _measure_rounds(algorithm, objective, splits, scratch, args)
                results["centralized"] = results["centralized"] or step
                results["rounds"] += rounds
        results["local_steps"] = [
            _measure_steps(work, scratch, args) for work in _LOCAL_WORK if work.part in parts
        ]
        if "hetero" in parts:
            results["aggregation"] = _measure_aggregation(scratch, args)
        if "ray" in parts:
            results["ray"] = ray_nodes.compare(args, scratch)
        if args.peer:
            results["peer"] = flower.compare(args, scratch)
    run_folder.write_json(folder / "benchmark.json", results)
    _print(results)
    print(f"\nwritten to {folder / 'benchmark.json'}")


def _parse_split(text: str) -> tuple[int, int]:
    from tff_ssl.errors import ConfigurationError

    clients, _, samples = text.partition("x")
    if not (clients.isdecimal() and samples.isdecimal() and int(clients) and int(samples)):
        raise ConfigurationError(f"--splits takes CLIENTSxSAMPLES such as 128x4; got {text!r}")
    return int(clients), int(samples)


def _measure_rounds(algorithm, objective, splits, scratch, args):
    """(the centralized step, rounds at each split), measured in turn."""
    from launch.benchmarks import processes

    step, rounds = None, []
    # A client's own loss needs two samples.
    splits = [s for s in splits if algorithm == "dcco" or s[1] > 1]
    for size in sorted({clients * samples for clients, samples in splits}):
        same = [split for split in splits if split[0] * split[1] == size]
        programs = {
            "centralized": processes.Child(
                processes.centralized_step, size, _network(args), args.seed, objective
            )
        }
        for clients, samples in same:
            programs[f"{clients}x{samples}"] = processes.Child(
                processes.federated_round, algorithm, objective, {}, clients, samples,
                _network(args), args.seed, scratch,
            )  # fmt: skip
        try:
            seconds = processes.in_turn(programs, args.repetitions)
            peaks = {name: child.peak_rss_mb() for name, child in programs.items()}
            step = step or {
                "samples": size,
                "seconds": statistics.median(seconds["centralized"]),
                "peak_rss_mb": peaks["centralized"],
            }
            for clients, samples in same:
                name = f"{clients}x{samples}"
                rounds.append(
                    {
                        "algorithm": algorithm,
                        "clients": clients,
                        "samples_per_client": samples,
                        "seconds": statistics.median(seconds[name]),
                        "ratio": _ratio(seconds[name], seconds["centralized"]),
                        "peak_rss_mb": peaks[name],
                        "first_round_seconds": programs[name].first_seconds,
                        **programs[name].facts,
                    }
                )
                if args.steady_rounds and algorithm == "dcco" and len(rounds) == 1:
                    rounds[0]["steady"] = processes.steady(programs[name], args.steady_rounds)
        finally:
            for child in programs.values():
                child.close()
    return step, rounds


def _measure_steps(work: _LocalWork, scratch: str, args: flags.FlagValues) -> dict[str, Any]:
    """A round of several local steps against the same steps in a plain loop."""
    from launch.benchmarks import processes

    values = {
        "local_steps": work.steps,
        "batch_size": work.batch_size,
        "client_learning_rate": 0.01,
    }
    network = _network(args)
    if work.part == "memory":
        network = processes.Network("resnet18", (512, 256), (512, 256))
    programs = {
        "plain": processes.Child(
            processes.plain_local_steps, work.objective, work.clients, work.samples, work.steps,
            work.batch_size, network, args.seed,
        ),
        "round": processes.Child(
            processes.federated_round, work.algorithm, work.objective, values, work.clients,
            work.samples, network, args.seed, scratch,
        ),
    }  # fmt: skip
    try:
        seconds = processes.in_turn(programs, args.repetitions)
    finally:
        for child in programs.values():
            child.close()
    return {
        "name": work.name,
        "algorithm": work.algorithm,
        "clients": work.clients,
        "samples_per_client": work.samples,
        "local_steps": work.steps,
        "plain_seconds": statistics.median(seconds["plain"]),
        "seconds": statistics.median(seconds["round"]),
        "ratio": _ratio(seconds["round"], seconds["plain"]),
        **programs["round"].facts,
    }


def _measure_aggregation(scratch: str, args: flags.FlagValues) -> dict[str, Any]:
    """Hetero-SSFL's aggregation: time, and memory beside what the processes hold anyway."""
    from launch.benchmarks import processes

    clients, rad_size, width = _AGGREGATION
    child = processes.Child(processes.hetero_aggregation, clients, rad_size, width, scratch)
    try:
        before = child.rss_mb()
        seconds = processes.in_turn({"aggregation": child}, args.repetitions)["aggregation"]
        peak = child.peak_rss_mb()
    finally:
        child.close()
    return {
        "algorithm": "hetero_ssfl",
        "clients": clients,
        "rad_size": rad_size,
        "width": width,
        "seconds": statistics.median(seconds),
        "peak_rss_mb": peak,
        "added_rss_mb": peak - before,
    }


def _network(args: flags.FlagValues):
    from launch.benchmarks import processes

    return processes.Network("small", (args.projection,) * 3)


def _ratio(seconds: list[float], baseline: list[float]) -> float:
    """Median ratio of each repetition's own pair: the machine's mood is then the same."""
    return statistics.median(a / b for a, b in zip(seconds, baseline, strict=True))


def _print(results: dict[str, Any]) -> None:
    from launch.benchmarks import flower

    if results["rounds"]:
        step = results["centralized"]
        print(f"\n{'':36}{'seconds':>10}{'ratio':>8}{'peak MB':>10}{'MB down':>9}{'MB up':>9}")
        print(
            f"{'centralized, ' + str(step['samples']):36}{step['seconds']:10.2f}{1:8.2f}"
            f"{step['peak_rss_mb']:10.0f}"
        )
    for row in results["rounds"]:
        name = f"{row['algorithm']}, {row['clients']} x {row['samples_per_client']}"
        sent = "".join(f"{row[f'bytes_{way}_per_client'] / 1e6:9.2f}" for way in ("down", "up"))
        print(f"{name:36}{row['seconds']:10.2f}{row['ratio']:8.2f}{row['peak_rss_mb']:10.0f}{sent}")
        if "steady" in row:
            print(f"  {row['steady']}")
    if results["local_steps"]:
        print(f"\n{'':36}{'seconds':>10}{'ratio':>8}   (against a plain loop)")
    for row in results["local_steps"]:
        print(f"{row['name']:36}{row['seconds']:10.2f}{row['ratio']:8.2f}")
    if results["aggregation"]:
        row = results["aggregation"]
        name = f"{row['clients']} clients x {row['rad_size']} x {row['width']}"
        print(f"\n{'':36}{'seconds':>10}{'':8}{'peak MB':>10}{'added':>8}   (all processes)")
        print(
            f"{name:36}{row['seconds']:10.2f}{'':8}{row['peak_rss_mb']:10.0f}"
            f"{row['added_rss_mb']:8.0f}"
        )
    for row in results.get("ray", []):
        print(f"{row['name']:36}{row['seconds']:10.2f}{row['ratio']:8.2f}")
    if "peer" in results:
        print(flower.describe(results["peer"]))


if __name__ == "__main__":
    app.run(main)
