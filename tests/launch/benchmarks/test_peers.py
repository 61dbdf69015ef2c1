"""`benchmark --peer`: the rounds of both frameworks are the same, and are compared as described."""

import contextlib
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

from launch.benchmarks import (
    cifar,
    gpu_report,
    peer_process,
    peer_settings,
    peers,
    processes,
    programs,
    result_text,
)
from tff_ssl.algorithms.fedavg import FedAvgHyperparameters
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.views import color, geometry
from tff_ssl.views.policies import POLICIES, ViewPolicy

FLOWER, PFL, TORCH = (peer_process.PEERS[name] for name in ("flower", "pfl", "torch"))
ROOT = pathlib.Path(__file__).parents[3]
SETTINGS = programs.ModelSettings("small", (16, 16, 16))
ON_CPU, ON_GPU = {"gpu": None, "tf32": False}, {"gpu": "NVIDIA H200, 140 GiB", "tf32": True}
ROUND = peer_settings.WORK["pfl"][0]


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
    (env / "pyvenv.cfg").touch()
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
    # The system's interpreter is no environment in which packages should be installed.
    (env / "pyvenv.cfg").unlink()
    with pytest.raises(ConfigurationError, match=r"venv \.venv_flower && \.venv_flower/bin/pip"):
        peer_process.check(FLOWER, bare)


def test_an_interpreter_does_not_see_our_packages(tmp_path, monkeypatch):
    for name in ("PYTHONHOME", "PYTHONPATH"):
        monkeypatch.setenv(name, str(tmp_path))
    script = '#!/bin/sh\nexit "$(test -z "$PYTHONHOME$PYTHONPATH"; echo $?)"\n'
    peer_process.check(FLOWER, interpreter(tmp_path / "python", script))


def test_a_pytorch_without_a_gpu_where_tensorflow_has_one_is_named(tmp_path):
    without = interpreter(tmp_path / "without", "#!/bin/sh\nexit 1\n")
    with pytest.raises(
        ConfigurationError,
        match=r"its PyTorch has no GPU, but TensorFlow has; install .*torch_requirements\.txt",
    ):
        peer_process.check_gpu(TORCH, without)
    peer_process.check_gpu(TORCH, interpreter(tmp_path / "with", "#!/bin/sh\nexit 0\n"))


@pytest.mark.parametrize("peer", [FLOWER, PFL, TORCH])
def test_requirements_pin_the_packages_that_are_checked(project_root, peer):
    text = (project_root / peer.requirements).read_text()
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all("==" in pin for pin in pins)
    names = {pin.split("==")[0].split("[")[0] for pin in pins}
    assert names >= set(peer.packages)


@pytest.mark.parametrize("work", peer_settings.WORK["flower"])
def test_peers_have_the_settings_of_tff_ssl(work):
    arrangement = peer_settings.Arrangement(2, 1)
    settings = json.loads(json.dumps(peer_settings.of_program(work, arrangement, SETTINGS, ON_CPU)))
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
    assert peer_settings.arrangements(PFL, 2, on_gpu=False) == [(2, 1), (1, 2)]
    assert peer_settings.arrangements(PFL, 1, on_gpu=False) == [(1, 1)]
    assert peer_settings.arrangements(PFL, 16, on_gpu=True) == [(1, 16)]


def test_a_peer_has_the_gpu_and_the_products_of_tensorflow():
    for facts, device in ((ON_CPU, "cpu"), (ON_GPU, "cuda")):
        for peer in (FLOWER, PFL, TORCH):
            theirs = peer_settings.their_settings(peer, ROUND, SETTINGS, facts, 2)
            assert {values["device"] for values in theirs.values()} == {device}
            assert {values["tf32"] for values in theirs.values()} == {facts["tf32"]}


def test_on_a_gpu_one_round_is_compiled_and_its_step_is_one_batch(tmp_path):
    on_cpu, on_gpu = (
        peer_settings.our_programs(TORCH, ROUND, SETTINGS, facts, 0, str(tmp_path))
        for facts in (ON_CPU, ON_GPU)
    )
    names = ["tff_ssl, centralized", "tff_ssl, fedavg"]
    assert list(on_cpu) == names
    assert list(on_gpu) == [*names, *(f"{name}, XLA" for name in names)]
    _, _, hyperparameters, model, *_ = on_gpu["tff_ssl, fedavg, XLA"]
    assert hyperparameters["micro_batch_size"] == ROUND.images
    assert model.xla


def test_what_was_asked():
    assert [peer_settings.asked(PFL, work) for work in peer_settings.WORK["pfl"]] == [0.5, 1.0, 1.0]
    assert {peer_settings.asked(TORCH, work) for work in peer_settings.WORK["torch"]} == {1.3}


def test_a_compiler_that_fails_leaves_its_program_out(capsys):
    left_out = []
    with peers._may_fail("PyTorch, compiled", left_out):
        raise TrainingError("no C compiler")
    assert left_out == ["PyTorch, compiled (no C compiler)"]
    assert capsys.readouterr().out == f"left out: {left_out[0]}\n"
    with pytest.raises(TrainingError), peers._may_fail("PyTorch, eager", left_out):
        raise TrainingError("no C compiler")


@pytest.mark.slow
def test_rounds_of_the_cifar_benchmark(tmp_path):
    """Its published sizes; a round of a few clients runs, and so does the reference."""
    clients, samples, steps, batch_size, cohort = cifar.WORK[2:]
    assert (clients, samples, cohort, batch_size) == (1000, 50, 50, 10)
    assert steps * batch_size == samples
    tiny = cifar.WORK._replace(clients=3, samples=20, steps=2, cohort=2)
    child = processes.Child(cifar.rounds, tiny, 0)
    with contextlib.closing(child):
        assert child.step() > 0
    path = tmp_path / "reference.npz"
    with contextlib.closing(processes.Child(cifar.reference, 0, str(path))) as child:
        facts = child.facts
    assert facts["parameters"] == 1_626_442
    assert abs(facts["loss"] - np.log(10)) < 0.5
    with np.load(path) as stored:
        assert [stored[f"weight{i}"].ndim for i in range(8)] == [4, 1, 4, 1, 2, 1, 2, 1]


def test_a_program_that_ends_before_its_first_step_is_an_error(capfd):
    with pytest.raises(TrainingError, match="federated_round ended before its first step"):
        processes.Child(programs.federated_round)
    assert "TypeError" in capfd.readouterr().err


class Program(processes.Measured):
    """A program whose steps take the given seconds and no processor time."""

    first_seconds = 5.0

    def __init__(self, seconds):
        super().__init__(2**22 + 1)
        self._watch.stop()
        self._seconds = iter(seconds)

    def _step(self):
        return next(self._seconds)

    def peak_rss_mb(self):
        return 7.0


def test_ratio_is_to_the_fastest_of_theirs():
    measured = {
        name: Program(seconds)
        for name, seconds in {
            "tff_ssl": (99, 2, 3, 9),
            "slow": (99, 4, 6, 8),
            "fast": (99, 1, 3, 3),
        }.items()
    }
    table = peers.table("a round", 1.9, measured, ["tff_ssl"], repetitions=3)
    # Medians of 2 / 1, 3 / 3, 9 / 3, and of seconds without the round that warms up.
    ours, *theirs = table["programs"]
    assert (table["fastest"], ours["ratio"], ours["asked"], ours["met"]) == (
        "fast",
        2.0,
        1.9,
        False,
    )
    assert [row["seconds"] for row in table["programs"]] == [3, 6, 3]
    assert not any("ratio" in row for row in theirs)
    facts = {"loss": 1.25, "gradient_norm": 2.5}
    table |= {
        "both": "the same",
        "same_weights_and_batch": {"tff_ssl": facts, "flower": facts},
        "left_out": ["compiled (no compiler)"],
    }
    results = {"name": "flower", "settings": {"flower": "eager"}, "work": [table]}
    text = result_text.of_peer(results)
    (line,) = [line for line in text.splitlines() if "fast *" in line]
    assert line.split() == ["fast", "*", "3.0000", "0.00", "5.0", "7", "0"]
    (line,) = [line for line in text.splitlines() if line.startswith("  tff_ssl")]
    assert line.split() == ["tff_ssl", "3.0000", "2.00", "1.9", "no", "0.00", "5.0", "7", "0"]
    assert "loss 1.250000 and 1.250000" in text
    assert "\nleft out: compiled (no compiler)\n" in text
    assert "| tff_ssl | 3000.0 | 2.00 | 1.9 | no |" in result_text.of_peer_briefly(results)


def test_nothing_is_met_where_the_compiled_step_is_missing():
    both = {name: Program((1, 1)) for name in ("tff_ssl", "eager")}
    (ours, _) = peers.table("a step", None, both, ["tff_ssl"], repetitions=1)["programs"]
    assert (ours["ratio"], ours["asked"], ours["met"]) == (1.0, None, None)


def test_rounds_that_differ_are_an_error():
    ours = {"parameters": 10, "loss": 2.0, "gradient_norm": 4.0}
    peers.check_same("pfl", ours, {**ours, "loss": 2.00009, "gradient_norm": 4.003})
    for name, value in (("parameters", 11), ("loss", 2.0003), ("gradient_norm", 4.005)):
        with pytest.raises(TrainingError, match=r"pfl's program .*10, 2\.000000, 4\.0000"):
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
    with pytest.raises(TrainingError, match="Flower's program ended: OSError: no room"):
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
@pytest.mark.parametrize("peer", [FLOWER, PFL, TORCH])
def test_work_in_a_peer(peer, precision):
    settings, python = (
        programs.ModelSettings("small", (64,) * 3, (), precision),
        interpreter_of(peer),
    )
    rounds = [programs.Work("fedavg", "nt_xent", 2, 4, 2, 2)]
    tiny = gpu_report._TINY_PEER_WORK
    works = {PFL: [*rounds, tiny["pfl"][1]], TORCH: tiny["torch"]}
    with tempfile.TemporaryDirectory(prefix="peer_") as scratch:  # Short, for Ray's sockets.
        results = peers.compare(
            peer, python, settings, 3, 1, scratch, works.get(peer, rounds), cores=2
        )
        remaining = [
            p for p in psutil.process_iter(["cmdline"]) if scratch in str(p.info["cmdline"])
        ]
        assert not psutil.wait_procs(remaining, timeout=600)[1]
    for table in results["work"]:
        ours = [row for row in table["programs"] if row["name"].startswith("tff_ssl")]
        theirs = table["programs"][len(ours) :]
        assert [row["name"].split(",")[0] for row in theirs] == [peer.title] * 2
        assert table["fastest"] == min(theirs, key=lambda row: row["seconds"])["name"]
        for row in table["programs"]:
            assert 0 < row["seconds"] < row["first_round_seconds"]
            assert 0 < row["pss_mb"] < row["peak_rss_mb"]
        assert all(row["met"] == (row["ratio"] <= row["asked"]) for row in ours)
    assert f"{peer.title} " in results["settings"][peer.name]
    assert precision in results["work"][0]["both"]


@pytest.mark.slow
def test_pytorch_computes_the_same(tmp_path, project_root):
    """Loss, gradient and views are those of tff_ssl; the other checks of `torch_checks` hold."""
    policy, rng = POLICIES["byol_no_blur"], np.random.default_rng(0)
    settings = programs.ModelSettings("small", (64, 64, 64))
    path, reference = tmp_path / "checks.npz", str(tmp_path / "reference.npz")
    facts = {}
    for objective in ("nt_xent", "cco"):
        with contextlib.closing(
            processes.Child(peers.reference, settings, objective, 1, reference)
        ) as child:
            facts |= {f"{objective}_{name}": value for name, value in child.facts.items()}
    facts = {
        "parameters": facts["cco_parameters"],
        **{name: value for name, value in facts.items() if name.endswith(("_loss", "_norm"))},
    }
    x = rng.random((6, 32, 32, 3), np.float32)
    x[0, :5], x[0, 5:9] = 0.5, 0  # Gray and black have no hue.
    draws = rng.random((5, 6), np.float32)
    amount = rng.uniform(-0.4, 0.4, (6, 1, 1, 1)).astype(np.float32)
    names = ("area", "aspect", "left", "top", "flip")
    named = {name: tf.constant(d, tf.float64) for name, d in zip(names, draws, strict=True)}
    maps = geometry.transforms(policy, named, (32, 32), (32, 32))
    arrangement = peer_settings.Arrangement(1, 1)
    with np.load(reference) as stored:
        arrays = dict(stored)
    values = peer_settings.of_program(ROUND, arrangement, settings, ON_CPU)
    arrays |= {
        "settings": json.dumps(values | {"reference": reference}),
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
            interpreter_of(TORCH),
            project_root / "tests/launch/benchmarks/torch_checks.py",
            project_root / "launch/benchmarks/peer_side",
            path,
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 7
