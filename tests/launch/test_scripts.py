"""The scripts as a user runs them, each in its own process."""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf

from launch.outputs import commands
from tests import programs

pytestmark = pytest.mark.xdist_group("finished run")
ROOT = pathlib.Path(__file__).parent.parent.parent
# The variable marks the processes that these tests start, among all that run on the machine.
ENVIRONMENT = os.environ | {"STARTED_BY_TESTS": str(os.getpid())}
SHORT = ["--rounds=6", "--checkpoint_every=2", "--eval_every=3", "--label_draws=2", "--seed=3"]


def command(script, *flags):
    return [sys.executable, "-m", f"launch.{script}", *flags]


def run(script, *flags, env=ENVIRONMENT, **options):
    return programs.run(
        command(script, *flags),
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=3600,
        env=env,
        **options,
    )


def workers():
    """The local TFF workers that scripts of these tests started and that still run."""
    return [p for p in psutil.process_iter(["name", "environ"]) if is_ours(p.info)]


def is_ours(process):
    """Whether a process, with the attributes `name` and `environ`, is a worker of these tests."""
    # A process that just ended has no environment.
    environment = process["environ"] or {}
    mark = environment.get("STARTED_BY_TESTS")
    return "worker_binary" in process["name"] and mark == ENVIRONMENT["STARTED_BY_TESTS"]


def wait_until(condition, seconds=600):
    """Waits until a condition holds, and returns whether it did within the time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def metrics(folder):
    """The rows of a run's metrics.csv."""
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def encoder_variables(folder):
    """The variables of a run's SavedModel by name."""
    path = str(folder / "encoder" / "variables" / "variables")
    names = [name for name, _ in tf.train.list_variables(path) if "VARIABLE_VALUE" in name]
    return {name: tf.train.load_variable(path, name) for name in names}


@pytest.mark.slow
def test_a_run_writes_its_files_and_prints_its_results(finished_run):
    folder, result = finished_run
    written = {path.name for path in folder.iterdir()}
    assert written == {
        "config.json",
        "metrics.csv",
        "curves.png",
        "tensorboard",
        "checkpoints",
        "encoder",
        "result.json",
        "partition.json",
        "run.html",
    }
    assert "run.html (open it in a browser)" in result.stdout.splitlines()[-1]
    assert (folder / "tensorboard" / "projector_config.pbtxt").exists()
    one, five = json.loads((folder / "result.json").read_text())
    assert (one["labels_per_class"], five["labels_per_class"]) == (1, 5)
    for entry in (one, five):
        assert 0.1 < entry["accuracy"] < 1
        assert set(entry["baselines"]) == {"random_encoder", "raw_pixels"}
    assert f"{one['accuracy']:.3f}" in result.stdout
    assert str(folder) in result.stdout.splitlines()[-1]
    config = json.loads((folder / "config.json").read_text())
    assert config["participation"]["rounds"] == 6
    assert config["versions"]["tensorflow-federated"] == "0.87.0"


@pytest.mark.slow
def test_a_run_prints_no_messages_of_libraries(finished_run):
    _, result = finished_run
    assert result.stderr == ""
    preset, setting = result.stdout.splitlines()[:2]
    assert preset == "preset: launch/presets/digits/dcco.flags"
    assert setting.startswith(
        "dcco with cco on digits: 1438 images of 8x8x1 in 364 clients of 1 to 4 images"
    )


@pytest.mark.long
@pytest.mark.slow
def test_the_encoder_of_the_best_evaluation_is_kept(tmp_path):
    flags = (
        f"--output_dir={tmp_path}/run", *SHORT, "--encoder_round=best", "--eval_every=1",
        "--hparam=server_learning_rate=0.05", "--encoder=tiny", "--baselines=",
    )  # fmt: skip
    result = run("pretrain", *flags)
    assert result.returncode == 0, result.stderr
    rows = metrics(tmp_path / "run")
    best = max(rows, key=lambda row: float(row["knn_accuracy"]))
    assert best["effective_rank"] != rows[-1]["effective_rank"]
    entry, _ = json.loads((tmp_path / "run" / "result.json").read_text())
    assert entry["effective_rank"] == pytest.approx(float(best["effective_rank"]))
    again = run("pretrain", *flags, "--resume")  # A run that has ended finds its best encoder.
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())[0] == entry


@pytest.mark.slow
def test_metrics_have_one_row_per_round(finished_run):
    folder, _ = finished_run
    table = metrics(folder)
    assert [row["round"] for row in table] == list("123456")
    for row in table:
        assert float(row["loss"]) == pytest.approx(
            float(row["on_diagonal"]) + 2 * float(row["off_diagonal"]), rel=1e-5
        )
        assert int(row["clients"]) == 32
        assert 32 < int(row["samples"]) <= 128
        assert int(row["bytes"]) > 32 * 1e5
        assert float(row["encoding_std"]) > 0
    for name in ("knn_accuracy", "effective_rank"):
        assert [bool(row[name]) for row in table] == [False, False, True] * 2
    for entry in json.loads((folder / "result.json").read_text()):
        assert entry["effective_rank"] == float(table[-1]["effective_rank"])
        assert 1 < entry["effective_rank_untrained"] < 128


@pytest.mark.long
@pytest.mark.slow
def test_the_folder_of_a_run_is_not_taken_for_another_run(finished_run):
    folder, _ = finished_run
    refused = run("pretrain", f"--output_dir={folder}", *SHORT, "--encoder=tiny")
    assert refused.returncode != 0
    assert "--resume" in refused.stderr
    other = run("pretrain", f"--output_dir={folder}", *SHORT, "--resume", "--clients_per_round=8")
    assert other.returncode != 0
    assert "--clients_per_round=8 (the run has 32)" in other.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signal_number", "runtime"),
    [
        (signal.SIGINT, "in_process"),
        pytest.param(signal.SIGTERM, "in_process", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, "worker", marks=pytest.mark.long),
    ],
)
def test_a_stopped_run_saves_a_checkpoint_and_prints_it(tmp_path, signal_number, runtime):
    folder = tmp_path / "stopped"
    flags = [
        f"--runtime={runtime}", "--encoder=tiny", "--rounds=500", "--checkpoint_every=400",
        "--eval_every=0", f"--output_dir={folder}",
    ]  # fmt: skip
    process = programs.start(
        command("pretrain", *flags),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert wait_until(lambda: (folder / "metrics.csv").exists() and len(metrics(folder)) >= 2)
    process.send_signal(signal_number)
    out, err = process.communicate(timeout=1200)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    rounds = len(metrics(folder))
    assert f"stopped after round {rounds} of 500" in out
    command_to_resume = commands.module("launch.pretrain", "--resume", f"--output_dir={folder}")
    assert out.splitlines()[-1] == f"continue with: {command_to_resume}"
    assert (folder / "checkpoints" / f"round_{rounds}.npz").is_file()
    assert not workers()


@pytest.mark.slow
def test_evaluate_takes_over_the_runs_flags(finished_run, tmp_path):
    folder, _ = finished_run
    result = run("evaluate", f"--run={folder}", f"--output_dir={tmp_path}", "--label_draws=2",
                 "--labels_per_class=1,5")  # fmt: skip
    assert result.returncode == 0, result.stderr
    again = json.loads((tmp_path / "result_linear.json").read_text())
    before = json.loads((folder / "result.json").read_text())
    for a, b in zip(again, before, strict=True):
        assert a["accuracy"] == pytest.approx(b["accuracy"], abs=0.01)
        assert a["baselines"]["raw_pixels"] == b["baselines"]["raw_pixels"]
    knn = run("evaluate", f"--run={folder}", f"--output_dir={tmp_path}", "--protocol=knn")
    assert knn.returncode == 0, knn.stderr
    (entry,) = json.loads((tmp_path / "result_knn.json").read_text())
    assert entry["baselines"]["raw_pixels"]["accuracy"] > 0.9
    missing = run("evaluate", f"--run={tmp_path / 'nowhere'}")
    assert missing.returncode != 0
    assert "nowhere holds no encoder" in missing.stderr


@pytest.mark.long
@pytest.mark.slow
def test_a_run_with_feature_clusters_a_data_fraction_and_shifts(tmp_path):
    result = run("pretrain", f"--output_dir={tmp_path}/r", *SHORT, "--rounds=2", "--num_clients=12",
                 "--clients_per_round=4", "--partition=feature_clusters", "--alpha=1",
                 "--cluster_encoder=pixels", "--data_fraction=0.5", "--shift=style",
                 "--encoder=tiny", "--baselines=")  # fmt: skip
    assert result.returncode == 0, result.stderr
    entry = json.loads((tmp_path / "r" / "result.json").read_text())[0]
    left_out = entry["examples_left_out"]
    assert 713 <= left_out <= 725  # Half of 1438 images, rounded in each client.
    announced = f"feature_clusters partition, {left_out} images left out, 5 style shifts"
    assert announced in result.stdout.splitlines()[1]


@pytest.mark.slow
def test_centralized_runs_and_resumes(tmp_path):
    flags = ["--rounds=4", "--checkpoint_every=2", "--eval_every=0", f"--output_dir={tmp_path}/c",
             "--encoder=tiny", "--objective=supervised", "--train_labels=40",
             "--batch_size=16"]  # fmt: skip
    first = run("centralized", *flags, "--data_fraction=0.5", "--num_clients=3")
    assert first.returncode == 0, first.stderr
    assert "has no clients; unused: --num_clients, --data_fraction\n" in first.stdout
    assert "centralized supervised on digits" in first.stdout
    assert len(metrics(tmp_path / "c")) == 4
    (result,) = json.loads((tmp_path / "c" / "result.json").read_text())
    assert (result["protocol"], result["labels"], result["train_images"]) == ("supervised", 40, 40)
    assert "40 labels" in first.stdout
    again = run("centralized", "--resume", f"--output_dir={tmp_path}/c", "--rounds=6")
    assert again.returncode == 0, again.stderr
    assert "round 1/" not in again.stdout
    assert len(metrics(tmp_path / "c")) == 6
    config = json.loads((tmp_path / "c" / "config.json").read_text())
    assert (config["participation"]["rounds"], config["rounds_before"]) == (6, [4])


@pytest.mark.long
@pytest.mark.slow
def test_centralized_counts_the_images_of_its_clients(tmp_path):
    done = run("centralized", f"--output_dir={tmp_path}/c", "--rounds=2", "--eval_every=0",
               "--encoder=tiny", "--batches=cohorts", "--partition=iid", "--num_clients=20",
               "--samples_per_client=20", "--data_fraction=0.1", "--clients_per_round=4",
               "--labels_per_class=1", "--label_draws=1", "--baselines=")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "on digits: 40 images, 2 steps of 8 (cohorts)" in done.stdout
    assert json.loads((tmp_path / "c" / "result.json").read_text())[0]["train_images"] == 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "flags"),
    [("alpha", ["--alpha=-1"]), ("data_dir", ["--dataset=cifar10", "--data_dir=/nonexistent"])],
)
def test_bad_input_ends_a_script_with_one_line(tmp_path, named, flags):
    result = run("pretrain", f"--output_dir={tmp_path / 'run'}", *flags)
    assert result.returncode not in (0, None)
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert named in result.stderr


@pytest.mark.slow
def test_list_and_help_answer_at_once():
    listed = run("pretrain", "--list")
    assert listed.returncode == 0
    for name in ("dcco", "cifar10", "dirichlet_per_class", "feature_clusters", "resnet14"):
        assert re.search(rf"\b{name}\b", listed.stdout), name
    helped = run("pretrain", "--help")
    for flag in ("--algorithm", "--alpha", "--output_dir", "--checkpoint_every", "--fold"):
        assert flag in helped.stdout


def test_another_platform_gets_one_line():
    # The check comes before other imports, so that a Python without the packages can run it.
    program = (
        "import sys, platform; platform.machine = lambda: 'arm64'; sys.path.insert(0, '.'); "
        "import launch"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "Linux x86-64 with Python 3.10 or 3.11" in result.stderr


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("slices", [(), ("--slices=2",)])
def test_a_private_run_reports_its_epsilon(tmp_path, slices):
    folder = tmp_path / "private"
    result = run(
        "pretrain",
        f"--output_dir={folder}",
        "--flagfile=launch/presets/digits/private_dcco.flags",
        *slices,
        "--encoder=tiny",
        "--rounds=3",
        "--clients_per_round=6",
        "--dp_epsilon=20",
        "--dp_clip=1",
        "--dp_statistics_clip=15",
        "--dropout=0.2",
        "--max_dropped=1",
        "--baselines=",
        "--label_draws=1",
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "differential privacy: epsilon " in result.stdout
    table = metrics(folder)
    spent = [float(row["epsilon"]) for row in table]
    assert spent == sorted(set(spent))
    assert f"epsilon {spent[-1]:.4g}" in result.stdout
    privacy = json.loads((folder / "result.json").read_text())[0]["privacy"]
    assert privacy["epsilon"] == pytest.approx(spent[-1], rel=1e-6)
    assert 19 < privacy["epsilon"] <= 20
    assert privacy["sampling_rate"] == pytest.approx(8 / 364)
    # Each file is part of what the guarantee covers, or named among what it does not cover.
    listed = "; ".join(privacy["does_not_cover"]).lower()
    names = {path.name for path in folder.iterdir()} - {"encoder", "checkpoints"}
    assert all(name in listed for name in names), names
    assert sum(int(row["clients"]) for row in table) > 0


@pytest.mark.long
@pytest.mark.slow
def test_a_round_in_slices_gives_the_same_weights_and_resumes(tmp_path):
    flags = ("--aggregator=rotated", "--clients_per_round=6", "--baselines=", "--label_draws=1")
    flags += ("--encoder=tiny", "--checkpoint_every=1", "--hparam=server_schedule=constant")
    whole = run("pretrain", f"--output_dir={tmp_path / 'whole'}", *flags, "--rounds=3")
    sliced = run("pretrain", f"--output_dir={tmp_path / 'a'}", *flags, "--rounds=3", "--slices=6")
    assert whole.returncode == sliced.returncode == 0, whole.stderr + sliced.stderr
    assert sliced.stderr == ""
    assert "6 slices a round, one after another" in sliced.stdout
    assert "slices a round" not in whole.stdout
    expected = encoder_variables(tmp_path / "whole")
    for name, value in encoder_variables(tmp_path / "a").items():
        np.testing.assert_array_equal(value, expected[name])  # Each client is a slice.

    short = run("pretrain", f"--output_dir={tmp_path / 'b'}", *flags, "--rounds=2", "--slices=6")
    assert short.returncode == 0, short.stderr
    resumed = run("pretrain", "--resume", f"--output_dir={tmp_path / 'b'}", "--rounds=3")
    assert resumed.returncode == 0, resumed.stderr
    assert "6 slices a round" in resumed.stdout
    for name, value in encoder_variables(tmp_path / "b").items():
        np.testing.assert_array_equal(value, encoder_variables(tmp_path / "a")[name])
