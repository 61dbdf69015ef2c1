"""Runs scripts, each in a process of its own."""

import concurrent.futures
import contextlib
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from launch.outputs import commands
from tff_ssl import whole_files
from tff_ssl.errors import ConfigurationError
from tff_ssl.runtime import child_process

_ROOT = pathlib.Path(__file__).parents[2]  # Of the project.
# The scripts that are running, which are interrupted when this process ends.
_running: set[subprocess.Popen] = set()
_lock = threading.Lock()
_ending = threading.Event()


class Job(NamedTuple):
    """One of several pieces of work that run scripts."""

    name: str  # Unique name, which is printed.
    run: Callable[[], str]  # Does the work, and returns its outcome in a few words.
    # Name of an earlier job that has to end before this one starts, if it is to be run.
    needs: str | None = None


def check_jobs(jobs: int) -> None:
    """Raises `ConfigurationError` if there are fewer cores than jobs at the same time."""
    cores = len(os.sched_getaffinity(0))
    if jobs > cores:
        raise ConfigurationError(f"--jobs={jobs} is more than this process's {cores} cores")


def run_all(
    jobs: Sequence[Job], at_once: int, after_each: Callable[[], Any], to_continue: Callable[[], str]
) -> None:
    """Runs jobs, some at the same time, each with an equal share of the cores.

    After a failure, no other job starts, and those in progress are finished.

    Args:
      after_each: Is called after each job that has ended, and after a failure.
      to_continue: Gives the command that continues the work, which an interrupt prints.
    """
    core_shares: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    cores = sorted(os.sched_getaffinity(0))
    for number in range(at_once):
        core_shares.put(cores[number::at_once])
    submitted: dict[str, concurrent.futures.Future[str]] = {}
    failed = threading.Event()

    def run_job(number: int, job: Job) -> str:
        if job.needs in submitted:
            # The needed job was submitted earlier: it is done, or runs in another thread.
            submitted[job.needs].result()
        if failed.is_set():
            return ""
        _print_line(f"[{number}/{len(jobs)}] {job.name}")
        try:
            return f"{job.name}: {job.run()}"
        except BaseException as error:
            failed.set()
            if at_once > 1 and not is_ending():
                _print_line(f"    {error}; no other run is started; those in progress are finished")
            raise

    start = time.monotonic()
    # Affinity belongs to a thread, and the processes that the thread starts inherit it.
    with concurrent.futures.ThreadPoolExecutor(
        at_once, initializer=lambda: os.sched_setaffinity(0, core_shares.get())
    ) as pool:
        for number, job in enumerate(jobs, start=1):
            submitted[job.name] = pool.submit(run_job, number, job)
        futures = list(submitted.values())
        try:
            for done, ended in enumerate(concurrent.futures.as_completed(futures), start=1):
                outcome = ended.result()
                if not outcome:
                    continue
                minutes = (time.monotonic() - start) / 60
                left = minutes / done * (len(jobs) - done)
                _print_line(f"    {outcome}; {minutes:.0f} minutes so far, about {left:.0f} left")
                after_each()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                interrupt()  # The scripts save their states before they end.
                _print_line(f"stopped; {commands.CONTINUE}{to_continue()}")
            else:
                # After a failure, the other jobs end first. `wait` would not do, because it never
                # returns after futures were cancelled.
                pool.shutdown()
                after_each()
            raise


def _print_line(line: str) -> None:
    """Prints a line and its end in one call, because other threads print too."""
    print(f"{line}\n", end="", flush=True)


def interrupt() -> None:
    """Interrupts the running scripts, and prevents the start of others."""
    _ending.set()
    with _lock:
        for process in _running:
            process.terminate()


def is_ending() -> bool:
    """Whether `interrupt` was called."""
    return _ending.is_set()


@contextlib.contextmanager
def time_limit(minutes: float | None) -> Iterator[None]:
    """Calls `interrupt` if its block takes longer than some minutes; None for no limit.

    The scripts that run then save their states, and `run_script` gives the reason of their end.
    """
    if minutes is None:
        yield
        return
    timer = threading.Timer(60 * minutes, interrupt)
    timer.daemon = True  # It does not keep a program alive that has failed.
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def run_script(
    arguments: Sequence[str],
    log: pathlib.Path,
    on_start: Callable[[int], None] = lambda pid: None,
    folder: pathlib.Path | None = None,
    seconds: float | None = None,
) -> str | None:
    """Runs a script.

    Args:
      arguments: Name of the script in `launch`, and its flags.
      log: File to which the command and its output are appended.
      on_start: Is called with the process id.
      folder: Working directory; None for the project's root, where presets are found.
      seconds: Time after which the script is ended; None for no limit.

    Returns:
      None, or if the script fails the reason: the last line of its output, or the signal. Of a
      script that `interrupt` has ended, how far it came.
    """
    command = _command(arguments)
    with whole_files.append(log) as file:
        print("$", *command, file=file, flush=True)
        with _lock:
            if _ending.is_set():
                return "interrupted"
            # In a session of its own, only `interrupt` ends the script, once. It ends with this
            # process also after SIGKILL, so that a restart can continue at once.
            process = child_process.start(
                command, cwd=folder or _ROOT, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            _running.add(process)
        on_start(process.pid)
        try:
            code = process.wait(seconds)
        except (KeyboardInterrupt, subprocess.TimeoutExpired) as error:
            process.terminate()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return f"took more than {error.timeout / 60:g} minutes"
            raise
        finally:
            with _lock:
                _running.discard(process)
    if code == 0:
        return None
    lines = [line for line in log.read_text(errors="surrogateescape").splitlines() if line.strip()]
    if is_ending():
        return lines[-2] if lines[-1].startswith(commands.CONTINUE) else "interrupted"
    return ended_by(code) if code < 0 else lines[-1].removeprefix("error: ")


def ended_by(code: int) -> str:
    """The reason of a negative exit code."""
    return f"ended by {signal.Signals(-code).name} (out of memory, or killed)"


def show_script(arguments: Sequence[str]) -> int:
    """Runs a script in this folder with its output on that of this process; its exit code.

    The command with which the script says how to continue it is left out. An interrupt is passed
    on to the script, which then saves its state.
    """
    process = child_process.start(
        _command(arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        errors="replace", env=os.environ | {"PYTHONUNBUFFERED": "1"}, start_new_session=True,
    )  # fmt: skip
    try:
        _show_output(process)
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        _show_output(process)
        process.wait()
        raise


def _show_output(process: subprocess.Popen) -> None:
    assert process.stdout
    for line in process.stdout:
        if not line.startswith(commands.CONTINUE):
            print(line, end="", flush=True)


def _command(arguments: Sequence[str]) -> list[str]:
    name, *rest = arguments
    return [sys.executable, "-m", f"launch.{name}", *rest]
