"""Measures programs that run in processes of their own: seconds, memory and open files."""

import contextlib
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import psutil

from tff_ssl.errors import TrainingError
from tff_ssl.runtime import child_process, process_memory, temporary_folder

MEGABYTE = 1e6


class Measured:
    """A process that runs one step whenever it is asked to, and whose costs are measured.

    Attributes:
      facts: What the program says after its first step.
      first_seconds: Seconds between the start of the process and the end of its first step.
      pid: Process id.
    """

    facts: Any
    first_seconds: float

    def __init__(self, pid: int):
        self.pid = pid
        self._watch = process_memory.MemoryWatch(pid)
        self._cpu: list[float] = []

    def step(self) -> float:
        """Runs a step and returns its seconds."""
        before = _total(self.pid, _cpu_seconds)
        seconds = self._step()
        self._cpu.append(_total(self.pid, _cpu_seconds) - before)
        return seconds

    def _step(self) -> float:
        raise NotImplementedError

    def close(self) -> None:
        """Ends the process."""
        raise NotImplementedError

    def peak_rss_mb(self) -> float:
        """Peak resident memory of the process and its children so far, MB."""
        return self._watch.peak / MEGABYTE

    def rss_mb(self) -> float:
        """Resident memory of the process and its children now, MB."""
        return process_memory.tree_resident(self.pid) / MEGABYTE

    def costs(self) -> dict[str, float]:
        """Median processor seconds of a step, seconds of the first one, and memory in MB."""
        return {
            "cpu_seconds": statistics.median(self._cpu),
            "first_round_seconds": self.first_seconds,
            "peak_rss_mb": self.peak_rss_mb(),
            "pss_mb": _total(self.pid, _pss) / MEGABYTE,
        }


class Child(Measured):
    """A process of this interpreter; `facts` is the value that the program's first step yields."""

    def __init__(self, program: Callable[..., Generator[Any, None, None]], *arguments: Any):
        """Starts the process and waits for its first step.

        `program` is a generator function at the top level of a module; each `next` is a step.
        """
        context = multiprocessing.get_context("spawn")
        self._pipe, child_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(child_end, program, arguments))
        start = time.monotonic()
        self._process.start()
        child_end.close()
        super().__init__(self._process.pid or 0)
        try:
            self.facts = self._pipe.recv()
        except EOFError:
            self.close()
            raise TrainingError(f"{program.__name__} ended before its first step") from None
        self.first_seconds = time.monotonic() - start

    def _step(self) -> float:
        self._pipe.send("step")
        return self._pipe.recv()

    def close(self) -> None:
        self._watch.stop()
        self._pipe.close()
        self._process.join()


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _pss(process: psutil.Process) -> int:
    """Memory in bytes; a shared page counts in equal parts for each of its processes."""
    return process.memory_full_info().pss


def _total(pid: int, measure: Callable[[psutil.Process], float]) -> float:
    """Sum over a process and its descendants; processes that have ended are left out."""
    total: float = 0
    for process in process_memory.process_tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += measure(process)
    return total


def _serve(
    pipe: Connection, program: Callable[..., Generator[Any, None, None]], arguments: tuple
) -> None:
    """Runs the steps that the parent asks for, until it closes the pipe."""
    parent = multiprocessing.parent_process()
    assert parent
    assert parent.pid
    child_process.end_with_parent(parent.pid)
    temporary_folder.use()
    steps = program(*arguments)
    pipe.send(next(steps))
    try:
        while pipe.recv() == "step":
            pipe.send(time_step(steps))
    except EOFError:
        steps.close()


def time_step(program: Generator[Any, None, None]) -> float:
    """Seconds of a step of a program, to the end of what it asked of TensorFlow's GPUs."""
    start = time.monotonic()
    next(program)
    tf = sys.modules.get("tensorflow")
    if tf and tf.config.list_physical_devices("GPU"):
        tf.test.experimental.sync_devices()
    return time.monotonic() - start


@contextlib.contextmanager
def closing(programs: Mapping[Any, Measured]) -> Iterator[None]:
    """Ends programs at the end of the block, including those added in it."""
    try:
        yield
    finally:
        for program in programs.values():
            program.close()


def resource_use(pid: int) -> dict[str, float]:
    """Current resident memory (`rss_mb`) and `open_files` of a process and its descendants."""
    rss, open_files = process_memory.tree_resident(pid), _total(pid, psutil.Process.num_fds)
    return {"rss_mb": rss / MEGABYTE, "open_files": open_files}


def first_and_last_tenth(
    observations: Sequence[Mapping[str, float]], seconds: Sequence[float], rounds: int
) -> dict[str, float]:
    """Medians over the first and the last tenth of a run, its first twentieth left out.

    Of `open_files` it is the smallest number, which a leak raises, because files are also open for
    a moment while they are read or written.

    Args:
      observations: Values by name; `round` is the number of rounds done.

    Returns:
      `<name>_first_tenth` and `<name>_last_tenth` for `seconds` and each observed name; NaN where
      nothing was observed.
    """
    start, tenth = rounds // 20, rounds // 10
    result = {}
    for span, first in (("first_tenth", start), ("last_tenth", rounds - tenth)):
        numbers = range(first, first + tenth)
        result[f"seconds_{span}"] = statistics.median(seconds[i] for i in numbers)
        within = [observed for observed in observations if observed["round"] in numbers]
        for name in observations[0].keys() - {"round"}:
            values = [observed[name] for observed in within] or [math.nan]
            least = name == "open_files"
            result[f"{name}_{span}"] = min(values) if least else statistics.median(values)
    return result


def time_in_turn(programs: Mapping[Any, Measured], repetitions: int) -> dict[Any, list[float]]:
    """Seconds of each program's steps, [repetitions] by name; the programs take turns."""
    seconds: dict[Any, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        program.step()  # Memory pools and caches fill.
    for _ in range(repetitions):
        for name, program in programs.items():
            seconds[name].append(program.step())
    return seconds


def median_ratio(seconds: Sequence[float], baseline: Sequence[float]) -> float:
    """Median of seconds / baseline, both [repetitions]; each pair of steps sees the same load."""
    return statistics.median(a / b for a, b in zip(seconds, baseline, strict=True))


def compare_many_rounds(child: Child, rounds: int) -> dict[str, Any]:
    """Runs many rounds: mean memory and median seconds of the first and the last tenth."""
    tenth = max(1, rounds // 10)
    seconds, memory = [], []
    for _ in range(rounds):
        seconds.append(child.step())
        memory.append(child.rss_mb())
    return {
        "rounds": rounds,
        "rss_mb_first_tenth": statistics.fmean(memory[:tenth]),
        "rss_mb_last_tenth": statistics.fmean(memory[-tenth:]),
        "seconds_first_tenth": statistics.median(seconds[:tenth]),
        "seconds_last_tenth": statistics.median(seconds[-tenth:]),
    }
