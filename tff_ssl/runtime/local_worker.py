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

from tff_ssl.errors import ClientTimeoutError, WorkerLostError

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
      folder: Of the socket, for this user alone; it goes with the worker, whatever is in it.
    """

    def __init__(
        self,
        max_concurrent_calls: int | None = None,
        allow_private: bool = True,
        call_seconds: float | None = None,
    ):
        """Starts the worker.

        Args:
          max_concurrent_calls: How many clients of a round may compute at the same time; four a
            core if None, -1 for all.
          allow_private: False starts the worker as if the system forbade namespaces.
          call_seconds: How long a computation may take; one that takes longer gives a
            `ClientTimeoutError`, and the worker, which it may keep busy for ever, is started anew.
            None for any time.

        Raises:
          OSError: If the worker cannot be started.
        """
        self._allow_private = allow_private
        calls = max_concurrent_calls or 4 * (os.cpu_count() or 1)
        self._flags = [
            f"--max_concurrent_computation_calls={calls}",
            "--grpc_max_message_length_megabytes=2000",
        ]
        self._restarting = threading.Lock()
        self.folder = tempfile.mkdtemp(prefix="tff_ssl_worker_")
        # Open at once, unlinked at once: the text is there to be read as long as we live.
        with tempfile.NamedTemporaryFile(delete=False) as log:
            self._log = open(log.name, "rb+")  # noqa: SIM115
        os.unlink(log.name)
        self.open_port: int | None = None
        try:
            self._start()
            self._channel = grpc.insecure_channel(f"unix:{self._socket}", _CHANNEL_OPTIONS)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        detector = _LossDetector(self, call_seconds)
        self._factory = _RenewableFactory(grpc.intercept_channel(self._channel, detector))
        self.context = tff.framework.SyncExecutionContext(self._factory, **_NATIVE)
        self.federated_context = tff.program.NativeFederatedContext(
            tff.framework.AsyncExecutionContext(self._factory, **_NATIVE)
        )

    @property
    def relay_pid(self) -> int:
        return self._relay.pid

    @property
    def _socket(self) -> str:
        return os.path.join(self.folder, "worker.sock")

    def _start(self) -> None:
        answer = self._start_relay("private") if self._allow_private else "failed on request"
        if answer == "ready":
            return
        reason = answer
        answer = self._start_relay("open")
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

    def restart(self) -> None:
        """Ends the worker, whatever it does, and starts another in its place."""
        with self._restarting:
            self._relay.kill()  # The worker dies with it.
            self._wait_for_relay()
            pathlib.Path(self._socket).unlink(missing_ok=True)
            self._start()
            self._factory.renew()

    def _wait_for_relay(self) -> None:
        self._relay.wait()
        for pipe in (self._relay.stdin, self._relay.stdout):
            assert pipe is not None
            pipe.close()

    def _start_relay(self, mode: str) -> str:
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
        """Whether the worker says anything within that time; a frozen one does not.

        While it is started anew, this waits for it.
        """
        stub = executor_pb2_grpc.ExecutorGroupStub(self._channel)
        nobody = executor_pb2.DisposeExecutorRequest(executor=executor_pb2.ExecutorId(id="nobody"))
        try:
            with self._restarting:
                stub.DisposeExecutor(nobody, timeout=seconds)
        except grpc.RpcError as error:
            silent = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
            return error.code() not in silent
        return True

    def kill(self) -> None:
        """Ends the worker even if it is frozen; only from a process that ends at once."""
        self._relay.kill()  # With which the system ends the worker.
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the worker and waits for its end."""
        self._channel.close()
        assert self._relay.stdin is not None
        self._relay.stdin.close()
        self._wait_for_relay()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class _LossDetector(grpc.UnaryUnaryClientInterceptor):
    """Fails a call when the worker is gone, which TFF's own stub would repeat for ever, or late."""

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
            raise WorkerLostError(self._worker.describe_loss())
        return call


class _NoWorker(tff.framework.SyncContext):
    """Where computations go outside of `local_worker`.

    TFF's own default would start a worker that listens on all interfaces and outlives the program.
    """

    def invoke(self, comp, arg):
        raise RuntimeError("run TFF computations inside `with local_worker.start():`")


tff.framework.get_context_stack().set_default_context(_NoWorker())


def _compile(computation: tff.Computation) -> tff.Computation:
    """For TFF's own runtime, which has no secure sums: in a simulation they are plain ones."""
    return tff.backends.native.desugar_and_transform_to_native(
        tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    )


# How TFF compiles, and turns values into tensors and back.
_NATIVE = {
    "compiler_fn": _compile,
    "transform_args": tff.tensorflow.transform_args,
    "transform_result": tff.tensorflow.transform_result,
}


class _Stub(tff.framework.RemoteExecutorGrpcStub):
    """TFF's own, but values may outlive their worker: at the end of a program they often do."""

    def dispose(self, request):
        with contextlib.suppress(ValueError, WorkerLostError):  # A closed channel, a lost worker.
            super().dispose(request)


class _RenewableFactory(tff.framework.ExecutorFactory):
    """Executors on the worker behind a channel, until that is another one."""

    def __init__(self, channel: grpc.Channel):
        self._stub = _Stub(channel)
        self.renew()

    def renew(self) -> None:
        """Forgets the executors, of which a new worker knows nothing."""
        self._factory = tff.framework.ResourceManagingExecutorFactory(self._executor)

    def _executor(self, cardinalities):
        # By default, the worker keeps the values of several calls until there are 20 to dispose of.
        remote = tff.framework.RemoteExecutor(self._stub, dispose_batch_size=1)
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
) -> Iterator[LocalWorker]:
    """Runs the TFF computations of the `with` block on a private local worker.

    The worker is gone after the block, and after any other end of this process.

    Args:
      max_concurrent_calls: See `LocalWorker`.
      allow_private: See `LocalWorker`.
      call_seconds: See `LocalWorker`.

    Raises:
      OSError: If the worker cannot be started.
      RuntimeError: If called from another thread than the main one, with whose end the system
        would end the worker.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start the worker from the main thread")
    worker = LocalWorker(max_concurrent_calls, allow_private, call_seconds)
    try:
        with tff.framework.get_context_stack().install(worker.context):
            yield worker
    finally:
        worker.close()
