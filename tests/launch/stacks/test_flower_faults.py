"""Flower's SuperLink and SuperNodes, with faults: around a small package, and in the script."""

import importlib.util
import json
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from datasets.image_dataset import Split
from launch.stacks.flower import deployment, environment, run_files
from tff_ssl.errors import ConfigurationError

FAKE = pathlib.Path(__file__).parent / "fake_client"
CLIENTS, EXAMPLES = 8, 2  # Number of clients, and of examples of each.
SECONDS = 600  # A busy machine takes long to start processes.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("flower")]


def fake_client():
    spec = importlib.util.spec_from_file_location("fake", FAKE / "tff_ssl" / "client.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Federation:
    """A deployment in a folder, whose nodes have the images of `split`."""

    def __init__(self, folder, num_nodes, faults=(), restarts=False):
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (CLIENTS * EXAMPLES, 2, 2, 1)).astype(np.uint8)
        count = len(images)
        self.split = Split(images, np.zeros(count, np.int32), np.arange(count))
        self.partition = np.array_split(rng.permutation(count), CLIENTS)
        self.folder, self.clients = folder, run_files.deal(CLIENTS, num_nodes)
        first = {str(min(self.partition[client])): fault for client, fault in faults}
        (folder / "client").mkdir()
        (folder / "client" / "manifest.json").write_text(json.dumps(fake_client().manifest(first)))
        for node, own in enumerate(self.clients):
            run_files.write_node(self.place(node), self.split, self.partition, own)
        self.flower = deployment.Deployment(folder / "flower", num_nodes, [str(FAKE)], restarts)

    def place(self, node):
        return folder_of(self.folder, node)

    def start_node(self, node):
        package = str(self.folder / "client")
        return self.flower.start_node(node, folder=str(self.place(node)), package=package)

    def run(self, cohorts, **settings):
        for node in range(len(self.flower.nodes), len(self.clients)):
            self.start_node(node)
        ids = self.flower.node_ids
        run_files.write_plan(self.folder, ids, self.clients, cohorts, **settings)
        return self.flower.start_run(self.folder)

    def wait_for(self, condition):
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.2)

    def wait_for_rounds(self, number):
        def done():
            progress = run_files.progress(self.folder)
            return progress is not None and len(progress.rounds) == number

        self.wait_for(done)
        return run_files.progress(self.folder)

    def expected(self, reports):
        """The weights after rounds in which these clients report in the two stages."""
        package = fake_client().load(self.folder / "client")
        package.manifest["faults"] = {}
        state, memories = package.initial_state(), {}
        for of_round in reports:
            for stage, reporting in zip(package.stages, of_round, strict=True):
                down = package.broadcast(stage, state)
                sums = {}
                for client in reporting:
                    own = np.sort(self.partition[client])
                    memory = memories.get(client, package.initial_memory())
                    up, memories[client] = package.work(
                        stage, down, memory, self.split.images[own], self.split.example_ids[own], 0
                    )
                    sums = {name: sums.get(name, 0) + value for name, value in up.items()}
                state, _ = package.finish(stage, state, sums)
        return state["weights"]


def folder_of(folder, node):
    return folder / f"node_{node}"


@pytest.fixture
def nothing_left():
    """Makes Flower's environment, and checks that a test ends all of Flower's processes."""
    try:
        environment.make()
    except ConfigurationError as error:
        pytest.skip(str(error))
    before = {process.pid for process in psutil.process_iter()}
    yield
    left = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if process.pid not in before
        and any("flower-super" in word or "flwr-" in word for word in process.info["cmdline"] or ())
    ]
    assert not left


@pytest.fixture
def federation(tmp_path, nothing_left):
    made = []

    def make(num_nodes, faults=(), restarts=False):
        made.append(Federation(tmp_path, num_nodes, faults, restarts))
        return made[-1]

    yield make
    for one in made:
        one.flower.close()


def test_a_run_continues_after_the_superlink_was_killed(federation):
    one = federation(2, restarts=True)
    cohorts = [[0, 1, 2], [3, 1], [0, 1, 3]]
    run = one.run(cohorts)
    one.wait_for_rounds(1)
    status = one.flower.status(run)
    assert status["status"] == "running"
    assert status["network-traffic"]["inbound-bytes"] > 2 * 4 * 4
    one.flower.kill(one.flower.link)
    done = len(run_files.progress(one.folder).rounds)
    assert done < 3
    one.flower.start_link()
    one.run(cohorts)
    progress = one.wait_for_rounds(3)
    reports = [(cohort, cohort) for cohort in cohorts]
    np.testing.assert_allclose(progress.state["weights"], one.expected(reports), rtol=1e-6)
    assert [metrics["round"] for metrics in progress.rounds] == [1, 2, 3]
    assert [metrics["dropped_clients"] for metrics in progress.rounds] == [0, 0, 0]


def test_bad_values_and_a_slow_node_leave_rounds_without_them(federation):
    one = federation(4, [(1, "nan"), (2, "shape"), (3, "update")])
    cohorts = [[0, 1, 4], [0, 2, 6, 4], [0, 3], [4, 7, 0]]
    one.run(cohorts, timeout=90, max_dropped=0.5)
    one.wait_for_rounds(3)
    (one.folder / "client" / "goes").touch()
    progress = one.wait_for_rounds(4)
    good = [[0, 4], [0, 4], [0], [0, 4, 7]]
    reports = [(clients, clients) for clients in good]
    reports[2] = ([0, 3], [0])  # The slow client is slow in the second stage.
    np.testing.assert_allclose(progress.state["weights"], one.expected(reports), rtol=1e-6)
    assert [metrics["dropped_clients"] for metrics in progress.rounds] == [1, 2, 1, 0]


def test_secure_sums_are_those_of_a_plain_run(federation):
    one = federation(3, [(5, "update")])
    one.run([[0, 1, 2, 4], [3, 4, 5]], secure=True, timeout=240)
    waits = one.folder / "client" / "waits"
    one.wait_for(waits.exists)
    one.flower.kill(one.flower.nodes[2])  # Its masks are recovered from the others' shares.
    progress = one.wait_for_rounds(2)
    reports = [([0, 1, 2, 4], [0, 1, 2, 4]), ([3, 4, 5], [3, 4])]
    np.testing.assert_allclose(progress.state["weights"], one.expected(reports), atol=1e-6)
    assert [metrics["dropped_clients"] for metrics in progress.rounds] == [0, 1]


def test_nodes_killed_between_and_during_stages(federation):
    one = federation(4, [(1, "statistics"), (3, "update")])
    cohorts = [[0, 1, 2], [0, 3], [0, 1]]
    one.run(cohorts, timeout=90, node_sums=True)
    waits, goes = (one.folder / "client" / name for name in ("waits", "goes"))
    one.wait_for(waits.exists)
    log = one.folder / "flower" / "logs" / "node_2.log"
    one.wait_for(lambda: "Sent successfully" in log.read_text())
    one.flower.kill(one.flower.nodes[2])  # Has sent its statistics, and gets no second message.
    waits.unlink()
    goes.touch()
    one.wait_for_rounds(1)
    goes.unlink()
    one.wait_for(waits.exists)
    one.flower.kill(one.flower.nodes[3])  # Is in the second stage.
    goes.touch()
    progress = one.wait_for_rounds(3)
    reports = [([0, 1, 2], [0, 1]), ([0, 3], [0]), ([0, 1], [0, 1])]
    np.testing.assert_allclose(progress.state["weights"], one.expected(reports), rtol=1e-6)
    assert [metrics["dropped_clients"] for metrics in progress.rounds] == [1, 1, 0]


def test_an_interrupted_run_is_resumed_and_equals_the_simulation(
    tmp_path, project_root, nothing_left
):
    flags = ["--nodes=2", "--rounds=2", "--clients_per_round=4", f"--output_dir={tmp_path}/run"]
    command = [sys.executable, "-m", "launch.stacks.flower"]
    process = subprocess.Popen(
        [*command, *flags], cwd=project_root, stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if line.startswith("round 1/2"):
            process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert "launch.stacks.flower --resume" in line
    done = subprocess.run(
        [*command, "--resume", f"--output_dir={tmp_path}/run"], cwd=project_root, text=True
    )
    assert done.returncode == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["largest_difference_to_simulation"] < 1e-6
    assert [one["accuracy"] for one in result["flower"]] == pytest.approx(
        [one["accuracy"] for one in result["simulation"]]
    )
    assert result["bytes_down"] > result["announced_bytes_down"] > 0
    assert result["bytes_up"] > result["announced_bytes_up"] > 0
