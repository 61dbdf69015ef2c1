"""Rounds cut into slices, in one process, against rounds that are not cut."""

import csv
import functools
import importlib.util

import numpy as np
import pytest
import tensorflow_federated as tff

from datasets import federated
from datasets.image_dataset import Split
from tff_ssl import cohort, program, simulation, sliced_rounds
from tff_ssl.algorithms import registry
from tff_ssl.algorithms.client_memory import ClientMemory

SIZES = (3, 5, 2, 4)
# Two stages, one stage, clients with memory. That all forms merge, `test_lowering` says everywhere.
ONE_OF_EACH_KIND = {"dcco", "fedavg", "fedema"}
WITH_RAY = importlib.util.find_spec("ray") is not None


def kinds():
    """Algorithms with a server; where there is no Ray, one of each kind, to save time."""
    skipped = pytest.mark.skipif(not WITH_RAY, reason="uv sync --extra ray runs it")
    for name, algorithm in registry.ALGORITHMS.items():
        if not (algorithm.decentralized or algorithm.unlike_clients):
            yield pytest.param(name, marks=[] if name in ONE_OF_EACH_KIND else [skipped])


class InThisProcess:
    """Works on slices one after the other, in the order of a node that fails and is late."""

    def __init__(self):
        self.work = []
        self._load = functools.cache(sliced_rounds.deserialize)

    def work_on(self, up_to_merge, state, slices, work):
        self.work.append(list(work))
        computation = self._load(up_to_merge)
        done = {}
        for k in reversed(range(len(slices))):
            for _ in range(2):  # Doing it again changes nothing.
                done[k] = sliced_rounds.work_on_slice(computation, state, slices[k])
        return [done[k] for k in range(len(slices))]


def test_slices_are_neighbours_of_equal_work():
    def cuts(work, slices):
        return [work[where] for where in sliced_rounds.cut(work, slices)]

    assert cuts([1, 1, 1, 1], 2) == [[1, 1], [1, 1]]
    assert cuts([6, 1, 1, 1, 3], 2) == [[6], [1, 1, 1, 3]]
    assert cuts([1, 3, 1, 1, 6], 2) == [[1, 3, 1, 1], [6]]
    assert cuts([5, 1, 9], 3) == cuts([5, 1, 9], 8) == [[5], [1], [9]]
    rng = np.random.default_rng(0)
    for _ in range(50):
        work = rng.integers(1, 20, rng.integers(1, 40)).tolist()
        slices = int(rng.integers(1, 12))
        found = cuts(work, slices)
        assert [one for part in found for one in part] == work
        assert 1 <= len(found) <= max(slices, 1)
        if slices < len(work):
            assert max(map(sum, found)) <= sum(work) / slices + max(work)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    rng, total = np.random.default_rng(0), sum(SIZES)
    split = Split(
        rng.integers(0, 256, (total, 2, 2, 3), np.uint8),
        np.zeros(total, np.int32),
        np.arange(total),
    )
    path = tmp_path_factory.mktemp("store") / "clients.sqlite"
    federated.write_store(path, split, np.split(np.arange(total), np.cumsum(SIZES)[:-1]))
    return federated.StoredClientData(path)


def simulate(computations, task, stored, folder, nodes=None, slices=8, data=None):
    """A run of it over the stored clients; on nodes, if there are any."""
    whole, sizes = stored.group_dataset_computation, stored.client_sizes()
    data = data(whole) if data else whole
    cohorts = cohort.uniform_cohorts(len(SIZES), 3, seed=3)
    engine = (computations, data, sizes, slices, nodes)
    if isinstance(computations, ClientMemory):
        return simulation.ClientMemorySimulation(
            computations, data, cohorts, len(SIZES), folder,
            next_round=sliced_rounds.MemoryRound(*engine) if nodes else None,
        )  # fmt: skip
    return simulation.LearningProcessSimulation(
        computations.process, data, task.model, computations.initial_weights, cohorts, groups=0,
        next_round=sliced_rounds.LearningRound(*engine) if nodes else None,
    )  # fmt: skip


def train(simulated, folder, rounds=2):
    return program.Program(folder, rounds, checkpoint_every=rounds).run(simulated, seed=0)


def rows(path):
    """A metrics file without its clock."""
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
    files = sorted(
        p.relative_to(expected_folder) for p in expected_folder.glob("client_states/**/*")
    )
    assert files == sorted(p.relative_to(folder) for p in folder.glob("client_states/**/*"))
    for path in files:
        if (folder / path).is_file():
            assert (folder / path).read_bytes() == (expected_folder / path).read_bytes()
    for name in ("metrics.csv", "client_metrics.csv"):
        if (expected_folder / name).exists():
            assert rows(folder / name) == rows(expected_folder / name)
            assert len(rows(folder / name)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", kinds())
def test_a_round_in_slices_of_one_client_equals_the_whole_one_to_the_last_bit(
    worker, small_algorithm, stored, tmp_path, name
):
    task, computations, _ = small_algorithm(name)
    whole = simulate(computations, task, stored, tmp_path / "whole")
    expected = train(whole, tmp_path / "whole")
    nodes = InThisProcess()
    sliced = simulate(computations, task, stored, tmp_path / "sliced", nodes)
    state = train(sliced, tmp_path / "sliced")
    assert_same_run(tmp_path / "sliced", state, tmp_path / "whole", expected)
    cohorts = cohort.uniform_cohorts(len(SIZES), 3, seed=3)
    stages = len(getattr(computations, "stages", {"round": None}))
    works = [[SIZES[client] for client in cohorts(r)] for r in range(2) for _ in range(stages)]
    assert nodes.work == works


@pytest.mark.slow
def test_larger_slices_give_the_same_but_for_rounding(worker, small_algorithm, stored, tmp_path):
    task, computations, _ = small_algorithm("fedavg")
    expected = train(simulate(computations, task, stored, tmp_path / "a"), tmp_path / "a")
    nodes = InThisProcess()
    sliced = simulate(computations, task, stored, tmp_path / "b", nodes, slices=2)
    state = train(sliced, tmp_path / "b")
    assert all(len(work) == 2 for work in nodes.work)
    for one, other in zip(
        state.global_model_weights.trainable, expected.global_model_weights.trainable, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
