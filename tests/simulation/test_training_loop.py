"""The round loop, with a simulation small enough to be calculated by hand."""

import asyncio
import contextlib
import csv
import io
import math
import pathlib
import pickle
import resource
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.errors import TrainingError
from tff_ssl.simulation import checkpoints, metrics_log, packing, training_loop
from tff_ssl.simulation import progress as progress_of_run


class Counting(training_loop.Simulation):
    """A simulation whose state has the sum of the round numbers; the loss is the round number."""

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

    def on_checkpoint(self, state):
        self.checkpoints = [*getattr(self, "checkpoints", []), state]


def loop(folder, rounds=7, every=3, **settings):
    return training_loop.TrainingLoop(folder, rounds, every, **settings)


def rows(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_gives_the_sum_and_one_row_a_round(tmp_path):
    state = loop(tmp_path).run(Counting(), seed=5)
    assert state["total"] == 5 + sum(range(7))
    assert [row["round"] for row in rows(tmp_path)] == [str(r) for r in range(1, 8)]
    assert [float(row["loss"]) for row in rows(tmp_path)] == list(range(7))


def test_a_notebook_runs_it_although_an_event_loop_is_running(tmp_path):
    async def cell():
        return loop(tmp_path).run(Counting(), seed=0)

    assert asyncio.run(cell())["total"] == sum(range(7))


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


@pytest.mark.parametrize(("every", "kept"), [(3, 3), (100, 0)])
def test_ctrl_c_saves_no_state_that_could_not_be_resumed_from(tmp_path, capsys, every, kept):
    class Overflowing(Counting):
        def run_round(self, state, round_number):
            state, metrics = super().run_round(state, round_number)
            bad = np.float32(np.inf if round_number == 4 else state["total"])
            return {**state, "total": bad}, metrics

    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path, every=every).run(Overflowing(stop_at=5), seed=0)
    assert f"not finite, so that --resume continues after round {kept}" in capsys.readouterr().out
    again = Counting()
    state = loop(tmp_path).run(again, seed=0)
    assert again.rounds == list(range(kept, 7))
    assert state["total"] == sum(range(7))
    assert [row["round"] for row in rows(tmp_path)] == [str(r) for r in range(1, 8)]


def test_ctrl_c_while_a_row_is_written_loses_nothing(tmp_path, monkeypatch):
    release = metrics_log.RoundLog.release

    async def interrupted(self, value, key):
        if key == 5:
            raise KeyboardInterrupt
        await release(self, value, key)

    monkeypatch.setattr(metrics_log.RoundLog, "release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path).run(Counting(), seed=0)
    monkeypatch.undo()
    again = Counting()
    state = loop(tmp_path).run(again, seed=0)
    assert again.rounds == [4, 5, 6]
    assert state["total"] == sum(range(7))
    assert [row["round"] for row in rows(tmp_path)] == [str(r) for r in range(1, 8)]


class Killed(BaseException):
    """Simulates SIGKILL: no handler catches it."""


@contextlib.contextmanager
def handled(number):
    """Lets the signal raise a KeyboardInterrupt, and checks that it still would at the end."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_a_row_is_written_waits_for_its_end(
    tmp_path, monkeypatch, capsys, number
):
    class Interrupted(tff.program.TensorBoardReleaseManager):
        async def release(self, value, key):
            if key == 2:
                signal.raise_signal(number)
            await super().release(value, key)

    monkeypatch.setattr(tff.program, "TensorBoardReleaseManager", Interrupted)
    with handled(number), pytest.raises(KeyboardInterrupt):
        loop(tmp_path).run(Counting(), seed=5)
    assert "stopped after round 2 of 7" in capsys.readouterr().out
    assert [row["round"] for row in rows(tmp_path)] == ["1", "2"]
    assert (tmp_path / "checkpoints" / "round_2.npz").is_file()


def test_a_second_interrupt_is_not_delayed(tmp_path, monkeypatch):
    class Stuck(tff.program.TensorBoardReleaseManager):
        async def release(self, value, key):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("not interrupted")

    monkeypatch.setattr(tff.program, "TensorBoardReleaseManager", Stuck)
    with handled(signal.SIGINT), pytest.raises(KeyboardInterrupt):
        loop(tmp_path).run(Counting(), seed=5)


def test_rows_after_the_last_checkpoint_are_deleted(tmp_path):
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


def test_an_incomplete_row_of_a_killed_run_is_deleted(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("round,loss\r\n1,0.5\r\n2,0.4\r\n3,0")
    metrics_log.trim_metrics(path, 2)
    assert path.read_bytes() == b"round,loss\r\n1,0.5\r\n2,0.4\r\n"
    path.write_text("round,loss\r\n1,0.5\r\n1")
    metrics_log.trim_metrics(path, 1)
    assert path.read_bytes() == b"round,loss\r\n1,0.5\r\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"round,loss\r\n1,0.5\r\n", "lacks the row of round 2, and .* of round 3: put back"),
        (b"round,loss\r\n1,0.5\r\n3,0.4\r\n4,0.3\r\n", "lacks the row of round 2"),
        (b"round,loss\r\n1,0.5\r\n2,0.4\r\n3\r\n", "lacks the row of round 3"),
        (b"", "lacks the row of round 1"),
        (b"\xef\xbb\xbfround,loss\r\n1,0.5\r\n", "lacks its first column, round: put back"),
        (b"round,loss\r\n1,0.5\r\n2,\xff\xfe\r\n", "is damaged .*0xff.*: put back a whole one"),
        (None, "metrics.csv is missing, and the checkpoint is of round 3: put back"),
    ],
)
def test_metrics_that_lack_rounds_of_the_checkpoint_are_noticed(tmp_path, content, message):
    loop(tmp_path, rounds=3).run(Counting(), seed=0)
    path = tmp_path / "metrics.csv"
    path.unlink() if content is None else path.write_bytes(content)
    again = Counting()
    with pytest.raises(TrainingError, match=message) as raised:
        loop(tmp_path, rounds=4).run(again, seed=0)
    assert "\n" not in str(raised.value)
    assert not again.rounds
    assert not path.exists() if content is None else path.read_bytes() == content


def test_a_log_of_clients_that_is_not_a_text_is_noticed(tmp_path):
    path = tmp_path / "client_metrics.csv"
    path.write_bytes(b"round,client\r\n1,\xff\r\n")
    with pytest.raises(TrainingError, match=r"client_metrics.csv is damaged.*put back"):
        metrics_log.ClientLog(path).trim(1)
    path.write_bytes(b"round,client\r\n1,3\r\nx,4\r\n")
    metrics_log.ClientLog(path).trim(1)
    assert path.read_bytes() == b"round,client\r\n1,3\r\n"


def renamed(path):
    path.with_name("round_3.npz").replace(path)


def changed(path, **arrays):
    """Writes another state into a whole checkpoint."""
    with np.load(path) as file:
        state = {**file, **{name: change(file["float32"]) for name, change in arrays.items()}}
    np.savez(path, **state)


def with_nan(path):
    changed(path, float32=lambda values: values * np.nan)


def with_infinity(path):
    changed(path, float32=lambda values: values + np.inf)


def of_float64(path):
    changed(path, float32=lambda values: values.astype(np.float64))


def of_objects(path):
    changed(path, float32=lambda values: values.astype(object))


def with_another_dtype(path):
    changed(path, int32=lambda values: values.astype(np.int32))


def longer(path):
    changed(path, float32=lambda values: np.tile(values, 2))


def shorter(path):
    changed(path, float32=lambda values: values[:-1])


def truncated(path):
    path.write_bytes(path.read_bytes()[:-30])


def emptied(path):
    path.write_bytes(b"")


def replaced_by_a_folder(path):
    path.unlink()
    path.mkdir()


def with_a_flipped_bit(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"NUMPY") + 140] ^= 4  # A bit in the values of the first array.
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        truncated, emptied, replaced_by_a_folder, with_a_flipped_bit, with_nan, with_infinity,
        of_float64, of_objects, with_another_dtype, longer, shorter,
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, damage):
    loop(tmp_path, rounds=6).run(Counting(), seed=0)
    damage(tmp_path / "checkpoints" / "round_6.npz")
    again = Counting()
    state = loop(tmp_path, rounds=6).run(again, seed=0)
    assert again.rounds == [3, 4, 5]
    assert state["total"] == sum(range(6))
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"round_3.npz", "round_6.npz", "round_6.npz.damaged"}


def test_a_renamed_checkpoint_is_not_taken_for_another_round(tmp_path, caplog):
    loop(tmp_path, rounds=6).run(Counting(), seed=0)
    renamed(tmp_path / "checkpoints" / "round_6.npz")
    with pytest.raises(TrainingError, match="none of the checkpoints"):
        loop(tmp_path, rounds=6).run(Counting(), seed=0)
    assert "round_6.npz cannot be read (it is that of round 3, and was renamed)" in caplog.text
    # Under its own name it is good again.
    (tmp_path / "checkpoints" / "round_6.npz").rename(tmp_path / "checkpoints" / "round_3.npz")
    assert loop(tmp_path, rounds=6).run(Counting(), seed=0)["total"] == sum(range(6))


def test_a_checkpoint_of_an_earlier_release_has_no_round_in_it(tmp_path):
    loop(tmp_path, rounds=3).run(Counting(), seed=0)
    path = tmp_path / "checkpoints" / "round_3.npz"
    with np.load(path) as file:
        state = {name: file[name] for name in file.files if name != "version"}
    np.savez(path, **state)
    again = Counting()
    loop(tmp_path, rounds=4).run(again, seed=0)
    assert again.rounds == [3]


def test_a_state_that_is_not_finite_is_not_saved(tmp_path):
    class Momentum(Counting):
        def run_round(self, state, round_number):
            state, metrics = super().run_round(state, round_number)
            return state | {"total": np.float32(np.inf)}, metrics

    with pytest.raises(TrainingError, match="state of the training after round 3 is not finite"):
        loop(tmp_path).run(Momentum(), seed=0)
    assert not list(tmp_path.glob("checkpoints/*"))


def test_a_run_whose_checkpoints_are_all_damaged_ends_and_keeps_its_metrics(tmp_path):
    loop(tmp_path, rounds=6).run(Counting(), seed=0)
    for path in (tmp_path / "checkpoints").iterdir():
        truncated(path)
    with pytest.raises(TrainingError, match="none of the checkpoints"):
        loop(tmp_path, rounds=6).run(Counting(), seed=0)
    assert len(rows(tmp_path)) == 6


@pytest.mark.slow
def test_any_flipped_bit_is_noticed_or_harmless(tmp_path):
    manager = checkpoints.Checkpoints(tmp_path)
    state = {"float32": np.arange(5, dtype=np.float32), "bytes3": np.array([b"abc"])}
    manager.save(state, 1)
    whole = manager.path(1).read_bytes()
    noticed = 0
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        manager.path(1).write_bytes(changed)
        try:
            loaded = manager.load(1)
        except Exception:
            noticed += 1
            continue
        assert loaded.keys() <= state.keys()  # A lost member is missed by `unpack`.
        for name, value in loaded.items():
            np.testing.assert_array_equal(value, state[name])
    assert noticed > len(whole) / 2


def test_a_malicious_checkpoint_runs_no_code(tmp_path, monkeypatch):
    folder, trace = tmp_path / "checkpoints", tmp_path / "was_here"
    loop(tmp_path, rounds=3).run(Counting(), seed=0)

    class Malicious:
        def __reduce__(self):
            return pathlib.Path.touch, (trace,)

    np.savez(folder / "round_5.npz", float32=np.array([Malicious()], dtype=object))
    (folder / "round_6.npz").write_bytes(pickle.dumps(Malicious()))

    # A SavedModel that writes a file, which TFF's own manager would load and run.
    class Writing(tf.Module):
        @tf.function(input_signature=[])
        def __call__(self):
            tf.io.write_file(str(trace), "x")
            return tf.constant(1)

    tf.saved_model.save(Writing(), str(folder / "round_7"))
    tf.saved_model.save(Writing(), str(folder / "round_8.npz"))
    again = Counting()
    loop(tmp_path, rounds=5).run(again, seed=0)
    assert again.rounds == [3, 4]
    assert not trace.exists()
    # Loading the pickle does run its code.
    pickle.loads((folder / "round_6.npz.damaged").read_bytes())
    assert trace.exists()


@contextlib.contextmanager
def full_disk(limit):
    """Limits files to `limit` bytes; the system refuses further bytes as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Large(Counting):
    """A simulation in which the disk is full from round 5 on."""

    def initialize(self, seed):
        return super().initialize(seed) | {"large": np.zeros(20_000)}

    def run_round(self, state, round_number):
        next_state, metrics = super().run_round(state, round_number)
        if round_number == 5 and self.stack:
            self.stack.enter_context(full_disk(100_000))
        return next_state | {"large": state["large"]}, metrics


def test_a_full_disk_ends_the_run_and_loses_nothing(tmp_path):
    first, again = Large(), Large()
    refused = pytest.raises(TrainingError, match=r"checkpoints cannot be written: .*round 3")
    with refused, contextlib.ExitStack() as first.stack:
        loop(tmp_path).run(first, seed=0)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["round_3.npz"]
    again.stack = None
    assert loop(tmp_path).run(again, seed=0)["total"] == sum(range(7))
    assert again.rounds == [3, 4, 5, 6]


class Attacked(Counting):
    """A simulation during whose round 4 something is done."""

    def __init__(self, attack):
        super().__init__()
        self.attack = attack

    def run_round(self, state, round_number):
        if round_number == 4:
            self.attack()
        return super().run_round(state, round_number)


def test_a_folder_that_is_moved_away_ends_the_run_and_goes_on_where_it_is(tmp_path):
    folder, moved = tmp_path / "run", tmp_path / "moved"
    with pytest.raises(TrainingError, match=r"run cannot be written: .*--resume continues after"):
        loop(folder).run(Attacked(lambda: folder.rename(moved)), seed=0)
    assert not list(folder.glob("checkpoints/*"))
    assert loop(moved).run(Counting(), seed=0)["total"] == sum(range(7))
    assert [row["round"] for row in rows(moved)] == [str(r) for r in range(1, 8)]


def test_a_folder_that_is_deleted_ends_the_run(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(TrainingError, match=r"run cannot be written: ") as raised:
        loop(folder).run(Attacked(lambda: shutil.rmtree(folder)), seed=0)
    assert "\n" not in str(raised.value)


def test_a_clock_that_is_set_back_changes_nothing(tmp_path, monkeypatch):
    clock = time.time

    def set_back():
        monkeypatch.setattr(time, "time", lambda: clock() - 1e8)

    state = loop(tmp_path).run(Attacked(set_back), seed=0)
    assert state["total"] == sum(range(7))
    assert [row["round"] for row in rows(tmp_path)] == [str(r) for r in range(1, 8)]
    assert all(0 <= float(row["seconds"]) < 60 for row in rows(tmp_path))


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "checkpoints").write_text("a file in the way")
    with pytest.raises(TrainingError, match=r"checkpoints cannot be written: .*starts anew"):
        loop(tmp_path).run(Counting(), seed=0)


def test_what_a_killed_run_was_writing_is_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".round_3.npz.abcd1234.new").write_text("half")
    loop(tmp_path, rounds=3).run(Counting(), seed=0)
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoints", "metrics.csv", "tensorboard"}
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["round_3.npz"]


def test_two_checkpoints_are_kept(tmp_path):
    loop(tmp_path, rounds=11).run(Counting(), seed=0)
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"round_9.npz", "round_11.npz"}


def test_epsilon_is_shown_with_the_loss(tmp_path, capsys):
    spent = Counting()
    spent.run_round = lambda state, r: (state, {"loss": 1.0, "epsilon": 0.5 * (r + 1)})
    loop(tmp_path, rounds=4).run(spent, seed=0)
    assert "loss 1  epsilon 2 " in capsys.readouterr().out.splitlines()[-1]


def test_a_round_without_examples_has_no_loss_and_goes_on(tmp_path):
    empty = Counting(bad_at=2)
    run_round = empty.run_round
    empty.run_round = lambda state, r: (
        lambda after, metrics: (after, metrics | {"samples": 0 if r == 2 else 5})
    )(*run_round(state, r))
    loop(tmp_path).run(empty, seed=0)
    assert rows(tmp_path)[2]["loss"] == "nan"


def test_a_loss_that_is_not_finite_ends_the_run_with_the_round(tmp_path):
    with pytest.raises(TrainingError, match="round 5 is nan"):
        loop(tmp_path).run(Counting(bad_at=4), seed=0)
    assert len(rows(tmp_path)) == 4


@pytest.mark.parametrize("due", [{"every": 2}, {"every": 100, "monitor_every": 2}])
def test_weights_that_are_not_finite_are_neither_saved_nor_monitored(tmp_path, due):
    class Diverging(Counting):
        def run_round(self, state, round_number):
            state, metrics = super().run_round(state, round_number)
            if round_number == 3:
                state["vector"][1, 2] = math.inf
            return state, metrics

    def monitor(state):
        assert np.isfinite(state["vector"]).all()
        return {}

    with pytest.raises(TrainingError, match=r"weights after round 4 are not finite: .*diverged"):
        loop(tmp_path, monitor=monitor, **due).run(Diverging(), seed=0)
    assert len(rows(tmp_path)) == 3
    assert not (tmp_path / "checkpoints" / "round_4.npz").exists()


def test_the_monitor_is_called_when_due_and_at_the_end(tmp_path):
    calls = []

    def monitor(state):
        calls.append(int(state["vector"][0, 0]))
        return {"knn_accuracy": 0.5}

    loop(tmp_path, monitor_every=3, monitor=monitor).run(Counting(), seed=0)
    assert calls == [3, 6, 7]
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


def test_strings_of_tensors_are_packed_as_bytes():
    state = (tf.constant(b"gaussian"), np.float32(1), tf.constant([b"a", b"event"]))
    packed = packing.pack(state)
    assert not any(vector.dtype == object for vector in packed.values())
    name, one, names = packing.unpack(packed, state)
    assert (name, one, names.tolist()) == (b"gaussian", 1, [b"a", b"event"])


def test_unpack_refuses_a_state_of_another_shape():
    packed = packing.pack([np.zeros(3, np.float32)])
    with pytest.raises(ValueError, match="another shape"):
        packing.unpack(packed, [np.zeros(2, np.float32)])


@pytest.mark.parametrize("before", [0, 20])  # A run that is resumed traces in its first round, too.
def test_the_remaining_time_leaves_the_tracing_round_out(monkeypatch, capsys, before):
    seconds = iter([100.0, 120.0, 140.0])  # After rounds; the first one took long.
    monkeypatch.setattr(progress_of_run.time, "monotonic", lambda: next(seconds))
    progress = progress_of_run.Progress(before, before + 10)
    for done in (1, 2, 3):
        progress.show(before + done, {"loss": 0.5})
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"round {before + 1}/{before + 10}  loss 0.5"
    assert second.endswith("0.05 rounds/s  160 s left")  # 20 seconds a round.
    assert third.endswith("0.05 rounds/s  140 s left")


def test_a_bar_measures_its_speed_after_the_first_round():
    clock = [0.0]
    bar = progress_of_run._Bar(total=10, file=io.StringIO())
    bar._time = lambda: clock[0]
    bar.start_t = bar.last_print_t = 0.0
    clock[0] = 60.0
    bar.reset_speed(1)
    assert bar.format_dict["elapsed"] == 0
    clock[0] = 62.0
    bar.update()
    assert bar.n == 2
    assert bar.format_dict["rate"] == pytest.approx(0.5)
    bar.close()


def with_client_rows(folder):
    """A simulation that also writes `client_metrics.csv`."""
    log = metrics_log.ClientLog(folder / "client_metrics.csv")

    class WithClients(Counting):
        def on_start(self, states, done):
            log.trim(done)

        def run_round(self, state, round_number):
            state, metrics = super().run_round(state, round_number)
            log.write(round_number, np.array([0, 2]), [{"loss": np.float32(round_number / 7)}] * 2)
            if round_number == 1:
                metrics["from_round_2"] = 0.5
            return state, metrics

    return WithClients(stop_at=5)


@pytest.mark.parametrize("name", ["metrics.csv", "client_metrics.csv"])
def test_a_flipped_bit_of_the_metrics_is_an_error(tmp_path, name):
    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path, rounds=6, every=4).run(with_client_rows(tmp_path), seed=0)
    path = tmp_path / name
    whole = path.read_bytes()
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 7
        path.write_bytes(changed)
        with pytest.raises(TrainingError, match=rf"{name} (differs from|lacks|is damaged)"):
            loop(tmp_path, rounds=6).run(with_client_rows(tmp_path), seed=0)
        assert path.read_bytes() == bytes(changed)
    # Rows of later rounds, and a row that a killed run left incomplete, do not count.
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1].replace(b"5", b"6", 1) + b"3")
    again = with_client_rows(tmp_path)
    again.stop_at = None
    loop(tmp_path, rounds=6).run(again, seed=0)
    assert again.rounds == [5]
    assert path.read_bytes().startswith(whole)


def test_another_configuration_than_that_of_the_checkpoint_is_an_error(tmp_path, capsys):
    loop(tmp_path, rounds=3, configuration="lambda=2").run(Counting(), seed=0)
    with pytest.raises(
        TrainingError, match=r"config\.json differs .* of round 3: put back a whole"
    ):
        loop(tmp_path, configuration="lambda=3").run(Counting(), seed=0)
    loop(tmp_path, rounds=4, configuration="lambda=2").run(Counting(), seed=0)
    manager = checkpoints.Checkpoints(tmp_path / "checkpoints")
    manager.save(manager.load(4), 4)  # As earlier releases wrote it.
    assert "note" not in capsys.readouterr().out
    loop(tmp_path, rounds=5, configuration="lambda=3").run(Counting(), seed=0)
    assert "note: the checkpoint of round 4 is of an earlier release" in capsys.readouterr().out


def test_rounds_are_logged_as_by_tff_without_writing_the_file_again(tmp_path):
    path, by_tff = tmp_path / "metrics.csv", tmp_path / "by_tff.csv"
    managers = [
        metrics_log.RoundLog(path),
        tff.program.CSVFileReleaseManager(by_tff, key_fieldname="round"),
    ]
    inodes = []
    for number, more in enumerate(({}, {"knn": 0.25}, {}, {"epsilon": 3.5}, {}, {}), start=1):
        if number == 4:
            managers[0] = metrics_log.RoundLog(path)  # A resumed run.
        for manager in managers:
            asyncio.run(manager.release({"loss": np.float32(0.1 * number), **more}, number))
        inodes.append(path.stat().st_ino)
        assert path.read_bytes() == by_tff.read_bytes()
    assert len(set(inodes[1:3])) == len(set(inodes[3:])) == 1


def test_a_digest_grows_with_its_file(tmp_path):
    path, at_once = tmp_path / "table.csv", metrics_log.TableDigest
    grown, seen = at_once(path), []
    for number in range(1, 6):
        # Round 4 adds a column, for which the whole file is written again.
        header = "round,loss" + ",knn" * (number > 3)
        lines = [
            f"{r},0.{r}" + (",0.9" if r == 4 else "," * (number > 3)) for r in range(1, number + 1)
        ]
        path.write_text("\r\n".join([header, *lines, ""]))
        seen.append(grown.up_to(number))
        assert at_once(path).up_to(number) == seen[-1]
        assert [at_once(path).up_to(r) for r in range(1, number + 1)] == seen
    assert len(set(seen)) == 5
