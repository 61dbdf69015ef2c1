"""The start, privacy and end of the worker process, observed from outside."""

import errno
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil
import pytest
import tensorflow_federated as tff

from tff_ssl.errors import ConfigurationError, WorkerLostError
from tff_ssl.runtime import local_worker, worker_relay

PROGRAM = """
import os, signal, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow_federated as tff
from tff_ssl.runtime import local_worker

@tff.tensorflow.computation(np.int32)
def add_one(x):
    return x + 1

with local_worker.start() as worker:
    assert add_one(1) == 2
    print("relay", worker.relay_pid, flush=True)
    sys.stdin.readline()
    END
"""


def listening_ports(*pids):
    """TCP addresses on which these processes listen."""
    connections = [c for pid in pids for c in psutil.Process(pid).net_connections("tcp")]
    return [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]


def worker_pid(relay_pid):
    (child,) = psutil.Process(relay_pid).children()
    assert "worker_binary" in child.name()
    return child.pid


def wait_until(condition):
    deadline = time.monotonic() + 600  # A busy machine starts, ends and reaps processes slowly.
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def wait_until_gone(*pids):
    return wait_until(lambda: not any(map(runs, pids)))


def runs(pid):
    """Whether a process runs; a zombie has ended, whose parent may take its time."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def socket_folders():
    return set(pathlib.Path(tempfile.gettempdir()).glob("tff_ssl_worker_*"))


@pytest.fixture
def own_temporary_folder(monkeypatch, tmp_path):
    """An empty folder for temporary files, with a name that is long and odd."""
    folder = tmp_path / ("long, odd? #%20" * 8)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)


def start(end):
    """Runs PROGRAM up to its worker's first answer; it continues when it reads a line.

    Returns:
      The process, and the process ids of relay and worker.
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.replace("END", end)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    line = process.stdout.readline()
    assert line.startswith("relay"), line + process.stdout.read()
    relay = int(line.split()[1])
    return process, (relay, worker_pid(relay))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "signal_number", "code"),
    [
        ("pass", None, 0),
        pytest.param("raise ValueError('as planned')", None, 1, marks=pytest.mark.long),
        pytest.param("time.sleep(3600)", signal.SIGINT, -signal.SIGINT, marks=pytest.mark.long),
        pytest.param("time.sleep(3600)", signal.SIGTERM, -signal.SIGTERM, marks=pytest.mark.long),
        ("time.sleep(3600)", signal.SIGKILL, -signal.SIGKILL),
    ],
)
@pytest.mark.usefixtures("own_temporary_folder")
def test_the_worker_never_outlives_the_program(end, signal_number, code):
    process, pids = start(end)
    assert socket_folders()
    if signal_number is not None:
        process.send_signal(signal_number)
    # Reading to the end of the pipe would hang if the worker held it open.
    process.communicate("\n", timeout=600)
    assert process.returncode == code
    assert wait_until_gone(*pids)
    assert wait_until(lambda: not socket_folders())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("own_temporary_folder")  # A killed relay cannot delete its folder.
def test_the_worker_ends_when_its_relay_is_killed():
    process, (relay, worker) = start("time.sleep(3600)")
    os.kill(relay, signal.SIGKILL)
    assert wait_until_gone(worker)
    process.kill()
    process.communicate(timeout=600)


@tff.tensorflow.computation(np.int32)
def add_one(x):
    return x + 1


@pytest.mark.usefixtures("own_temporary_folder")
def test_a_temporary_folder_may_have_any_name():
    with local_worker.start() as worker:
        assert "#%20" in worker.folder
        assert add_one(1) == 2
    assert not socket_folders()


def test_nothing_listens_where_others_could_reach_it():
    with local_worker.start() as worker:
        assert add_one(41) == 42
        if worker.open_port is not None:
            pytest.skip("this system forbids private networks")
        assert not listening_ports(os.getpid(), worker.relay_pid)
        pid = worker_pid(worker.relay_pid)
        assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


@pytest.mark.usefixtures("own_temporary_folder")
def test_the_socket_is_for_this_user_only():
    with local_worker.start():
        assert add_one(1) == 2
        (folder,) = socket_folders()
        assert folder.stat().st_mode & 0o077 == 0
        assert (folder / "worker.sock").stat().st_mode & 0o077 == 0


def test_without_namespaces_one_warning_names_the_open_port(caplog):
    with (
        caplog.at_level("WARNING"),
        local_worker.start(allow_private=False) as worker,
    ):
        assert add_one(1) == 2
        with socket.create_connection(("127.0.0.1", worker.open_port)):
            pass
        assert listening_ports(worker_pid(worker.relay_pid))
    warnings = [
        record.getMessage() for record in caplog.records if "network" in record.getMessage()
    ]
    assert len(warnings) == 1
    assert f"TCP port {worker.open_port}" in warnings[0]


def test_an_open_port_is_refused_where_a_private_network_is_required(monkeypatch):
    with pytest.raises(ConfigurationError, match="--require_private_worker: this system forbids"):
        local_worker.LocalWorker(allow_private=False, require_private=True)
    monkeypatch.setenv("TFF_SSL_REQUIRE_PRIVATE_WORKER", "1")
    with pytest.raises(ConfigurationError, match="--require_private_worker"):
        local_worker.LocalWorker(allow_private=False)


# In place of the relay: a private network that fails, and a worker that would listen openly.
RELAY = """
import sys
if sys.argv[3] == "private":
    sys.exit(print(sys.argv[1]))
print("ready 12345", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("answer", "opens"),
    [("forbidden namespaces are not allowed here", True), ("failed Too many open files", False)],
)
def test_only_a_system_that_forbids_a_private_network_is_a_reason_for_an_open_port(
    monkeypatch, answer, opens
):
    popen = subprocess.Popen

    def start_relay(command, **options):
        return popen([sys.executable, "-c", RELAY, answer, *command[3:]], **options)

    monkeypatch.setattr(local_worker.subprocess, "Popen", start_relay)
    if opens:
        with local_worker.start() as worker:
            assert worker.open_port == 12345
    else:
        with pytest.raises(OSError, match="did not start: failed Too many open files"):
            local_worker.LocalWorker()


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (errno.EPERM, "forbidden namespaces"), (errno.ENOSPC, "forbidden namespaces"),
        (errno.ENOMEM, "failed namespaces"), (errno.EMFILE, "failed namespaces"),
    ],
)  # fmt: skip
def test_the_relay_tells_what_is_forbidden_from_what_fails(monkeypatch, capsys, number, line):
    def fail():
        raise OSError(number, "namespaces")

    monkeypatch.setattr(worker_relay, "_enter_private_network", fail)
    monkeypatch.setattr(worker_relay.signal, "pthread_sigmask", lambda *_: None)
    assert worker_relay.main("/nonexistent/socket", "private", "/nonexistent/worker", []) == 1
    assert capsys.readouterr().out == f"{line}\n"


def test_a_lost_worker_is_an_error_and_not_a_hang():
    with local_worker.start() as worker:
        assert add_one(1) == 2
        os.kill(worker_pid(worker.relay_pid), signal.SIGKILL)
        with pytest.raises(WorkerLostError, match="worker ended"):
            add_one(1)


def test_a_worker_that_is_started_again_is_reached_at_once():
    with local_worker.start() as worker:
        assert add_one(1) == 2
        worker._relay.kill()  # As at the begin of a restart.
        for _ in range(3):  # Each failure lets the channel wait longer before it connects again.
            with pytest.raises(WorkerLostError, match="worker ended"):
                add_one(1)
            time.sleep(1.5)
        worker.restart()
        assert add_one(1) == 2


@pytest.mark.usefixtures("own_temporary_folder")
def test_a_worker_that_cannot_start_says_why(monkeypatch, tmp_path):
    fake = tmp_path / "data" / "worker_binary"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho no space for a worker >&2\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr(tff, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(OSError, match=r"ended with code 3; .*no space for a worker"):
        local_worker.LocalWorker()
    assert not socket_folders()
