"""`benchmark --peer`: the rounds of both frameworks are the same, and are compared as described."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf

from launch.benchmarks import peer_process, peers, processes, programs
from tff_ssl.algorithms.fedavg import FedAvgHyperparameters
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.views import color, geometry
from tff_ssl.views.policies import POLICIES, ViewPolicy

FLOWER, PFL = peer_process.PEERS["flower"], peer_process.PEERS["pfl"]
ROOT = pathlib.Path(__file__).parents[3]
SETTINGS = programs.ModelSettings("small", (16, 16, 16))


def interpreter(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_without_the_peer_is_named_with_what_makes_one(tmp_path):
    env, remedy = (
        tmp_path / "env",
        "python3 -m venv .*env && .*env/bin/pip install -r launch/benchmarks/peer_side/flower",
    )
    (env / "bin").mkdir(parents=True)
    missing = str(env / "bin" / "python")
    with pytest.raises(ConfigurationError, match=f"no interpreter there .*{remedy}"):
        peer_process.check(FLOWER, missing)
    # Without site-packages, an interpreter has none of the packages.
    bare = interpreter(env / "bin" / "bare", f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    with pytest.raises(ConfigurationError, match=f"lacks flwr, torch, ray; .*{remedy}"):
        peer_process.check(FLOWER, bare)
    other = interpreter(env / "bin" / "other", "#!/bin/sh\nexit 3\n")
    with pytest.raises(ConfigurationError, match=f"is no Python interpreter; .*{remedy}"):
        peer_process.check(FLOWER, other)
    whole = interpreter(env / "bin" / "whole", "#!/bin/sh\necho\n")
    peer_process.check(FLOWER, whole)


@pytest.mark.parametrize("peer", [FLOWER, PFL])
def test_requirements_pin_the_packages_that_are_checked(project_root, peer):
    text = (project_root / peer.requirements).read_text()
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all("==" in pin for pin in pins)
    names = {pin.split("==")[0].split("[")[0] for pin in pins}
    assert names >= set(peer.packages)


@pytest.mark.parametrize("work", peers.WORK)
def test_peers_have_the_settings_of_tff_ssl(work):
    arrangement = peers.Arrangement(2, 1)
    settings = json.loads(json.dumps(peers.peer_settings(work, arrangement, SETTINGS)))
    ours = FedAvgHyperparameters(**work.hyperparameters)
    assert settings["temperature"] == ours.temperature
    assert settings["learning_rate"] == ours.client_learning_rate
    assert (settings["steps"], settings["batch_size"]) == (ours.local_steps, ours.batch_size)
    assert (settings["clients"], settings["samples"]) == (work.clients, work.samples)
    assert (settings["actors"], settings["threads"]) == arrangement
    # Flower's client is plain SGD, its server a mean weighted by examples, which has no rate.
    assert (ours.client_optimizer, ours.client_momentum, ours.l2) == ("sgd", 0, 0)
    assert (ours.client_weighting, ours.learning_rate_schedule) == ("examples", "constant")
    assert (ours.server_optimizer, ours.server_learning_rate, ours.server_momentum) == ("sgd", 1, 0)
    # The views have all steps of the policy.
    views = settings["views"].items()
    policy = {name: tuple(v) if isinstance(v, list) else v for name, v in views}
    assert ViewPolicy(**policy) == POLICIES["byol_no_blur"]


def test_both_arrangements_of_the_cores_are_measured():
    assert peers.arrangements(2) == [(2, 1), (1, 2)]
    assert peers.arrangements(1) == [(1, 1)]


class Program:
    """A program whose steps take the given seconds and no processor time."""

    def __init__(self, seconds):
        self.pid, self.first_seconds = 2**22 + 1, 5.0
        self._seconds = iter(seconds)

    def step(self):
        return next(self._seconds)

    def peak_rss_mb(self):
        return 7.0


def test_ratio_is_to_the_faster_arrangement():
    measured = {
        name: processes.Counted(Program(seconds))
        for name, seconds in {
            "tff_ssl": (99, 2, 3, 9),
            "slow": (99, 4, 6, 8),
            "fast": (99, 1, 3, 3),
        }.items()
    }
    table = peers.table(peers.WORK[0], measured, repetitions=3)
    # Medians of 2 / 1, 3 / 3, 9 / 3, and of seconds without the round that warms up.
    assert (table["best_arrangement"], table["ratio"]) == ("fast", 2.0)
    assert [row["seconds"] for row in table["programs"]] == [3, 6, 3]
    assert table["programs"][1]["ratio"] == 0.5
    assert table["name"] == "128 clients x 4 images, 1 step"
    facts = {"loss": 1.25, "gradient_norm": 2.5}
    text = peers.describe(
        {
            "name": "flower",
            "settings": {"both": "the same"},
            "same_weights_and_views": {"tff_ssl": facts, "flower": facts},
            "work": [table],
        }
    )
    (line,) = [line for line in text.splitlines() if "fast *" in line]
    assert line.split() == ["fast", "*", "3.00", "2.00", "0.00", "5.0", "7", "0"]
    assert "loss 1.250000 and 1.250000" in text


def test_rounds_that_differ_are_an_error():
    ours = {"parameters": 10, "loss": 2.0, "gradient_norm": 4.0}
    peers.check_same("pfl", ours, {**ours, "loss": 2.00009, "gradient_norm": 4.003})
    for name, value in (("parameters", 11), ("loss", 2.0002), ("gradient_norm", 4.005)):
        with pytest.raises(TrainingError, match=r"pfl's rounds .*10, 2\.000000, 4\.0000"):
            peers.check_same("pfl", ours, {**ours, name: value})


def command_line_words():
    """The words of all processes' command lines."""
    return [word for p in psutil.process_iter(["cmdline"]) for word in p.info["cmdline"] or ()]


def test_a_peer_that_ends_gives_one_line_and_leaves_no_process(tmp_path):
    seconds = f"{3600 + os.getpid() / 1e7}"  # Identifies the process below.
    failing = interpreter(
        tmp_path / "python",
        f"#!/bin/sh\nsleep {seconds} >&2 &\necho 'OSError: no room' >&2\nexit 1\n",
    )
    with pytest.raises(TrainingError, match="Flower's rounds ended: OSError: no room"):
        peer_process.PeerProcess(FLOWER, failing, {"temp_dir": str(tmp_path / "ray")})
    deadline = time.monotonic() + 600  # On a busy machine, a killed process takes a moment to end.
    while seconds in command_line_words():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def interpreter_of(peer):
    """The interpreter of a peer's environment; skips the test where there is none."""
    python = ROOT / peer.python
    if not python.exists():
        pytest.skip(f"needs the environment of {peer.requirements}")
    return str(python)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("peer", [FLOWER, PFL])
def test_a_round_in_a_peer(peer, precision):
    settings, python = (
        programs.ModelSettings("small", (64,) * 3, (), precision),
        interpreter_of(peer),
    )
    with tempfile.TemporaryDirectory(prefix="peer_") as scratch:  # Short, for Ray's sockets.
        work = programs.Work("fedavg", "nt_xent", 2, 4, 2, 2)
        results = peers.compare(peer, python, settings, 3, 1, scratch, [work], cores=2)
        remaining = [
            p for p in psutil.process_iter(["cmdline"]) if scratch in str(p.info["cmdline"])
        ]
        assert not psutil.wait_procs(remaining, timeout=600)[1]
    (table,) = results["work"]
    ours, *theirs = table["programs"]
    assert [row["name"].split(",")[0] for row in theirs] == [peer.title] * 2
    assert table["ratio"] == min(theirs, key=lambda row: row["seconds"])["ratio"]
    for row in theirs:
        assert row["ratio"] == ours["seconds"] / row["seconds"]
        assert 0 < row["seconds"] < row["first_round_seconds"]
        assert 0 < row["pss_mb"] < row["peak_rss_mb"]
        assert row["cpu_seconds"] > 0
    assert f"{peer.title} " in results["settings"][peer.name]
    assert precision in results["settings"]["both"]


@pytest.mark.slow
def test_pytorch_computes_the_same(tmp_path, project_root):
    """Loss, gradient and views are those of tff_ssl; the other checks of `torch_checks` hold."""
    policy, rng = POLICIES["byol_no_blur"], np.random.default_rng(0)
    settings = programs.ModelSettings("small", (64, 64, 64))
    path = tmp_path / "reference.npz"
    facts = next(peers.reference(settings, 1, str(path)))
    x = rng.random((6, 32, 32, 3), np.float32)
    x[0, :5], x[0, 5:9] = 0.5, 0  # Gray and black have no hue.
    draws = rng.random((5, 6), np.float32)
    amount = rng.uniform(-0.4, 0.4, (6, 1, 1, 1)).astype(np.float32)
    names = ("area", "aspect", "left", "top", "flip")
    named = {name: tf.constant(d, tf.float64) for name, d in zip(names, draws, strict=True)}
    maps = geometry.transforms(policy, named, (32, 32), (32, 32))
    arrangement = peers.Arrangement(1, 1)
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays |= {
        "settings": json.dumps(peers.peer_settings(peers.WORK[0], arrangement, settings)),
        "images": programs.images(4, 0),
        "x": x,
        "draws": draws,
        "amount": amount,
        "cropped": geometry.warp(policy, maps, tf.constant(x), (32, 32)),
        "contrast": color.adjust_contrast(tf.constant(x), 1 + amount),
        "saturation": color.adjust_saturation(tf.constant(x), 1 + amount),
        "hue": color.adjust_hue(tf.constant(x), tf.constant(amount)),
    }
    np.savez(path, **arrays, **facts)
    done = subprocess.run(
        [
            interpreter_of(FLOWER),
            project_root / "tests/launch/benchmarks/torch_checks.py",
            project_root / "launch/benchmarks/peer_side",
            path,
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 5
