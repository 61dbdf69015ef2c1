"""Starts a TFF worker that only its owner can reach, and ends it with the owner's process.

`tff_ssl.runtime.local_worker` runs this module as a script, which starts fast since it imports only
the standard library:

    python worker_relay.py SOCKET open|private WORKER_BINARY [WORKER_FLAG ...]

TFF's worker listens on all network interfaces without authentication, and runs any graph that it
receives. With `private`, it gets a network of its own (Linux user and network namespaces, which
need no root); with `open`, it stays reachable from outside. In both modes, this process forwards to
it a UNIX socket that only this user can open. The worker ends with this process, and this process
ends when its standard input, which the owner holds, closes. The folder of SOCKET is then deleted
with its content.

The script prints one line: `ready` when the worker answers, with `open` followed by its TCP port;
`forbidden` and the reason where the system allows no private network; or `failed` and the reason.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG = 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_BUFFER_BYTES = 1 << 20
_START_SECONDS = 60
_PRIVATE_PORT = 8000  # Any port is free in a private network.

# Errors of a system that forbids namespaces or lacks them.
_FORBIDDEN = {
    errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL, errno.ENOSPC, errno.EUSERS
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent(signal_number: int) -> None:
    """Has the system send this process a signal when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def _enter_private_network() -> None:
    """Moves this process to new namespaces, whose network has only a loopback interface."""
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"namespaces are not allowed here: {os.strerror(number)}")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack_from("16sh", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _listen(path: str) -> socket.socket:
    """A listening UNIX socket that only this user can open."""
    previous = os.umask(0o077)
    folder, name = os.path.split(path)
    # A socket's address has at most 107 bytes; through the open folder it is short.
    opened = os.open(folder, os.O_RDONLY)
    try:
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"/proc/self/fd/{opened}/{name}")
    finally:
        os.close(opened)
        os.umask(previous)
    server.listen()
    return server


def _start_worker(binary: str, port: int, flags: list[str]) -> subprocess.Popen:
    """Starts the worker and waits until it accepts connections; an OSError if it does not."""
    worker = subprocess.Popen(
        [binary, f"--port={port}", *flags],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=lambda: _die_with_parent(signal.SIGKILL),
    )
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if worker.poll() is not None:
            raise OSError(f"the worker ended with code {worker.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return worker
        time.sleep(0.02)
    worker.kill()
    raise OSError(f"the worker did not answer within {_START_SECONDS} s")


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copies bytes until one of the sockets closes, then shuts both down."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with contextlib.suppress(OSError):
        while count := source.recv_into(buffer):
            sink.sendall(buffer[:count])
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _forward(server: socket.socket, port: int) -> None:
    """Forwards each connection to `server` to the local TCP port."""
    while True:
        client, _ = server.accept()
        upstream = socket.create_connection(("127.0.0.1", port))
        for pair in ((client, upstream), (upstream, client)):
            threading.Thread(target=_copy, args=pair, daemon=True).start()


def _wait_for_end_of_owner() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass


def _run_in_thread(function, *args) -> None:
    """Runs `function` in a thread; its end sends the SIGTERM that the main thread awaits."""

    def run():
        try:
            function(*args)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=run, daemon=True).start()


def main(path: str, mode: str, binary: str, flags: list[str]) -> int:
    """Runs until the owner or the worker ends; returns the exit code of this process."""
    owner = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        if mode == "private":
            try:
                _enter_private_network()
            except OSError as error:
                if error.errno not in _FORBIDDEN:
                    raise
                print(f"forbidden {error.strerror}", flush=True)
                return 1
        # This follows the namespaces, since a change of credentials clears the setting.
        _die_with_parent(signal.SIGTERM)
        if os.getppid() != owner:
            return 0
        port = _PRIVATE_PORT if mode == "private" else _free_port()
        worker = _start_worker(binary, port, flags)
        server = _listen(path)
    except OSError as error:
        print(f"failed {error.strerror or error}", flush=True)
        return 1
    print(f"ready {port}" if mode == "open" else "ready", flush=True)
    _run_in_thread(_wait_for_end_of_owner)
    _run_in_thread(_forward, server, port)
    _run_in_thread(worker.wait)
    signal.sigwait({signal.SIGTERM})
    worker.kill()
    worker.wait()
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
