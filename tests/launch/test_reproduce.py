"""`launch.reproduce`: its experiments, and tiny reproductions that are stopped and continued."""

import csv
import dataclasses
import json
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from launch import reproduce as launch_reproduce
from launch.options import app
from launch.studies.engine import runner
from tests import programs
from tests.launch.mistakes import messages
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting.experiment import Cell

TABLE1 = {"experiment": "dcco_table1", "scale": "cpu", "dataset": None, "rounds": None}


def reproduce(project_root, *arguments):
    return programs.run(
        [sys.executable, "-m", "launch.reproduce", *map(str, arguments)],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def write_prepared(data_dir):
    """Writes what makes `cifar10` a prepared TFDS set in a folder."""
    (data_dir / "cifar10" / "3.0.2").mkdir(parents=True)
    (data_dir / "cifar10" / "3.0.2" / "dataset_info.json").write_text("{}")


def test_list_and_bad_input(project_root, tmp_path):
    listed = reproduce(project_root, "--list")
    assert listed.returncode == 0
    assert "experiment dcco_table1" in listed.stdout
    (tmp_path / "experiment.json").write_text(json.dumps(TABLE1))
    output, cifar10 = tmp_path / "run", tmp_path / "sets"
    write_prepared(cifar10)
    mistakes = (
        ("--experiment", ["--experiment=nosuch"]),
        ("--only", ["--experiment=dcco_table1", "--only=nosuch"]),
        ("--only=nosuch", ["--experiment=dcco_table1", "--only=dcco_noniid_1,nosuch"]),
        ("holds no reproduction", ["--experiment=dcco_table1", "--report_only"]),
        ("--jobs", ["--experiment=dcco_table1", "--jobs=1000"]),
        ("--dataset=cifar10", ["--experiment=dcco_table2", "--dataset=cifar10"]),
        ("no module nosuch", ["--experiment=digits_defaults", "--algorithm=nosuch:ENTRY"]),
        ("no cell of it", ["--experiment=dcco_table2", "--algorithm=fedbn"]),
        (
            "has no --scale=gpu; those that have it: dcco_table1, ",
            ["--experiment=dcco_table2", "--scale=gpu"],
        ),
        ("name it by --experiment, one of dcco_table1, ", ["--scale=gpu"]),
        (
            "mini_imagenet is not prepared in --data_dir=",
            ["--experiment=denav_table4", "--scale=gpu", f"--data_dir={cifar10}"],
        ),
        (
            "another reproduction",
            ["--experiment=dcco_table1", "--dataset=cifar10", f"--output_dir={tmp_path}"],
        ),
    )
    flags = [[f"--output_dir={output}", *more] for _, more in mistakes]
    for (named, _), message in zip(
        mistakes, messages(project_root, "reproduce", flags), strict=True
    ):
        assert named in message
    assert not output.exists()


def test_the_experiments_own_data_set_may_be_named(project_root, tmp_path):
    privacy = "dcco_privacy"
    (tmp_path / "experiment.json").write_text(json.dumps(TABLE1 | {"experiment": privacy}))
    done = reproduce(
        project_root, f"--experiment={privacy}", "--dataset=digits", "--report_only",
        f"--output_dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # The report is that of the experiment without the flag, with all of its notes.
    assert "noise 0.1: epsilon 3,875 with 364" in (tmp_path / "report.md").read_text()


@pytest.mark.long
@pytest.mark.slow
def test_a_folder_knows_its_experiment_and_its_data(project_root, tmp_path):
    (tmp_path / "experiment.json").write_text(json.dumps(TABLE1 | {"dataset": "cifar10"}))
    run = tmp_path / "dcco" / "seed0"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"data": {"data_dir": "/nonexistent/sets"}}))
    report = reproduce(project_root, f"--output_dir={tmp_path}", "--report_only")
    assert report.returncode == 0, report.stderr
    assert "cifar10" in (tmp_path / "report.md").read_text().lower().replace("-", "")
    training = reproduce(project_root, f"--output_dir={tmp_path}", "--seeds=1")
    assert training.returncode != 0
    assert "/nonexistent/sets" in training.stderr
    missing = reproduce(project_root, f"--output_dir={tmp_path / 'other'}", "--report_only")
    assert missing.stderr.startswith("error: --experiment is missing: name one of ")


@pytest.mark.long
@pytest.mark.slow
def test_a_tiny_reproduction_continues_where_it_stopped(project_root, tmp_path):
    arguments = [
        "--experiment=dcco_extensions", "--seeds=1", "--rounds=2", f"--output_dir={tmp_path}",
    ]  # fmt: skip
    first = reproduce(project_root, *arguments, "--only=dcco")
    assert first.returncode == 0, first.stderr
    run = tmp_path / "dcco" / "seed0"
    assert {e["labels"] for e in json.loads((run / "result.json").read_text())} == {10, 50}
    before = (run / "result.json").stat().st_mtime_ns
    again = reproduce(project_root, *arguments, "--only=dcco")
    assert "0 runs to do, 1 done" in again.stdout
    assert (run / "result.json").stat().st_mtime_ns == before
    report = (tmp_path / "report.md").read_text()
    assert "Not measured" in report
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
    for name, clients in (("clients of 4, one class", 364), ("clients of 16", 90)):
        folder = tmp_path / "partitions" / name
        assert (folder / "partition.png").exists()
        assert json.loads((folder / "partition.json").read_text())["clients"] == clients
    other = reproduce(project_root, *arguments[:2], "--rounds=3", *arguments[3:])
    assert other.returncode != 0
    assert "another reproduction" in other.stderr


def test_data_sets_that_are_not_prepared_are_named(tmp_path):
    write_prepared(tmp_path)
    evaluations = (("--protocol=transfer", "--dataset=cifar100"), ("--protocol=knn",))
    cells = (
        Cell("one", "pretrain", ("--dataset=cifar10",), evaluations),
        Cell("two", "pretrain", ("--dataset=digits",)),
    )
    assert runner.missing_data(cells, str(tmp_path)) == (
        f"cifar100 is not prepared in --data_dir={tmp_path}"
    )
    assert runner.missing_data(cells[1:], None) == ""


def test_experiments_of_a_gpu_run_in_order_without_those_whose_data_are_missing(
    monkeypatch, project_root, tmp_path, capsys
):
    write_prepared(tmp_path)
    monkeypatch.chdir(project_root)
    ran = []
    monkeypatch.setattr(launch_reproduce, "_reproduce", ran.append)
    config = launch_reproduce.ReproduceConfig(scale="gpu", data_dir=str(tmp_path))
    launch_reproduce.main(config)
    assert [(one.experiment, one.seeds) for one in ran] == [
        (name, 1)
        for name in ("dec_ssl_figure5", "fedu_table1", "dec_ssl_figure2", "dec_ssl_figure6")
    ]
    printed = capsys.readouterr().out
    for name, data in (("dcco_table1", "cifar100"), ("denav_table2", "mini_imagenet")):
        assert f"{name}: left out; {data} is not prepared in --data_dir={tmp_path}" in printed
    launch_reproduce.main(dataclasses.replace(config, seeds=3, experiment="fedu_table1"))
    assert ran[-1].seeds == 3


@pytest.mark.long
@pytest.mark.slow
def test_pieces_of_some_minutes_end_as_one_run_bit_for_bit(project_root, tmp_path):
    given = [
        "--experiment=digits_defaults", "--only=fedu", "--seeds=1", "--rounds=12",
    ]  # fmt: skip
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    assert reproduce(project_root, *given, f"--output_dir={whole}").returncode == 0
    stops = 0
    while not (pieces / "fedu" / "seed0" / "done.json").exists():
        done = reproduce(project_root, *given, f"--output_dir={pieces}", "--minutes=0.4")
        assert done.returncode == 0, done.stderr
        stops += "stopped after 0.4 minutes; continue with: " in done.stdout
        assert stops < 30, done.stdout
    assert stops
    for name in ("metrics.csv", "client_metrics.csv"):
        rows = []
        for folder in (whole, pieces):
            with open(folder / "fedu" / "seed0" / name, newline="") as file:
                rows.append([{**row, "seconds": ""} for row in csv.DictReader(file)])
        assert rows[0] == rows[1]
    results = [json.loads((f / "fedu/seed0/result.json").read_text()) for f in (whole, pieces)]
    assert results[0] == results[1]
    weights = [np.load(folder / "fedu/seed0/encoder/weights.npz") for folder in (whole, pieces)]
    for name in weights[0].files:
        np.testing.assert_array_equal(weights[0][name], weights[1][name])


# A script in place of a training. It writes files when it starts and when it is interrupted.
SLOW_SCRIPT = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.default_int_handler)
output = pathlib.Path([a for a in sys.argv if a.startswith("--output_dir=")][0].split("=")[1])
(output / "started").touch()
try:
    time.sleep(3600)
except KeyboardInterrupt:
    (output / "interrupted").touch()
"""


def start_slow_cells(project_root, tmp_path):
    """Starts two slow cells of three at once, and waits until both run."""
    (tmp_path / "launch").mkdir()
    for name in ("__init__", "pretrain"):
        (tmp_path / "launch" / f"{name}.py").write_text(SLOW_SCRIPT if name == "pretrain" else "")
    code = (
        "import pathlib; from launch import reproduce; from launch.options import app;"
        "from launch.studies.engine import runner; from launch.outputs import run_folder;"
        "from tff_ssl.reporting.experiment import Cell, Experiment;"
        f"runner.scripts._ROOT = pathlib.Path({str(tmp_path)!r});"
        "cells = tuple(Cell(n, 'pretrain', ()) for n in 'abc');"
        "args = reproduce.ReproduceConfig(seeds=2, jobs=2, data_dir='images');"
        f"folder = pathlib.Path({str(tmp_path / 'runs')!r});"
        "experiment = Experiment('three', 'Three cells', cells, (), ());"
        "main = lambda _: runner.run(experiment, cells, folder, args);"
        "app.run(reproduce.SCRIPT._replace(main=main))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=project_root)
    assert wait_until(
        lambda: len(list(tmp_path.glob("runs/*/seed0/started"))) == 2 or process.poll() is not None
    )
    assert process.poll() is None
    return process


def wait_until(condition):
    deadline = time.monotonic() + 600
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        signal.SIGINT,
        *(pytest.param(s, marks=pytest.mark.long) for s in (signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_a_signal_ends_the_running_cells_and_no_other_starts(project_root, tmp_path, sent):
    if signal.getsignal(sent) is signal.SIG_IGN:
        pytest.skip(f"{sent.name} is ignored, as under nohup, and child processes inherit that")
    process = start_slow_cells(project_root, tmp_path)
    process.send_signal(sent)
    assert process.wait(600) == app.INTERRUPTED
    assert len(list(tmp_path.glob("runs/*/seed0/interrupted"))) == 2
    assert len(list(tmp_path.glob("runs/*/seed*/started"))) == 2


@pytest.mark.long
@pytest.mark.slow
def test_cells_end_with_a_killed_reproduction(project_root, tmp_path):
    process = start_slow_cells(project_root, tmp_path)
    cells = psutil.Process(process.pid).children()
    assert len(cells) == 2
    process.kill()
    process.wait()
    assert not psutil.wait_procs(cells, timeout=1200)[1]
    assert not list(tmp_path.glob("runs/*/seed0/interrupted"))


def test_nothing_is_exported_if_the_time_ends_before_the_first_run(monkeypatch, tmp_path, capsys):
    def stop(*_):
        raise TrainingError("the partition iid: stopped")

    monkeypatch.setattr(runner, "run", stop)
    monkeypatch.setattr(launch_reproduce.scripts, "is_ending", lambda: True)
    export_to = tmp_path / "new.jsonl"
    args = launch_reproduce.ReproduceConfig(
        experiment="dcco_table1",
        output_dir=f"{tmp_path}/runs",
        export_to=str(export_to),
        minutes=1.0,
    )
    launch_reproduce._reproduce(args)
    assert "stopped after 1 minutes" in capsys.readouterr().out
    assert not export_to.exists()


def test_runs_of_another_experiment_are_not_taken(tmp_path):
    (tmp_path / "other.jsonl").write_text(json.dumps(TABLE1) + "\n")
    args = launch_reproduce.ReproduceConfig(
        experiment="dcco_table2", import_from=f"{tmp_path}/other.jsonl"
    )
    with pytest.raises(ConfigurationError, match="has runs of dcco_table1, and not of"):
        launch_reproduce._take_over(args)


def test_the_file_of_a_reproduction_chooses_no_other_flags(tmp_path):
    content = TABLE1 | {"export_to": "/etc/profile", "output_dir": "/", "data_dir": "/", "jobs": 9}
    (tmp_path / "experiment.json").write_text(json.dumps(content | {"dataset": "cifar10"}))
    args = launch_reproduce.ReproduceConfig(output_dir=str(tmp_path))
    taken = launch_reproduce._take_over(args)
    assert taken == dataclasses.replace(args, experiment="dcco_table1", dataset="cifar10")
