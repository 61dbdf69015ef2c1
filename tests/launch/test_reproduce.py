"""`launch.reproduce`: its experiments, and a tiny reproduction that is stopped and goes on."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types

import pytest

from launch import app, reproduction, run_folder
from launch.experiments import catalog, dcco, production
from tff_ssl.errors import TrainingError
from tff_ssl.reporting.experiment import Cell, Experiment


def reproduce(project_root, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "launch.reproduce", *map(str, arguments)],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def settings(project_root, flags) -> dict[str, str]:
    """The last value of each flag, those of presets included; every `--hparam` by its name."""
    values = {}
    for flag in flags:
        name, _, value = flag.removeprefix("--").partition("=")
        if name == "flagfile":
            lines = (project_root / value).read_text().splitlines()
            values |= settings(project_root, [line for line in lines if line.startswith("--")])
        elif name == "hparam":
            name, _, value = value.partition("=")
            values[f"hparam.{name}"] = value
        else:
            values[name] = value
    return values


@pytest.mark.parametrize("scale", ["cpu", "paper"])
@pytest.mark.parametrize("name", list(catalog.EXPERIMENTS))
def test_cells_measure_what_their_tables_show(project_root, name, scale):
    experiment = catalog.EXPERIMENTS[name][0](scale, None, None)
    cells = {cell.name: cell for cell in experiment.cells}
    for table in experiment.tables:
        for row, names in table.rows.items():
            selector = table.selectors.get(row, table.selector)
            for cell in (cells[name] for name in names if name):
                trained = settings(project_root, cell.flags)
                evaluated = [settings(project_root, flags) for flags in cell.evaluations]
                protocols = {one["protocol"] for one in evaluated}
                if trained.get("objective") == "supervised":
                    protocols.add("supervised")
                elif "--nofinal_eval" not in cell.flags:
                    protocols.add("linear")
                if int(trained.get("personalized_clients", 0)):
                    protocols.add("linear_personalized")
                protocol = selector.protocol
                if protocol.startswith("linear_personalized"):
                    protocol = "linear_personalized"
                assert protocol in protocols, (table.title, row, cell.name)


@pytest.mark.parametrize("scale", ["cpu", "paper"])
@pytest.mark.parametrize("name", list(catalog.EXPERIMENTS))
def test_every_cell_of_every_table_exists_and_has_its_preset(project_root, name, scale):
    experiment = catalog.EXPERIMENTS[name][0](scale, None, None)
    names = [cell.name for cell in experiment.cells]
    assert len(set(names)) == len(names)
    for table in experiment.tables:
        for row, cells in table.rows.items():
            assert len(cells) in (1, len(table.columns))
            assert set(cells) <= {*names, None}
            assert row not in table.published or len(table.published[row]) in (
                1, len(table.columns),
            )  # fmt: skip
    titles = {table.title for table in experiment.tables}
    assert {claim.table for claim in experiment.claims} <= titles
    assert {title for pair in experiment.against for title in pair} <= titles
    used = {flag for cell in experiment.cells for flag in cell.flags if "flagfile" in flag}
    for flag in used:
        assert (project_root / flag.partition("=")[2]).exists()


def test_a_preset_outside_of_the_experiments_names_its_data(project_root):
    experiments = [
        build(scale, None, None)
        for build, _ in catalog.EXPERIMENTS.values()
        for scale in ("cpu", "paper")
    ]
    cells = [cell for experiment in experiments for cell in experiment.cells]
    used = {flag for cell in cells for flag in cell.flags if flag.startswith("--flagfile")}
    # And those that the used ones include.
    used |= {
        line
        for flag in used
        for line in (project_root / flag.partition("=")[2]).read_text().splitlines()
    }
    presets = sorted((project_root / "launch" / "presets").glob("*.flags"))
    alone = [path for path in presets if f"--flagfile=launch/presets/{path.name}" not in used]
    assert alone
    for path in alone:
        given = settings(project_root, [f"--flagfile=launch/presets/{path.name}"])
        assert "dataset" in given, path.name


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_epsilons_of_more_clients_are_those_of_the_runs_settings(project_root, scale):
    cell = production.privacy(scale, None, None).cells[0]
    preset, *more = cell.flags
    lines = [*(project_root / preset.partition("=")[2]).read_text().splitlines(), *more]
    given = dict(line[2:].split("=", 1) for line in lines if line.startswith("--"))
    _, a_round, rounds = production._CLIENTS[scale]
    assert (given["clients_per_round"], given["rounds"]) == (str(a_round), str(rounds))


def test_the_papers_own_setting_is_in_the_presets(project_root):
    text = (project_root / "launch/presets/dcco_table1_paper_dcco.flags").read_text()
    for flag in (
        "--dataset=cifar100", "--encoder=resnet14", "--projector=1024,1024,1024",
        "--views=byol_no_blur", "--rounds=100000", "--hparam=lambda=20",
        "--hparam=server_learning_rate=0.005",
    ):  # fmt: skip
        assert flag in text.splitlines()
    cells = {cell.name: cell for cell in dcco.table1("paper", None, None).cells}
    assert "--clients_per_round=512" in cells["dcco_noniid_1"].flags
    assert "--clients_per_round=32" in cells["contrastive_fedavg_iid_16"].flags
    assert "contrastive_fedavg_noniid_1" not in cells
    derm = {cell.name: cell for cell in dcco.table2("paper", None, None).cells}
    assert "--hparam=server_learning_rate=1.8" in derm["dcco_256"].flags
    assert "--hparam=server_learning_rate=0.6" in derm["contrastive_fedavg_256"].flags


def test_list_and_bad_input(project_root, tmp_path):
    listed = reproduce(project_root, "--list")
    assert listed.returncode == 0
    assert "experiment dcco_table1" in listed.stdout
    for arguments, named in (
        (["--experiment=nosuch"], "--experiment"),
        (["--experiment=dcco_table1", "--only=nosuch"], "--only"),
        (["--experiment=dcco_table1", "--jobs=1000"], "--jobs"),
        (["--experiment=dcco_table2", "--dataset=cifar10"], "--dataset=cifar10"),
    ):
        output = tmp_path / "run"
        bad = reproduce(project_root, *arguments, f"--output_dir={output}")
        assert bad.returncode != 0
        assert named in bad.stderr
        assert len(bad.stderr.strip().splitlines()) == 1
        assert not output.exists()


@pytest.mark.slow
def test_a_tiny_reproduction_goes_on_where_it_was(project_root, tmp_path):
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
    assert "not measured" in report
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
    other = reproduce(project_root, *arguments[:2], "--rounds=3", *arguments[3:])
    assert other.returncode != 0
    assert "another reproduction" in other.stderr


@pytest.fixture
def scripts(monkeypatch):
    """Stands for the scripts: `calls` are their arguments, `failures` their last lines."""
    calls: list[list[str]] = []
    failures: dict[str, str] = {}

    def run(arguments, log):
        calls.append(list(arguments))
        output = log.parent
        if arguments[0] != "evaluate" and output.parent.name not in failures:
            for unneeded in ("checkpoints", "client_states"):
                (output / unneeded).mkdir()
            run_folder.write_json(output / "result.json", [])
        return failures.get(output.parent.name)

    monkeypatch.setattr(reproduction, "_script", run)
    return calls, failures


ARGS = types.SimpleNamespace(
    seeds=2, retry_failed=False, report_only=False, data_dir="images", scale="cpu", dataset=None,
    rounds=None, jobs=1,
)  # fmt: skip
EXPERIMENT = Experiment(
    "two", "Two cells", (
        Cell("good", "pretrain", ("--alpha=0",), (("--protocol=finetune",), ("--protocol=knn",))),
        Cell("bad", "centralized", ()),
    ), (), (),
)  # fmt: skip


def test_a_cell_is_trained_and_evaluated_once_a_seed(scripts, tmp_path):
    calls, _ = scripts
    reproduction.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    output = tmp_path / "good" / "seed1"
    assert [call[0] for call in calls] == ["pretrain", "evaluate", "evaluate", "centralized"] * 2
    assert calls[4] == [
        "pretrain", "--alpha=0", "--data_dir=images", "--seed=1", f"--output_dir={output}",
        "--resume",
    ]  # fmt: skip
    assert calls[5] == ["evaluate", f"--run={output}", "--data_dir=images", "--protocol=finetune"]
    assert [path.name for path in output.iterdir() if path.is_dir()] == []
    reproduction.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    assert len(calls) == 8


def test_a_new_evaluation_of_a_cell_is_made_of_the_runs_that_are_there(scripts, tmp_path):
    calls, _ = scripts
    reproduction.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    before = len(calls)
    good = EXPERIMENT.cells[0]
    evaluations = (*good.evaluations, ("--protocol=linear",))
    cells = (dataclasses.replace(good, evaluations=evaluations), EXPERIMENT.cells[1])
    experiment = dataclasses.replace(EXPERIMENT, cells=cells)
    reproduction.run(experiment, experiment.cells, tmp_path, ARGS)
    assert [(call[0], call[-1]) for call in calls[before:]] == [
        ("evaluate", "--protocol=linear")
    ] * 2
    reproduction.run(experiment, experiment.cells, tmp_path, ARGS)
    assert len(calls) == before + 2


def test_diverged_training_is_a_result_and_other_errors_are_not(scripts, tmp_path):
    calls, failures = scripts
    failures["bad"] = "training diverged: loss nan in round 3"
    reproduction.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    assert "loss nan" in (tmp_path / "bad" / "seed0" / "failed.json").read_text()
    done = len(calls)
    reproduction.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, ARGS)
    assert len(calls) == done
    failures["good"] = "no space left on device"
    with pytest.raises(TrainingError, match=r"good, seed 0: no space.*log\.txt"):
        reproduction.run(EXPERIMENT, EXPERIMENT.cells, tmp_path / "other", ARGS)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_jobs_run_at_once_each_on_cores_of_its_own(scripts, monkeypatch, tmp_path):
    both, alone = threading.Barrier(2, timeout=30), reproduction._script
    cores = {}

    def run(arguments, log):
        if arguments[0] != "evaluate":
            cores[log.parent] = os.sched_getaffinity(0)
            both.wait()
        return alone(arguments, log)

    monkeypatch.setattr(reproduction, "_script", run)
    args = types.SimpleNamespace(**vars(ARGS) | {"jobs": 2})
    reproduction.run(EXPERIMENT, EXPERIMENT.cells, tmp_path, args)
    first, second = {frozenset(share) for share in cores.values()}
    assert first.isdisjoint(second)
    assert len(list(tmp_path.glob("*/seed*/done.json"))) == 4


# Stands for a training: says that it runs, and notes when it is told to end.
SLOW_SCRIPT = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.default_int_handler)
output = pathlib.Path([a for a in sys.argv if a.startswith("--output_dir=")][0].split("=")[1])
(output / "started").touch()
try:
    time.sleep(60)
except KeyboardInterrupt:
    (output / "interrupted").touch()
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_it_ends_its_runs_and_starts_no_other(project_root, tmp_path, sent):
    (tmp_path / "launch").mkdir()
    for name in ("__init__", "pretrain"):
        (tmp_path / "launch" / f"{name}.py").write_text(SLOW_SCRIPT if name == "pretrain" else "")
    code = (
        "import pathlib, types; from launch import app, reproduction, run_folder;"
        "from tff_ssl.reporting.experiment import Cell, Experiment;"
        f"reproduction._ROOT = pathlib.Path({str(tmp_path)!r});"
        "cells = tuple(Cell(n, 'pretrain', ()) for n in 'abc');"
        f"args = types.SimpleNamespace(**{vars(ARGS) | {'jobs': 2}!r});"
        f"folder = pathlib.Path({str(tmp_path / 'runs')!r});"
        "experiment = Experiment('three', 'Three cells', cells, (), ());"
        "app.run(lambda: reproduction.run(experiment, cells, folder, args))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=project_root)
    latest = time.monotonic() + 60
    while len(list(tmp_path.glob("runs/*/seed0/started"))) < 2:
        assert time.monotonic() < latest
        time.sleep(0.05)
    process.send_signal(sent)
    assert process.wait(30) == app.INTERRUPTED
    assert len(list(tmp_path.glob("runs/*/seed0/interrupted"))) == 2
    assert len(list(tmp_path.glob("runs/*/seed*/started"))) == 2
