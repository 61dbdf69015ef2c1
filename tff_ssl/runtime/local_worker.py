"""A private TFF worker that ends with this process."""

import collections
import contextlib
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2, executor_pb2_grpc

from tff_ssl.errors import ClientTimeoutError, ConfigurationError, WorkerLostError
from tff_ssl.runtime import REQUIRE_PRIVATE_WORKER
from tff_ssl.runtime.compiling import contexts

_LOG = logging.getLogger(__name__)
_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 2000),  # Two minutes otherwise.
)  # fmt: skip
_RECONNECT_SECONDS = 60
_LOG_TAIL_BYTES = 2000
_SOCKET_NAME = "worker.sock"


class LocalWorker:
    """A TFF worker process, and the execution contexts that use it.

    Attributes:
      context: A `tff.framework.SyncExecutionContext`.
      federated_context: A `tff.program.NativeFederatedContext`, for programs of `tff.program`.
      open_port: The TCP port on which anyone on the network can reach the worker if the system
        forbids a private network; otherwise None.
      relay_pid: Process id of the relay, the worker's parent.
      folder: Path of the socket's folder, which only this user can open. It is deleted with its
        content when the worker ends.
    """

    def __init__(
        self,
        max_concurrent_calls: int | None = None,
        allow_private: bool = True,
        call_seconds: float | None = None,
        require_private: bool | None = None,
    ):
        """Starts the worker.

        Args:
          max_concurrent_calls: Number of clients of a round that may compute at the same time; four
            per core if None, all of them if -1.
          allow_private: Whether to try a private network; False acts as if namespaces were
            forbidden.
          call_seconds: Time limit of a computation in seconds; None for no limit. A computation
            that takes longer raises a `ClientTimeoutError`, and the worker is restarted, since the
            computation may keep it busy forever.
          require_private: Whether to refuse an open port where the system forbids namespaces; if
            None, the environment variable `REQUIRE_PRIVATE_WORKER` decides.

        Raises:
          ConfigurationError: If the system forbids namespaces and `require_private` is True.
          OSError: If the worker cannot be started.
        """
        self._allow_private = allow_private
        if require_private is None:
            require_private = private_is_required()
        self._require_private = require_private
        calls = max_concurrent_calls or 4 * (os.cpu_count() or 1)
        self._flags = [
            f"--max_concurrent_computation_calls={calls}",
            "--grpc_max_message_length_megabytes=2000",
        ]
        self._restarting = threading.Lock()
        self.folder = tempfile.mkdtemp(prefix="tff_ssl_worker_")
        # A socket's address has at most 107 bytes, and gRPC interprets `%` and `?` in it. Through
        # the open folder, the address is short and plain whatever the folder's name is.
        self._open_folder = os.open(self.folder, os.O_RDONLY)
        # The file is unlinked at once and kept open, so it needs no clean-up.
        with tempfile.NamedTemporaryFile(delete=False) as log:
            self._log = open(log.name, "rb+")  # noqa: SIM115
        os.unlink(log.name)
        self.open_port: int | None = None
        try:
            self._start()
            self._channel = grpc.insecure_channel(
                f"unix:/proc/self/fd/{self._open_folder}/{_SOCKET_NAME}", _CHANNEL_OPTIONS
            )
        except BaseException:
            os.close(self._open_folder)
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        detector = _FailureDetector(self, call_seconds)
        self._factory = _RenewableFactory(grpc.intercept_channel(self._channel, detector))
        self.context, self.federated_context = contexts(
            self._factory,
            transform_args=tff.tensorflow.transform_args,
            transform_result=tff.tensorflow.transform_result,
        )

    @property
    def relay_pid(self) -> int:
        return self._relay.pid

    @property
    def _socket(self) -> str:
        return os.path.join(self.folder, _SOCKET_NAME)

    def _start(self) -> None:
        answer = self._start_relay("private") if self._allow_private else "forbidden on request"
        if answer == "ready":
            return
        reason = answer.removeprefix("forbidden ")
        # Only a system that forbids a private network justifies an open port.
        if answer.startswith("forbidden "):
            if self._require_private:
                raise ConfigurationError(
                    f"--require_private_worker: this system forbids a private network ({reason}); "
                    "allow user namespaces"
                )
            answer = self._start_relay("open")
        if not answer.startswith("ready"):
            raise OSError(f"TFF's worker did not start: {answer}; {self._log_tail()}")
        self.open_port = int(answer.split()[1])
        _LOG.warning(
            "TFF's worker could not be given a private network (%s): until this run ends, "
            "anyone who reaches TCP port %d of this machine can run computations and read "
            "files as you. Block that port, or allow user namespaces.",
            reason,
            self.open_port,
        )

    def restart(self) -> None:
        """Ends the worker, even during a computation, and starts another one in its place."""
        with self._restarting:
            self._relay.kill()  # The worker ends with it.
            self._wait_for_relay()
            pathlib.Path(self._socket).unlink(missing_ok=True)
            self._start()
            # A call that met no worker lets the channel wait before it connects again, and others
            # would fail meanwhile.
            if not self._is_reached(_RECONNECT_SECONDS, wait_for_ready=True):
                raise WorkerLostError(self.failure_message())
            self._factory.renew()

    def _wait_for_relay(self) -> None:
        self._relay.wait()
        for pipe in (self._relay.stdin, self._relay.stdout):
            assert pipe is not None
            pipe.close()

    def _start_relay(self, mode: str) -> str:
        """Starts the relay, which starts the worker; returns the line that the relay prints."""
        relay = pathlib.Path(__file__).with_name("worker_relay.py")
        binary = pathlib.Path(tff.__file__).parent / "data" / "worker_binary"
        self._relay = subprocess.Popen(
            [sys.executable, "-I", str(relay), self._socket, mode, str(binary), *self._flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "1"},
            # Ctrl-C must reach only this process, which then ends the worker.
            start_new_session=True,
        )
        assert self._relay.stdout is not None
        answer = self._relay.stdout.readline().strip()
        if not answer.startswith("ready"):
            self._relay.wait()
        return answer or "failed without a word"

    def _log_tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace").strip()

    def failure_message(self) -> str:
        """The message for a worker that ended, with the last line of its log."""
        tail = self._log_tail().splitlines()
        last = f" Last log line: {tail[-1]}" if tail else ""
        return f"TFF's worker ended in the middle of a computation (out of memory?).{last}"

    def answers(self, seconds: float) -> bool:
        """Whether the worker, after any restart in progress, answers a request within this time."""
        with self._restarting:
            return self._is_reached(seconds)

    def _is_reached(self, seconds: float, wait_for_ready: bool = False) -> bool:
        stub = executor_pb2_grpc.ExecutorGroupStub(self._channel)
        # No executor has this id; any answer, even an error, shows that the worker is alive.
        unknown = executor_pb2.DisposeExecutorRequest(executor=executor_pb2.ExecutorId(id="nobody"))
        try:
            stub.DisposeExecutor(unknown, timeout=seconds, wait_for_ready=wait_for_ready)
        except grpc.RpcError as error:
            no_answer = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
            return error.code() not in no_answer
        return True

    def kill(self) -> None:
        """Ends the worker even if it is frozen; only for a process that ends right afterwards."""
        self._relay.kill()  # The system then ends the worker.
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the worker, waits for its end and deletes its folder."""
        self._channel.close()
        assert self._relay.stdin is not None
        self._relay.stdin.close()
        self._wait_for_relay()
        self._log.close()
        os.close(self._open_folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def private_is_required() -> bool:
    """Whether the environment forbids workers to listen on an open port."""
    return os.environ.get(REQUIRE_PRIVATE_WORKER) == "1"


class _FailureDetector(grpc.UnaryUnaryClientInterceptor):
    """Raises an error if the worker is too slow, or has ended and TFF would wait forever."""

    def __init__(self, worker: LocalWorker, call_seconds: float | None):
        self._worker = worker
        self._call_seconds = call_seconds

    def intercept_unary_unary(self, continuation, client_call_details, request):
        details = client_call_details._replace(timeout=self._call_seconds)
        call = continuation(details, request)
        if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            self._worker.restart()
            raise ClientTimeoutError(
                f"a computation took longer than {self._call_seconds:g} s (--round_timeout)"
            )
        if call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION):
            raise WorkerLostError(self._worker.failure_message())
        return call


class _Stub(tff.framework.RemoteExecutorGrpcStub):
    """TFF's stub for values that may outlive their worker, as is common at a program's end."""

    def dispose(self, request):
        # A closed channel raises ValueError.
        with contextlib.suppress(ValueError, WorkerLostError):
            super().dispose(request)


class _Executor(tff.framework.RemoteExecutor):
    """Sends a computation once instead of in every call; a round has megabytes of graphs."""

    _MOST_COMPUTATIONS = 8

    def __init__(self, stub: tff.framework.RemoteExecutorStub, dispose_batch_size: int):
        super().__init__(stub, dispose_batch_size)
        self._sent: collections.OrderedDict[int, tuple[Any, Any]] = collections.OrderedDict()

    async def create_value(self, value: Any, type_spec: Any = None) -> Any:
        if not isinstance(value, tff.Computation):
            return await super().create_value(value, type_spec)
        if id(value) not in self._sent:
            # Keeping the computation prevents the reuse of its id.
            self._sent[id(value)] = (value, await super().create_value(value, type_spec))
            if len(self._sent) > self._MOST_COMPUTATIONS:
                self._sent.popitem(last=False)
        return self._sent[id(value)][1]


class _RenewableFactory(tff.framework.ExecutorFactory):
    """Creates executors on the worker behind a channel; `renew` follows a restart of the worker."""

    def __init__(self, channel: grpc.Channel):
        self._stub = _Stub(channel)
        self.renew()

    def renew(self) -> None:
        """Forgets all executors, since a new worker does not know them."""
        self._factory = tff.framework.ResourceManagingExecutorFactory(self._remote_executor)

    def _remote_executor(self, cardinalities):
        # By default, the worker would keep up to 20 unused values.
        remote = _Executor(self._stub, dispose_batch_size=1)
        remote.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
        return remote

    def create_executor(self, cardinalities):
        return self._factory.create_executor(cardinalities)

    def clean_up_executor(self, cardinalities):
        self._factory.clean_up_executor(cardinalities)


@contextlib.contextmanager
def start(
    max_concurrent_calls: int | None = None,
    allow_private: bool = True,
    call_seconds: float | None = None,
    require_private: bool | None = None,
) -> Iterator[LocalWorker]:
    """Runs the TFF computations of the `with` block on a private TFF worker; see `LocalWorker`.

    The worker ends with the block, or with this process if that ends first, however it ends.

    Raises:
      ConfigurationError: If the system forbids namespaces and `require_private` is True.
      OSError: If the worker cannot be started.
      RuntimeError: If this is not called from the main thread: the worker ends with the thread
        that starts it.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start the worker from the main thread")
    worker = LocalWorker(max_concurrent_calls, allow_private, call_seconds, require_private)
    try:
        with tff.framework.get_context_stack().install(worker.context):
            yield worker
    finally:
        worker.close()
