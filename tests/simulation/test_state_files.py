"""Client states on disk: reading and writing by the worker, clean-up, and resumed runs."""

import collections
import csv

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from datasets import client_store
from datasets.image_dataset import Split
from tff_ssl.errors import TrainingError
from tff_ssl.kinds.protocol import RunSetting
from tff_ssl.kinds.stateful.algorithm import build_stateful_clients
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.simulation import cohort, state_files, training_loop
from tff_ssl.simulation.participation import Participation
from tff_ssl.simulation.state_files import NEVER, ClientStates
from tff_ssl.templates import local_training
from tff_ssl.templates.client_output import output_if_finite

CLIENTS = 7


def initial():
    return collections.OrderedDict(
        w=tf.constant([[1.5, -2.0]]), n=tf.constant(2**40, tf.int64), k=tf.constant(-3)
    )


def versions(**changed):
    """A table of versions in which the clients c0, c1, ... have the given versions."""
    table = np.full(CLIENTS, NEVER, np.int64)
    for client, version in changed.items():
        table[int(client[1:])] = version
    return table


def test_the_worker_reads_the_states_that_it_wrote(worker, tmp_path):
    states = ClientStates(tmp_path / "states", initial())
    first = states.read(states.paths_to_read([3], versions())[0])
    np.testing.assert_array_equal(first["w"], [[1.5, -2.0]])
    assert (first["n"], first["k"]) == (2**40, -3)
    (path,) = states.paths_to_write([3], 5)
    second = collections.OrderedDict(
        w=np.float32([[np.nan, 1e-40]]), n=np.int64(-1), k=np.int32(2**31 - 1)
    )
    states.write(path, second)
    with pytest.raises(TrainingError, match=r"client 3.*is missing"):
        states.load(3, 5)
    states.commit([path])
    again = states.read(states.paths_to_read([3], versions(c3=5))[0])
    for name, value in second.items():
        np.testing.assert_array_equal(again[name], value)
        np.testing.assert_array_equal(states.load(3, 5)[name], value)


def test_strings_and_booleans_are_kept_in_any_place():
    """The state of an aggregator with differential privacy has both."""
    state = collections.OrderedDict(
        names=np.array(["a.b", "", "\u00e9\x00"], object),
        first=np.bool_(True),
        one=np.array("Event", object),
        numbers=np.arange(6, dtype=np.float32).reshape(2, 3),
        flags=np.array([False, True]),
        last=np.int64(-7),
    )
    content = state_files.to_bytes(state)
    specs = tf.nest.map_structure(
        lambda v: tf.TensorSpec(np.shape(v), tf.convert_to_tensor(v).dtype), state
    )
    expected = tf.nest.map_structure(lambda v: tf.convert_to_tensor(v).numpy(), state)
    in_graph = tf.function(lambda content: state_files.from_bytes(content, specs))
    for found in (state_files.from_bytes(content, specs), in_graph(content)):
        for name, value in expected.items():
            assert found[name].dtype == specs[name].dtype
            np.testing.assert_array_equal(found[name].numpy(), value)


def test_only_versions_in_a_table_are_kept(worker, tmp_path):
    states = ClientStates(tmp_path / "states", initial())
    for client, version in ((0, 1), (0, 2), (0, 3), (4, 2)):
        paths = states.paths_to_write([client], version)
        states.write(paths[0], initial())
        states.commit(paths)
    states.paths_to_write([5], 1)
    (tmp_path / "states" / "5" / "1.new").write_text("killed while it was written")
    states.keep_only([versions(c0=1), versions(c0=3, c4=2)])
    files = {str(p.relative_to(tmp_path / "states")) for p in (tmp_path / "states").glob("*/*")}
    assert files == {"0/1", "0/3", "4/2"}


def write(states, client, version, **changed):
    paths = states.paths_to_write([client], version)
    state_files.write_state(paths[0], collections.OrderedDict(initial(), **changed))
    states.commit(paths)


def flip_a_bit(path, place=0.5):
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 8
    path.write_bytes(content)


def test_a_missing_state_is_named(tmp_path):
    states = ClientStates(tmp_path / "states", initial())
    with pytest.raises(TrainingError, match=r"client 2.*2/0 is missing; put the file back"):
        states.paths_to_read([1, 2], state_files.healed([states], [1, 2], versions(c2=0)))
    with pytest.raises(TrainingError, match=r"client 2.*2/0 is missing"):
        states.load(2, 0)


@pytest.mark.parametrize("damage", ["truncated", 0.01, 0.5, 0.99])
def test_a_damaged_state_gives_way_to_the_last_intact_one(tmp_path, caplog, damage):
    states = ClientStates(tmp_path / "states", initial())
    for version in (0, 1, 2):
        write(states, 2, version, k=tf.constant(version))
    for version in (1, 2):
        path = tmp_path / "states" / "2" / str(version)
        if damage == "truncated":
            path.write_bytes(path.read_bytes()[:-1])
        else:
            flip_a_bit(path, damage)
    table = versions(c1=NEVER, c2=2)
    for _ in range(2):  # The second time, as of a resumed run, nothing is said.
        healed = state_files.healed([states], [1, 2], table)
        np.testing.assert_array_equal(healed, versions(c2=0))
    np.testing.assert_array_equal(table, versions(c2=2))
    assert int(states.load(2, 2)["k"]) == 0
    (record,) = caplog.records
    assert "the state of client 2 is damaged" in record.getMessage()
    assert record.getMessage().endswith("2/2.damaged: the client continues from its state 0")
    states.keep_only([healed])
    assert state_files.damaged_states(tmp_path, ("states", "rad")) == ["states/2/2"]
    # A resumed run writes the state again.
    write(states, 2, 2, k=tf.constant(7))
    assert state_files.healed([states], [1, 2], table) is table
    assert int(states.load(2, 2)["k"]) == 7


def test_without_an_intact_state_the_client_gets_a_new_one(tmp_path, caplog):
    states = ClientStates(tmp_path / "states", initial())
    write(states, 2, 1, k=tf.constant(1))
    flip_a_bit(tmp_path / "states" / "2" / "1")
    flip_a_bit(tmp_path / "states" / "initial")
    np.testing.assert_array_equal(state_files.healed([states], [2], versions(c2=1)), versions())
    assert "from a new state" in caplog.text
    assert int(states.load(2, NEVER)["k"]) == int(initial()["k"])


def test_states_of_one_round_in_two_folders_stay_together(tmp_path):
    stores = [ClientStates(tmp_path / name, initial()) for name in "ab"]
    for store in stores:
        for version in (0, 1, 3):
            write(store, 4, version)
    flip_a_bit(tmp_path / "a" / "4" / "3")
    flip_a_bit(tmp_path / "b" / "4" / "1")
    healed = state_files.healed(stores, range(CLIENTS), versions(c4=3))
    np.testing.assert_array_equal(healed, versions(c4=0))


def test_the_worker_refuses_a_state_with_a_flipped_bit(worker, tmp_path):
    states = ClientStates(tmp_path / "states", initial())
    write(states, 2, 0)
    flip_a_bit(tmp_path / "states" / "2" / "0")
    with pytest.raises(grpc.RpcError, match="damaged"):
        states.read(str(tmp_path / "states" / "2" / "0"))


def counting(element_type):
    """An algorithm whose client states hold the client's index, its rounds and a sum of ids."""

    def client_work(model, round_number, state, examples):
        rows = examples.reduce(
            tf.constant([0, 0], tf.int64),
            lambda total, e: tf.stack([e["client"], total[1] + e["example_id"]]),
        )
        new = {
            "client": rows[0],
            "sum": state["sum"] + rows[1],
            "rounds": state["rounds"] + 1,
        }
        zero = tf.constant(0.0)
        trained = local_training.LocalModel(
            Weights((), ()), Weights((), ()), zero, tf.zeros([1]), tf.zeros([1])
        )
        return output_if_finite(
            [(tf.cast(rows[1], tf.float32), tf.constant(1.0))],
            collections.OrderedDict(sorted(new.items())),
            state,
            trained,
            tf.constant(1),
            {"was": tf.cast(state["client"], tf.float32)},
        )

    def initial_client_state(seed):
        names = ("client", "rounds", "sum")
        return collections.OrderedDict((name, tf.constant(-1, tf.int64)) for name in names)

    return build_stateful_clients(
        initial_model=lambda seed: tf.constant(0.0),
        initial_client_state=initial_client_state,
        client_work=client_work,
        server_update=lambda model, means: 0.5 * model + means[0],
        element_type=element_type,
        global_weights=lambda model: Weights((model,), ()),
        client_weights=lambda model, state: Weights((state["sum"],), ()),
    )


@pytest.fixture
def run(worker, tmp_path):
    """(folder) -> a simulation of clients with 1 to 7 examples, and the ids of their examples."""
    sizes = np.arange(1, CLIENTS + 1)
    total = int(sizes.sum())
    split = Split(np.zeros((total, 2, 2, 1), np.uint8), np.zeros(total, np.int32), np.arange(total))
    clients = np.split(np.arange(total), np.cumsum(sizes)[:-1])
    client_store.write_store(tmp_path / "clients.sqlite", split, clients)
    data = client_store.StoredClientData(tmp_path / "clients.sqlite")
    computations = counting(tff.types.tensorflow_to_type(data.element_type_structure))

    def build(folder):
        participation = Participation(cohort.uniform_cohorts(CLIENTS, 4, seed=3), 4, 4)
        planned = computations.plan_run(RunSetting(sizes.tolist(), 6, participation))
        return planned.simulate(data.group_dataset_computation, tmp_path / folder)

    return build, clients


@pytest.mark.slow
def test_states_stay_with_their_clients_whatever_the_order_of_the_cohorts(run):
    build, clients = run
    simulated = build("run")
    cohorts = cohort.uniform_cohorts(CLIENTS, 4, seed=3)
    assert any(np.any(np.diff(cohorts(r)) < 0) for r in range(6))  # Cohorts are shuffled.
    state = simulated.initialize(0)
    for round_number in range(6):
        state, _ = simulated.run_round(state, round_number)
    taken = np.concatenate([cohorts(r) for r in range(6)])
    for client in range(CLIENTS):
        times = int(np.sum(taken == client))
        loaded = simulated._states.load(client, int(state.versions[client]))
        expected = (client, times - 1, times * int(np.sum(clients[client])) - 1)
        if times == 0:
            expected = (-1, -1, -1)
        assert (int(loaded["client"]), int(loaded["rounds"]), int(loaded["sum"])) == expected
        assert float(simulated.encoder_weights(state, str(client)).trainable[0]) == expected[2]


def test_only_the_cohorts_states_are_read_and_superseded_ones_go(run, tmp_path):
    build, _ = run
    simulated = build("run")
    state, folder = simulated.initialize(0), tmp_path / "run" / "client_states"
    cohorts = cohort.uniform_cohorts(CLIENTS, 4, seed=3)
    damaged = 0
    for round_number in range(5):
        others = set(range(CLIENTS)) - set(cohorts(round_number).tolist())
        whole = {path: path.read_bytes() for k in others for path in folder.glob(f"{k}/*")}
        for path in whole:
            path.write_bytes(b"")
        before = state.versions
        state, _ = simulated.run_round(state, round_number)
        for path in whole:
            if path.exists():
                path.write_bytes(whole[path])
        damaged += len(whole)
        kept = {(int(path.parent.name), int(path.name)) for path in folder.glob("*/*")}
        named = {*enumerate(before.tolist()), *enumerate(state.versions.tolist())}
        assert kept == {(client, version) for client, version in named if version != NEVER}
    assert damaged


def loop(folder, rounds=8):
    return training_loop.TrainingLoop(output_dir=folder, rounds=rounds, checkpoint_every=3)


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


class Killed(BaseException):
    """Simulates SIGKILL, after which nothing is written."""


def killed_in(simulated, number):
    """The simulation, which is killed after the work of a round."""
    run_round = simulated.run_round

    def stop(state, round_number):
        result = run_round(state, round_number)
        if round_number == number:
            raise Killed
        return result

    simulated.run_round = stop
    return simulated


@pytest.mark.slow
def test_stopped_in_any_round_and_resumed_equals_never_stopped(run, tmp_path):
    build, _ = run
    expected = loop(tmp_path / "whole").run(build("whole"), seed=0)
    for number in (1, 4, 5):
        folder = f"killed{number}"
        with pytest.raises(Killed):
            # The clients' new states are written, but no checkpoint.
            loop(tmp_path / folder).run(killed_in(build(folder), number), seed=0)
        again = build(folder)
        state = loop(tmp_path / folder).run(again, seed=0)
        np.testing.assert_array_equal(state.versions, expected.versions)
        assert state.server.model == expected.server.model
        assert rows(tmp_path / folder / "client_metrics.csv") == rows(
            tmp_path / "whole" / "client_metrics.csv"
        )
        files = {
            p.relative_to(tmp_path / folder) for p in (tmp_path / folder).glob("client_states/*/*")
        }
        same = {
            p.relative_to(tmp_path / "whole")
            for p in (tmp_path / "whole").glob("client_states/*/*")
        }
        assert files == same
        for path in (tmp_path / "whole" / "client_states").glob("*/*"):
            other = tmp_path / folder / path.relative_to(tmp_path / "whole")
            assert other.read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_a_resumed_run_keeps_the_states_of_the_checkpoint_before(run, tmp_path):
    build, _ = run
    expected = loop(tmp_path / "whole").run(build("whole"), seed=0)
    for killed in (6, 7):  # Both times, the checkpoints are those of rounds 3 and 6.
        with pytest.raises(Killed):
            loop(tmp_path / "run").run(killed_in(build("run"), killed), seed=0)
    # Round 7 was computed again, and has replaced states of checkpoint 3, which is needed now.
    (tmp_path / "run" / "checkpoints" / "round_6.npz").write_bytes(b"")
    state = loop(tmp_path / "run").run(build("run"), seed=0)
    np.testing.assert_array_equal(state.versions, expected.versions)
    assert state.server.model == expected.server.model


@pytest.mark.slow
def test_a_run_that_is_killed_after_its_last_checkpoint_is_tidied_up(run, tmp_path):
    build, _ = run
    simulated = build("run")

    def killed(state):
        raise Killed

    simulated.on_checkpoint = killed
    with pytest.raises(Killed):
        loop(tmp_path / "run", rounds=3).run(simulated, seed=0)
    state = loop(tmp_path / "run", rounds=3).run(build("run"), seed=0)
    kept = {(int(p.parent.name), int(p.name)) for p in tmp_path.glob("run/client_states/*/*")}
    assert kept == {item for item in enumerate(state.versions.tolist()) if item[1] != NEVER}


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    ["deleted", *(pytest.param(d, marks=pytest.mark.long) for d in ("emptied", "overwritten"))],
)
def test_a_run_whose_images_are_gone_ends_in_a_line_and_loses_nothing(run, tmp_path, damage):
    build, _ = run
    store, whole = tmp_path / "clients.sqlite", (tmp_path / "clients.sqlite").read_bytes()
    simulated = build("run")
    run_round = simulated.run_round

    def damaging(state, round_number):
        if round_number == 4:
            store.unlink()
            if damage != "deleted":
                store.write_bytes(b"" if damage == "emptied" else bytes(len(whole)))
        return run_round(state, round_number)

    simulated.run_round = damaging
    with pytest.raises(TrainingError, match="round 5") as raised:
        loop(tmp_path / "run").run(simulated, seed=0)
    assert "\n" not in str(raised.value)
    store.write_bytes(whole)
    state = loop(tmp_path / "run").run(build("run"), seed=0)
    expected = loop(tmp_path / "whole").run(build("whole"), seed=0)
    assert state.server.model == expected.server.model


@pytest.mark.slow
def test_a_client_whose_state_was_damaged_takes_part_in_later_rounds(run, tmp_path, caplog):
    build, _ = run
    simulated = build("run")
    cohorts = cohort.uniform_cohorts(CLIENTS, 4, seed=3)
    state = simulated.initialize(0)
    for round_number in range(3):
        state, _ = simulated.run_round(state, round_number)
    client = next(int(k) for k in cohorts(3) if state.versions[k] != NEVER)
    flip_a_bit(tmp_path / "run" / "client_states" / str(client) / str(state.versions[client]))
    for round_number in range(3, 6):
        state, metrics = simulated.run_round(state, round_number)
        assert metrics["dropped_clients"] == 0
    assert sum("is damaged" in record.getMessage() for record in caplog.records) == 1
    assert np.isfinite(simulated.encoder_weights(state, str(client)).trainable[0])
    assert len(state_files.damaged_states(tmp_path / "run", ("client_states",))) == 1
