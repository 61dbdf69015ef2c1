"""Where TFF computations run: a local worker that nobody else can reach and that dies with us."""

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

import grpc
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2, executor_pb2_grpc

from tff_ssl.errors import WorkerLostError

_LOG = logging.getLogger(__name__)
_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
_LOG_TAIL_BYTES = 2000


class LocalWorker:
    """A TFF worker process, and the execution context that uses it.

    Attributes:
      context: A `tff.framework.SyncExecutionContext`.
      federated_context: A `tff.program.NativeFederatedContext`, for programs of `tff.program`.
      open_port: The TCP port on which anyone on the network can reach the worker, where the system
        forbids a private network; else None.
      relay_pid: The process that holds the worker.
    """

    def __init__(self, max_concurrent_calls: int | None = None, allow_private: bool = True):
        """Starts the worker.

        Args:
          max_concurrent_calls: How many clients of a round may compute at the same time; four a
            core if None, -1 for all.
          allow_private: False starts the worker as if the system forbade namespaces.

        Raises:
          OSError: If the worker cannot be started.
        """
        calls = max_concurrent_calls or 4 * (os.cpu_count() or 1)
        self._flags = [
            f"--max_concurrent_computation_calls={calls}",
            "--grpc_max_message_length_megabytes=2000",
        ]
        self._folder = tempfile.mkdtemp(prefix="tff_ssl_worker_")
        # Open at once, unlinked at once: the text is there to be read as long as we live.
        with tempfile.NamedTemporaryFile(delete=False) as log:
            self._log = open(log.name, "rb+")  # noqa: SIM115
        os.unlink(log.name)
        self.open_port: int | None = None
        try:
            answer = self._start("private") if allow_private else "failed on request"
            if answer != "ready":
                reason = answer
                answer = self._start("open")
                if not answer.startswith("ready"):
                    raise OSError(f"TFF's worker did not start: {answer}; {self._log_tail()}")
                self.open_port = int(answer.split()[1])
                _LOG.warning(
                    "TFF's worker could not be given a private network (%s): until this run ends, "
                    "anyone who reaches TCP port %d of this machine can run computations and read "
                    "files as you. Block that port, or allow user namespaces.",
                    reason.removeprefix("failed "),
                    self.open_port,
                )
            self._channel = grpc.insecure_channel(f"unix:{self._socket}", _CHANNEL_OPTIONS)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        factory = _executor_factory(grpc.intercept_channel(self._channel, _LossDetector(self)))
        self.context = tff.framework.SyncExecutionContext(factory, **_NATIVE)
        self.federated_context = tff.program.NativeFederatedContext(
            tff.framework.AsyncExecutionContext(factory, **_NATIVE)
        )

    @property
    def relay_pid(self) -> int:
        return self._relay.pid

    @property
    def _socket(self) -> str:
        return os.path.join(self._folder, "worker.sock")

    def _start(self, mode: str) -> str:
        relay = pathlib.Path(__file__).with_name("worker_relay.py")
        binary = pathlib.Path(tff.__file__).parent / "data" / "worker_binary"
        self._relay = subprocess.Popen(
            [sys.executable, "-I", str(relay), self._socket, mode, str(binary), *self._flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "1"},
            # Not in our process group: Ctrl-C is for us, who then end the worker.
            start_new_session=True,
        )
        assert self._relay.stdout is not None
        answer = self._relay.stdout.readline().strip()
        if not answer.startswith("ready"):
            self._relay.wait()
            return answer or "failed without a word"
        return answer

    def _log_tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace").strip()

    def describe_loss(self) -> str:
        """What is known of a worker that no longer answers."""
        tail = self._log_tail().splitlines()
        last = f" Its last words: {tail[-1]}" if tail else ""
        return f"TFF's worker ended in the middle of a computation (out of memory?).{last}"

    def answers(self, seconds: float) -> bool:
        """Whether the worker says anything within that time; a frozen one does not."""
        stub = executor_pb2_grpc.ExecutorGroupStub(self._channel)
        nobody = executor_pb2.DisposeExecutorRequest(executor=executor_pb2.ExecutorId(id="nobody"))
        try:
            stub.DisposeExecutor(nobody, timeout=seconds)
        except grpc.RpcError as error:
            silent = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
            return error.code() not in silent
        return True

    def kill(self) -> None:
        """Ends the worker even if it is frozen; only from a process that ends at once."""
        self._relay.kill()  # With which the system ends the worker.
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the worker and waits for its end."""
        self._channel.close()
        assert self._relay.stdin is not None
        self._relay.stdin.close()
        self._relay.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _LossDetector(grpc.UnaryUnaryClientInterceptor):
    """Fails a call when the worker is gone, which TFF's own stub would repeat for ever."""

    def __init__(self, worker: LocalWorker):
        self._worker = worker

    def intercept_unary_unary(self, continuation, client_call_details, request):
        call = continuation(client_call_details, request)
        if call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION):
            raise WorkerLostError(self._worker.describe_loss())
        return call


class _NoWorker(tff.framework.SyncContext):
    """Where computations go outside of `local_worker`.

    TFF's own default would start a worker that listens on all interfaces and outlives the program.
    """

    def invoke(self, comp, arg):
        raise RuntimeError("run TFF computations inside `with execution.local_worker():`")


tff.framework.get_context_stack().set_default_context(_NoWorker())


# How TFF compiles for its own runtime, and turns values into tensors and back.
_NATIVE = {
    "compiler_fn": tff.backends.native.desugar_and_transform_to_native,
    "transform_args": tff.tensorflow.transform_args,
    "transform_result": tff.tensorflow.transform_result,
}


def _executor_factory(channel: grpc.Channel) -> tff.framework.ExecutorFactory:
    stub = tff.framework.RemoteExecutorGrpcStub(channel)

    def executor(cardinalities):
        remote = tff.framework.RemoteExecutor(stub)
        remote.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
        return remote

    return tff.framework.ResourceManagingExecutorFactory(executor)


@contextlib.contextmanager
def local_worker(
    max_concurrent_calls: int | None = None, allow_private: bool = True
) -> Iterator[LocalWorker]:
    """Runs the TFF computations of the `with` block on a private local worker.

    The worker is gone after the block, and after any other end of this process.

    Args:
      max_concurrent_calls: See `LocalWorker`.
      allow_private: See `LocalWorker`.

    Raises:
      OSError: If the worker cannot be started.
      RuntimeError: If called from another thread than the main one, with whose end the system
        would end the worker.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start the worker from the main thread")
    worker = LocalWorker(max_concurrent_calls, allow_private)
    try:
        with tff.framework.get_context_stack().install(worker.context):
            yield worker
    finally:
        worker.close()
