"""Ray nodes: a run equals that of a single machine, even if nodes are killed or frozen."""

import importlib.util
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np
import psutil
import pytest
import tensorflow_federated as tff

from tests.runtime.test_ray_actor import FAILS, ONE, build_program, sums
from tests.runtime.test_sliced_rounds import (
    assert_same_run,
    build,
    simulate,
    stored,  # noqa: F401
    train,
)
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.runtime import in_process, ray_cluster, ray_nodes, temporary_folder
from tff_ssl.runtime.slices import Slice
from tff_ssl.simulation import dropouts

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="uv run --extra ray installs it"
)
EVENTS = 20


@pytest.mark.parametrize(
    "where", ["local:", "local:0", "local:two", "local", "", "machine", ":6379"]
)
def test_addresses_that_are_none(where):
    with pytest.raises(ConfigurationError, match=r"--ray takes local:N"):
        ray_cluster.check(where)


def test_addresses():
    assert ray_cluster.parse("local:3") == 3
    assert ray_cluster.parse("10.0.0.1:6379") == 0


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"--ray=local:2 needs the extra `ray`"):
        ray_cluster.check("local:2")


@needs_ray
@pytest.mark.slow
def test_no_cluster_there():
    with (
        pytest.raises(ConfigurationError, match=r"--ray=127.0.0.1:1: nothing answers there"),
        ray_nodes.ray_nodes("127.0.0.1:1", []),
    ):
        pass


def test_a_folder_that_is_too_long_for_sockets_names_tmpdir(monkeypatch):
    folder = pathlib.Path("/tmp") / ("x" * 60)
    monkeypatch.setattr(ray_cluster.temporary_folder, "use", lambda: folder)
    with pytest.raises(ConfigurationError, match=r"--ray=local:2.*set TMPDIR to a shorter one"):
        ray_cluster._session_folder("local:2")


SCRIPT = """
import tempfile, time, ray
from tff_ssl.runtime import ray_cluster
with ray_cluster.connected("local:1"):
    print(ray.get(ray.remote(tempfile.gettempdir).remote()), flush=True)
    time.sleep(600)
"""


@needs_ray
@pytest.mark.slow
def test_a_killed_script_leaves_no_process_of_ray_and_a_later_one_removes_its_folder(project_root):
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=project_root, stdout=subprocess.PIPE, text=True
    )
    folder = pathlib.Path(script.stdout.readline().strip())
    assert folder.name == "ray"
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert list(folder.glob("session_*"))
    processes = [p for p in psutil.process_iter(["cmdline"]) if mentions(p, folder)]
    assert len(processes) > 3
    script.kill()
    script.wait()
    # It takes 6 s; the limit is for busy machines, and below Ray's own minute.
    _, left = psutil.wait_procs(processes, timeout=40)
    assert not left
    temporary_folder.remove_dead(folder.parent.parent)
    assert not folder.exists()


def mentions(process, folder):
    return any(str(folder) in argument for argument in process.info["cmdline"] or [])


@needs_ray
@pytest.mark.slow
def test_nodes_that_compute_in_their_own_processes(small_algorithm, stored, tmp_path):  # noqa: F811
    algorithm = build(small_algorithm, "dcco")
    with in_process.start(), ray_nodes.ray_nodes("local:2", [stored.path]) as running:
        expected = train(simulate(algorithm, stored, tmp_path / "a"), tmp_path / "a")
        assert all(facts.worker_pid == facts.pid for facts in running.facts())
        assert {facts.device for facts in running.facts()} == {"CPU"}
        found = train(simulate(algorithm, stored, tmp_path / "b", running), tmp_path / "b")
    assert_same_run(tmp_path / "b", found, tmp_path / "a", expected)


@pytest.mark.parametrize(
    ("cpus", "gpus", "per_machine", "runtime", "expected"),
    [
        (16, 0, 1, "in_process", [0.0]),
        (16, 4, 1, "in_process", [1.0] * 4),
        (16, 4, 1, "worker", [0.0]),
        (2, 1, 2, "in_process", [0.5, 0.5]),
        (2, 4, 1, "in_process", [1.0, 1.0]),
        (16, 2, 3, "in_process", [0.5] * 3),
        (16, 4, 5, "in_process", [0.5] * 5),
    ],
)
def test_nodes_share_the_gpus_of_their_machine(
    monkeypatch, cpus, gpus, per_machine, runtime, expected
):
    here = ray_nodes.RayNodes.__new__(ray_nodes.RayNodes)
    here._per_machine, here._runtime, here._nodes = per_machine, runtime, []
    here._machines_queried = -ray_nodes._MACHINES_SECONDS
    machine = {"NodeID": "m", "Alive": True, "Resources": {"CPU": cpus, "GPU": gpus}}
    here._ray = types.SimpleNamespace(nodes=lambda: [machine])
    monkeypatch.setattr(here, "_start", lambda node: None)
    here._update_machines()
    assert [node.gpus for node in here._nodes] == expected
    assert {node.of for node in here._nodes} == {len(expected)}


@pytest.fixture(scope="module")
def nodes(stored):  # noqa: F811
    with ray_nodes.ray_nodes("local:2", [stored.path], runtime="worker") as running:
        yield running
        last = [Processes(facts) for facts in running.facts()]
    for processes in last:
        assert processes.left(within=0) == []


class Processes:
    """The processes and the folder of a node on this machine.

    Attributes:
      all: The node's process, the relay and the TFF worker.
    """

    def __init__(self, facts):
        relay = psutil.Process(facts.worker_pid)
        self.all = [psutil.Process(facts.pid), relay, *relay.children()]
        assert len(self.all) == 3
        self._folder = pathlib.Path(relay.cmdline()[3]).parent
        assert self._folder.name.startswith("tff_ssl_worker_")
        assert self._folder.exists()

    def left(self, within=20.0):
        """The processes and the folder that still exist after `within` seconds."""
        latest = time.monotonic() + within
        while (found := [*filter(is_there, self.all)]) and time.monotonic() < latest:
            time.sleep(0.1)
        return [*found, *([self._folder] if self._folder.exists() else [])]


def is_there(process):
    """Whether a process runs; not a zombie, nor another process with the same process id."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@needs_ray
@pytest.mark.slow
# The algorithms cover two stages, stateful clients, no server, and heterogeneous clients.
@pytest.mark.parametrize("name", ["dcco", "featarc", "denav", "gossip", "hetero_ssfl"])
def test_two_nodes_equal_this_machine_alone(
    nodes,
    worker,
    small_algorithm,
    stored,  # noqa: F811
    tmp_path,
    name,
):
    algorithm = build(small_algorithm, name)
    expected = train(simulate(algorithm, stored, tmp_path / "a"), tmp_path / "a")
    simulated = simulate(algorithm, stored, tmp_path / "b", nodes)
    assert_same_run(tmp_path / "b", train(simulated, tmp_path / "b"), tmp_path / "a", expected)
    assert len(nodes) == 2


@needs_ray
@pytest.mark.slow
def test_nodes_of_one_machine_share_its_cores(nodes):
    workers = [psutil.Process(facts.worker_pid).children()[0] for facts in nodes.facts()]
    first, second = (set(worker.cpu_affinity()) for worker in workers)
    assert first | second == set(psutil.Process().cpu_affinity())
    assert not first & second or len(first | second) < len(workers)


@needs_ray
@pytest.mark.slow
def test_files_are_compared_on_each_node(nodes, tmp_path):
    path = tmp_path / "clients"
    path.write_text("images")
    facts = nodes.facts()[0]._replace(host="far", digests={str(path): None})
    here = ray_nodes.RayNodes.__new__(ray_nodes.RayNodes)
    here._expected = {str(path): ray_nodes.digest(str(path))}
    node = ray_nodes._Node("7", "machine", 0)
    with pytest.raises(ConfigurationError, match=rf"^node 7 \(far\) has no {path}: copy"):
        here._accept(node, facts, at_start=True)
    facts.digests[str(path)] = "another"
    with pytest.raises(ConfigurationError, match=rf"^node 7 \(far\) has another {path} than"):
        here._accept(node, facts, at_start=True)
    assert not node.is_alive


@needs_ray
@pytest.mark.slow
def test_a_node_that_starts_without_the_file_is_named(nodes, tmp_path, monkeypatch):
    gone, node = str(tmp_path / "gone"), nodes._nodes[0]
    with monkeypatch.context() as patch:
        patch.setattr(nodes, "_expected", {gone: "its digest"})
        nodes._end([node.actor])
        nodes._start(node)
        with pytest.raises(ConfigurationError, match=rf"^node 0 \(.+\) has no {gone}: copy"):
            until_it_lives(nodes, node)
    nodes._end([node.actor])
    nodes._start(node)
    until_it_lives(nodes, node)


def until_it_lives(nodes, node):
    while not node.is_alive:
        nodes._step(at_start=True)


def until_all_live(nodes):
    while len(nodes) < 2:
        nodes._step(at_start=True)


class Trouble(threading.Thread):
    """Kills and freezes processes of nodes, one after the other, at random times.

    Attributes:
      delays: Time in seconds until each loss was noticed.
      victims: The `Processes` of each node that was hit.
    """

    def __init__(self, nodes, events):
        super().__init__(daemon=True)
        self._nodes, self._events = nodes, events
        self.delays, self.victims = [], []

    def run(self):
        chance = random.Random(0)
        for _ in range(self._events):
            while len(self._nodes) < 2:
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 1))
            self.victims.append(Processes(chance.choice(self._nodes.facts())))
            actor, relay, tff_worker = self.victims[-1].all
            victim = chance.choice([actor, actor, relay, tff_worker])
            before, start = self._nodes.restarts, time.monotonic()
            victim.send_signal(chance.choice([signal.SIGKILL, signal.SIGSTOP]))
            while self._nodes.restarts == before:
                time.sleep(0.02)
            self.delays.append(time.monotonic() - start)


def slowly(data):
    """Client data that takes 0.1 s per example."""
    from tensorflow.python.data.experimental.ops import testing

    @tff.tensorflow.computation(data.type_signature.parameter)
    def slow(indices):
        return data(indices).apply(testing.sleep(100_000))

    return slow


@needs_ray
@pytest.mark.long
@pytest.mark.slow
def test_twenty_kills_and_freezes_change_nothing(
    nodes,
    worker,
    small_algorithm,
    stored,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    monkeypatch.setattr(ray_nodes, "_GONE_SECONDS", 1200.0)  # A busy machine starts nodes slowly.
    monkeypatch.setattr(ray_nodes, "_START_SECONDS", 1200.0)
    algorithm = build(small_algorithm, "fedu")
    trouble = Trouble(nodes, EVENTS)
    simulated = simulate(algorithm, stored, tmp_path / "b", nodes, data=slowly)
    states = [simulated.initialize(0)]
    trouble.start()
    while trouble.is_alive():
        state, metrics = simulated.run_round(states[-1], len(states) - 1)
        states.append(state)
    assert len(trouble.delays) == EVENTS
    assert [found for victim in trouble.victims for found in victim.left()] == []
    whole = simulate(algorithm, stored, tmp_path / "a")
    state = whole.initialize(0)
    for round_number in range(len(states) - 1):
        state, expected_metrics = whole.run_round(state, round_number)
    assert metrics == expected_metrics
    assert_same_run(tmp_path / "b", states[-1], tmp_path / "a", state)


@needs_ray
@pytest.mark.slow
def test_a_client_that_fails_is_left_out_and_no_node_is_lost(nodes, monkeypatch):
    monkeypatch.setattr(ray_nodes, "_FROZEN_SECONDS", 600.0)  # Nodes of a busy machine are late.
    until_all_live(nodes)
    program, before = build_program(), nodes.restarts

    def run(clients):
        slices = [Slice([np.array([client])]) for client in clients]
        return nodes.work_on([program] * len(slices), ONE, slices, [1] * len(slices))

    found, failed = dropouts.Dropouts().run_without_failing(0, np.array([1, 2, FAILS, 3, 4]), run)
    assert [partial.sums for partial in found] == [sums(tens, 1) for tens in (10, 20, 30, 40)]
    assert failed.tolist() == [FAILS]
    assert (len(nodes), nodes.restarts) == (2, before)


def never_start(node):
    node.facts = node.starting = node.task = node.ping = None


@needs_ray
@pytest.mark.slow
def test_no_node_left(
    nodes,
    worker,
    small_algorithm,
    stored,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    algorithm = build(small_algorithm, "fedu")
    simulated = simulate(algorithm, stored, tmp_path, nodes)
    state = train(simulated, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    until_all_live(nodes)
    monkeypatch.setattr(nodes, "_start", never_start)
    monkeypatch.setattr(ray_nodes, "_GONE_SECONDS", 1.0)
    lost = [Processes(facts) for facts in nodes.facts()]
    for processes in lost:
        processes.all[0].kill()
    with pytest.raises(TrainingError, match=r"no node is left.*the last checkpoint is intact"):
        simulated.run_round(state, 2)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert [found for processes in lost for found in processes.left()] == []
