"""The Ray actor of a node, which computes slices of rounds.

It uses a private TFF worker, or TensorFlow in its own process, on a GPU if Ray has given it one.
"""

import hashlib
import os
import shutil
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import tensorflow_federated as tff

from tff_ssl.errors import ClientFailedError, WorkerLostError
from tff_ssl.runtime import devices, in_process, local_worker, slices, temporary_folder
from tff_ssl.runtime.slices import Partial, Slice
from tff_ssl.simulation import dropouts

_WORKER_SECONDS = 4.0  # Time limit of the TFF worker's answer.
_CHUNK_BYTES = 1 << 22


class Facts(NamedTuple):
    """A node's description of itself after its start."""

    host: str  #: Name of its machine.
    pid: int  #: Process id of the node.
    device: str  #: What it computes on, such as "CPU" or a GPU's name.
    worker_pid: int  #: `relay_pid` of its `local_worker.LocalWorker`; `pid` if it has none.
    open_port: int | None  #: `open_port` of its `local_worker.LocalWorker`; None if it has none.
    #: Path -> SHA-256 of the file, hexadecimal; None if it is missing.
    digests: dict[str, str | None]


def digest(path: str) -> str | None:
    """The SHA-256 of a file, hexadecimal; None if it cannot be read."""
    hashed = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                hashed.update(chunk)
    except OSError:
        return None
    return hashed.hexdigest()


def _take_share_of_cores(number: int, nodes: int) -> None:
    """Restricts this process and its worker to the cores of node `number`."""
    cores = sorted(os.sched_getaffinity(0))[number::nodes]
    if cores:
        os.sched_setaffinity(0, cores)


class _OwnProcess:
    """TensorFlow in the node's process, with the members of a `local_worker.LocalWorker`."""

    open_port = None

    def __init__(self, max_concurrent_calls: int | None):
        self._running = in_process.InProcess(max_concurrent_calls)
        self.context = self._running.context
        self.relay_pid = os.getpid()
        self.folder = str(temporary_folder.use())

    def answers(self, seconds: float) -> bool:
        return True

    def kill(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        self._running.close()
        self.kill()


class Actor:
    """A node, which Ray runs in a process of its own."""

    def __init__(
        self,
        share: tuple[int, int],
        max_concurrent_calls: int | None,
        call_seconds: float | None,
        require_private: bool | None = None,
        own_process: bool = False,
        deterministic: bool = False,
    ):
        """Starts the TFF worker, see `local_worker.LocalWorker`.

        `share` is (number of the node from 0, number of nodes on this machine). With `own_process`,
        TensorFlow computes in this process instead, with `deterministic` so that results of a GPU
        repeat bit for bit.
        """
        _take_share_of_cores(*share)
        self._device = "CPU"
        self._worker: local_worker.LocalWorker | _OwnProcess
        if own_process:
            self._device = str(devices.find_gpu() or "CPU")
            if deterministic:
                devices.use_deterministic_algorithms()
            self._worker = _OwnProcess(max_concurrent_calls)
        else:
            # Ray runs this in the main thread; the worker ends with the thread that starts it.
            self._worker = local_worker.LocalWorker(
                max_concurrent_calls, call_seconds=call_seconds, require_private=require_private
            )
        self._programs: dict[bytes, Any] = {}

    def start(self, files: Sequence[str]) -> Facts:
        """The node's description, with the digests of these files."""
        return Facts(
            socket.gethostname(),
            os.getpid(),
            self._device,
            self._worker.relay_pid,
            self._worker.open_port,
            {path: digest(path) for path in files},
        )

    def ping(self) -> None:
        """Returns if the TFF worker answers; otherwise this node ends."""
        if not self._worker.answers(_WORKER_SECONDS):
            self._end()

    def work(self, program: bytes, state: bytes, part: Slice) -> Partial | ClientFailedError:
        """Computes a slice with a serialized program (`slices.with_files`) and the server's state.

        A client's failure is returned instead of raised: the round may continue without the client.
        """
        key = hashlib.sha256(program).digest()
        if key not in self._programs:
            self._programs[key] = slices.deserialize(program)
        try:
            with tff.framework.get_context_stack().install(self._worker.context):
                return slices.work_on_slice(self._programs[key], state, part, self._worker.folder)
        except WorkerLostError:
            self._end()  # Another node takes the slice.
        except OSError:
            # The scratch files are in the folder of the worker, which is deleted with it.
            if not self._worker.answers(_WORKER_SECONDS):
                self._end()
            raise
        except dropouts.CLIENT_ERRORS as error:
            return ClientFailedError(dropouts.first_line(error))

    def close(self) -> None:
        self._worker.close()

    def _end(self) -> NoReturn:
        """Ends this node and its TFF worker, which would stay behind if it were frozen."""
        self._worker.kill()
        os._exit(1)
