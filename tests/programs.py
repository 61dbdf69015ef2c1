"""Starts Python programs in a copy of a process that has imported TensorFlow and TFF already.

These imports take about five seconds of processor time, and the tests start hundreds of scripts. A
server imports once, and makes a copy of itself (`fork`) for each program. The program then runs as
with `python -m` or `python -c`: its own process, arguments, environment, folder and streams. What
tests of the interpreter itself need, such as its options and the order of imports, takes
`subprocess`.

`run` and `start` have the arguments of `subprocess.run` and `subprocess.Popen`, as far as the tests
need them.
"""

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import IO, Any

# What nearly all programs import. Scripts are not among it, because importing them defines flags.
_IMPORTS = (
    "tensorflow", "tensorflow_federated", "tff_ssl.algorithms.registry",
    "tff_ssl.runtime.local_worker", "launch.runs.federated", "launch.pages.run_page",
    "sklearn.linear_model", "sklearn.manifold", "sklearn.neighbors",
)  # fmt: skip
_MOST_BYTES = 2**20  # of a request
_lock = threading.Lock()
_server: socket.socket | None = None


class Program:
    """A running program, with the part of `subprocess.Popen` that the tests need.

    Attributes:
      args: Command line.
      pid: Process id.
      returncode: Exit code, or minus the number of the signal that ended the program; None while it
        runs.
      stdout: Its output if it is a pipe, else None; `stderr` likewise.
    """

    def __init__(self, args: Sequence[str], request: Mapping[str, Any], streams: Sequence[int]):
        self.args = list(args)
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._status, theirs = socket.socketpair()
        with _lock, theirs:
            message = json.dumps(request).encode()
            socket.send_fds(_running_server(), [message], [*streams, theirs.fileno()])
        self.pid = int(self._status.recv(64))

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._wait(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(self._status.recv(64))
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str | None, str | None]:
        """Waits for the end, and returns what is left of both streams."""
        texts: list[str | None] = [None, None]

        def read(i: int, stream: IO[str]) -> None:
            texts[i] = stream.read()

        readers = [
            threading.Thread(target=read, args=(i, stream))
            for i, stream in enumerate((self.stdout, self.stderr))
            if stream is not None
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return texts[0], texts[1]


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
        `subprocess.PIPE`, and `stderr` may be `subprocess.STDOUT`.
      text: Is there for the likeness to `subprocess.Popen`; it must be True.
    """
    assert args[0] == sys.executable, args
    assert args[1] in ("-m", "-c"), args
    assert text
    request = {
        "args": list(map(str, args[1:])),
        "cwd": str(cwd or os.getcwd()),
        "env": dict(os.environ if env is None else env),
    }
    theirs: list[int] = []
    to_close: list[int] = []
    pipes: dict[str, int] = {}
    for name, value, own in (("stdin", stdin, 0), ("stdout", stdout, 1), ("stderr", stderr, 2)):
        if value == subprocess.PIPE:
            pipes[name], descriptor = os.pipe()
            to_close.append(descriptor)
        elif value == subprocess.DEVNULL:
            descriptor = os.open(os.devnull, os.O_RDWR)
            to_close.append(descriptor)
        elif value == subprocess.STDOUT:
            descriptor = theirs[1]
        else:
            descriptor = own if value is None else value
        theirs.append(descriptor)
    try:
        program = Program(args, request, theirs)
    finally:
        for descriptor in to_close:
            os.close(descriptor)
    for name, descriptor in pipes.items():
        setattr(program, name, open(descriptor))  # noqa: SIM115
    return program


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


def _running_server() -> socket.socket:
    """The connection to the server of this process, which ends with it."""
    global _server
    if _server is None:
        _server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for connection in (_server, theirs):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.programs", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(_end, _server, process)
    return _server


def _end(connection: socket.socket, process: subprocess.Popen) -> None:
    connection.close()
    process.wait()


def _serve(connection: socket.socket) -> Mapping[str, Any] | None:
    """Starts programs until the connection is closed.

    Returns:
      In a copy, the request that it has to carry out; in the server itself, None at the end.
    """
    wake_up, interrupted = os.pipe()
    os.set_blocking(interrupted, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(interrupted, warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while True:
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with running.pop(pid) as report:
                    _tell(report, os.waitstatus_to_exitcode(status))
        ready = select.select([connection, wake_up], [], [])[0]
        if wake_up in ready:
            os.read(wake_up, 4096)
        if connection not in ready:
            continue
        message, ancillary, _, _ = connection.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(4 * 4))
        if not message:
            return None
        descriptors = array.array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data)
        report = socket.socket(fileno=descriptors[3])
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (0, 1, 2):
                os.dup2(descriptors[number], number)
            own = {*descriptors[:3], wake_up, interrupted}
            for descriptor in own - {0, 1, 2}:
                os.close(descriptor)
            for opened in (connection, report, *running.values()):
                opened.close()
            return json.loads(message)
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        running[pid] = report
        _tell(report, pid)


def _tell(report: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # Nobody waits for this program.
        report.send(str(number).encode())


def _become(request: Mapping[str, Any]) -> None:
    """Turns this copy into a program that has just been started, and runs it."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = open(number, mode, closefd=False, **_BUFFERING.get(name, {}))  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tempfile.tempdir = None
    random.seed()
    sys.modules["numpy"].random.seed()
    how, what, *arguments = request["args"]
    sys.path[0] = request["cwd"] if how == "-m" else ""
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
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # To destroy all objects of the imported packages takes a second, and changes no file.
    os._exit(1 if isinstance(code, str) else code or 0)


_BUFFERING: dict[str, dict[str, Any]] = {"stderr": {"buffering": 1, "errors": "backslashreplace"}}


def _main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _IMPORTS:
            importlib.import_module(name)
    gc.freeze()  # The collector then copies no pages in the programs.
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        request = _serve(connection)
    if request is not None:
        _become(request)


if __name__ == "__main__":
    _main()
