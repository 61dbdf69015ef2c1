"""Runs the scripts of an experiment's cells, each in a process of its own."""

import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from tff_ssl.runtime import child_process

_ROOT = pathlib.Path(__file__).parents[3]  # Of the project.
# The scripts that are running, which are interrupted when this process ends.
_running: set[subprocess.Popen] = set()
_lock = threading.Lock()
_ending = threading.Event()


def interrupt() -> None:
    """Interrupts the running scripts, and prevents the start of others."""
    _ending.set()
    with _lock:
        for process in _running:
            process.terminate()


def is_ending() -> bool:
    """Whether `interrupt` was called."""
    return _ending.is_set()


def run_script(
    arguments: Sequence[str], log: pathlib.Path, on_start: Callable[[int], None] = lambda pid: None
) -> str | None:
    """Runs a script from the project's root.

    Args:
      arguments: Name of the script in `launch`, and its flags.
      log: File to which the command and its output are appended.
      on_start: Is called with the process id.

    Returns:
      None, or if the script fails the reason: the last line of its output, or the signal.
    """
    name, *rest = arguments
    command = [sys.executable, "-m", f"launch.{name}", *rest]
    with open(log, "a") as file:
        print("$", *command, file=file, flush=True)
        with _lock:
            if _ending.is_set():
                return "interrupted"
            # In a session of its own, only `interrupt` ends the script, once. It ends with this
            # process also after SIGKILL, so that a restart can continue at once.
            process = child_process.start(
                command, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            _running.add(process)
        on_start(process.pid)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
        finally:
            with _lock:
                _running.discard(process)
    if code == 0:
        return None
    if code < 0:
        return f"ended by {signal.Signals(-code).name} (out of memory, or killed)"
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ")
