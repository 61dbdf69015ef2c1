"""The round loop, with a simulation small enough to be calculated by hand."""

import csv
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_ssl import packing, program
from tff_ssl.errors import TrainingError


class Counting:
    """state = {"total": sum of the round numbers so far}; the loss is the round's number."""

    def __init__(self, stop_at=None, bad_at=None):
        self.stop_at, self.bad_at = stop_at, bad_at
        self.rounds = []

    def initialize(self, seed):
        return {"total": np.float32(seed), "vector": np.zeros([2, 3], np.float32)}

    def run_round(self, state, round_number):
        if round_number == self.stop_at:
            raise KeyboardInterrupt
        self.rounds.append(round_number)
        total = np.float32(state["total"] + round_number)
        loss = math.nan if round_number == self.bad_at else float(round_number)
        return {"total": total, "vector": state["vector"] + 1}, {"loss": loss}

    def encoder_weights(self, state, client_id=None):
        return state["vector"]

    def saved(self, state):
        self.checkpoints = [*getattr(self, "checkpoints", []), state]


def loop(folder, rounds=7, every=3, **settings):
    return program.Program(folder, rounds, every, **settings)


def rows(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_gives_the_sum_and_one_row_a_round(tmp_path):
    state = loop(tmp_path).run(Counting(), seed=5)
    assert state["total"] == 5 + sum(range(7))
    assert [row["round"] for row in rows(tmp_path)] == [str(r) for r in range(1, 8)]
    assert [float(row["loss"]) for row in rows(tmp_path)] == list(range(7))


def test_ctrl_c_saves_a_checkpoint_and_the_run_goes_on_from_it(tmp_path):
    stopped = Counting(stop_at=5)
    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path).run(stopped, seed=0)
    again = Counting()
    state = loop(tmp_path).run(again, seed=0)
    assert again.rounds == [5, 6]
    assert state["total"] == sum(range(7))
    np.testing.assert_array_equal(state["vector"], np.full([2, 3], 7, np.float32))
    assert [row["round"] for row in rows(tmp_path)] == [str(r) for r in range(1, 8)]


def test_ctrl_c_while_a_row_is_written_loses_nothing(tmp_path, monkeypatch):
    release = tff.program.CSVFileReleaseManager.release

    async def interrupted(self, value, key):
        if key == 5:
            raise KeyboardInterrupt
        await release(self, value, key)

    monkeypatch.setattr(tff.program.CSVFileReleaseManager, "release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path).run(Counting(), seed=0)
    monkeypatch.undo()
    again = Counting()
    state = loop(tmp_path).run(again, seed=0)
    assert again.rounds == [4, 5, 6]
    assert state["total"] == sum(range(7))
    assert [row["round"] for row in rows(tmp_path)] == [str(r) for r in range(1, 8)]


class Killed(BaseException):
    """Not caught by anything, as SIGKILL."""


def test_rows_after_the_last_checkpoint_are_taken_back(tmp_path):
    first = Counting()
    first.run_round = _then(first.run_round, at=5, error=Killed)
    with pytest.raises(Killed):
        loop(tmp_path).run(first, seed=0)
    assert len(rows(tmp_path)) == 5
    again = Counting()
    loop(tmp_path).run(again, seed=0)
    assert again.rounds == [3, 4, 5, 6]
    assert [row["round"] for row in rows(tmp_path)] == [str(r) for r in range(1, 8)]


def _then(function, at, error):
    def call(state, round_number):
        if round_number == at:
            raise error
        return function(state, round_number)

    return call


def test_a_row_cut_short_by_a_kill_is_taken_back(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("round,loss\r\n1,0.5\r\n2,0.4\r\n3,0")
    program.trim_metrics(path, 2)
    assert path.read_bytes() == b"round,loss\r\n1,0.5\r\n2,0.4\r\n"
    path.write_text("round,loss\r\n1,0.5\r\n1")
    program.trim_metrics(path, 1)
    assert path.read_bytes() == b"round,loss\r\n1,0.5\r\n"


def test_missing_rows_are_an_error(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("round,loss\r\n1,0.5\r\n")
    with pytest.raises(TrainingError, match="lacks rows"):
        program.trim_metrics(path, 2)


def test_an_unreadable_checkpoint_falls_back_to_the_one_before(tmp_path):
    loop(tmp_path, rounds=6).run(Counting(), seed=0)
    broken = tmp_path / "checkpoints" / "round_6"
    for file in broken.rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    again = Counting()
    state = loop(tmp_path, rounds=6).run(again, seed=0)
    assert again.rounds == [3, 4, 5]
    assert state["total"] == sum(range(6))


def test_an_empty_checkpoint_folder_falls_back_too(tmp_path):
    loop(tmp_path, rounds=3).run(Counting(), seed=0)
    (tmp_path / "checkpoints" / "round_9").mkdir()
    again = Counting()
    loop(tmp_path, rounds=5).run(again, seed=0)
    assert again.rounds == [3, 4]


def test_what_a_killed_run_was_writing_is_removed(tmp_path):
    (tmp_path / "checkpoints" / "round_3_temp1234" / "variables").mkdir(parents=True)
    (tmp_path / "metrics.csv_temp4321").write_text("round,loss")
    loop(tmp_path, rounds=3).run(Counting(), seed=0)
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoints", "metrics.csv", "tensorboard"}
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["round_3"]


def test_a_loss_that_is_not_finite_ends_the_run_with_the_round(tmp_path):
    with pytest.raises(TrainingError, match="round 5 is nan"):
        loop(tmp_path).run(Counting(bad_at=4), seed=0)
    assert len(rows(tmp_path)) == 4


def test_the_monitor_looks_when_due_and_at_the_end(tmp_path):
    looks = []

    def monitor(state):
        looks.append(int(state["vector"][0, 0]))
        return {"knn_accuracy": 0.5}

    loop(tmp_path, monitor_every=3, monitor=monitor).run(Counting(), seed=0)
    assert looks == [3, 6, 7]
    assert [row["knn_accuracy"] for row in rows(tmp_path)] == ["", "", "0.5", "", "", "0.5", "0.5"]


def test_pack_and_unpack_are_inverse_for_mixed_types():
    state = (
        {"a": np.arange(6, dtype=np.float32).reshape(2, 3)},
        [np.int64(4), np.float32(0.5)],
        (),
    )
    packed = packing.pack(state)
    assert {name: len(v) for name, v in packed.items()} == {"float32": 7, "int64": 1}
    restored = packing.unpack(packed, state)
    np.testing.assert_array_equal(restored[0]["a"], state[0]["a"])
    assert restored[1] == state[1]
    assert restored[1][0].dtype == np.int64


def test_unpack_refuses_a_state_of_another_shape():
    packed = packing.pack([np.zeros(3, np.float32)])
    with pytest.raises(ValueError, match="another shape"):
        packing.unpack(packed, [np.zeros(2, np.float32)])
