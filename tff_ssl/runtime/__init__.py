"""Where TFF computations run: this process, the private local worker, and nodes of Ray."""

import contextlib
from typing import Any, Literal

from tff_ssl.errors import ConfigurationError

# Environment variable that --require_private_worker sets for this process and its children: with
# the value 1, workers end with an error instead of listening on an open port.
REQUIRE_PRIVATE_WORKER = "TFF_SSL_REQUIRE_PRIVATE_WORKER"


def start(
    runtime: Literal["auto", "worker", "in_process"] = "auto",
    max_concurrent_calls: int | None = None,
    call_seconds: float | None = None,
) -> contextlib.AbstractContextManager[Any]:
    """Runs the TFF computations of a `with` block, those of `build_algorithm` and any others.

    >>> import numpy as np, tensorflow_federated as tff, tff_ssl
    >>> double = tff.tensorflow.computation(lambda x: 2 * x, np.int32)
    >>> with tff_ssl.runtime.start():
    ...     doubled = double(21)
    >>> int(doubled)
    42

    The block's variable has two contexts of TFF: `context`, which the block installs, and
    `federated_context` for programs of `tff.program`. At the end, the context of before is back.

    Args:
      runtime: `in_process`, this process, on a GPU if TensorFlow has one (`in_process.start`);
        `worker`, a process of its own on the CPU (`local_worker.start`); or `auto`, which is
        `worker` with `call_seconds`, and otherwise `in_process`.
      max_concurrent_calls: Number of clients that may compute at the same time; None for a number
        that fits the cores.
      call_seconds: Time limit of a computation in seconds, which only a worker can keep; None for
        no limit.

    Raises:
      ConfigurationError: If the runtime cannot do what is asked for.
    """
    from tff_ssl.runtime import in_process, local_worker

    if runtime == "auto":
        runtime = "in_process" if call_seconds is None else "worker"
    if runtime == "worker":
        return local_worker.start(max_concurrent_calls, call_seconds=call_seconds)
    if runtime != "in_process" or call_seconds is not None:
        raise ConfigurationError(
            f"runtime={runtime!r} with call_seconds={call_seconds}: the runtimes are auto, worker "
            "and in_process, and only a worker can stop a computation"
        )
    return in_process.start(max_concurrent_calls)
