"""`launch.sweep`: its trials, the choice on training images, and a sweep that continues."""

import csv
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from launch import sweep
from launch.options import command_line
from launch.outputs import run_folder
from launch.runs import scripts, trials
from launch.runs.trials import Trial
from tests import programs
from tests.launch.mistakes import messages
from tff_ssl.algorithms import registry
from tff_ssl.errors import ConfigurationError, TrainingError

# kNN accuracy on training images at a rate and a seed; the test accuracy rises with the rate.
KNN = {("0.1", 0): 0.6, ("0.1", 1): 0.8, ("0.2", 0): 0.75, ("0.2", 1): 0.85,
       ("0.9", 0): 0.5, ("0.9", 1): 0.6}  # fmt: skip
RATES = "--hparam=client_learning_rate=0.1,0.2,0.9"


@pytest.fixture
def started(monkeypatch):
    """The command lines of `pretrain`, which writes the files of a run instead of training."""
    commands = []

    def run_script(arguments, log, folder):
        commands.append(arguments)
        flags = dict(re.findall(r"--(\w+)=(\S+)", " ".join(arguments)))
        rate, seed = flags.get("hparam", "=0.1").split("=")[1], int(flags["seed"])
        run = sweep.pathlib.Path(flags["output_dir"])
        if rate == "7":
            return "the loss of round 1 is nan: training diverged"
        (run / "metrics.csv").write_text(
            f"round,seconds,knn_accuracy\n1,1,0.99\n2,1,{KNN[rate, seed]}\n"
        )
        baselines = {"random_encoder": {"accuracy": 0.1}}
        entry = {"protocol": "linear", "labels": 10, "accuracy": float(rate) + 0.01 * seed,
                 "baselines": baselines}  # fmt: skip
        run_folder.write_json(run / "result.json", [entry])
        return None

    monkeypatch.setattr(scripts, "run_script", run_script)
    return commands


@pytest.fixture
def run_sweep(monkeypatch):
    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["sweep", *flags])
        sweep.main(command_line.parse(sweep.SweepConfig, "sweep", sys.argv)[0])

    return run


def summary(folder):
    with open(folder / "summary.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_the_best_setting_on_training_images_is_selected(started, run_sweep, tmp_path, capsys):
    run_sweep("--algorithms=fedavg", RATES, "--seeds=0,1", f"--output_dir={tmp_path}/out")
    assert len(started) == 6
    rows = {row["hparam.client_learning_rate"]: row for row in summary(tmp_path / "out")}
    for rate, row in rows.items():
        scores = [KNN[rate, seed] for seed in (0, 1)]
        assert float(row["validation"]) == pytest.approx(np.mean(scores))
        assert float(row["validation_std"]) == pytest.approx(np.std(scores, ddof=1))
    # The setting with the best test accuracy, 0.9, is not selected, and its tests are not shown.
    assert {rate: row["selected"] for rate, row in rows.items()} == {
        "0.1": "", "0.2": "yes", "0.9": "",
    }  # fmt: skip
    test = "test_linear_10_labels"
    assert [rows[rate][test] for rate in ("0.1", "0.9")] == ["", ""]
    assert float(rows["0.2"][test]) == pytest.approx(np.mean([0.2, 0.21]))
    assert float(rows["0.2"][f"{test}_std"]) == pytest.approx(np.std([0.2, 0.21], ddof=1))
    assert float(rows["0.2"][f"{test}_gain"]) == pytest.approx(np.mean([0.1, 0.11]))
    assert (tmp_path / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("fedavg  "))
    assert line.split()[1:] == [
        "client_learning_rate=0.2", "3", "trials", "0.800", "±", "0.071", "0.205", "±", "0.007",
    ]  # fmt: skip


def test_the_same_command_continues_and_more_values_are_added(started, run_sweep, tmp_path):
    flags = ["--algorithms=fedavg", "--seeds=0,1", f"--output_dir={tmp_path}/out", "--rounds=5"]
    run_sweep(*flags, "--hparam=client_learning_rate=0.1,0.2")
    trial = Trial("fedavg", (("client_learning_rate", "0.2"),))
    run = run_folder.of_seed(trial.folder(tmp_path / "out"), 1)
    (run / "done.json").unlink()  # As if it had been stopped.
    started.clear()
    run_sweep(*flags, RATES)
    assert [re.findall(r"rate=\S+|seed=\d", " ".join(command)) for command in started] == [
        ["rate=0.2", "seed=1", "rate=0.2/seed_1"],
        ["rate=0.9", "seed=0", "rate=0.9/seed_0"],
        ["rate=0.9", "seed=1", "rate=0.9/seed_1"],
    ]
    assert all({"--rounds=5", "--resume"} <= set(command) for command in started)
    with pytest.raises(ConfigurationError, match=r"holds a sweep with other flags \(--rounds=5\)"):
        run_sweep(*flags, RATES, "--rounds=6")


def test_a_diverged_training_counts_as_zero_and_other_errors_end_the_sweep(
    started, run_sweep, monkeypatch, tmp_path
):
    run_sweep(
        "--algorithms=fedavg", "--hparam=client_learning_rate=7,0.1", f"--output_dir={tmp_path}"
    )
    diverged, kept = summary(tmp_path)
    assert (diverged["failed"], float(diverged["validation"])) == ("1", 0)
    assert (kept["selected"], kept["validation_std"]) == ("yes", "")  # One seed: no deviation.
    monkeypatch.setattr(scripts, "run_script", lambda *_, **__: "no such data")
    with pytest.raises(TrainingError, match=r"fedavg, client_learning_rate=0.2, seed 0: no such"):
        run_sweep("--algorithms=fedavg", "--hparam=client_learning_rate=0.2",
                  f"--output_dir={tmp_path}")  # fmt: skip


def test_one_trial_is_announced_in_the_singular(started, run_sweep, tmp_path, capsys):
    run_sweep("--algorithms=fedavg", f"--output_dir={tmp_path}/one")
    assert "1 trial x 1 seed, 1 run to do, 0 done" in capsys.readouterr().out
    run_sweep("--algorithms=fedavg", RATES, "--seeds=0,1", f"--output_dir={tmp_path}/six")
    assert "3 trials x 2 seeds, 6 runs to do, 0 done" in capsys.readouterr().out


def test_a_hyperparameter_applies_to_the_algorithms_that_have_it():
    algorithms = {name: registry.ALGORITHMS[name].hyperparameters for name in ("fedavg", "fedprox")}
    grid = trials.parse_grid(["mu=0.1,1", "local_epochs=1, 2 ,2"])
    found, notes = trials.choose(algorithms, grid, None, 0)
    assert notes == ["mu is for fedprox; not for fedavg"]
    assert [trial.setting for trial in found if trial.algorithm == "fedavg"] == [
        "local_epochs=1", "local_epochs=2",
    ]  # fmt: skip
    settings = [trial.setting for trial in found if trial.algorithm == "fedprox"]
    assert settings[:2] == ["mu=0.1,local_epochs=1", "mu=0.1,local_epochs=2"]
    assert len(settings) == 4
    assert Trial("fedavg", ()).setting == "default"
    # `visualize --compare` has commas between folders.
    folder = Trial("fedprox", (("mu", "0.1"), ("local_epochs", "1"))).folder(pathlib.Path("out"))
    assert folder == pathlib.Path("out/fedprox/mu=0.1+local_epochs=1")


def test_random_trials_are_a_part_of_the_grid_and_grow_with_their_number():
    algorithms = {"fedprox": registry.ALGORITHMS["fedprox"].hyperparameters}
    grid = trials.parse_grid(["mu=0.1,1,2", "local_epochs=1,2,3"])
    whole, _ = trials.choose(algorithms, grid, None, 0)
    three, _ = trials.choose(algorithms, grid, 3, 5)
    five, _ = trials.choose(algorithms, grid, 5, 5)
    assert five[:3] == three
    assert len(set(five)) == 5
    assert set(five) <= set(whole)
    assert trials.choose(algorithms, grid, 5, 6)[0] != five
    assert set(trials.choose(algorithms, grid, 99, 5)[0]) == set(whole)


def test_flags_of_a_preset_hold_for_all_trials(started, run_sweep, tmp_path):
    preset = "--flagfile=launch/presets/digits/fedavg.flags"
    run_sweep(preset, "--algorithms=fedavg", "--alpha=0.5", f"--output_dir={tmp_path}")
    (command,) = started
    assert command[:2] == ["pretrain", preset]
    assert "--alpha=0.5" in command
    assert not any(flag.startswith(("--algorithms", "--hparam=c")) for flag in command)
    assert summary(tmp_path)[0]["setting"] == "default"


def test_mistakes_are_one_line(project_root, tmp_path):
    output = tmp_path / "out"
    mistakes = (
        ("--algorithm must be one of", ["--algorithms=fedavg,nosuch"]),
        ("--hparam=mu: fedavg has only", ["--algorithms=fedavg", "--hparam=mu=1"]),
        (
            "--hparam=nosuch: fedavg and fedu have only",
            ["--algorithms=fedavg,fedu", "--hparam=nosuch=1"],
        ),
        ("--hparam=mu=1,: give name=value", ["--algorithms=fedprox", "--hparam=mu=1,"]),
        ("--hparam=mu=x", ["--algorithms=fedprox", "--hparam=mu=1,x"]),
        ("--trials is for --search=random", ["--trials=3"]),
        ("--eval_every=0", ["--eval_every=0"]),
        ("--jobs=999 is more than", ["--jobs=999"]),
        ("--seeds=1,1 has 1 twice", ["--seeds=1,1"]),
        ("--seed and --seeds", ["--seeds=1", "--seed=1"]),
        ("search", ["--search=nosuch"]),
        ("unexpected argument 'surplus'", ["surplus"]),
    )
    flags = [[*more, f"--output_dir={output}"] for _, more in mistakes]
    for (named, _), message in zip(mistakes, messages(project_root, "sweep", flags), strict=True):
        assert named in message
    assert not output.exists()


@pytest.mark.long
@pytest.mark.slow
def test_a_sweep_of_two_algorithms(project_root, tmp_path):
    flags = ("--algorithms=fedavg,fedprox", "--seeds=0,1", "--rounds=2", "--jobs=2",
             "--encoder=tiny", "--label_draws=1", f"--output_dir={tmp_path}/out")  # fmt: skip
    command = [sys.executable, "-m", "launch.sweep", *flags]
    for to_do in (4, 0):
        done = programs.run(
            command, cwd=project_root, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert f"{to_do} runs to do" in done.stdout
    fedavg, fedprox = summary(tmp_path / "out")
    assert fedavg["seeds"] == fedprox["seeds"] == "2"
    assert fedavg["selected"] == fedprox["selected"] == "yes"
    assert 0.1 < float(fedavg["test_linear_1_per_class"]) < 1
