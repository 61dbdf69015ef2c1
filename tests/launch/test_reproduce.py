"""`launch.reproduce`: its experiments, and tiny reproductions that are stopped and continued."""

import concurrent.futures
import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np
import psutil
import pytest

from launch import reproduce as launch_reproduce
from launch.options import app
from launch.outputs import run_folder
from launch.runs import scripts as scripts_module
from launch.studies.engine import exchange, runner
from tests import programs
from tests.launch.mistakes import messages
from tff_ssl import named_code
from tff_ssl.algorithms import registry
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting import records
from tff_ssl.reporting.experiment import Cell, Experiment

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


@pytest.fixture
def scripts(monkeypatch):
    """Replaces the scripts by a function that writes the files of a run at once.

    Returns:
      A list, to which the arguments of each call are appended; and a dict, empty at first, from
      the name of a cell to the error message with which its training shall fail.
    """
    calls: list[list[str]] = []
    failures: dict[str, str] = {}

    def run(arguments, log):
        calls.append(list(arguments))
        output = log.parent
        if arguments[0] == "partition_report":
            (output / "partition.png").write_bytes(b"\x89PNG")
        elif arguments[0] != "evaluate" and output.parent.name not in failures:
            for unneeded in ("checkpoints", "client_states"):
                (output / unneeded).mkdir()
            (output / "metrics.csv").write_text("round,seconds,knn_accuracy\n1,30,0.5\n")
            run_folder.write_json(output / "result.json", [])
        return failures.get(output.parent.name)

    monkeypatch.setattr(runner, "run_script", run)
    return calls, failures


def test_scripts_run_from_the_projects_root(project_root):
    """From another folder, `python -m launch.NAME` finds no package."""
    assert project_root == scripts_module._ROOT
    assert (scripts_module._ROOT / "launch" / "pretrain.py").is_file()


ARGS = types.SimpleNamespace(
    seeds=2, retry_failed=False, report_only=False, data_dir="images", scale="cpu", dataset=None,
    rounds=None, jobs=1, given=frozenset(), algorithm=None,
)  # fmt: skip
EXPERIMENT = Experiment(
    "two", "Two cells", (
        Cell("good", "pretrain", ("--alpha=0",), (("--protocol=finetune",), ("--protocol=knn",))),
        Cell("bad", "centralized", ()),
    ), (), (),
)  # fmt: skip


def test_a_cell_is_trained_and_evaluated_once_for_each_seed(scripts, tmp_path):
    calls, _ = scripts
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    output = tmp_path / "good" / "seed1"
    assert [call[0] for call in calls] == ["pretrain", "evaluate", "evaluate", "centralized"] * 2
    assert calls[4] == [
        "pretrain", "--alpha=0", "--data_dir=images", "--seed=1", f"--output_dir={output}",
        "--resume",
    ]  # fmt: skip
    assert calls[5] == ["evaluate", f"--run={output}", "--data_dir=images", "--protocol=finetune"]
    assert [path.name for path in output.iterdir() if path.is_dir()] == []
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    assert len(calls) == 8


def test_the_seconds_of_a_stopped_run_are_counted_when_it_continues(scripts, tmp_path, monkeypatch):
    """Two calls of 100 and 40 seconds, of which the first one is interrupted in its training."""
    clock, run_quickly = [0.0], runner.run_script
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    cell, args = EXPERIMENT.cells[0], types.SimpleNamespace(data_dir="images")

    def take(seconds, error=None):
        def run(arguments, log):
            clock[0] += seconds
            if error:
                raise error
            return run_quickly(arguments, log)

        monkeypatch.setattr(runner, "run_script", run)

    take(100, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        runner._run_cell(cell, 0, tmp_path, args)
    take(40 / (1 + len(cell.evaluations)))
    assert runner._run_cell(cell, 0, tmp_path, args) == "done"
    folder = tmp_path / cell.name / "seed0"
    assert json.loads((folder / "done.json").read_text())["seconds"] == 140
    assert not (folder / "stopped.json").exists()
    # The metrics of the stand-in have a round of 30 seconds: more than a killed call has kept.
    take(0)
    runner._run_cell(cell, 1, tmp_path, args)
    killed = json.loads((tmp_path / cell.name / "seed1" / "done.json").read_text())
    assert killed["seconds"] == 30


def test_a_partition_that_needs_a_run_is_drawn_after_it(scripts, tmp_path):
    calls, _ = scripts
    cells = (
        Cell("encoder", "centralized", ()),
        Cell("clusters", "pretrain", ("--cluster_encoder={needed}",), needs="encoder"),
    )
    experiment = Experiment(
        "needs", "A needed cell", cells, (), (), partitions={"plain": "encoder", "own": "clusters"}
    )
    runner.run(experiment, cells, tmp_path, ARGS)
    assert [call[0] for call in calls] == [
        "partition_report", *["centralized", "pretrain"] * 2, "partition_report",
    ]  # fmt: skip
    needed = f"--cluster_encoder={tmp_path / 'encoder' / 'seed0'}"
    assert needed in calls[2]
    assert needed in calls[-1]
    assert f"--output_dir={tmp_path / 'partitions' / 'own'}" in calls[-1]


def test_a_new_evaluation_of_a_cell_uses_the_finished_runs(scripts, tmp_path):
    calls, _ = scripts
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    before = len(calls)
    good = EXPERIMENT.cells[0]
    (tmp_path / "good" / "seed0" / "metrics.csv").unlink()  # As if only small files had been kept.
    evaluations = (*good.evaluations, ("--protocol=linear",))
    cells = (dataclasses.replace(good, evaluations=evaluations), EXPERIMENT.cells[1])
    experiment = dataclasses.replace(EXPERIMENT, cells=cells)
    runner.run(experiment, experiment.cells, tmp_path, ARGS)
    assert [(call[0], call[-1]) for call in calls[before:]] == [
        ("evaluate", "--protocol=linear")
    ] * 2
    runner.run(experiment, experiment.cells, tmp_path, ARGS)
    assert len(calls) == before + 2
    for seed in ("seed0", "seed1"):
        summary = json.loads((tmp_path / "good" / seed / "done.json").read_text())
        assert (summary["knn"], summary["training_minutes"]) == ([[1, 0.5]], 0.5)


def test_runs_that_are_taken_from_a_file_are_not_run_again_and_are_added_to_another(
    scripts, tmp_path
):
    """As on two machines: the second one takes the runs of the first, and runs another seed."""
    calls, failures = scripts
    failures["bad"] = "training diverged: loss nan in round 3"
    kept, other = tmp_path / "kept.jsonl", tmp_path / "other.jsonl"
    one_seed = types.SimpleNamespace(**{**vars(ARGS), "seeds": 1})
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path / "first", one_seed)
    exchange.export_runs(tmp_path / "first", kept)
    num_calls = len(calls)
    exchange.import_runs(kept, tmp_path / "second")
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path / "second", one_seed)
    assert len(calls) == num_calls
    second = (tmp_path / "second" / "report.md").read_text()
    assert second == (tmp_path / "first" / "report.md").read_text()
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path / "second", ARGS)
    assert {call[-2 if call[0] != "evaluate" else 1] for call in calls[num_calls:]} == {
        f"--output_dir={tmp_path}/second/{cell}/seed1" for cell in ("good", "bad")
    } | {f"--run={tmp_path}/second/good/seed1"}  # fmt: skip
    exchange.export_runs(tmp_path / "second", other)
    exchange.export_runs(tmp_path / "second", kept)
    assert kept.read_text() == other.read_text()
    found = records.read_file(kept)
    assert [sorted(found.runs[cell]) for cell in ("bad", "good")] == [[0, 1], [0, 1]]
    assert found.of_cell("bad")[1].failure["reason"] == failures["bad"]
    # What the file has besides stays where a folder with fewer runs is added.
    exchange.export_runs(tmp_path / "first", kept)
    assert kept.read_text() == other.read_text()


def test_only_runs_of_one_reproduction_are_taken_or_added(scripts, tmp_path):
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path / "runs", ARGS)
    kept = tmp_path / "kept.jsonl"
    kept.write_text('{"experiment": "two", "scale": "paper", "dataset": null, "rounds": null}\n')
    message = r"holds another reproduction \(--experiment=two, --scale="
    with pytest.raises(ConfigurationError, match=f"{kept} {message}paper"):
        exchange.export_runs(tmp_path / "runs", kept)
    with pytest.raises(ConfigurationError, match=f"--output_dir={tmp_path}/runs {message}cpu"):
        exchange.import_runs(kept, tmp_path / "runs")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        exchange.import_runs(tmp_path / "missing.jsonl", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_runs_with_another_number_of_draws_count_as_done(scripts, tmp_path):
    """These flags change the precision of a figure; results in `measured/` stay usable."""
    calls, _ = scripts
    good, bad = EXPERIMENT.cells
    probe = ("--protocol=linear", "--labels=500")

    def with_draws(draws):
        cell = dataclasses.replace(
            good,
            flags=(*good.flags, f"--label_draws={draws}", *(["--also_logistic"] * (draws > 1))),
            evaluations=(*good.evaluations, (*probe, f"--label_draws={draws}")),
        )
        return dataclasses.replace(EXPERIMENT, cells=(cell, bad))

    runner.run(with_draws(1), with_draws(1).cells, tmp_path, ARGS)
    num_calls = len(calls)
    runner.run(with_draws(5), with_draws(5).cells, tmp_path, ARGS)
    assert len(calls) == num_calls


@pytest.mark.parametrize("failed", [False, True])
def test_runs_with_other_flags_are_rejected(scripts, tmp_path, failed):
    calls, failures = scripts
    if failed:
        failures["good"] = "training diverged: loss nan in round 3"
    preset = tmp_path / "preset.flags"
    preset.write_text("--rounds=100\n--hparam=lambda=20\n")
    good, bad = EXPERIMENT.cells
    cells = (dataclasses.replace(good, flags=(f"--flagfile={preset}", "--alpha=0")), bad)
    experiment = dataclasses.replace(EXPERIMENT, cells=cells)
    output = tmp_path / "runs"
    runner.run(experiment, cells[:1], output, ARGS)
    num_calls = len(calls)
    preset.write_text("--rounds=200\n--hparam=lambda=20\n")
    message = r"good/seed0 .*other flags than good has now \(rounds: 100, now 200\)"
    with pytest.raises(ConfigurationError, match=message):
        runner.run(experiment, cells, output, ARGS)
    assert len(calls) == num_calls
    # The report of finished runs can still be written, and a failed run can be repeated.
    report_only = types.SimpleNamespace(**{**vars(ARGS), "report_only": True})
    runner.run(experiment, cells, output, report_only)
    note = "Measured with other flags than the experiment has now (rounds: 100, now 200): good."
    assert note in (output / "report.md").read_text()
    if failed:
        failures.clear()
        retry = types.SimpleNamespace(**{**vars(ARGS), "retry_failed": True})
        runner.run(experiment, cells, output, retry)
        assert len(calls) == num_calls + 8


def test_an_algorithm_from_outside_is_added_to_the_default_runs(scripts, tmp_path, monkeypatch):
    calls, _ = scripts
    monkeypatch.setattr(registry, "ALGORITHMS", dict(registry.ALGORITHMS))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "strange.py").write_text(
        "from tff_ssl.algorithms.registry import ALGORITHMS\nENTRY = ALGORITHMS['fedavg']\n"
    )
    output, name = str(tmp_path / "runs"), "strange:ENTRY"
    config = launch_reproduce.ReproduceConfig(
        experiment="digits_defaults", algorithm=name, output_dir=output, seeds=1
    )
    launch_reproduce.main(config)
    [call] = calls
    assert f"--algorithm={name}" in call
    assert "--flagfile=launch/presets/digits/kinds/stateless_clients.flags" in call
    assert name in (tmp_path / "runs" / "report.md").read_text()
    # The folder knows its algorithm, which the user has to name again.
    registry.ALGORITHMS.pop(name)
    again = launch_reproduce.ReproduceConfig(output_dir=output, seeds=2)
    with pytest.raises(ConfigurationError, match=f"add --algorithm={name} if you trust it"):
        launch_reproduce.main(again)
    named_code.add_by_user({"algorithm": name})  # As the flag does.
    launch_reproduce.main(again)
    assert [f"--algorithm={name}" in call for call in calls] == [True, True]
    del sys.modules["strange"]


def test_no_failed_run_is_deleted_while_a_report_is_written(scripts, monkeypatch, tmp_path):
    _, failures = scripts
    failures["good"] = failures["bad"] = "training diverged: loss nan in round 3"
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    failures.clear()
    read, before_and_after = runner.records.read_folder, []

    def read_slowly(folder):
        before = sorted(folder.glob("*/seed?/failed.json"))
        time.sleep(0.3)  # The next run starts in another thread meanwhile.
        before_and_after.append((before, sorted(folder.glob("*/seed?/failed.json"))))
        return read(folder)

    monkeypatch.setattr(runner.records, "read_folder", read_slowly)
    retry = types.SimpleNamespace(**{**vars(ARGS), "retry_failed": True})
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, retry)
    assert before_and_after[-1] == ([], [])
    assert all(before == after for before, after in before_and_after)


def test_after_a_failure_no_run_is_started_and_the_report_is_written(scripts, tmp_path):
    calls, failures = scripts
    failures["bad"] = "ended by SIGKILL (out of memory, or killed)"
    with pytest.raises(TrainingError, match="bad, seed 0: ended by SIGKILL"):
        runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    assert [call[0] for call in calls] == ["pretrain", "evaluate", "evaluate", "centralized"]
    assert "| good | 0 |" in (tmp_path / "report.md").read_text()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_after_a_failure_running_cells_end_and_waiting_ones_do_not_start(
    scripts, monkeypatch, tmp_path
):
    calls, failures = scripts
    failures["bad"] = "no space left on device"
    run_quickly, both_started = runner.run_script, threading.Barrier(2, timeout=1200)
    pools, cancelled = concurrent.futures.ThreadPoolExecutor, threading.Event()
    shutdown = pools.shutdown

    def shut_down(pool, **options):
        shutdown(pool, **options)
        cancelled.set()

    def run_together(arguments, log):
        both_started.wait()
        if log.parent.parent.name == "long":
            assert cancelled.wait(600)
        return run_quickly(arguments, log)

    monkeypatch.setattr(pools, "shutdown", shut_down)
    monkeypatch.setattr(runner, "run_script", run_together)
    cells = tuple(Cell(name, "pretrain", ()) for name in ("long", "bad", "third", "fourth"))
    args = types.SimpleNamespace(**{**vars(ARGS), "jobs": 2})
    with pytest.raises(TrainingError, match="bad, seed 0: no space"):
        runner.run(Experiment("x", "", cells, (), ()), cells, tmp_path, args)
    assert len(calls) == 2
    assert (tmp_path / "long" / "seed0" / "done.json").exists()


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


@pytest.fixture
def ending(monkeypatch):
    """Replaces the event of `scripts.interrupt`, which otherwise ends all later scripts."""
    event = threading.Event()
    monkeypatch.setattr(scripts_module, "_ending", event)
    return event


@pytest.mark.usefixtures("ending")
def test_after_the_time_limit_a_script_saves_its_state_and_no_other_starts(monkeypatch, tmp_path):
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "try: time.sleep(3600)\n"
        "except KeyboardInterrupt: print('stopped after round 3 of 9; the checkpoint is saved\\n"
        "continue with: python -m launch.pretrain'); raise SystemExit(130)"
    )
    monkeypatch.setattr(scripts_module, "_command", lambda _: [sys.executable, "-c", code])
    with scripts_module.time_limit(3 / 60):
        outcome = scripts_module.run_script(["pretrain"], tmp_path / "log.txt")
        assert outcome == "stopped after round 3 of 9; the checkpoint is saved"
        assert scripts_module.run_script(["pretrain"], tmp_path / "log.txt") == "interrupted"


def test_a_script_ends_after_its_own_limit(monkeypatch, tmp_path):
    monkeypatch.setattr(scripts_module, "_command", lambda _: ["sleep", "3600"])
    outcome = scripts_module.run_script(["pretrain"], tmp_path / "log.txt", seconds=0.3)
    assert outcome == "took more than 0.005 minutes"
    with scripts_module.time_limit(None):
        assert not scripts_module.is_ending()


def test_a_reproduction_stops_after_its_minutes_with_the_command_that_continues_it(
    scripts, ending, monkeypatch, tmp_path, capsys
):
    def stopped(arguments, log):
        ending.set()
        (log.parent / "config.json").write_text("{}")
        return "stopped after round 3 of 9; the checkpoint is saved"

    monkeypatch.setattr(runner, "run_script", stopped)
    given = {"experiment": "digits_defaults", "only": ("dcco",), "seeds": 1, "minutes": 2.0}
    output = tmp_path / "runs"
    config = launch_reproduce.ReproduceConfig(
        **given, output_dir=str(output), given=frozenset({*given, "output_dir"})
    )
    launch_reproduce.main(config)
    printed = capsys.readouterr().out
    assert "dcco, seed 0: stopped after round 3 of 9; the checkpoint is saved" in printed
    stop = next(line for line in printed.splitlines() if line.startswith("stopped after 2 minutes"))
    assert stop.endswith(f"--output_dir={output} --minutes=2.0 --only=dcco --seeds=1")
    assert (output / "report.md").exists()
    assert (output / "dcco" / "seed0" / "stopped.json").exists()


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


def test_the_failure_of_a_script_names_the_signal_that_ended_it(monkeypatch, tmp_path):
    script = tmp_path / "kill.sh"
    script.write_text("echo round 1/40; kill -9 $$\n")
    popen = subprocess.Popen
    monkeypatch.setattr(
        runner.scripts.subprocess, "Popen", lambda _, **given: popen(["sh", str(script)], **given)
    )
    assert runner.run_script(["pretrain"], tmp_path / "log.txt").startswith("ended by SIGKILL")


def test_a_folder_that_holds_a_run_is_an_error(scripts, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="holds a run"):
        runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_diverged_training_is_a_result_and_other_errors_are_not(scripts, tmp_path):
    calls, failures = scripts
    failures["bad"] = "training diverged: loss nan in round 3"
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    assert "loss nan" in (tmp_path / "bad" / "seed0" / "failed.json").read_text()
    num_calls = len(calls)
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    assert len(calls) == num_calls
    failures["good"] = "no space left on device"
    with pytest.raises(TrainingError, match=r"good, seed 0: no space.*log\.txt"):
        runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path / "other", ARGS)


def test_a_cell_whose_needed_cell_has_failed_fails_too_and_the_others_run(scripts, tmp_path):
    calls, failures = scripts
    failures["encoder"] = "training diverged: loss nan in round 3"
    cells = (
        Cell("encoder", "centralized", ()),
        Cell("clusters", "pretrain", ("--cluster_encoder={needed}",), (), "encoder"),
        Cell("other", "pretrain", ()),
    )
    for _ in range(2):  # The second time, nothing is left to do.
        runner.run(Experiment("needs", "", cells, (), ()), cells, tmp_path, ARGS)
        assert [call[0] for call in calls] == ["centralized", "pretrain"] * 2
    reason = json.loads((tmp_path / "clusters" / "seed0" / "failed.json").read_text())["reason"]
    assert reason == "encoder, which it needs, has failed"


def test_a_run_that_was_killed_in_its_evaluation_is_compared_by_its_script(scripts, tmp_path):
    calls, _ = scripts
    output = tmp_path / "good" / "seed0"
    output.mkdir(parents=True)
    run_folder.write_json(output / "result.json", [])  # As after its training.
    runner.run(EXPERIMENT, EXPERIMENT.cells[:1], tmp_path, types.SimpleNamespace(
        **{**vars(ARGS), "seeds": 1}
    ))  # fmt: skip
    assert [call[0] for call in calls] == ["pretrain", "evaluate", "evaluate"]
    assert calls[0][-1] == "--resume"  # `pretrain` ends with an error if its flags have changed.


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_needs_another_runs_after_it_with_its_folder(
    scripts, monkeypatch, tmp_path, jobs
):
    calls, _ = scripts
    run_quickly, ended = runner.run_script, []

    def run_slowly(arguments, log):
        if log.parent.parent.name == "encoder":
            time.sleep(0.3)
        failure = run_quickly(arguments, log)
        ended.append(log.parent.relative_to(tmp_path))
        return failure

    monkeypatch.setattr(runner, "run_script", run_slowly)
    cells = (
        Cell("encoder", "centralized", ()),
        Cell("clusters", "pretrain", ("--cluster_encoder={needed}",), (), "encoder"),
    )
    args = types.SimpleNamespace(**{**vars(ARGS), "jobs": jobs})
    runner.run(Experiment("needs", "", cells, (), ()), cells, tmp_path, args)
    for seed in ("seed0", "seed1"):
        folder = tmp_path / "encoder" / seed
        assert any(f"--cluster_encoder={folder}" in call for call in calls)
        order = [path.parent.name for path in ended if path.name == seed]
        assert order == ["encoder", "clusters"]


def test_two_jobs_run_at_once_on_different_cores(scripts, monkeypatch, tmp_path):
    both_started, run_quickly = threading.Barrier(2, timeout=1200), runner.run_script
    cores = {}

    def run(arguments, log):
        if arguments[0] != "evaluate":
            cores[log.parent] = os.sched_getaffinity(0)
            both_started.wait()
        return run_quickly(arguments, log)

    monkeypatch.setattr(runner, "run_script", run)
    args = types.SimpleNamespace(**vars(ARGS) | {"jobs": 2})
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, args)
    first, second = {frozenset(share) for share in cores.values()}
    assert first.isdisjoint(second)
    assert len(list(tmp_path.glob("*/seed*/done.json"))) == 4


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
        f"args = reproduce.ReproduceConfig(**{vars(ARGS) | {'jobs': 2}!r});"
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


def test_the_file_of_a_reproduction_chooses_no_other_flags(tmp_path):
    content = TABLE1 | {"export_to": "/etc/profile", "output_dir": "/", "data_dir": "/", "jobs": 9}
    (tmp_path / "experiment.json").write_text(json.dumps(content | {"dataset": "cifar10"}))
    args = launch_reproduce.ReproduceConfig(output_dir=str(tmp_path))
    taken = launch_reproduce._take_over(args)
    assert taken == dataclasses.replace(args, experiment="dcco_table1", dataset="cifar10")
