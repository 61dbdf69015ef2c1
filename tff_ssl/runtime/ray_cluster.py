"""Ray itself: a private one of this machine, or a cluster that is there already."""

import contextlib
import importlib.util
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

from tff_ssl.errors import ConfigurationError

_REACH_SECONDS = 10.0


@contextlib.contextmanager
def connected(where: str) -> Iterator[int]:
    """Connects this process to Ray for a `with` block, which gets the nodes that each machine has.

    Args:
      where: `local:N` for a Ray of this machine's own with N nodes, which ends with the block; or
        the address of a Ray cluster, for a node on each of its machines.

    Raises:
      ConfigurationError: If Ray is not installed or not there.
    """
    check(where)
    local = parse(where)
    # Otherwise Ray would pack up this folder and install it anew for each node.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Nodes are the run: Ray would have them wait for everything else on the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if not local:
        _reach(where)
    elif "ray" not in sys.modules:
        # Nobody else, not even on this machine, may run anything here. Ray reads it once.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if local:
        options |= {
            "address": "local",
            "num_cpus": local,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        }
    else:
        options["address"] = where
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except Exception as error:  # Ray raises many kinds.
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        what = "start" if local else "answer"
        raise ConfigurationError(f"--ray={where}: Ray did not {what} ({first})") from error
    signal.signal(signal.SIGTERM, on_sigterm)  # Ray has set its own.
    try:
        yield local or 1
    finally:
        ray.shutdown()


def check(where: str) -> None:
    """Complains about what can be seen to be wrong before anything starts.

    Raises:
      ConfigurationError: See `parse`; or if Ray is not installed.
    """
    parse(where)
    if importlib.util.find_spec("ray") is None:
        raise ConfigurationError(f"--ray={where} needs the extra of that name: uv sync --extra ray")


def _reach(where: str) -> None:
    """Complains where nothing listens: Ray itself would wait for minutes."""
    host, _, port = where.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except OSError as error:
        raise ConfigurationError(f"--ray={where}: nothing answers there ({error})") from error


def parse(where: str) -> int:
    """N of `local:N`; 0 for an address.

    Raises:
      ConfigurationError: If it is neither.
    """
    host, _, number = where.rpartition(":")
    if not host or not number.isdecimal() or int(number) < 1:
        raise ConfigurationError(
            "--ray takes local:N with N nodes, at least 1, or the address of a Ray cluster such as "
            f"10.0.0.1:6379; got {where!r}"
        )
    return int(number) if host == "local" else 0
