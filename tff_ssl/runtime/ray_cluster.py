"""Connections to Ray: a private instance on this machine, or an existing cluster."""

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

_CONNECT_SECONDS = 10.0


@contextlib.contextmanager
def connected(address: str) -> Iterator[int]:
    """Connects this process to Ray for a `with` block.

    Args:
      address: `local:N` for a private Ray instance on this machine with N nodes, which ends with
        the block; or the address of a Ray cluster, for one node on each of its machines.

    Yields:
      The number of nodes per machine.

    Raises:
      ConfigurationError: If Ray is not installed, does not start or cannot be reached.
    """
    check(address)
    local_nodes = parse(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray would pack the working folder and install it again for each node.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # By default, Ray would give the nodes a lower priority than all other processes.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if not local_nodes:
        _check_reachable(address)
    elif "ray" not in sys.modules:
        # The token keeps everybody else out, also on this machine. Ray reads it only once.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if local_nodes:
        options |= {
            "address": "local",
            "num_cpus": local_nodes,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        }
    else:
        options["address"] = address
    sigterm_handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except Exception as error:  # Ray raises errors of many types.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        verb = "start" if local_nodes else "answer"
        raise ConfigurationError(f"--ray={address}: Ray did not {verb} ({reason})") from error
    signal.signal(signal.SIGTERM, sigterm_handler)  # Ray has replaced the handler.
    try:
        yield local_nodes or 1
    finally:
        ray.shutdown()


def check(address: str) -> None:
    """Checks an address before a connection is made.

    Args:
      address: See `connected`.

    Raises:
      ConfigurationError: If the address is malformed, or Ray is not installed.
    """
    parse(address)
    if importlib.util.find_spec("ray") is None:
        raise ConfigurationError(
            f"--ray={address} needs the extra of that name: uv sync --extra ray"
        )


def _check_reachable(address: str) -> None:
    """Raises a `ConfigurationError` if nothing listens there; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigurationError(f"--ray={address}: nothing answers there ({error})") from error


def parse(address: str) -> int:
    """The number of nodes N of `local:N`; 0 for the address of a cluster.

    Raises:
      ConfigurationError: If the text is neither of them.
    """
    host, _, number = address.rpartition(":")
    if not host or not number.isdecimal() or int(number) < 1:
        raise ConfigurationError(
            "--ray takes local:N with N nodes, at least 1, or the address of a Ray cluster such as "
            f"10.0.0.1:6379; got {address!r}"
        )
    return int(number) if host == "local" else 0
