"""The files, the memories, the environment and the script of the Flower stack, without Flower."""

import importlib.util
import json
import re
import subprocess
import sys
import types
from unittest import mock

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from datasets.image_dataset import Split
from launch.options import algorithm as algorithm_options
from launch.runs import client_packages, federated
from launch.stacks.flower import deployment, environment, run_files, runs
from tests.launch import configs
from tff_ssl import client
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.models.dual_encoder import Weights

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where the tests' packages bring tomli.
    import tomli as tomllib


def module_of_app(name):
    spec = importlib.util.spec_from_file_location(name, environment.APP / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nodes_have_the_clients_images_in_the_order_of_their_ids(tmp_path):
    clients = run_files.deal(5, 2)
    assert clients == [[0, 2, 4], [1, 3]]
    images = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1)
    split = Split(images, np.zeros(10, np.int32), np.arange(10)[::-1] + 100)
    partition = [np.array(own) for own in ([3, 1], [0], [2, 7], [9, 8], [4, 6, 5])]
    run_files.write_node(tmp_path / "node", split, partition, clients[0])
    with np.load(tmp_path / "node" / "images.npz") as stored:
        assert stored["images"].ravel().tolist() == [3, 1, 7, 2, 6, 5, 4]
        assert stored["example_ids"].tolist() == [106, 108, 102, 107, 103, 104, 105]
        assert stored["clients"].tolist() == [0, 0, 2, 2, 4, 4, 4]


def test_what_rounds_that_did_not_count_have_left_is_forgotten(tmp_path):
    memories = module_of_app("memories")

    def seen(client, limit):
        return memories.latest(tmp_path, client, limit, {"seen": np.int64(0)})["seen"].item()

    for number in range(4):
        memories.keep(tmp_path, 7, number, {"seen": np.int64(number + 10)})
    memories.keep(tmp_path, 8, 3, {"seen": np.int64(1)})
    assert sorted(path.name for path in (tmp_path / "7").iterdir()) == ["2.npz", "3.npz"]
    assert (seen(7, 9), seen(7, 2), seen(8, 2), seen(9, 2)) == (13, 12, 0, 0)
    memories.forget_after(tmp_path, 2, 3)  # The second stage of round 3.
    assert (seen(7, 3), seen(8, 3)) == (13, 1)
    memories.forget_after(tmp_path, 2, 4)  # Round 3 was lost.
    assert (seen(7, 4), seen(8, 4)) == (12, 0)


class NoNodes:
    """What a round asks of Flower's grid, without any node."""

    def get_node_ids(self):
        return []

    def push_messages(self, messages):
        return [None for _ in messages]


class SumsOnly:
    """A package whose state is the sums of its stage."""

    stages = ("update",)

    def __init__(self):
        delta = {"name": "delta", "shape": [2], "dtype": "float32"}
        weight = {"name": "delta_weight", "shape": [], "dtype": "int64"}
        self.manifest = {"stages": [{"name": "update", "up": [delta, weight]}]}

    def broadcast(self, stage, state):
        return {}

    def finish(self, stage, state, sums):
        return sums, {}


@pytest.fixture
def server_round(monkeypatch):
    """The module, without Flower."""
    for name in ("flwr", "flwr.app", "flwr.serverapp", "flwr.supercore", "records", "secure_sums"):
        monkeypatch.setitem(sys.modules, name, mock.MagicMock())
    monkeypatch.setitem(sys.modules, "memories", module_of_app("memories"))
    monkeypatch.setitem(sys.modules, "server_round", types.ModuleType("server_round"))
    return module_of_app("server_round")


@pytest.mark.parametrize("secure", [False, True])
def test_a_round_to_which_nobody_is_invited_has_sums_of_zeros(server_round, secure):
    nodes = server_round.Nodes(NoNodes(), None, {1: [0], 2: [1]}, {1: -1, 2: 4}, 1.0)
    plan = {"start_seconds": 0, "seed": 0, "node_sums": secure, "secure": secure}
    plan["max_dropped"] = 0.5
    state, metrics = server_round.run_round(nodes, SumsOnly(), {}, 5, [], plan)
    assert {name: (v.dtype.name, v.tolist()) for name, v in state.items()} == {
        "delta": ("float32", [0, 0]), "delta_weight": ("int64", 0)
    }  # fmt: skip
    assert metrics == {"clients": 0, "dropped_clients": 0}
    assert (nodes.counted, nodes.lost) == ({1: -1, 2: 4}, set())
    plan |= {"max_dropped": 1.0, "secure": False}
    with pytest.raises(server_round.RoundLost, match="1 of 1 clients were dropped"):
        server_round.run_round(nodes, SumsOnly(), {}, 6, [1], plan)


@pytest.mark.slow
def test_a_run_with_more_rounds_gets_a_package_of_so_many(tmp_path):
    """Its learning rate has not decayed yet, and the state of the shorter run still fits.

    That state has the rate of the next round, as that of a simulation has.
    """

    def written(rounds):
        flags = ["--encoder=tiny", "--projector=8", f"--rounds={rounds}"]
        chosen = algorithm_options.choose(configs.run(*flags))
        dataset = federated.load(chosen.config)
        built = client_packages.build(chosen, dataset)
        runs._write_files(tmp_path, built, dataset, 2)
        return client.load(tmp_path / "client")

    def train(package, state):
        with np.load(tmp_path / "node_0" / "images.npz") as data:
            images, ids = data["images"][:8], data["example_ids"][:8]
        for stage in package.stages:
            down = package.broadcast(stage, state)
            sent, _ = package.work(stage, down, package.initial_memory(), images, ids, 0)
            state, _ = package.finish(stage, state, sent)
        return state

    def change(before, after):
        names = [name for name in before if name.startswith("global_model_weights_trainable")]
        return max(np.abs(after[name] - before[name]).max() for name in names)

    shorter = written(1)
    trained = train(shorter, shorter.initial_state())
    digest = (tmp_path / "client" / client.MANIFEST).read_bytes()
    assert written(1).manifest["rounds"] == 1
    assert (tmp_path / "client" / client.MANIFEST).read_bytes() == digest
    longer = written(4)
    assert longer.manifest["server_state"] == shorter.manifest["server_state"]
    assert longer.manifest["client_state"] == shorter.manifest["client_state"]
    for name, value in longer.initial_state().items():
        np.testing.assert_array_equal(value, shorter.initial_state()[name])
    for package, trains in ((shorter, False), (longer, True)):
        state = train(package, trained)
        assert (change(state, train(package, state)) > 1e-4) == trains


@pytest.mark.parametrize(("stages", "resume", "notes"), [(2, True, 1), (2, False, 0), (1, True, 0)])
def test_epsilon_of_a_resumed_run_says_that_rounds_count_once(stages, resume, notes, capsys):
    algorithm = types.SimpleNamespace(plain_stages=[None] * stages)
    setting = types.SimpleNamespace(epsilon=lambda rounds: rounds / 2)
    built = types.SimpleNamespace(algorithm=algorithm, setting=setting)
    config = types.SimpleNamespace(rounds=5, output=types.SimpleNamespace(resume=resume))
    assert runs._epsilon(built, config) == {"epsilon": 2.5}
    assert capsys.readouterr().out.count("epsilon counts each round once") == notes


def test_requirements_pin_what_the_app_asks_for():
    content = tomllib.loads((environment.APP / "pyproject.toml").read_text())
    text = environment.REQUIREMENTS.read_text()
    pins = dict(re.findall(r"^(\S+)==([^ ;\\]+)", text, re.MULTILINE))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    asked = content["project"]["dependencies"] + content["tool"]["uv"]["override-dependencies"]
    for requirement in map(Requirement, asked):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text
    for name in content["tool"]["flwr"]["app"]["fab-include"]:
        assert (environment.APP / name).exists()


def test_an_environment_that_cannot_be_made_gives_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"cannot be made: .*uv.*needs uv or pip"):
        environment.make()
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho 'error: Failed to fetch\n  no route to host' >&2\nexit 2\n")
    uv.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"cannot be made: .*no route to host") as raised:
        environment.make()
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "cache" / "tff_ssl").iterdir())
    environment.folder().mkdir()
    assert environment.make() == environment.folder() / "bin"


def test_difference_is_relative_to_the_largest_weight():
    ours = Weights((np.array([1.0, 2.0]), np.array([[3.0]])), (np.array([0.5]),))
    theirs = Weights((np.array([1.0, 2.5]), np.array([[-4.0]])), (np.array([0.5]),))
    assert runs.largest_difference(ours, theirs) == 7 / 4
    assert runs.largest_difference(ours, ours) == 0


def test_a_program_that_does_not_listen_is_an_error():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(TrainingError, match=r"does not answer: see the\.log"):
        deployment.wait_for_port(process, deployment.free_port(), "the.log")


def test_a_detached_process_of_a_deployment_is_ended_and_no_other(tmp_path):
    one = object.__new__(deployment.Deployment)
    one._environment = {"FLWR_HOME": str(tmp_path / "home")}
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    mine, other = (
        subprocess.Popen(sleep, env={"FLWR_HOME": str(tmp_path / name)}, start_new_session=True)
        for name in ("home", "other")
    )
    one._kill_detached()
    assert mine.wait(60) == -9
    assert other.poll() is None
    other.kill()
    other.wait()


def test_progress_is_that_of_the_last_checkpoint(tmp_path):
    assert run_files.progress(tmp_path) is None
    run_files.write_plan(tmp_path, ["18446744073709551615"], [[0, 1]], [np.array([1])], seed=3)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["nodes"] == [{"id": "18446744073709551615", "clients": [0, 1]}]
    assert (plan["cohorts"], plan["seed"], plan["timeout"]) == ([[1]], 3, None)
    (tmp_path / "rounds.json").write_text(json.dumps([{"round": 1}, {"round": 2}]))
    np.savez(tmp_path / "state.npz", round=1, counted=[0], **{"state/weights": np.ones(2)})
    state, rounds = run_files.progress(tmp_path)
    assert (list(state), rounds) == (["weights"], [{"round": 1}])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--algorithm=gossip"], "gossip has no client package"),
        (["--nodes=10000"], "--nodes=10000: there are"),
        (["--secure", "--nodes=2"], "at least three nodes"),
        (["--dropout=0.2"], "--dropout=0.2 simulates clients that drop out"),
    ],
)
def test_mistakes_end_in_one_line(flags, message, tmp_path, monkeypatch, project_root):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    environment.folder().mkdir(parents=True)
    command = [sys.executable, "-m", "launch.stacks.flower", f"--output_dir={tmp_path}/out"]
    done = subprocess.run([*command, *flags], cwd=project_root, capture_output=True, text=True)
    assert done.returncode != 0
    (line,) = done.stderr.strip().splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()
