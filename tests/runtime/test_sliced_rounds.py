"""Rounds cut into slices and computed in one process, against rounds that are not cut."""

import csv
import functools
import importlib.util

import numpy as np
import pytest
import tensorflow_federated as tff

from datasets import client_store
from datasets.image_dataset import Split
from tests.by_algorithm import ONE_OF_EACH_KIND, by_algorithm
from tff_ssl.algorithms import registry
from tff_ssl.decentralized import events, topology
from tff_ssl.decentralized.events import Leave
from tff_ssl.decentralized.schedule import ClientNetwork, Training
from tff_ssl.kinds.protocol import Need, RunSetting
from tff_ssl.runtime import sliced_rounds
from tff_ssl.runtime.sliced_rounds import Slicing
from tff_ssl.runtime.slices import InThisProcess
from tff_ssl.simulation import cohort, dropouts, training_loop
from tff_ssl.simulation.participation import Participation
from tff_ssl.templates.task import Population

SIZES = (3, 5, 2, 4)
MODEL_OF_CLIENT = (0, 1, 1, 0)  # Architecture of each client, for heterogeneous clients.
RAD = np.random.default_rng(1).integers(0, 256, (4, 2, 2, 3), np.uint8)
DROPOUT_SEED = 18  # Between the stages, all clients drop out in one round, one in the other.
WITH_RAY = importlib.util.find_spec("ray") is not None
# `test_lowering` tests the mergeable form of all algorithms, also without Ray.
NAMES = registry.ALGORITHMS if WITH_RAY else ONE_OF_EACH_KIND


class Repeating(InThisProcess):
    """Computes each slice twice and in reverse order, as if nodes failed and were late."""

    def __init__(self):
        super().__init__()
        self.work = []

    def work_on(self, programs, state, slices, work):
        assert len(programs) == len(slices) == len(work)
        self.work.append(list(work))
        done = {}
        for k in reversed(range(len(slices))):
            for _ in range(2):  # A repetition changes nothing.
                (done[k],) = super().work_on([programs[k]], state, [slices[k]], [work[k]])
        return [done[k] for k in range(len(slices))]


def test_slices_are_contiguous_and_have_about_equal_work():
    def cuts(work, slices):
        return [work[span] for span in sliced_rounds.cut(work, slices)]

    assert cuts([1, 1, 1, 1], 2) == [[1, 1], [1, 1]]
    assert cuts([6, 1, 1, 1, 3], 2) == [[6], [1, 1, 1, 3]]
    assert cuts([1, 3, 1, 1, 6], 2) == [[1, 3, 1, 1], [6]]
    assert cuts([5, 1, 9], 3) == cuts([5, 1, 9], 8) == [[5], [1], [9]]
    rng = np.random.default_rng(0)
    for _ in range(50):
        work = rng.integers(1, 20, rng.integers(1, 40)).tolist()
        slices = int(rng.integers(1, 12))
        parts = cuts(work, slices)
        assert [amount for part in parts for amount in part] == work
        assert 1 <= len(parts) <= max(slices, 1)
        if slices < len(work):
            assert max(map(sum, parts)) <= sum(work) / slices + max(work)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    rng, total = np.random.default_rng(0), sum(SIZES)
    split = Split(
        rng.integers(0, 256, (total, 2, 2, 3), np.uint8),
        np.zeros(total, np.int32),
        np.arange(total),
    )
    path = tmp_path_factory.mktemp("store") / "clients.sqlite"
    client_store.write_store(path, split, np.split(np.arange(total), np.cumsum(SIZES)[:-1]))
    return client_store.StoredClientData(path)


@functools.cache
def build(small_algorithm, name):
    """An algorithm for the clients of `SIZES`."""
    small, entry = small_algorithm(name), registry.ALGORITHMS[name]
    task = small.task
    if Need.POPULATION in entry.kind.needs:
        one, width = task.model, (3,)
        other = type(one)("small", one.image_shape, width, width if one.predictor else ())
        population = Population((one, other), MODEL_OF_CLIENT, SIZES, len(RAD))
        values = entry.hyperparameters(local_epochs=1)
        return entry.build(task._replace(population=population), values)
    if entry.collects:
        return entry.build(task._replace(client_sizes=SIZES), entry.hyperparameters())
    return small.computations


def client_network():
    """A ring of the clients of `SIZES`, one of which leaves."""
    graphs = events.with_events(topology.cycle(len(SIZES)), [Leave(2, 3)], 2)
    return ClientNetwork(graphs, SIZES, 0)


def plan_run(algorithm, dropout=0.0, fold=0):
    """A run of two rounds of the algorithm with the clients of `SIZES`."""
    cohorts = cohort.uniform_cohorts(len(SIZES), 3, seed=3)
    absent = dropouts.Dropouts(dropout, max_dropped=1.0, seed=DROPOUT_SEED)
    participation = Participation(cohorts, 3, 3, dropouts=absent)
    return algorithm.plan_run(RunSetting(SIZES, 2, participation, client_network(), RAD, fold))


def simulate(algorithm, stored, folder, nodes=None, slices=8, data=None, **options):
    """A simulation with the stored clients, cut into slices if there are nodes."""
    whole = stored.group_dataset_computation
    data = data(whole) if data else whole
    slicing = Slicing(nodes, stored.client_sizes(), slices) if nodes else None
    return plan_run(algorithm, **options).simulate(data, folder, slicing)


def works(algorithm):
    """Numbers of examples of the clients in two rounds, for each call of `work_on`."""
    if Need.NETWORK in algorithm.needs:
        schedule = algorithm.schedule(client_network())
        operations = [o for r in range(2) for o in schedule.round(r).operations]
        return [[SIZES[k] for k in o.clients] for o in operations if isinstance(o, Training)]
    cohorts = cohort.uniform_cohorts(len(SIZES), 3, seed=3)
    clients = [cohorts(r).tolist() for r in range(2)]
    if Need.POPULATION in algorithm.needs:
        clients = [sorted(members, key=lambda k: MODEL_OF_CLIENT[k]) for members in clients]
    stages = len(getattr(algorithm, "stages", None) or {"round": None})
    return [[SIZES[k] for k in members] for members in clients for _ in range(stages)]


def train(simulated, folder, rounds=2):
    return training_loop.TrainingLoop(folder, rounds, checkpoint_every=rounds).run(
        simulated, seed=0
    )


def rows(path):
    """The rows of a metrics file without the column `seconds`."""
    with open(path, newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def assert_same_run(folder, state, expected_folder, expected):
    one, other = (
        tff.structure.flatten(tff.structure.from_container(s, recursive=True))
        for s in (state, expected)
    )
    assert len(one) == len(other) > 0
    assert type(state) is type(expected)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    files, others = (
        sorted(
            p.relative_to(f) for name in ("client_states", "rad") for p in f.glob(f"{name}/**/*")
        )
        for f in (expected_folder, folder)
    )
    assert files == others
    for path in files:
        if (folder / path).is_file():
            assert (folder / path).read_bytes() == (expected_folder / path).read_bytes()
    for name in ("metrics.csv", "client_metrics.csv"):
        if (expected_folder / name).exists():
            assert rows(folder / name) == rows(expected_folder / name)
            assert len(rows(folder / name)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(NAMES, default=("dcco", "denav")))
def test_a_round_in_slices_of_one_client_equals_the_whole_one_to_the_last_bit(
    worker, small_algorithm, stored, tmp_path, name
):
    algorithm = build(small_algorithm, name)
    whole = simulate(algorithm, stored, tmp_path / "whole")
    expected = train(whole, tmp_path / "whole")
    nodes = Repeating()
    sliced = simulate(algorithm, stored, tmp_path / "sliced", nodes)
    state = train(sliced, tmp_path / "sliced")
    assert_same_run(tmp_path / "sliced", state, tmp_path / "whole", expected)
    assert nodes.work == works(algorithm)


@pytest.mark.long
@pytest.mark.xdist_group("dcco")
@pytest.mark.slow
def test_clients_that_drop_out_between_the_stages(worker, small_algorithm, stored, tmp_path):
    algorithm = build(small_algorithm, "dcco")
    options = {"dropout": 0.5, "fold": 2}
    simulated = simulate(algorithm, stored, tmp_path / "whole", **options)
    expected = train(simulated, tmp_path / "whole")
    nodes = Repeating()
    simulated = simulate(algorithm, stored, tmp_path / "sliced", nodes, 16, **options)
    state = train(simulated, tmp_path / "sliced")
    assert_same_run(tmp_path / "sliced", state, tmp_path / "whole", expected)
    cohorts = cohort.uniform_cohorts(len(SIZES), 3, seed=3)
    absent = dropouts.Dropouts(0.5, seed=DROPOUT_SEED)
    reports = [absent.reports(r, cohorts(r)) for r in range(2)]
    assert any(0 < len(r.last) < len(r.first) < len(r.invited) for r in reports)
    assert any(len(r.last) == 0 < len(r.first) for r in reports)
    stages = [part for r in reports for part in (r.first, r.last)]
    folded = [cohort.fold(part, min(2, len(part)), 8) for part in stages]
    assert nodes.work == [[max(sum(SIZES[k] for k in g), 1) for g in f] for f in folded]


@pytest.mark.long
@pytest.mark.xdist_group("fedavg")
@pytest.mark.slow
def test_larger_slices_give_the_same_but_for_rounding(worker, small_algorithm, stored, tmp_path):
    algorithm = build(small_algorithm, "fedavg")
    expected = train(simulate(algorithm, stored, tmp_path / "a"), tmp_path / "a")
    nodes = Repeating()
    sliced = simulate(algorithm, stored, tmp_path / "b", nodes, slices=2)
    state = train(sliced, tmp_path / "b")
    assert all(len(work) == 2 for work in nodes.work)
    for one, other in zip(
        state.global_model_weights.trainable, expected.global_model_weights.trainable, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
