"""Starts Python programs in copies of a process that has imported TensorFlow and TFF already.

These imports take about five seconds of processor time, and the tests start hundreds of scripts.
The standard library's server (`multiprocessing`, `forkserver`) imports once, and copies itself for
each program. The program then runs as with `python -m` or `python -c`: its own process, arguments,
environment, folder and streams. What tests of the interpreter itself need, such as its options and
the order of imports, takes `subprocess`.

`run` and `start` have the arguments of `subprocess.run` and `subprocess.Popen` that the tests need.
"""

import atexit
import multiprocessing
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import IO, Any

_ROOT = pathlib.Path(__file__).parent.parent
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


class Program:
    """A running program, with the part of `subprocess.Popen` that the tests need.

    Attributes:
      args: Command line.
    """

    def __init__(self, process: Any, args: Sequence[str], streams: Mapping[str, IO[str]]):
        self.args = list(args)
        self._process, self._streams = process, streams

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the number of the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str | None, str | None]:
        """Waits for the end, and returns what was written to the pipes; None for other streams."""
        self.wait(timeout)
        return self._text("stdout"), self._text("stderr")

    def _text(self, name: str) -> str | None:
        if name not in self._streams:
            return None
        self._streams[name].seek(0)
        return self._streams[name].read()


def start(
    args: Sequence[str],
    cwd: str | os.PathLike | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    text: bool = True,
) -> Program:
    """Starts a program as `subprocess.Popen` would; streams are text.

    Args:
      args: `[sys.executable, "-m", module, ...]` or `[sys.executable, "-c", code, ...]`.
      cwd: Its folder; None for this process's.
      env: Its environment; None for this process's.
      stdin: None, `subprocess.DEVNULL`, or a file descriptor; `stdout` and `stderr` may also be
        `subprocess.PIPE`, which is a file that `Program.communicate` reads.
      text: Is there for the likeness to `subprocess.Popen`; it must be True.
    """
    assert args[0] == sys.executable, args
    assert args[1] in ("-m", "-c"), args
    assert text
    kept: dict[str, IO[str]] = {}
    streams = []
    with open(os.devnull, "r+b") as nothing:
        for name, value, own in (("stdin", stdin, 0), ("stdout", stdout, 1), ("stderr", stderr, 2)):
            if value == subprocess.PIPE:
                kept[name] = tempfile.TemporaryFile("w+")  # noqa: SIM115
                value = kept[name].fileno()
            elif value == subprocess.DEVNULL:
                value = nothing.fileno()
            streams.append(Connection(os.dup(own if value is None else value)))
    what = (
        [str(a) for a in args[1:]],
        str(cwd or os.getcwd()),
        dict(os.environ if env is None else env),
    )
    process = _context.Process(target=_become, args=(*what, streams))
    _ensure_server()
    process.start()
    for stream in streams:
        stream.close()
    return Program(process, args, kept)


def run(
    args: Sequence[str],
    cwd: str | os.PathLike | None = None,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    stdin: int | None = None,
    capture_output: bool = False,
    text: bool = True,
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess:
    """Runs a program to its end as `subprocess.run` would; see `start`."""
    with tempfile.TemporaryFile("w+") as file:
        if input is not None:
            file.write(input)
            file.seek(0)
            stdin = file.fileno()
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} if capture_output else {}
        program = start(args, cwd, env, stdin, **streams, text=text)
        try:
            out, err = program.communicate(timeout)
        except BaseException:
            program.kill()
            program.wait()
            raise
    done = subprocess.CompletedProcess(program.args, program.wait(), out, err)
    if check:
        done.check_returncode()
    return done


def _ensure_server() -> None:
    """Starts the server in the root, where it finds `tests.preloaded`."""
    before = os.getcwd()
    os.chdir(_ROOT)
    try:
        forkserver.ensure_running()
    finally:
        os.chdir(before)


def _become(args: list[str], cwd: str, env: dict[str, str], streams: Sequence[Connection]) -> None:
    """Turns this copy of the server into a program that has just been started, and runs it."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        os.dup2(streams[number].fileno(), number)
        streams[number].close()
        buffering: dict[str, Any] = {"buffering": 1, "errors": "backslashreplace"}
        stream = open(number, mode, closefd=False, **buffering if number == 2 else {})  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tempfile.tempdir = None
    how, what, *arguments = args
    given = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    elsewhere = [path for path in sys.path if path not in ("", str(_ROOT))]
    sys.path[:] = [cwd if how == "-m" else "", *given, *elsewhere]
    sys.argv = [how, *arguments]
    code: Any = None
    try:
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = type(sys)("__main__")
            exec(compile(what, "<string>", "exec"), main.__dict__)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # To destroy all objects of the imported packages takes a second, and changes no file.
    os._exit(1 if isinstance(code, str) else code or 0)
