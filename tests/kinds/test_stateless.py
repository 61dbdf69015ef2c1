"""Folded rounds equal unfolded ones, and centralized steps on the same examples."""

import functools

import numpy as np
import pytest
import tensorflow_federated as tff

from datasets import client_store, partitioners
from datasets.image_dataset import Split
from tests import networks
from tff_ssl.algorithms import registry
from tff_ssl.kinds.protocol import RunSetting
from tff_ssl.simulation import centralized, cohort, metrics_log
from tff_ssl.simulation.participation import Participation
from tff_ssl.templates.task import Task

pytestmark = pytest.mark.xdist_group("dcco")

SEED = 11
ROUNDS = 4
RATE = 0.01  # With larger steps on so few examples, rounding errors grow and differ by processor.
MODEL = networks.OneLayer("tiny", (8, 8, 1), projector=(16,))


TRACES = []


def two_views(images, example_ids, round_number):
    TRACES.append(images)  # Python code runs when a graph is made, and not when it is computed.
    return networks.two_views(images, example_ids, round_number)


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 8, 8, 1), np.uint8)
    return Split(images, np.repeat(np.arange(4), 10).astype(np.int32), np.arange(40) + 100)


@pytest.fixture(scope="module")
def clients(split):
    return partitioners.dirichlet(split.labels, np.random.default_rng(0), 0.0, 3)


@pytest.fixture(scope="module")
def build(tmp_path_factory, split, clients):
    folder = tmp_path_factory.mktemp("stateless")
    store = folder / "clients.sqlite"
    client_store.write_store(store, split, clients)
    data = client_store.StoredClientData(store)
    element_type = tff.types.tensorflow_to_type(data.element_type_structure)
    task = Task(MODEL, two_views, element_type, ROUNDS)

    @functools.cache
    def built(algorithm, **options):
        entry = registry.ALGORITHMS[algorithm]
        values = entry.hyperparameters(
            server_optimizer="sgd", server_learning_rate=RATE, micro_batch_size=4, **options
        )
        assert entry.folds_with(values)
        return entry.build(task, values)

    def with_groups(groups, algorithm="dcco", **options):
        participation = Participation(cohort.uniform_cohorts(len(clients), 6, SEED), 6, 6)
        setting = RunSetting([len(c) for c in clients], ROUNDS, participation, groups=groups)
        run = built(algorithm, **options).plan_run(setting)
        run.client_bytes = (300, 700)
        return run.simulate(data.group_dataset_computation, folder)

    return with_groups


def curve(run, rounds=ROUNDS):
    state, rows = run.initialize(SEED), []
    for r in range(rounds):
        state, metrics = run.run_round(state, r)
        rows.append(metrics)
    return rows, run.encoder_weights(state)


def assert_same_curve(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        for name in ("loss", "on_diagonal", "off_diagonal", "encoding_std", "update_norm"):
            assert a[name] == pytest.approx(b[name], rel=1e-3), name
        assert a["samples"] == b["samples"]
    for a, b in zip(one[1].trainable, other[1].trainable, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_folded_equals_unfolded(worker, build):
    unfolded = curve(build(groups=0), rounds=2)
    # A further test compares one group with centralized steps.
    assert_same_curve(curve(build(groups=2), rounds=2), unfolded)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("dcco", {"batch_size": 2, "client_learning_rate": 1e-3}),
        ("dcco_one_stage", {"client_learning_rate": 0.1}),
    ],
)
def test_folded_equals_unfolded_beyond_the_paper(worker, build, algorithm, options):
    # Two rounds: with one stage, the first only gathers statistics.
    unfolded, folded = (curve(build(n, algorithm, **options), rounds=2) for n in (0, 2))
    assert_same_curve(folded, unfolded)


@pytest.mark.slow
def test_dcco_and_centralized_cco_have_the_same_curve(worker, build, split, clients):
    cohorts = cohort.uniform_cohorts(len(clients), 6, SEED)
    baseline = centralized.Centralized(
        "cco",
        MODEL,
        two_views,
        split.images,
        split.example_ids,
        lambda step: np.concatenate([clients[c] for c in cohorts(step)]),
        ROUNDS,
        centralized.CentralizedHyperparameters(optimizer="sgd", learning_rate=RATE),
    )
    federated_curve = curve(build(groups=1))
    assert_same_curve(federated_curve, curve(baseline))
    losses = [row["loss"] for row in federated_curve[0]]
    assert max(losses) > 1.05 * min(losses)  # A constant curve would prove nothing.


@pytest.mark.slow
def test_metrics_have_clients_samples_and_bytes(worker, build, clients):
    rows, _ = curve(build(groups=1), rounds=1)
    sizes = [len(clients[c]) for c in cohort.uniform_cohorts(len(clients), 6, SEED)(0)]
    assert rows[0]["clients"] == 6
    assert rows[0]["samples"] == sum(sizes)
    assert rows[0]["bytes"] == 6000
    assert rows[0]["dropped_clients"] == 0


@pytest.mark.slow
def test_rounds_do_not_trace_again(worker, build):
    run = build(groups=1)
    state, _ = run.run_round(run.initialize(SEED), 0)
    before = len(TRACES)
    for r in range(1, 4):
        state, _ = run.run_round(state, r)
    assert len(TRACES) == before > 0


def test_flatten_metrics_keeps_leaves_only():
    nested = {"a": {"loss": np.float32(2), "empty": ()}, "b": {"c": {"n": np.int64(3)}}, "d": ()}
    assert metrics_log.flatten_metrics(nested) == {"loss": 2.0, "n": 3}


def test_shuffled_batches_use_each_example_once_an_epoch():
    batch = centralized.shuffled_batches(10, 3, seed=1)
    for epoch in range(3):
        seen = np.concatenate([batch(3 * epoch + i) for i in range(3)])
        assert len(set(seen)) == 9
    assert not np.array_equal(batch(0), batch(3))
    np.testing.assert_array_equal(batch(4), centralized.shuffled_batches(10, 3, seed=1)(4))
