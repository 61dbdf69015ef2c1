"""Measures rounds in this process, on a GPU if TensorFlow has one, and writes a report.

The report says whether a round of DCCO equals a centralized step there, what rounds cost beside the
same work in plain TensorFlow, both with and without XLA, what determinism costs, and where the time
of a round goes. With --peer_python it compares them with PyTorch and pfl, too. The most important
comes first, each part is written as soon as it is known, and what does not fit into --minutes is
left out and named.
"""

import contextlib
import dataclasses
import gc
import itertools
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from launch.benchmarks import (
    cifar,
    equality,
    peer_process,
    peer_settings,
    peers,
    processes,
    profiles,
    programs,
    result_text,
)
from launch.benchmarks.programs import Work
from launch.options import app
from launch.options.run_config import ScriptConfig
from launch.options.settings import flag
from launch.outputs import output_folder, run_folder
from tff_ssl import whole_files
from tff_ssl.errors import TrainingError


@dataclasses.dataclass(frozen=True)
class GpuReportConfig(ScriptConfig):
    """What is measured.

    Attributes:
      tiny: Measure tiny models, few images and two rounds, which takes a minute or two on a CPU and
        shows only that the report works.
      minutes: Time after which no further measurement is started.
      repetitions: Timed steps of each program, after one that warms up.
      peer_python: Python interpreter with PyTorch, and with pfl if that is to be compared, too;
        see `--peer` of launch.benchmark.
    """

    tiny: bool = False
    minutes: float = flag(8.0, 0)
    repetitions: int = flag(20, 1)
    peer_python: str | None = None

    @property
    def timed_steps(self) -> int:
        """Timed steps of each program of this report."""
        return 2 if self.tiny else self.repetitions


class _Round(NamedTuple):
    """Rounds that are measured, and what they are compared with."""

    encoder: str
    work: Work  # Without local steps, one step on all images.
    #: Largest ratio of the seconds to those of the baseline that was asked for, if any.
    most: float | None = None
    xla: bool = False  # Whether XLA compiles views and model, also of the baseline.
    precision: str = "float32"  # Of the products, also of the baseline.

    def __str__(self) -> str:
        algorithm, objective, clients, samples, steps, batch_size, _ = self.work
        in_steps = f", {steps} steps of {batch_size or 'all'}" if steps else ""
        return (
            f"{algorithm}, {self.encoder}, {objective}, {clients} x {samples}{in_steps}{self.how}"
        )

    @property
    def how(self) -> str:
        """The end of a name."""
        return (", XLA" if self.xla else "") + f", {self.precision}" * (self.precision != "float32")


def _both(encoder: str, work: Work, most: float) -> tuple[_Round, _Round]:
    """Rounds without XLA and with it."""
    return _Round(encoder, work, most), _Round(encoder, work, most, xla=True)


_ROUNDS = (
    *_both("small", Work("dcco", "cco", 512, 1, 0), 1.5),
    *_both("small", Work("fedavg", "nt_xent", 128, 4, 0), 1.1),
    *_both("small", Work("dcco", "cco", 128, 4, 0), 1.5),
    *_both("small", Work("fedavg", "nt_xent", 5, 64, 4, 32), 1.0),
    _Round("small", Work("fedu", "byol", 5, 64, 4, 32), 1.2),
    _Round("small", Work("fedbn", "nt_xent", 5, 64, 4, 32), 1.2),
    *_both("resnet18", Work("dcco", "cco", 512, 1, 0), 1.5),
    _Round("resnet18", Work("dcco", "cco", 128, 4, 0), 1.5),
    _Round("small", Work("gossip", "nt_xent", 5, 64, 4, 32)),
    _Round("small", Work("hetero_ssfl", "nt_xent", 5, 64, 4, 32)),
    _Round("small", Work("dcco", "cco", 512, 1, 0), xla=True, precision="bfloat16"),
)
_DIGESTS = 3  # Rounds after which two deterministic runs are compared.
_TINY_ROUNDS = (
    *_both("tiny", Work("dcco", "cco", 8, 1, 0), 1.5),
    _Round("tiny", Work("fedavg", "nt_xent", 4, 2, 0), 1.1),
    *_both("tiny", Work("fedavg", "nt_xent", 2, 8, 2, 4), 1.0),
    _Round("tiny", Work("fedu", "byol", 2, 8, 2, 4), 1.2),
    _Round("tiny", Work("fedbn", "nt_xent", 2, 8, 2, 4), 1.2),
    _Round("tiny", Work("gossip", "nt_xent", 2, 8, 2, 4)),
    _Round("tiny", Work("hetero_ssfl", "nt_xent", 2, 8, 2, 4)),
    _Round("tiny", Work("dcco", "cco", 8, 1, 0), xla=True, precision="bfloat16"),
)
_TINY_PEER_WORK = {
    "torch": (Work("dcco", "cco", 8, 1),),
    "pfl": (
        Work("fedavg", "nt_xent", 2, 2),
        cifar.WORK._replace(clients=6, samples=20, steps=2, cohort=2),
    ),
}


def main(config: GpuReportConfig) -> None:
    programs.quiet()
    from tff_ssl.runtime import devices

    folder = output_folder.choose(config.output.output_dir, "gpu_report")
    run_folder.make(folder)
    gpu = devices.find_gpu()
    on = f"{gpu}, {devices.products(gpu)} products" if gpu else "the CPU; TensorFlow has no GPU"
    print(f"rounds in this process, on {on}", flush=True)
    report = Report(folder, on, time.monotonic() + 60 * config.minutes)
    with tempfile.TemporaryDirectory(prefix="tff_ssl_gpu_report_") as scratch:
        measure(report, config, scratch)
    print(f"written to {folder}/: report.md, report.json")
    if failed := [row["products"] for row in report.content["equality"] if not row["holds"]]:
        raise TrainingError(
            f"rounds differ from centralized steps by more than rounding: {', '.join(failed)}"
        )


class Report:
    """The report: its parts are written as soon as they are there."""

    def __init__(self, folder: pathlib.Path, device: str, end: float):
        self._folder, self._end = folder, end
        self._longest = 0.0  # Seconds of the longest part so far.
        self.content: dict[str, Any] = {
            "device": device, "equality": [], "times": [], "determinism": [], "profiles": {},
            "peers": [], "left_out": [],
        }  # fmt: skip

    def part(self, name: str, work: Callable[..., None], *arguments: Any, **more: Any) -> bool:
        """Does a part of the work if there is time left, and writes the report.

        Returns whether it was done without an error.
        """
        done = False
        start = time.monotonic()
        if start + self._longest > self._end:
            self.content["left_out"].append(f"{name} (no time left)")
        else:
            try:
                work(*arguments, **more)
                done = True
            except Exception as error:  # What follows can still be measured.
                reason = (str(error).strip() or "without a message").splitlines()[0][:200]
                self.content["left_out"].append(f"{name} ({type(error).__name__}: {reason})")
                print(f"failed: {self.content['left_out'][-1]}", flush=True)
            self._longest = max(self._longest, time.monotonic() - start)
        run_folder.write_json(self._folder / "report.json", self.content)
        whole_files.write(self._folder / "report.md", result_text.of_report(self.content))
        return done


def measure(report: Report, config: GpuReportConfig, scratch: str) -> None:
    """Measures everything, the most important first."""
    rounds = _TINY_ROUNDS if config.tiny else _ROUNDS
    encoder, images = ("tiny", 8) if config.tiny else ("small", 512)
    baselines: dict[Any, float] = {}

    def compare(**how: bool) -> None:
        row = equality.compare(encoder, images, config.seed, scratch, **how)
        report.content["equality"].append(row)

    report.part("equality as usual", compare, exact=False)
    for one in rounds:
        report.part(f"times: {one}", _time_round, report, baselines, config, scratch, one)
    report.part("equality with XLA", compare, exact=False, xla=True)
    # TensorFlow keeps the kernels that it has chosen for a shape, so this comes after the times.
    report.part("equality without TF32", compare, exact=True)
    report.part("determinism", _determinism, report, rounds[0], config, scratch)
    if config.peer_python:
        for name in ("torch", "pfl"):
            _compare(report, peer_process.PEERS[name], config, scratch)


def _time_round(
    report: Report, baselines: dict[Any, float], config: GpuReportConfig, scratch: str, one: _Round
) -> None:
    """Measures a round and its baseline, and profiles the round."""
    work, times = one.work, report.content["times"]
    key = (one.encoder, one.how, work.objective, work.images, work.steps and work[2:])
    if key not in baselines:
        name = f"plain TensorFlow, {one.encoder}, {work.objective}, {work.images} images{one.how}"
        plain = work if work.steps else work.pooled
        with contextlib.closing(
            programs.plain_steps(plain, _settings(one), config.seed)
        ) as program:
            times.append(_time(name, program, config.timed_steps))
        baselines[key] = times[-1]["seconds"]
    with contextlib.closing(_federated(one, config.seed, scratch)) as program:
        row = _time(str(one), program, config.timed_steps, baselines[key], one.most)
        if work.steps:  # The clients train one after another.
            row["ms_per_step"] = 1e3 * row["seconds"] / (work.clients * work.steps)
        times.append(row)
        found = report.content["profiles"][str(one)] = profiles.profile(
            lambda: processes.time_step(program)
        )
        if row["peak_mib"] is not None and found.keys() <= {"host"}:
            report.content["left_out"].append(
                f"the GPU's kernels of {one} (no device trace: CUPTI is missing)"
            )


def _settings(one: _Round) -> programs.ModelSettings:
    from tff_ssl.algorithms import registry
    from tff_ssl.objectives.registry import OBJECTIVES

    algorithm, objective, *_ = one.work
    needs = OBJECTIVES[objective].predictor or registry.ALGORITHMS[algorithm].predictor
    predictor = (256, 512) if needs else ()
    return programs.ModelSettings(one.encoder, (512,) * 3, predictor, one.precision, one.xla)


def _federated(
    one: _Round, seed: int, scratch: str, digests: int = 0
) -> Generator[Any, None, None]:
    work, hyperparameters = one.work, one.work.hyperparameters
    if not work.steps:
        hyperparameters = {"micro_batch_size": work.images}
        if work.algorithm == "fedavg":
            hyperparameters |= {"local_steps": 1, "batch_size": 0}
    return programs.federated_round(
        work, hyperparameters, _settings(one), seed, scratch, digests=digests
    )


def deterministic_rounds(
    one: _Round, seed: int, scratch: str
) -> Generator[dict[str, Any], None, None]:
    """Rounds with deterministic kernels; the first step has three, and yields their digest."""
    import tensorflow as tf

    from tff_ssl.runtime import devices

    devices.prepare_gpus()
    tf.config.experimental.enable_op_determinism()
    steps = _federated(one, seed, scratch, digests=_DIGESTS)
    *_, last = itertools.islice(steps, _DIGESTS)
    yield last
    yield from steps


def _time(
    name: str, program: Generator[Any, None, None], repetitions: int,
    baseline: float | None = None, most: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A row of the table of times."""
    import tensorflow as tf

    gc.collect()  # Of the program before.
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    if on_gpu:
        tf.config.experimental.reset_memory_stats("GPU:0")
    first, *seconds = (processes.time_step(program) for _ in range(1 + repetitions))
    row = _row(name, first, seconds, baseline, most)
    if on_gpu:
        row["peak_mib"] = tf.config.experimental.get_memory_info("GPU:0")["peak"] >> 20
    return row


def _row(
    name: str, first: float, seconds: list[float],
    baseline: float | None = None, most: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    median = statistics.median(seconds)
    ratio = median / baseline if baseline else None
    against = f", {ratio:.2f} times the baseline" if ratio else ""
    print(f"{name}: {1e3 * median:.1f} ms{against}; first {first:.1f} s", flush=True)
    return {
        "name": name,
        "first_seconds": first,
        "seconds": median,
        "least_seconds": min(seconds),
        "repetitions": len(seconds),
        "ratio": ratio,
        "asked": most,
        "met": None if most is None or ratio is None else ratio <= most,
        "peak_mib": None,
    }


def _determinism(report: Report, work: _Round, config: GpuReportConfig, scratch: str) -> None:
    """What deterministic kernels cost, and whether two runs with them are equal.

    Each run has a process of its own, since TensorFlow keeps the kernels that it has chosen.
    """
    usual = next(row["seconds"] for row in report.content["times"] if row["name"] == str(work))
    digests = []
    for number in range(2):
        folder = pathlib.Path(scratch) / f"deterministic_{number}"
        folder.mkdir()
        with contextlib.closing(
            processes.Child(deterministic_rounds, work, config.seed, str(folder))
        ) as child:
            digests.append(child.facts["digest"])
            if number == 0:
                seconds = [child.step() for _ in range(config.timed_steps)]
                first = child.first_seconds
    row = _row(f"{work}, deterministic", first, seconds, usual)
    report.content["determinism"].append(row | {"repeats": digests[0] == digests[1]})


def _compare(
    report: Report, peer: peer_process.Peer, config: GpuReportConfig, scratch: str
) -> None:
    """Compares with a peer, a part for each work, if the interpreter has its packages."""
    python, settings = config.peer_python or "", programs.ModelSettings("small", (512,) * 3)
    works = _TINY_PEER_WORK[peer.name] if config.tiny else peer_settings.WORK[peer.name]
    if config.tiny:
        settings = programs.ModelSettings("tiny", (16,) * 3)

    def compare(work: Work) -> None:
        results = peers.compare(
            peer, python, settings, config.seed, config.timed_steps, scratch, [work]
        )
        report.content["peers"].append(results)

    if report.part(peer.title, peer_process.check, peer, python):
        for work in works:
            report.part(f"{peer.title}: {peer_settings.title(peer, work)}", compare, work)


SCRIPT = app.Script("gpu_report", main, GpuReportConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
