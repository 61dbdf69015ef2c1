"""`--runtime`: which runtime a run gets, and what is refused."""

import pytest

from launch.options.run_config import RuntimeConfig
from launch.runs import runtimes
from tff_ssl.errors import ConfigurationError
from tff_ssl.runtime import devices

H200 = devices.Gpu("NVIDIA H200", (9, 0), 143360)


@pytest.mark.parametrize(
    ("runtime", "gpu", "round_timeout", "ray", "name", "words"),
    [
        ("auto", None, None, None, "in_process", "this process, on the CPU"),
        ("auto", None, 60.0, None, "worker", "on the CPU: --round_timeout needs it"),
        ("auto", H200, None, None, "in_process", "on NVIDIA H200, 140 GiB; TF32 products"),
        ("auto", H200, 60.0, None, "worker", "--round_timeout"),
        ("auto", H200, None, "local:2", "in_process", "Ray's nodes"),
        ("auto", None, 60.0, "local:2", "worker", "Ray's nodes"),
        ("worker", None, None, "local:2", "worker", "Ray's nodes"),
        ("in_process", None, None, "local:2", "in_process", "Ray's nodes"),
        ("worker", H200, None, None, "worker", "on the CPU"),
        ("in_process", None, None, None, "in_process", "this process, on the CPU"),
        ("in_process", H200, None, None, "in_process", "NVIDIA H200"),
    ],
)
def test_choice(monkeypatch, runtime, gpu, round_timeout, ray, name, words):
    monkeypatch.setattr(devices, "find_gpu", lambda: gpu)
    chosen = runtimes.choose(RuntimeConfig(runtime=runtime, ray=ray), round_timeout)
    assert chosen.name == name
    assert words in chosen.description


def test_what_this_process_cannot_do():
    with pytest.raises(ConfigurationError, match="--round_timeout, or use --runtime=worker"):
        runtimes.choose(RuntimeConfig(runtime="in_process"), 60.0)


def test_xla_in_this_process(monkeypatch):
    monkeypatch.setattr(devices, "find_gpu", lambda: H200)
    chosen = runtimes.choose(RuntimeConfig(xla=True), None)
    assert chosen.name == "in_process"
    assert "XLA compiles views and model" in chosen.description


@pytest.mark.parametrize(
    ("config", "round_timeout"),
    [({"runtime": "worker"}, None), ({"ray": "local:2"}, None), ({}, 60.0)],
)
def test_xla_elsewhere(monkeypatch, config, round_timeout):
    monkeypatch.setattr(devices, "find_gpu", lambda: H200)
    with pytest.raises(ConfigurationError, match="add --runtime=in_process, without"):
        runtimes.choose(RuntimeConfig(xla=True, **config), round_timeout)


@pytest.mark.parametrize("deterministic", [False, True])
def test_deterministic_algorithms(monkeypatch, deterministic):
    calls = []
    monkeypatch.setattr(devices, "use_deterministic_algorithms", lambda: calls.append(1))
    monkeypatch.setattr(devices, "find_gpu", lambda: H200)
    chosen = runtimes.choose(RuntimeConfig(deterministic=deterministic), None)
    assert len(calls) == deterministic
    assert ("only with --deterministic" in chosen.description) is not deterministic


def test_the_first_run_on_a_gpu_says_what_it_waits_for(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CUDA_CACHE_PATH", str(tmp_path / "cuda"))
    monkeypatch.setattr(devices, "find_gpu", lambda: H200)
    runtimes.choose(RuntimeConfig(), None)
    assert f"keeps them in {tmp_path / 'cuda'}/" in capsys.readouterr().out
    assert (tmp_path / "cuda").is_dir()
    runtimes.choose(RuntimeConfig(), None)
    assert not capsys.readouterr().out
