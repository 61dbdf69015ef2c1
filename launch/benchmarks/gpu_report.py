"""Measures rounds in this process, on a GPU if TensorFlow has one, and writes a report.

The report says whether a round of DCCO equals a centralized step there, what rounds cost beside the
same work in plain TensorFlow, what determinism costs, and where the time of a round goes. The most
important comes first, each part is written as soon as it is known, and what does not fit into
--minutes is left out and named.
"""

import contextlib
import dataclasses
import functools
import gc
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from launch.benchmarks import profiles, programs
from launch.options import app
from launch.options.run_config import ScriptConfig
from launch.options.settings import flag


@dataclasses.dataclass(frozen=True)
class GpuReportConfig(ScriptConfig):
    """What is measured.

    Attributes:
      tiny: Measure tiny models, few images and two rounds, which takes a minute or two on a CPU and
        shows only that the report works.
      minutes: Time after which no further measurement is started.
      repetitions: Timed steps of each program, after one that warms up.
      skip: Parts to leave out: equality, times, profile, determinism.
    """

    tiny: bool = False
    minutes: float = flag(8.0, 0)
    repetitions: int = flag(20, 1)
    skip: tuple[str, ...] = ()


class _Round(NamedTuple):
    """Rounds that are measured, and what they are compared with.

    Attributes:
      encoder: Name of the encoder.
      algorithm: Name of the algorithm.
      objective: Objective of the clients.
      clients: Number of clients.
      samples: Images of a client.
      steps: Local steps of a round; 0 for one step on all images.
      most: Largest ratio of the seconds to those of the baseline that was asked for.
      batch_size: Images of a local step; 0 for all of a client's.
    """

    encoder: str
    algorithm: str
    objective: str
    clients: int
    samples: int
    steps: int
    most: float
    batch_size: int = 0

    def __str__(self) -> str:
        size = f"{self.clients} x {self.samples}"
        steps = f", {self.steps} steps of {self.batch_size or 'all'}" if self.steps else ""
        return f"{self.algorithm}, {self.encoder}, {self.objective}, {size}{steps}"


_ROUNDS = (
    _Round("small", "dcco", "cco", 512, 1, 0, 1.5),
    _Round("small", "dcco", "cco", 128, 4, 0, 1.5),
    _Round("small", "fedavg", "nt_xent", 128, 4, 0, 1.1),
    _Round("small", "fedavg", "nt_xent", 5, 64, 4, 1.0, 32),
    _Round("small", "fedu", "byol", 5, 64, 4, 1.2, 32),
    _Round("small", "fedbn", "nt_xent", 5, 64, 4, 1.2, 32),
    _Round("resnet18", "dcco", "cco", 512, 1, 0, 1.5),
)
_TINY_ROUNDS = (
    _Round("tiny", "dcco", "cco", 8, 1, 0, 1.5),
    _Round("tiny", "fedavg", "nt_xent", 2, 8, 2, 1.0, 4),
    _Round("tiny", "fedu", "byol", 2, 8, 2, 1.2, 4),
    _Round("tiny", "fedbn", "nt_xent", 2, 8, 2, 1.2, 4),
)


def main(config: GpuReportConfig) -> None:
    from launch.outputs import output_folder, run_folder
    from tff_ssl.runtime import devices

    folder = output_folder.choose(config.output.output_dir, "gpu_report")
    run_folder.make(folder)
    gpu = devices.find_gpu()
    on = f"{gpu}, {devices.products(gpu)} products" if gpu else "the CPU; TensorFlow has no GPU"
    print(f"rounds in this process, on {on}", flush=True)
    report = Report(folder, on, time.monotonic() + 60 * config.minutes)
    with tempfile.TemporaryDirectory(prefix="tff_ssl_gpu_report_") as scratch:
        measure(report, config, scratch)
    report.write()
    print(f"written to {folder}/: report.md, report.json")


class Report:
    """The report: its parts are written as soon as they are there."""

    def __init__(self, folder: pathlib.Path, device: str, end: float):
        self._folder, self._end = folder, end
        self.content: dict[str, Any] = {
            "device": device, "equality": [], "times": [], "determinism": [], "profiles": {},
            "left_out": [],
        }  # fmt: skip

    def part(self, name: str, work: Callable[[], None]) -> None:
        """Does a part of the work if there is time left, and writes the report."""
        if time.monotonic() > self._end:
            self.content["left_out"].append(f"{name} (no time left)")
        else:
            try:
                work()
            except Exception as error:  # What follows can still be measured.
                reason = str(error).strip().splitlines()[0][:200]
                self.content["left_out"].append(f"{name} ({type(error).__name__}: {reason})")
                print(f"failed: {self.content['left_out'][-1]}", flush=True)
        self.write()

    def write(self) -> None:
        (self._folder / "report.json").write_text(json.dumps(self.content, indent=1))
        (self._folder / "report.md").write_text(describe(self.content))


def measure(report: Report, config: GpuReportConfig, scratch: str) -> None:
    """Measures everything, the most important first."""
    rounds = _TINY_ROUNDS if config.tiny else _ROUNDS
    repetitions = 2 if config.tiny else config.repetitions
    encoder, images = ("tiny", 8) if config.tiny else ("small", 512)

    baselines: dict[Any, float] = {}
    equal = functools.partial(_equality, report, encoder, images, config.seed, scratch)
    if "equality" not in config.skip:
        report.part("equality as usual", functools.partial(equal, exact=False))
    time_round = functools.partial(_time_round, report, baselines, repetitions, config, scratch)
    for work in rounds if "times" not in config.skip else ():
        report.part(f"times: {work}", functools.partial(time_round, work))
    # TensorFlow keeps the kernels that it has chosen for a shape, so this comes after the times.
    if "equality" not in config.skip:
        report.part("equality without TF32", functools.partial(equal, exact=True))
    if "determinism" not in config.skip:
        report.part(
            "determinism", lambda: _determinism(report, rounds[0], repetitions, config, scratch)
        )


def _time_round(
    report: Report, baselines: dict[Any, float], repetitions: int, config: GpuReportConfig,
    scratch: str, work: _Round,
) -> None:  # fmt: skip
    """Measures a round and its baseline, and profiles the round."""
    key = _baseline_key(work)
    if key not in baselines:
        name = f"plain TensorFlow, {work.encoder}, {work.objective}, {key[2]} images"
        seconds = _time(report, name, _baseline(work, config.seed), repetitions, None, None)
        baselines[key] = seconds
    program = _federated(work, config.seed, scratch)
    profiled = None if "profile" in config.skip else str(work)
    _time(report, str(work), program, repetitions, baselines[key], work.most, profiled)


def _baseline_key(work: _Round) -> tuple[Any, ...]:
    images = work.clients * work.samples
    loop = (work.clients, work.samples, work.steps, work.batch_size) if work.steps else ()
    return work.encoder, work.objective, images, loop


def _settings(work: _Round) -> programs.ModelSettings:
    from tff_ssl.algorithms import registry
    from tff_ssl.objectives.registry import OBJECTIVES

    needs = OBJECTIVES[work.objective].predictor or registry.ALGORITHMS[work.algorithm].predictor
    return programs.ModelSettings(work.encoder, (512,) * 3, (256, 512) if needs else ())


def _baseline(work: _Round, seed: int) -> Generator[Any, None, None]:
    settings = _settings(work)
    if not work.steps:
        return programs.centralized_step(
            work.clients * work.samples, settings, seed, work.objective
        )
    return programs.plain_local_steps(
        work.objective, work.clients, work.samples, work.steps, work.batch_size, settings, seed
    )


def _federated(work: _Round, seed: int, scratch: str) -> Generator[Any, None, None]:
    hyperparameters: dict[str, Any] = {"local_steps": work.steps, "batch_size": work.batch_size}
    if not work.steps:
        hyperparameters = {"micro_batch_size": work.clients * work.samples}
        if work.algorithm == "fedavg":
            hyperparameters["local_steps"] = 1
    return programs.federated_round(
        work.algorithm, work.objective, hyperparameters, work.clients, work.samples,
        _settings(work), seed, scratch, runtime="in_process",
    )  # fmt: skip


def _time(
    report: Report, name: str, program: Any, repetitions: int, baseline: float | None,
    most: float | None, profiled: str | None = None,
) -> float:  # fmt: skip
    """Adds a row of times to the report, and returns the median seconds of a step."""
    import tensorflow as tf

    with contextlib.closing(program):

        def step() -> float:
            start = time.perf_counter()
            next(program)
            _wait()
            return time.perf_counter() - start

        if tf.config.list_physical_devices("GPU"):
            tf.config.experimental.reset_memory_stats("GPU:0")
        first = step()
        seconds = [step() for _ in range(repetitions)]
        median = statistics.median(seconds)
        row = {
            "name": name,
            "first_seconds": first,
            "seconds": median,
            "least_seconds": min(seconds),
            "repetitions": repetitions,
            "ratio": baseline and median / baseline,
            "asked": most,
            "peak_mib": _peak_mib(),
        }
        report.content["times"].append(row)
        ratio = f", {row['ratio']:.2f} times the baseline" if baseline else ""
        print(f"{name}: {1e3 * median:.1f} ms{ratio}; first {first:.1f} s", flush=True)
        if profiled:
            report.content["profiles"][profiled] = profiles.profile(lambda: (step(), None)[1])
    gc.collect()
    return median


def _wait() -> None:
    """Waits until the GPU has done what was asked of it."""
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        tf.test.experimental.sync_devices()


def _peak_mib() -> int | None:
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return None
    return tf.config.experimental.get_memory_info("GPU:0")["peak"] >> 20


def _equality(
    report: "Report", encoder: str, images: int, seed: int, scratch: str, exact: bool
) -> None:
    """Adds the largest difference between a round of DCCO and a centralized step to the report.

    `exact` means float32 without TF32. Both start from the same weights, and the server takes a
    step of SGD with rate 1, so that the weights change by the gradient.
    """
    import numpy as np
    import tensorflow as tf
    import tensorflow_federated as tff

    from tff_ssl.algorithms.dcco import two_stage
    from tff_ssl.losses import cco
    from tff_ssl.models.dual_encoder import Weights
    from tff_ssl.runtime import in_process
    from tff_ssl.templates.task import Task

    images = images * 3 // 4 if exact else images  # Another shape, for which kernels are chosen.
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(not exact)
    try:
        settings = programs.ModelSettings(encoder, (64, 64))
        model, two_views = programs.model_and_views(settings, seed)
        path = pathlib.Path(scratch) / f"equality_{exact}.sqlite"
        data = programs.stored_clients(path, images, 1, seed)
        task = Task(model, two_views, tff.types.tensorflow_to_type(data.batch_type_structure), 10)
        values = two_stage.DCCOHyperparameters(
            server_optimizer="sgd", server_learning_rate=1.0, micro_batch_size=images
        )
        built = two_stage.build_dcco(task, values)
        group = data.group_batch(np.arange(images))
        with in_process.start():
            state = built.process.initialize()
            output = built.process.next(state, [group])
        start = [tf.constant(w) for w in state.global_model_weights.trainable]
        after = output.state.global_model_weights.trainable
        x1, x2 = two_views(
            tf.constant(programs.images(images, seed)), tf.range(images, dtype=tf.int64),
            tf.constant(0, tf.int64),
        )  # fmt: skip
        with tf.GradientTape() as tape:
            tape.watch(start)
            f, g = (o.z for o in model.apply_pair(Weights(tuple(start), ()), x1, x2, training=True))
            loss = cco.cco(f, g, values.lambda_).loss
        gradient = tape.gradient(loss, start)
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
    scale = float(tf.linalg.global_norm(gradient))
    worst = max(
        float(tf.reduce_max(tf.abs(b - a - g))) / scale
        for b, a, g in zip(start, after, gradient, strict=True)
    )
    products = "float32" if exact else "as above"
    report.content["equality"].append({"products": products, "images": images, "difference": worst})
    print(f"DCCO's round and a centralized step differ by {worst:.1e} of the gradient's norm")


def _determinism(report: Report, work: _Round, repetitions: int, config, scratch: str) -> None:
    """What deterministic kernels cost; they stay switched on, so this comes last."""
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    name = f"{work}, deterministic"
    program = _federated(work, config.seed, scratch)
    usual = next(row["seconds"] for row in report.content["times"] if row["name"] == str(work))
    _time(report, name, program, repetitions, None, None)
    row = report.content["times"].pop()
    report.content["determinism"].append(row | {"ratio": row["seconds"] / usual})


def describe(content: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = ["# Rounds in this process", "", f"Device: {content['device']}.", ""]
    for row in content["equality"]:
        lines.append(
            f"A DCCO round of {row['images']} clients and a centralized step, products "
            f"{row['products']}: they differ by {row['difference']:.1e} of the gradient's norm."
        )
    lines += ["", "| step or round | ms | least | first, s | ratio | asked | peak MiB |",
              "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in content["times"] + content["determinism"]:
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
        lines.append(
            f"| {row['name']} | {1e3 * row['seconds']:.1f} | {1e3 * row['least_seconds']:.1f} | "
            f"{row['first_seconds']:.1f} | {ratio} | {row['asked'] or ''} | "
            f"{row['peak_mib'] or ''} |"
        )
    for name, found in content["profiles"].items():
        lines += ["", f"## {name}", ""]
        for where, summary in found.items():
            lines.append(
                f"- {where}: {summary['events']:.0f} events, {summary['milliseconds']:.1f} ms of "
                f"{summary['span_milliseconds']:.1f} ms"
            )
            lines += [f"  - {ms:.2f} ms, {count:.0f}: `{kind}`" for kind, count, ms in
                      summary["longest"]]  # fmt: skip
    if content["left_out"]:
        lines += ["", f"Left out: {'; '.join(content['left_out'])}."]
    return "\n".join(lines) + "\n"


SCRIPT = app.Script("gpu_report", main, GpuReportConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
