"""Computations and runs without a server: types, averages, and a killed run that is resumed."""

import collections
import csv

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from datasets import client_store
from datasets.image_dataset import Split
from tests.scalar_network import build_once
from tff_ssl.algorithms import gossip
from tff_ssl.algorithms.denav import algorithm
from tff_ssl.decentralized import mixing, topology
from tff_ssl.decentralized.events import Cut, Leave, with_events
from tff_ssl.decentralized.schedule import ClientNetwork
from tff_ssl.errors import TrainingError
from tff_ssl.kinds.decentralized.algorithm import build_decentralized
from tff_ssl.kinds.decentralized.simulation import DecentralizedSimulation
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.simulation import state_files, training_loop
from tff_ssl.templates.task import Task

SHAPE = (8, 8, 1)
ELEMENT = tff.types.to_type(
    collections.OrderedDict(client=np.int64, example_id=np.int64, image=(np.uint8, SHAPE))
)
PIXELS = (3, 50, 77, 120, 255)


def plain_views(images, example_ids, round_number):
    x = tf.cast(images, tf.float32) / 255
    return x, x


@pytest.fixture(scope="module")
def built():
    model = DualEncoder("vit_one_block_micro", SHAPE, decoder=True)
    return model, algorithm.build_denav(Task(model, plain_views, ELEMENT, 4, "mae"))


@pytest.mark.slow
def test_models_are_placed_at_clients_and_only_the_clock_at_the_server(built):
    model, computations = built
    clock, models, data = computations.training.type_signature.parameter
    assert (clock.placement, models.placement, data.placement) == (
        tff.SERVER, tff.CLIENTS, tff.CLIENTS,
    )  # fmt: skip
    after, metrics = computations.training.type_signature.result
    assert (after, metrics.placement) == (models, tff.CLIENTS)
    own, received = computations.averaging.type_signature.parameter
    assert own == computations.averaging.type_signature.result == models
    assert isinstance(received.member, tff.types.SequenceType)
    assert len(received.member.element.model) == len(model.specs)


def test_an_average_is_the_weighted_sum_of_the_received_models(worker, built, tmp_path):
    model, computations = built
    states = state_files.ClientStates(tmp_path, model.init(0))
    several = [model.init(seed) for seed in range(4)]
    paths = states.paths_to_write(range(4), 1)
    for path, weights in zip(paths, several, strict=True):
        states.write(path, tf.nest.map_structure(lambda t: t.numpy(), weights))
    states.commit(paths)
    versions = np.ones(4, np.int64)
    rows = np.array([[0.1, 0.2, 0.3, 0.4], [0.0, 0.25, 0.75, 0.0]])
    received = []
    for row in rows:
        used = np.flatnonzero(row)
        received.append((states.paths_to_read(used, versions), row[used]))

    @tff.federated_computation(
        computations.averaging.type_signature.parameter[0],
        tff.types.FederatedType(states.read_many.type_signature.parameter, tff.CLIENTS),
    )
    def average(own, sources):
        return computations.averaging(own, tff.federated_map(states.read_many, sources))

    averaged = average([tf.nest.map_structure(lambda t: t.numpy(), several[3])] * 2, received)
    flat = [[t.numpy() for t in weights.trainable] for weights in several]
    expected = mixing.combine(flat, rows)
    for i, weights in enumerate(averaged):
        for a, b in zip(weights.trainable, expected, strict=True):
            np.testing.assert_allclose(a, b[i], rtol=1e-6, atol=1e-8)


@pytest.mark.long
@pytest.mark.slow
def test_a_clients_own_batch_norm_is_not_averaged(worker):
    model = DualEncoder("tiny", SHAPE, (4,), norm="batch")
    task = Task(model, plain_views, ELEMENT, 4, "nt_xent")
    for local in (True, False):
        built = build_decentralized(task, gossip.DFedAvgHyperparameters(), None, local_norm=local)
        own, other = (
            tf.nest.map_structure(lambda t, x=x: np.full(t.shape, x, np.float32), model.init(0))
            for x in (1.0, 5.0)
        )
        leaves = [
            collections.OrderedDict(weight=np.float64(0.5), model=tuple(tf.nest.flatten(m)))
            for m in (own, other)
        ]
        (result,) = built.averaging([own], [leaves])
        averaged = Weights(*result)
        for specs, values in (
            (model.trainable_specs, averaged.trainable),
            (model.non_trainable_specs, averaged.non_trainable),
        ):
            for spec, value in zip(specs, values, strict=True):
                assert np.all(value == (1.0 if local and spec.batch_norm else 3.0)), spec.name


@pytest.fixture
def simulate(scalars, tmp_path):
    """(algorithm, folder) -> a simulation of five clients on a ring with a departure and a cut."""
    task, _ = scalars
    split = Split(
        np.array(PIXELS, np.uint8).reshape(-1, 1, 1, 1), np.zeros(5, np.int32), np.arange(5)
    )
    client_store.write_store(tmp_path / "clients", split, list(np.arange(5)[:, np.newaxis]))
    data = client_store.StoredClientData(tmp_path / "clients").group_dataset_computation
    events = [Leave(3, 4), Cut(5, 0, 1)]
    setting = ClientNetwork(with_events(topology.cycle(5), events, 6), [1, 2, 3, 4, 5], 0)
    common = {"client_learning_rate": 0.3, "batch_size": 0, "local_epochs": 2}
    algorithms = {
        "denav": (algorithm.build_denav, algorithm.DeNAVHyperparameters(models=2, **common)),
        "gossip": (gossip.build_gossip, gossip.GossipHyperparameters(**common)),
        "all_reduce": (gossip.build_gossip, gossip.AllReduceHyperparameters(**common)),
        "dfedavg": (gossip.build_gossip, gossip.DFedAvgHyperparameters(**common)),
    }

    def make(name, folder):
        build, values = algorithms[name]
        computations = build_once(build, task("nt_xent", 6), values)
        return DecentralizedSimulation(computations, computations.schedule(setting), data, folder)

    return make


def trained(loop, simulation):
    state = loop.run(simulation, seed=0)
    clients = [
        simulation.mean_model(state, np.eye(len(state.versions))[slot])
        for slot in range(len(state.versions))
    ]
    return [*tf.nest.flatten(clients), *simulation.encoder_weights(state).trainable]


def rows(folder, name):
    with open(folder / name, newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


class KilledError(Exception):
    """Simulates SIGKILL, after which nothing is saved."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["denav", *(pytest.param(name, marks=pytest.mark.long) for name in ("gossip", "dfedavg"))],
)
def test_killed_and_resumed_equals_never_stopped(simulate, tmp_path, name, monkeypatch):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    expected = trained(training_loop.TrainingLoop(whole, 6, 2), simulate(name, whole))

    # The run is killed in the middle of round 6. One round has ended since the last checkpoint.
    original = DecentralizedSimulation._run_averaging

    def dies(self, operation, versions, version):
        if version >= 10:
            raise KilledError
        return original(self, operation, versions, version)

    with monkeypatch.context() as patch:
        patch.setattr(DecentralizedSimulation, "_run_averaging", dies)
        with pytest.raises(KilledError):
            training_loop.TrainingLoop(killed, 6, 2).run(simulate(name, killed), seed=0)
    assert len(rows(killed, "metrics.csv")) == 5
    resumed = trained(training_loop.TrainingLoop(killed, 6, 2), simulate(name, killed))
    for a, b in zip(resumed, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    for file in ("metrics.csv", "client_metrics.csv"):
        assert rows(killed, file) == rows(whole, file)
    files = {path.relative_to(killed) for path in killed.glob("client_states/*/*")}
    assert files == {path.relative_to(whole) for path in whole.glob("client_states/*/*")}


def test_all_reduce_gives_all_clients_one_model_with_one_file(simulate, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    simulation = simulate("all_reduce", folder)
    state, _ = simulation.run_round(simulation.initialize(0), 0)
    models = [simulation.mean_model(state, np.eye(5)[slot]).trainable for slot in range(5)]
    assert all(model == models[0] for model in models)
    inodes = {path.stat().st_ino for path in folder.glob("client_states/[0-9]*/*")}
    assert len(inodes) == 1


def test_a_lost_model_is_one_clear_error(simulate, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    simulation = simulate("gossip", folder)
    state, _ = simulation.run_round(simulation.initialize(0), 0)
    (path,) = folder.glob("client_states/2/*")
    path.unlink()
    with pytest.raises(TrainingError, match="client 2 cannot be read"):
        simulation.run_round(state, 1)


def test_a_file_system_without_links_gets_copies(tmp_path, monkeypatch):
    states = state_files.ClientStates(tmp_path, np.float32([1, 2]))

    def refuse(source, path):
        raise OSError("no links here")

    monkeypatch.setattr("os.link", refuse)
    paths = states.paths_to_write([3], 7)
    states.share(str(tmp_path / "initial"), paths)
    states.commit(paths)
    np.testing.assert_array_equal(states.load(3, 7), [1, 2])


def test_what_a_killed_run_left_unfinished_is_never_written_through(tmp_path):
    """An unfinished file may be a link to a finished one; writing into it would change both."""
    states = state_files.ClientStates(tmp_path, np.float32([1, 2]))
    (path,) = states.paths_to_write([0], 1)
    states.share(str(tmp_path / "initial"), [path])
    (again,) = states.paths_to_write([0], 1)
    with open(again, "wb") as file:
        file.write(b"other")
    np.testing.assert_array_equal(states.load(0, state_files.NEVER), [1, 2])
