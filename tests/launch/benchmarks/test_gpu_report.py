"""`gpu_report`: that it runs on a CPU, and goes on where a part fails or no time is left."""

import json
import subprocess
import sys
import time

import pytest

from launch.benchmarks import gpu_report
from tests import programs


def read(folder):
    return json.loads((folder / "report.json").read_text())


def test_a_part_that_fails_is_named_and_the_next_is_done(tmp_path):
    report = gpu_report.Report(tmp_path, "the CPU", time.monotonic() + 60)

    def fail():
        raise ValueError("no such kernel\nat line 3")

    report.part("first", fail)
    assert read(tmp_path)["left_out"] == ["first (ValueError: no such kernel)"]
    report.part("second", lambda: report.content["profiles"].update(dcco={}))
    assert read(tmp_path)["profiles"] == {"dcco": {}}
    assert "first (ValueError: no such kernel)" in (tmp_path / "report.md").read_text()


def test_no_part_begins_after_the_end(tmp_path):
    report = gpu_report.Report(tmp_path, "the CPU", time.monotonic() - 1)
    report.part("late", lambda: pytest.fail("it was done"))
    assert read(tmp_path)["left_out"] == ["late (no time left)"]


@pytest.mark.long
@pytest.mark.slow
def test_the_tiny_report(tmp_path, project_root):
    command = [sys.executable, "-m", "launch.benchmarks.gpu_report", "--tiny"]
    done = programs.run(
        [*command, f"--output_dir={tmp_path / 'report'}"],
        cwd=project_root, stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    content = read(tmp_path / "report")
    assert content["left_out"] == []
    usual, with_xla, exact = (row["difference"] for row in content["equality"])
    assert max(usual, exact) < 1e-5
    assert with_xla < 1e-2  # The loss of a few images amplifies its other rounding.
    rounds = [row for row in content["times"] if row["ratio"]]
    names = [(row["name"].split(",")[0], "XLA" in row["name"]) for row in rounds]
    assert names == [
        ("dcco", False), ("dcco", True), ("fedavg", False), ("fedavg", False), ("fedavg", True),
        ("fedu", False), ("fedbn", False), ("gossip", False), ("hetero_ssfl", False),
        ("dcco", True),
    ]  # fmt: skip
    assert [row["asked"] for row in rounds[7:]] == [None] * 3
    assert all(row["holds"] for row in content["equality"])
    assert all(row["repeats"] for row in content["determinism"])
    assert [("ms_per_step" in row) for row in rounds] == [False] * 3 + [True] * 6 + [False]
    assert all(row["ratio"] > 0 for row in rounds + content["determinism"])
    assert set(content["profiles"]) == {row["name"] for row in rounds}
    assert all(found["host"]["events"] > 100 for found in content["profiles"].values())
    text = (tmp_path / "report" / "report.md").read_text()
    assert all(row["name"] in text for row in content["times"] + content["determinism"])


def test_peers_are_compared_where_their_packages_are(monkeypatch, tmp_path):
    """What an interpreter lacks is one line, and the other peer is compared."""
    from tff_ssl.errors import ConfigurationError

    def check(peer, python):
        if peer.name == "pfl":
            raise ConfigurationError(f"--peer_python={python} lacks pfl")

    def compare(peer, python, settings, seed, repetitions, scratch, works):
        rows = [
            {"name": "tff_ssl", "seconds": 0.5, "ratio": 1.25, "asked": 1.3, "met": True},
            {"name": "PyTorch, compiled", "seconds": 0.4},
        ]
        table = {"name": "a step", "both": "TF32", "programs": rows, "left_out": []}
        return {"name": peer.name, "work": [table for _ in works]}

    monkeypatch.setattr(gpu_report.peer_process, "check", check)
    monkeypatch.setattr(gpu_report.peers, "compare", compare)
    report = gpu_report.Report(tmp_path, "the CPU", time.monotonic() + 60)
    config = gpu_report.GpuReportConfig(tiny=True, peer_python="python3")
    for name in ("torch", "pfl"):
        peer = gpu_report.peer_process.PEERS[name]
        gpu_report._compare(report, peer, config, str(tmp_path))
    content = read(tmp_path)
    assert content["left_out"] == ["pfl (ConfigurationError: --peer_python=python3 lacks pfl)"]
    assert [results["name"] for results in content["peers"]] == ["torch"]
    text = (tmp_path / "report.md").read_text()
    assert "| tff_ssl | 500.0 | 1.25 | 1.3 | yes |" in text
    assert "| PyTorch, compiled | 400.0 |  |  |  |" in text


def test_one_step_of_fedavg_is_one_gradient_of_all_clients(monkeypatch, tmp_path):
    """Clients that take several steps are computed one after another, which costs far more."""
    from tff_ssl.algorithms.fedavg import FedAvgHyperparameters

    one = next(r for r in gpu_report._ROUNDS if r.work.algorithm == "fedavg" and not r.work.steps)
    given = []
    monkeypatch.setattr(
        gpu_report.programs, "federated_round", lambda work, values, *_, **__: given.append(values)
    )
    gpu_report._federated(one, 0, str(tmp_path))
    assert FedAvgHyperparameters(**given[0]).is_one_gradient_step
