"""Whole runs that are killed at random moments and resumed equal runs that are not, bit for bit.

`tests/simulation/test_kills.py` kills the training loop far more often, inside one process.
"""

import random
import signal
import subprocess

import numpy as np
import pytest

from tests import programs
from tests.daily_seed import DAILY_SEED
from tests.launch.test_scripts import (
    ENVIRONMENT,
    ROOT,
    command,
    encoder_variables,
    metrics,
    run,
    wait_until,
    workers,
)
from tests.run_files import content

KILLS = 3  # of each run
ROUNDS = 8
COMMON = [
    "--encoder=tiny", "--view_size=8", "--data_fraction=0.2", f"--rounds={ROUNDS}",
    "--checkpoint_every=2", "--eval_every=0", "--baselines=", "--label_draws=1",
    "--labels_per_class=1",
]  # fmt: skip
# Clients with memory, whose run has files of every kind. The training loop is killed with all kinds
# of algorithms.
RUNS = {
    "fedbn": [
        "--norm=batch", "--projector_output_batch_norm", "--hparam=keep_local=true",
        "--personalized_clients=2",
    ],
}  # fmt: skip


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["in_process", "worker"])
@pytest.mark.parametrize("algorithm", RUNS)
def test_a_run_that_is_killed_at_random_moments_equals_one_that_is_not(
    algorithm, runtime, tmp_path
):
    whole, folder, temporary = (tmp_path / name for name in ("whole", "killed", "temporary"))
    temporary.mkdir()
    flags = [f"--algorithm={algorithm}", f"--runtime={runtime}", *COMMON, *RUNS[algorithm]]
    expected = run("pretrain", *flags, f"--output_dir={whole}")
    assert expected.returncode == 0, expected.stderr
    chance = random.Random(f"{DAILY_SEED} {algorithm}")
    print(f"DAILY_SEED={DAILY_SEED}")
    environment = {**ENVIRONMENT, "TMPDIR": str(temporary)}
    kills, left = 0, 0
    for _ in range(3 * KILLS):  # A run may end before it is killed.
        process = start(flags, folder, environment)
        kill(process, folder, chance, first=not kills)
        assert wait_until(lambda: not workers())
        kills += process.returncode == -signal.SIGKILL
        left += any(temporary.iterdir())
        if kills == KILLS:
            break
    assert kills == KILLS
    assert left
    resumed = programs.run(
        resuming(flags, folder), cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert resumed.returncode == 0, resumed.stderr
    assert not list(temporary.iterdir())  # The files of the killed runs are gone, too.
    assert_same(whole, folder)
    if algorithm == "fedbn":
        assert_personalized(whole)


def resuming(flags, folder):
    """The command that starts a run, or resumes it once it has its configuration."""
    if (folder / "config.json").exists():
        return command("pretrain", "--resume", f"--output_dir={folder}")
    return command("pretrain", *flags, f"--output_dir={folder}")


def start(flags, folder, environment):
    return programs.start(
        resuming(flags, folder),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(process, folder, chance, first):
    """Kills a run shortly after it has a random number of rounds, or during its start.

    The first kill is in the midst of the rounds, where a run has temporary files.
    """
    done = rounds_done(folder)
    target = chance.randint(1, ROUNDS // 2) if first else chance.randint(done, ROUNDS)
    assert wait_until(lambda: rounds_done(folder) >= target or process.poll() is not None)
    delay = chance.uniform(0, 8 if target == done else 0.3)
    wait_until(lambda: process.poll() is not None, delay)
    process.send_signal(signal.SIGKILL)
    process.wait()


def rounds_done(folder):
    return len(metrics(folder)) if (folder / "metrics.csv").exists() else 0


def assert_same(whole, folder):
    """Compares metrics, checkpoints, clients' states, and all encoders that a run exports."""
    for a, b in zip(metrics(whole), metrics(folder), strict=True):
        a.pop("seconds"), b.pop("seconds")
        assert a == b
    names = {
        path.relative_to(whole)
        for part in ("checkpoints", "client_states", "client_metrics.csv")
        for path in [whole / part, *(whole / part).rglob("*")]
        if path.is_file()
    }
    assert any(name.suffix == ".npz" for name in names)
    for name in names:
        assert content(whole / name) == content(folder / name), name
    encoders = [path.parent.relative_to(whole) for path in whole.rglob("encoder")]
    assert encoders
    for part in encoders:
        one, other = encoder_variables(whole / part), encoder_variables(folder / part)
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])


def assert_personalized(folder):
    """Two clients' encoders have their own batch norm, and differ from those after training."""
    states = list((folder / "client_states").glob("*/*"))
    assert len(states) == 10  # Five clients, for each of two checkpoints.
    shared, personal, local = (
        encoder_variables(folder / part) for part in (".", "clients/0", "clients/0/local")
    )
    averaged = [name for name in shared if np.array_equal(shared[name], personal[name])]
    assert averaged
    assert len(averaged) < len(shared)
    for name in averaged:
        assert not np.array_equal(shared[name], local[name])
