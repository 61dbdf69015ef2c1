"""Runs that are killed at random and resumed give what a run without kills gives, to the last bit.

What SIGKILL leaves of a run is its files. So the folder is copied at a random moment, the run is
ended, and another one continues with the copy; nothing that the first one writes after that moment
is in it. The moments are those before each operation on a file of the run, and before and after
each round and each row of metrics. Files that were being written at that moment are cut short.
"""

import contextlib
import pathlib
import random
import shutil
import sys

import pytest
import tensorflow_federated as tff

from tests.daily_seed import DAILY_SEED
from tests.run_files import content
from tests.runtime.test_sliced_rounds import (
    assert_same_run,
    build,
    plan_run,
    stored,  # noqa: F401
)
from tff_ssl.kinds.heterogeneous.simulation import HeterogeneousClientsSimulation
from tff_ssl.simulation import metrics_log, training_loop

ROUNDS = 7
CHECKPOINT_EVERY = 2
# With a server, clients with memory, a server that collects rows, heterogeneous clients, and twice
# no server.
KILLS = {"dcco": 9, "fedema": 9, "orchestra": 4, "hetero_ssfl": 5, "denav": 5, "gossip": 5}
_MOST_RUNS = 400  # After a kill in its first moments a run has to be started again.


class Killed(BaseException):
    """Ends a run whose folder has been copied."""


class Killer:
    """Copies the folder of a run at a chosen moment, and ends the run.

    Attributes:
      moments: Number of moments of the run so far.
    """

    def __init__(self):
        self.moments, self._last, self._folder, self._copy = 0, None, None, None
        sys.addaudithook(self._on_event)  # A hook cannot be removed.

    @contextlib.contextmanager
    def watch(self, folder, copy, last=None):
        """Counts the moments of a run in the folder; ends it at the moment `last`."""
        self.moments, self._last, self._folder, self._copy = 0, last, folder, copy
        try:
            yield
        finally:
            self._folder = None

    def moment(self):
        if self._folder is None:
            return
        self.moments += 1
        if self.moments == self._last:
            folder, self._folder = self._folder, None
            shutil.copytree(folder, self._copy)
            raise Killed

    def _on_event(self, event, arguments):
        if self._folder is None or event not in _FILE_EVENTS:
            return
        names = [name for name in arguments[:2] if isinstance(name, str | pathlib.Path)]
        if any(pathlib.Path(name).is_relative_to(self._folder) for name in names):
            self.moment()


_FILE_EVENTS = {"open", "os.link", "os.mkdir", "os.remove", "os.rename"}


@pytest.fixture(scope="module")
def killer():
    return Killer()


def with_moments(killer, monkeypatch):
    """Adds the moments before and after each row of metrics."""
    for manager in (metrics_log.RoundLog, tff.program.TensorBoardReleaseManager):

        async def release(self, value, key, original=manager.release):
            killer.moment()
            await original(self, value, key)
            killer.moment()

        monkeypatch.setattr(manager, "release", release)


def damage(folder, chance):
    """Cuts files that are still being written at a random byte; at times the last row too.

    At times the newest of two checkpoints is cut, so that the run continues from the one before.
    """
    for path in sorted(p for p in folder.rglob("*.new") if p.is_file()):
        content = path.read_bytes()
        # `path` may be a link to another state.
        path.unlink()
        path.write_bytes(content[: chance.randint(0, len(content))])
    checkpoints = sorted((folder / "checkpoints").glob("round_*.npz"), key=rounds_in)
    if len(checkpoints) == 2 and chance.random() < 0.2:
        content = checkpoints[1].read_bytes()
        checkpoints[1].write_bytes(content[: chance.randrange(len(content))])
    elif chance.random() < 0.3:
        done = rounds_in(checkpoints[-1]) if checkpoints else 0
        for path in (folder / "metrics.csv", folder / "client_metrics.csv"):
            rows = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            # Rows of rounds that are in a checkpoint have been written before it. A row of one byte
            # was cut before.
            if len(rows) > 1 and len(rows[-1]) > 1 and int(rows[-1].split(b",")[0]) > done:
                cut = chance.randrange(1, len(rows[-1]))
                path.write_bytes(b"".join(rows)[:-cut])


def rounds_in(checkpoint):
    return int(checkpoint.stem.removeprefix("round_"))


def run(algorithm, stored, folder, killer):  # noqa: F811
    simulated = plan_run(algorithm).simulate(stored.group_dataset_computation, folder)
    run_round = simulated.run_round

    def with_moments(state, round_number):
        killer.moment()
        result = run_round(state, round_number)
        killer.moment()
        return result

    simulated.run_round = with_moments
    return training_loop.TrainingLoop(folder, ROUNDS, CHECKPOINT_EVERY).run(simulated, seed=0)


def files(folder):
    """The contents of the files that a run leaves, but for TensorBoard's and the times."""
    return {
        path.relative_to(folder): content(path)
        for path in folder.rglob("*")
        if path.is_file()
        and "tensorboard" not in path.parts
        and path.name != "metrics.csv"
        and path.suffix != ".damaged"
    }


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", KILLS)
def test_kills_at_random_moments_change_nothing(
    killer,
    worker,
    small_algorithm,
    stored,  # noqa: F811
    tmp_path,
    monkeypatch,
    name,
):
    algorithm = build(small_algorithm, name)
    _compose_once(monkeypatch)
    with_moments(killer, monkeypatch)
    whole, folder, copy = tmp_path / "whole", tmp_path / "run", tmp_path / "copy"
    with killer.watch(whole, copy):
        expected = run(algorithm, stored, whole, killer)
    moments = killer.moments
    chance = random.Random(f"{DAILY_SEED} {name}")
    print(f"{name}: {KILLS[name]} kills in {moments} moments, DAILY_SEED={DAILY_SEED}")
    kills = 0
    for _ in range(_MOST_RUNS):
        # Early moments are as likely as late ones, and a run has several kills before it ends.
        last = chance.randint(1, moments) if chance.random() < 0.5 else chance.randint(1, 20)
        with killer.watch(folder, copy, last if kills < KILLS[name] else None):
            try:
                state = run(algorithm, stored, folder, killer)
            except Killed:
                kills += 1
                shutil.rmtree(folder)
                copy.rename(folder)
                damage(folder, chance)
                continue
        assert_same_run(folder, state, whole, expected)
        assert files(folder) == files(whole), f"after {kills} kills"
        shutil.rmtree(folder)
        if kills == KILLS[name]:
            return
    raise AssertionError(f"only {kills} kills in {_MOST_RUNS} runs")


def _compose_once(monkeypatch):
    """Shares the computations of heterogeneous clients, whose tracing takes seconds."""
    compose, composed = HeterogeneousClientsSimulation._compose, {}

    def once(self, number, read_rad, mean_kernel):
        if number not in composed:
            composed[number] = compose(self, number, read_rad, mean_kernel)
        return composed[number]

    monkeypatch.setattr(HeterogeneousClientsSimulation, "_compose", once)
