"""`launch.check_gpu`: what it finds here, and what it advises."""

import subprocess
import sys

import pytest

from launch import check_gpu

EXTRA = ["nvidia-cudnn-cu11==8.7.0.84"]


@pytest.mark.parametrize(
    ("device", "driver", "missing", "usable", "words"),
    [
        (True, True, [], True, "Rounds run on the GPU"),
        (False, False, EXTRA, False, "--gpus=all"),
        (True, False, EXTRA, False, "Install NVIDIA's driver"),
        (True, True, EXTRA, False, "Install the extra"),
        (True, True, [], False, "TF_CPP_MIN_LOG_LEVEL=0"),
    ],
)
def test_advice(monkeypatch, device, driver, missing, usable, words):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert words in check_gpu.advice(device, driver, missing, usable)


def test_hidden_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in check_gpu.advice(True, True, [], False)


def test_missing_packages(monkeypatch):
    versions = {"nvidia-cublas-cu11": "11.11.3.6", "nvidia-cudnn-cu11": "9.0"}
    requirements = ["ray; extra == 'ray'"] + [
        f"{name}=={version}; extra == 'gpu'"
        for name, version in [
            ("nvidia-cublas-cu11", "11.11.3.6"),
            ("nvidia-cudnn-cu11", "8.7.0.84"),
            ("nvidia-nccl-cu11", "2.16.5"),
        ]
    ]

    def version(name):
        if name not in versions:
            raise check_gpu.importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(check_gpu.importlib.metadata, "requires", lambda _: requirements)
    monkeypatch.setattr(check_gpu.importlib.metadata, "version", version)
    assert check_gpu.missing_wheels() == ["nvidia-cudnn-cu11==8.7.0.84", "nvidia-nccl-cu11==2.16.5"]


def test_the_script(project_root):
    done = subprocess.run(
        [sys.executable, "-m", "launch.check_gpu"], cwd=project_root, capture_output=True, text=True
    )
    assert "Rounds run on the" in done.stdout, done.stderr
    unusable = "GPU of NVIDIA      yes" in done.stdout and "sees no GPU" in done.stdout
    assert done.returncode == int(unusable)
