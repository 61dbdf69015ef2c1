"""What runs on a node of Ray: a private TFF worker, and slices of rounds on it."""

import hashlib
import os
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import tensorflow_federated as tff

from tff_ssl.errors import ClientFailedError, WorkerLostError
from tff_ssl.runtime import local_worker, slices
from tff_ssl.runtime.slices import Partial, Slice
from tff_ssl.simulation import dropouts

_WORKER_SECONDS = 4.0  # For the TFF worker's answer.
_CHUNK_BYTES = 1 << 22


class Facts(NamedTuple):
    """What a node says of itself when it has started.

    Attributes:
      host: Its machine's name.
      pid: Of its process.
      worker_pid: Of the process that holds its TFF worker.
      open_port: See `local_worker.LocalWorker`.
      digests: SHA-256 of each file; None where it is missing.
    """

    host: str
    pid: int
    worker_pid: int
    open_port: int | None
    digests: dict[str, str | None]


def digest(path: str) -> str | None:
    """SHA-256 of a file; None if it cannot be read."""
    hashed = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                hashed.update(chunk)
    except OSError:
        return None
    return hashed.hexdigest()


def _take_share_of_cores(number: int, nodes: int) -> None:
    """Otherwise each node's worker would have a thread for every core."""
    if hasattr(os, "sched_setaffinity"):  # Linux.
        mine = sorted(os.sched_getaffinity(0))[number::nodes]
        if mine:
            os.sched_setaffinity(0, mine)


class Actor:
    """A node: what Ray runs in a process of its own."""

    def __init__(
        self, share: tuple[int, int], max_concurrent_calls: int | None, call_seconds: float | None
    ):
        """Starts the TFF worker.

        Args:
          share: (k, n): it is the k-th, from 0, of n nodes that share this machine's cores.
          max_concurrent_calls: See `local_worker.LocalWorker`.
          call_seconds: See `local_worker.LocalWorker`.
        """
        _take_share_of_cores(*share)
        # Here, in the main thread: the worker ends with the thread that starts it.
        self._worker = local_worker.LocalWorker(max_concurrent_calls, call_seconds=call_seconds)
        self._programs: dict[bytes, Any] = {}

    def start(self, files: Sequence[str]) -> Facts:
        return Facts(
            socket.gethostname(),
            os.getpid(),
            self._worker.relay_pid,
            self._worker.open_port,
            {path: digest(path) for path in files},
        )

    def ping(self) -> None:
        """Answers if the TFF worker does; else there is no node any more."""
        if not self._worker.answers(_WORKER_SECONDS):
            self._end()

    def work(self, program: bytes, state: bytes, part: Slice) -> Partial | ClientFailedError:
        """A slice's result; a failure of one of its clients is returned, for it may be borne."""
        key = hashlib.sha256(program).digest()
        if key not in self._programs:
            self._programs[key] = slices.deserialize(program)
        try:
            with tff.framework.get_context_stack().install(self._worker.context):
                return slices.work_on_slice(self._programs[key], state, part, self._worker.folder)
        except WorkerLostError:
            self._end()  # Another node does it.
        except OSError:
            if not self._worker.answers(_WORKER_SECONDS):
                self._end()  # Its folder goes with the worker.
            raise
        except dropouts.CLIENT_ERRORS as error:
            return ClientFailedError(dropouts.first_line(error))

    def close(self) -> None:
        """Ends the TFF worker, with its folder."""
        self._worker.close()

    def _end(self) -> NoReturn:
        """Ends this node; a frozen TFF worker would stay behind."""
        self._worker.kill()
        os._exit(1)
