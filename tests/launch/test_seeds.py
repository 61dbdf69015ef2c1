"""`--seeds`: a folder for each seed, mean and deviation, and how a stopped command continues."""

import csv
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from launch import evaluate, pretrain
from launch.options import command_line, resuming
from launch.options.run_config import RunConfig
from launch.options.script_configs import EvaluateConfig
from launch.outputs import run_folder
from launch.runs import scripts, seeds
from tests import programs
from tests.launch.mistakes import message_of
from tests.run_files import content
from tff_ssl.errors import ConfigurationError

ACCURACIES = {0: (0.5, 0.3), 1: (0.7, 0.4), 2: (0.9, 0.2)}  # Of the encoder, and untrained.
EVALUATED = {seed: (0.1 + 0.2 * seed, 0.05) for seed in range(3)}  # By `evaluate`.
FLAGS = ["--rounds=3", "--hparam=lambda=2"]


def results(seed, accuracies=ACCURACIES):
    accuracy, untrained = accuracies[seed]
    baselines = {"random_encoder": {"accuracy": untrained}}
    return [{"protocol": "linear", "labels": 10, "labels_per_class": 1, "accuracy": accuracy,
             "baselines": baselines}]  # fmt: skip


@pytest.fixture
def started(monkeypatch):
    """The command lines of the scripts, which write the files of a run instead of training."""
    commands = []

    def show_script(arguments):
        commands.append(arguments)
        script, *flags = arguments
        folder = run_folder.pathlib.Path(re.findall(r"--output_dir=(\S+)", " ".join(flags))[-1])
        folder.mkdir(parents=True, exist_ok=True)
        if script == "evaluate":
            seed = int(re.findall(r"seed_(\d)", str(folder))[-1])
            protocol = (re.findall(r"--protocol=(\w+)", " ".join(flags)) or ["linear"])[-1]
            run_folder.write_json(folder / f"result_{protocol}.json", results(seed, EVALUATED))
            return 0
        before = resuming.find(["x", *flags], script)
        config, _ = command_line.parse(RunConfig, script, ["x", *flags], before)
        run_folder.open_run(
            folder, seeds.settings.to_json(config), config.given, config.output.resume
        )
        run_folder.write_json(folder / "result.json", results(config.seed))
        return 0

    monkeypatch.setattr(scripts, "show_script", show_script)
    monkeypatch.setattr(seeds, "_compare", lambda runs, output: output / "compare.html")
    return commands


@pytest.fixture
def train(monkeypatch):
    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["pretrain", *flags])
        before = resuming.find(sys.argv, "pretrain")
        pretrain.main(command_line.parse(RunConfig, "pretrain", sys.argv, before)[0])

    return run


def summary(folder):
    with open(folder / "summary.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_the_summary_has_the_numbers_of_numpy(started, train, tmp_path, capsys):
    train(*FLAGS, "--seeds=0,1,2", f"--output_dir={tmp_path}/out")
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == [
        "seed_0", "seed_1", "seed_2", "summary.csv",
    ]  # fmt: skip
    (row,) = summary(tmp_path / "out")
    accuracies, untrained = np.array(list(ACCURACIES.values())).T
    assert (row["protocol"], row["labels_per_class"], row["seeds"]) == ("linear", "1", "3")
    for name, values in (
        ("accuracy", accuracies), ("random_encoder", untrained), ("gain", accuracies - untrained),
    ):  # fmt: skip
        assert float(row[name]) == pytest.approx(np.mean(values))
        assert float(row[f"{name}_std"]) == pytest.approx(np.std(values, ddof=1))
    printed = capsys.readouterr().out
    gains = accuracies - untrained
    line = next(text for text in printed.splitlines() if text.startswith("linear, 1 label a class"))
    assert "0.700 ± 0.200" in line
    assert line.endswith(f"{np.mean(gains):+.3f} ± {np.std(gains, ddof=1):.3f}")


def test_one_seed_has_no_deviation(started, train, tmp_path, capsys):
    train(*FLAGS, "--seeds=1", f"--output_dir={tmp_path}")
    (row,) = summary(tmp_path)
    assert (row["accuracy"], row["accuracy_std"], row["gain_std"]) == ("0.7", "", "")
    assert "±" not in capsys.readouterr().out


def test_the_config_of_a_seed_is_that_of_a_single_run(started, train, tmp_path):
    train(*FLAGS, "--seeds=0,1", f"--output_dir={tmp_path}/out")
    folder = tmp_path / "out" / "seed_1"
    before = json.loads((folder / "config.json").read_text())
    single = [*FLAGS, "--seed=1", f"--output_dir={folder}"]
    config, _ = command_line.parse(RunConfig, "pretrain", ["pretrain", *single])
    assert before.items() >= seeds.settings.to_json(config).items()
    assert before["given"] == sorted(config.given)
    assert "seeds" not in before["output"]


def test_finished_seeds_are_kept_and_others_continue(started, train, tmp_path, capsys):
    flags = [*FLAGS, f"--output_dir={tmp_path}/out"]
    train(*flags, "--seeds=0,1")
    with pytest.raises(ConfigurationError, match="already holds runs of seeds 0, 1: add --resume"):
        train(*flags, "--seeds=0,1")
    (tmp_path / "out" / "seed_1" / "result.json").unlink()  # As if it had been stopped.
    started.clear()
    train(*flags, "--seeds=0,1,2", "--resume")
    second, third = started
    assert second == ["pretrain", "--resume", f"--output_dir={tmp_path}/out/seed_1"]
    assert third[-2:] == ["--seed=2", f"--output_dir={tmp_path}/out/seed_2"]
    assert third[1:-3] == ["--hparam=lambda=2", "--hparam=lambda=2", "--rounds=3", "--flagfile="]
    assert "seed 0: done before" in capsys.readouterr().out
    assert summary(tmp_path / "out")[0]["seeds"] == "3"
    started.clear()
    train("--rounds=9", *flags[1:], "--seeds=0", "--resume")  # Trains further.
    assert started[0][-3:] == ["--seed=0", f"--output_dir={tmp_path}/out/seed_0", "--resume"]


def test_a_further_seed_has_the_flags_of_the_first_ones(started, train, tmp_path):
    folder = tmp_path / "out"
    train(*FLAGS, "--algorithm=fedavg", "--seeds=0", f"--output_dir={folder}")
    started.clear()
    train("--resume", "--seeds=0,1", f"--output_dir={folder}")
    (further,) = started  # The first one is done.
    assert further == [
        "pretrain", "--algorithm=fedavg", "--hparam=lambda=2", "--rounds=3", "--flagfile=",
        "--seeds=", "--seed=1", f"--output_dir={folder}/seed_1",
    ]  # fmt: skip
    first, second = (run_folder.read_flags(folder / f"seed_{seed}") for seed in (0, 1))
    assert second == {**first, "seed": 1, "output_dir": f"{folder}/seed_1"}


def test_a_run_whose_hyperparameter_was_given_again_is_finished(started, train, tmp_path):
    """`config.json` then has it several times, of which the last one counts."""
    folder = tmp_path / "out"
    more = ["--rounds=4", "--hparam=lambda=2.0", "--seeds=0", f"--output_dir={folder}"]
    train(*FLAGS, "--seeds=0", f"--output_dir={folder}")
    train(*more, "--resume")
    assert run_folder.read_flags(folder / "seed_0")["hparam"] == ["lambda=2", "lambda=2.0"]
    started.clear()
    train(*more, "--resume")
    assert not started


def test_a_seed_that_was_stopped_while_it_trained_further_is_not_finished(
    started, train, monkeypatch, tmp_path, capsys
):
    folder = tmp_path / "out"
    train("--rounds=3", "--seeds=0,1", f"--output_dir={folder}")
    more = ["--rounds=800", "--seeds=0,1", f"--output_dir={folder}", "--resume"]
    write = run_folder.write_json

    def stop(path, content):
        if path.name == "result.json":
            raise KeyboardInterrupt
        write(path, content)

    with monkeypatch.context() as stopping:
        stopping.setattr(run_folder, "write_json", stop)
        with pytest.raises(KeyboardInterrupt):
            train(*more)
    started.clear()
    capsys.readouterr()
    train(*more)
    printed = capsys.readouterr().out
    assert "seed 0: continues" in printed
    assert "seed 1: continues" in printed
    assert [command[-1] for command in started] == [f"--output_dir={folder}/seed_0", "--resume"]


def test_a_stopped_command_says_how_to_continue(monkeypatch, train, tmp_path, capsys):
    def stop(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(scripts, "show_script", stop)
    with pytest.raises(KeyboardInterrupt):
        train(*FLAGS, "--seeds=0,1", f"--output_dir={tmp_path}/out")
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("continue with: ")
    assert line.endswith(
        f"-m launch.pretrain {' '.join(FLAGS)} --seeds=0,1 --output_dir={tmp_path}/out --resume"
    )


def test_a_seed_that_fails_ends_the_command(monkeypatch, train, tmp_path):
    monkeypatch.setattr(scripts, "show_script", lambda arguments: 3)
    with pytest.raises(SystemExit) as ended:
        train("--seeds=0,1", f"--output_dir={tmp_path}/out")
    assert ended.value.code == 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("named", "flags"),
    [
        ("--seed and --seeds", ["--seeds=0,1", "--seed=1"]),
        ("--seeds=0,1,0 has 0 twice", ["--seeds=0,1,0"]),
        ("--seeds=['0', '-1']: takes whole numbers", ["--seeds=0,-1"]),
        ("--seeds=['x']: takes whole numbers", ["--seeds=x"]),
    ],
)
def test_mistakes_are_one_line(tmp_path, named, flags):
    assert named in message_of(pretrain, [*flags, f"--output_dir={tmp_path}/out"])
    assert not (tmp_path / "out").exists()


def test_a_folder_of_seeds_is_not_resumed_as_one_run(started, train, tmp_path):
    train("--seeds=0,1", f"--output_dir={tmp_path}")
    message = message_of(pretrain, ["--resume", f"--output_dir={tmp_path}"])
    assert "holds runs of several seeds: add --seeds=0,1" in message


def test_evaluate_takes_the_runs_of_the_seeds_or_draws_other_labels(
    started, train, monkeypatch, tmp_path
):
    def run(*flags):
        started.clear()
        monkeypatch.setattr(sys, "argv", ["evaluate", *flags])
        evaluate.main(command_line.parse(EvaluateConfig, "evaluate", sys.argv)[0])

    folder = tmp_path / "out"
    train("--seeds=0,2", f"--output_dir={folder}")
    for seed in (0, 2):  # Of an earlier evaluation.
        other = folder / f"seed_{seed}" / "result_linear_case_folder_b.json"
        run_folder.write_json(other, results(seed))
        os.utime(other, (0, 0))
    run(f"--run={folder}", "--seeds=0,2")
    assert [command[-2:] for command in started] == [
        [f"--run={folder}/seed_{seed}", f"--output_dir={folder}/seed_{seed}"] for seed in (0, 2)
    ]
    evaluated, _ = np.array([EVALUATED[seed] for seed in (0, 2)]).T
    (row,) = summary(folder)  # Of the evaluation, not of the training with the same labels.
    assert float(row["accuracy"]) == pytest.approx(np.mean(evaluated))
    assert float(row["accuracy_std"]) == pytest.approx(np.std(evaluated, ddof=1))
    with pytest.raises(ConfigurationError, match="--seed and --seeds: give one of them"):
        run(f"--run={folder}", "--seeds=0,2", "--seed=1")
    with pytest.raises(ConfigurationError, match="no run of seed 1; it has 0, 2"):
        run(f"--run={folder}", "--seeds=0,1")
    single, output = folder / "seed_0", tmp_path / "evaluated"
    run(f"--run={single}", "--seeds=1,2", f"--output_dir={output}")
    assert [command[-2:] for command in started] == [
        [f"--seed={seed}", f"--output_dir={output}/seed_{seed}"] for seed in (1, 2)
    ]
    (row,) = summary(output)
    assert float(row["accuracy"]) == pytest.approx(0.4)
    assert float(row["accuracy_std"]) == pytest.approx(np.std([0.3, 0.5], ddof=1))
    html = (output / "compare.html").read_text()
    assert "40.0 ± 14.1" in html
    assert "<td>seeds</td><td>1, 2</td>" in html


@pytest.mark.long
@pytest.mark.slow
def test_a_seed_is_bit_equal_to_a_single_run(project_root, tmp_path):
    def run(*flags):
        done = programs.run(
            [sys.executable, "-m", "launch.pretrain", *flags, "--rounds=2", "--encoder=tiny",
             "--label_draws=1", "--baselines=random_encoder"],
            cwd=project_root, stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")

    run("--seeds=1,3", f"--output_dir={tmp_path}/several")
    run("--seed=3", f"--output_dir={tmp_path}/single")
    several, single = tmp_path / "several" / "seed_3", tmp_path / "single"
    for file in ("result.json", "encoder/weights.npz", "checkpoints/round_2.npz", "partition.json"):
        assert content(several / file) == content(single / file), file
    assert {p.name for p in several.iterdir()} == {p.name for p in single.iterdir()}
    assert summary(tmp_path / "several")[0]["seeds"] == "2"
    assert "Mean and deviation over seeds" in (tmp_path / "several" / "compare.html").read_text()
