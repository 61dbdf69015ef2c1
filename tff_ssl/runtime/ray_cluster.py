"""Connections to Ray: a private instance on this machine, or an existing cluster."""

import contextlib
import importlib.util
import logging
import os
import pathlib
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

from tff_ssl.errors import ConfigurationError, MissingExtraError
from tff_ssl.runtime import temporary_folder

_CONNECT_SECONDS = 10.0
# Ray's sockets have paths of up to 64 characters in its folder, and the system allows 107.
_LONGEST_FOLDER = 107 - 64
# Seconds after which Ray's agents give up on the server of a killed script; 60 by default.
_AGENT_SECONDS = 4


@contextlib.contextmanager
def connected(address: str) -> Iterator[int]:
    """Connects this process to Ray for a `with` block; yields the number of nodes per machine.

    Args:
      address: `local:N` for a private Ray instance with N nodes on this machine, which ends with
        the block; or the address of a Ray cluster, for one node on each of its machines.

    Raises:
      ConfigurationError: If Ray is not installed, does not start or cannot be reached.
    """
    local_nodes = check(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray would pack the working folder and install it again for each node.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # By default, Ray would give the nodes a lower priority than all other processes.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if not local_nodes:
        _check_reachable(address)
    elif "ray" not in sys.modules:
        # The token keeps everybody else out, even on this machine. Ray reads it only once.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    folder = None
    if local_nodes:
        folder = _session_folder(address)
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(_AGENT_SECONDS))
        options |= {
            "address": "local",
            "_temp_dir": str(folder),
            "num_cpus": local_nodes,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        }
    else:
        options["address"] = address
    sigterm_handler = signal.getsignal(signal.SIGTERM)
    try:
        with _temporary_files_in(folder):
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
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _session_folder(address: str) -> pathlib.Path:
    """The private folder for a local Ray's files; a ConfigurationError if its path is too long."""
    folder = temporary_folder.use() / "ray"
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        raise ConfigurationError(
            f"--ray={address}: the path of the folder for temporary files is too long for Ray's "
            f"sockets ({folder}): set TMPDIR to a shorter one, such as /tmp"
        )
    return folder


@contextlib.contextmanager
def _temporary_files_in(folder: pathlib.Path | None) -> Iterator[None]:
    """Sets TMPDIR for processes that are started in the block, unless the folder is None."""
    if folder is None:
        yield
        return
    folder.mkdir(exist_ok=True)
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


def check(address: str) -> int:
    """The result of `parse`; a ConfigurationError also if Ray is not installed."""
    local_nodes = parse(address)
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError(f"--ray={address}", "ray")
    return local_nodes


def _check_reachable(address: str) -> None:
    """Raises a ConfigurationError if nothing listens there; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigurationError(f"--ray={address}: nothing answers there ({error})") from error


def parse(address: str) -> int:
    """N of `local:N`, 0 for a cluster's address; a ConfigurationError for any other text."""
    host, _, number = address.rpartition(":")
    if not host or not number.isdecimal() or int(number) < 1:
        raise ConfigurationError(
            "--ray takes local:N with N nodes, at least 1, or the address of a Ray cluster such as "
            f"10.0.0.1:6379; got {address!r}"
        )
    return int(number) if host == "local" else 0
