"""Runs scripts, each in a process of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from launch.outputs import commands
from tff_ssl.runtime import child_process

_ROOT = pathlib.Path(__file__).parents[2]  # Of the project.
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
    command = _command(arguments)
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
        return ended_by(code)
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ")


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
