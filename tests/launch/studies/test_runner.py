"""The cells of an experiment: what runs, once, in which order, and what is kept."""

import concurrent.futures
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
import types

import pytest

from launch import reproduce as launch_reproduce
from launch.outputs import run_folder
from launch.runs import scripts as scripts_module
from launch.studies import catalog
from launch.studies.engine import exchange, runner
from tff_ssl.algorithms import named_code, registry
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting import records
from tff_ssl.reporting.experiment import Cell, Experiment


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
            for name in ("encoder", "checkpoints", "client_states"):
                (output / name).mkdir()
            (output / "metrics.csv").write_text("round,seconds,knn_accuracy\n1,30,0.5\n")
            run_folder.write_json(output / "result.json", [])
        return failures.get(output.parent.name)

    monkeypatch.setattr(runner, "run_script", run)
    return calls, failures


def test_scripts_run_from_the_projects_root(project_root):
    """From another folder, `python -m launch.NAME` finds no package."""
    assert project_root == scripts_module._ROOT
    assert (scripts_module._ROOT / "launch" / "pretrain.py").is_file()


MEASURED = {
    path.stem: path
    for path in (scripts_module._ROOT / "measured").glob("*.jsonl")
    if path.stem not in ("noted", "estimates-paper")
}
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
    assert [path.name for path in output.iterdir() if path.is_dir()] == ["encoder"]
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


def test_a_partition_is_drawn_again_for_other_flags(scripts, tmp_path):
    calls, _ = scripts
    cells = (Cell("one", "pretrain", ("--partition=skew", "--beta=0")),)
    experiment = Experiment("drawn", "", cells, (), (), partitions={"skewed": "one"})
    runner._draw_partitions(experiment, tmp_path, ARGS)
    runner._draw_partitions(experiment, tmp_path, ARGS)
    assert len(calls) == 1
    other = (dataclasses.replace(cells[0], flags=("--partition=skew", "--beta=1")),)
    runner._draw_partitions(dataclasses.replace(experiment, cells=other), tmp_path, ARGS)
    assert "--beta=1" in calls[1]


def test_an_imported_run_that_another_needs_is_trained_again(scripts, tmp_path):
    calls, _ = scripts
    cells = (
        Cell("encoder", "centralized", ()),
        Cell("clusters", "pretrain", ("--cluster_encoder={needed}",), needs="encoder"),
    )
    experiment, args = Experiment("two", "", cells, (), ()), types.SimpleNamespace(**vars(ARGS))
    args.seeds = 1
    runner.run(experiment, cells[:1], tmp_path / "a", args)
    exchange.export_runs(tmp_path / "a", tmp_path / "kept.jsonl")
    exchange.import_runs(tmp_path / "kept.jsonl", tmp_path / "b")
    calls.clear()
    runner.run(experiment, cells[:1], tmp_path / "b", args)
    assert not calls  # Its results are all that is asked for.
    runner.run(experiment, cells, tmp_path / "b", args)
    assert [call[0] for call in calls] == ["centralized", "pretrain"]
    assert (tmp_path / "b" / "encoder" / "seed0" / "encoder").is_dir()


def test_a_report_names_cells_without_an_evaluation_of_the_experiment(scripts, tmp_path):
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    good, bad = EXPERIMENT.cells
    more = dataclasses.replace(good, evaluations=(*good.evaluations, ("--protocol=linear",)))
    report_only = types.SimpleNamespace(**{**vars(ARGS), "report_only": True})
    runner.run(
        dataclasses.replace(EXPERIMENT, cells=(more, bad)), (more, bad), tmp_path, report_only
    )
    note = "Without an evaluation that the experiment has now: good."
    assert note in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_measured_runs_have_the_flags_of_their_experiment(name):
    found = records.read_file(MEASURED[name])
    build, _ = catalog.EXPERIMENTS[found.identity["experiment"]]
    fields = (found.identity[field] for field in ("scale", "dataset", "rounds"))
    assert runner._notes_on_changed_flags(build(*fields), found) == []


def test_flags_that_the_partition_does_not_read_are_not_compared(scripts, tmp_path):
    good, _ = EXPERIMENT.cells
    cells = [
        dataclasses.replace(good, flags=("--partition=iid", f"--beta={beta}")) for beta in (0, 1)
    ]
    runner.run(EXPERIMENT, cells[:1], tmp_path, ARGS)
    runner.run(EXPERIMENT, cells[1:], tmp_path, ARGS)


def test_an_imported_run_is_trained_for_a_new_evaluation(scripts, tmp_path):
    calls, _ = scripts
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path / "first", ARGS)
    exchange.export_runs(tmp_path / "first", tmp_path / "kept.jsonl")
    exchange.import_runs(tmp_path / "kept.jsonl", tmp_path / "second")
    calls.clear()
    runner.run(EXPERIMENT, EXPERIMENT.cells, tmp_path / "second", ARGS)
    assert calls == []
    good, bad = EXPERIMENT.cells
    more = dataclasses.replace(good, evaluations=(*good.evaluations, ("--protocol=transfer",)))
    experiment = dataclasses.replace(EXPERIMENT, cells=(more, bad))
    runner.run(experiment, experiment.cells, tmp_path / "second", ARGS)
    assert [call[0] for call in calls] == ["pretrain", *["evaluate"] * 3] * 2


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
