"""Rounds continue without failing clients; clients lost between stages do not bias DCCO."""

import collections
import dataclasses
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from datasets import client_store
from datasets.image_dataset import Split
from tests.by_algorithm import by_algorithm
from tff_ssl.algorithms import registry
from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.errors import ClientTimeoutError, TrainingError
from tff_ssl.kinds.protocol import Need, RunSetting
from tff_ssl.runtime import local_worker
from tff_ssl.simulation import dropouts, packing, state_files
from tff_ssl.simulation.participation import Participation

CLIENTS = 6
SIZES = (3, 1, 2, 4, 2, 5)


class Broken(ClientTimeoutError):
    """Represents any failure of a client's computation."""


def failing(*bad):
    """A round that fails if these clients take part, and the list of its cohorts."""
    tried = []

    def run(clients):
        tried.append(clients.tolist())
        if np.isin(clients, bad).any():
            raise Broken("bad")
        return tuple(clients.tolist())

    return run, tried


@pytest.mark.parametrize("bad", [(), (5,), (0, 31), (8, 9, 10)])
def test_failing_clients_are_found_and_left_out(bad):
    run, tried = failing(*bad)
    clients = np.random.default_rng(0).permutation(32)
    result, left_out = dropouts.Dropouts().run_without_failing(0, clients, run)
    assert result == tuple(c for c in clients.tolist() if c not in bad)  # The order is kept.
    assert left_out.tolist() == sorted(bad)
    # The cohort, two halves for each failing client on each of 5 levels, and the remaining clients.
    assert len(tried) <= 2 + 2 * 5 * len(bad)


def test_too_many_failing_clients_end_the_run_with_the_reason():
    run, tried = failing(*range(20))
    with pytest.raises(TrainingError, match=r"round 4: 9 of 32 .*--max_dropped=0.25; .*bad"):
        dropouts.Dropouts(max_dropped=0.25).run_without_failing(3, np.arange(32), run)
    assert len(tried) < 32


def test_the_only_client_of_a_round_may_fail():
    run, _ = failing(7)
    one = dropouts.Dropouts(max_dropped=1.0)
    result, left_out = one.run_without_failing(0, np.array([7]), run)
    assert (result, left_out.tolist()) == ((), [7])
    with pytest.raises(TrainingError, match=r"1 of 1 .*bad"):
        dropouts.Dropouts(max_dropped=0.5).run_without_failing(0, np.array([7]), run)


def test_a_round_that_fails_only_as_a_whole_is_an_error():
    def run(clients):
        if len(clients) > 3:
            raise Broken("out of memory")

    with pytest.raises(TrainingError, match=r"no client alone: out of memory"):
        dropouts.Dropouts().run_without_failing(0, np.arange(8), run)


def test_dropout_is_a_function_of_seed_round_and_client():
    faulty = dropouts.Dropouts(dropout=0.3, seed=5)
    population = np.arange(3000)
    reports = faulty.reports(4, population)
    assert len(reports.first) / 3000 == pytest.approx(0.85, abs=0.03)
    assert len(reports.last) / 3000 == pytest.approx(0.7, abs=0.03)
    assert set(reports.last) < set(reports.first) < set(reports.invited)
    some = np.array([77, 3, 1000, 8])
    again = faulty.reports(4, some)
    np.testing.assert_array_equal(again.last, some[np.isin(some, reports.last)])
    assert set(faulty.reports(5, population).last) != set(reports.last)
    assert set(dropouts.Dropouts(0.3, seed=6).reports(4, population).last) != set(reports.last)
    whole = dropouts.Dropouts().reports(4, some)
    np.testing.assert_array_equal(whole.last, some)


def test_more_clients_are_invited_where_some_drop_out():
    assert dropouts.clients_to_invite(32, 0.0) == 32
    assert dropouts.clients_to_invite(30, 0.25) == 40
    assert dropouts.clients_to_invite(32, 0.1) == 36


OF_COHORTS = [n for n, a in registry.ALGORITHMS.items() if a.kind.needs == {Need.COHORTS}]
# Ids of examples whose views are NaN or infinite, or which make the client's computation fail.
NAN, INF, FAIL = 1000, 1001, 1002


@pytest.fixture(scope="module")
def store(tmp_path_factory, small_algorithm):
    """Client data; client k has SIZES[k] examples.

    The first example of client 1 has the id FAIL, that of client 3 NAN, and that of client 4 INF.
    """
    shape = small_algorithm("dcco").task.model.image_shape
    rng = np.random.default_rng(1)
    n = sum(SIZES)
    ends = np.cumsum(SIZES)
    parts = np.split(np.arange(n), ends[:-1])
    ids = np.arange(n)
    for client, special in ((1, FAIL), (3, NAN), (4, INF)):
        ids[parts[client][0]] = special
    split = Split(rng.integers(0, 256, (n, *shape), np.uint8), np.zeros(n, np.int32), ids)
    path = tmp_path_factory.mktemp("faults") / "clients.sqlite"
    client_store.write_store(path, split, parts)
    return client_store.StoredClientData(path)


def faulty_views(two_views, seconds=False):
    """`two_views` with the effects of the ids NAN, INF and FAIL."""

    def views(images, example_ids, round_number):
        with tf.control_dependencies([_fail(tf.reduce_any(tf.equal(example_ids, FAIL)), seconds)]):
            x1, x2 = two_views(images, example_ids, round_number)
        for special, value in ((NAN, np.nan), (INF, np.inf)):
            is_bad = tf.reshape(tf.equal(example_ids, special), [-1, 1, 1, 1])
            x1 = tf.where(is_bad, tf.constant(value, tf.float32), x1)
        return x1, x2

    return views


def _fail(condition, hangs):
    if not hangs:
        return tf.Assert(tf.logical_not(condition), ["this client has no battery"])
    # The client waits for a message that never comes.
    queue = tf.queue.FIFOQueue(1, [tf.int32], [[]])
    return tf.cond(condition, queue.dequeue, lambda: tf.constant(0))


@functools.cache
def build(small_algorithm, name, hangs=False, **options):
    algorithm = registry.ALGORITHMS[name]
    task = small_algorithm(name).task
    task = task._replace(two_views=faulty_views(task.two_views, hangs), client_sizes=SIZES)
    return task, algorithm.build(task, algorithm.hyperparameters(**options))


class Rounds:
    """Runs the first round of an algorithm with any cohort."""

    def __init__(self, computations, store, folder, groups=0, faulty=None):
        participation = Participation(
            lambda _: self.cohort, CLIENTS, CLIENTS, dropouts=faulty or dropouts.Dropouts()
        )
        setting = RunSetting(SIZES, 1, participation, groups=groups)
        run = computations.plan_run(setting)
        self.simulation = run.simulate(store.group_dataset_computation, folder)
        self.initial = self.simulation.initialize(0)

    def __call__(self, cohort):
        self.cohort = np.array(cohort)
        return self.simulation.run_round(self.initial, 0)


def assert_same_state(one, other):
    for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", by_algorithm(OF_COHORTS, default=("dcco",)))
@pytest.mark.slow
def test_bad_clients_are_dropped_counted_and_not_averaged(
    worker, small_algorithm, store, tmp_path, name, caplog
):
    _, computations = build(small_algorithm, name)
    round_of = Rounds(computations, store, tmp_path, faulty=dropouts.Dropouts(max_dropped=0.7))
    state, metrics = round_of([1, 0, 3])  # Only the second one succeeds.
    expected, clean = round_of([0])
    assert (metrics["clients"], metrics["dropped_clients"]) == (3, 2)
    assert (clean["clients"], clean["dropped_clients"]) == (1, 0)
    assert metrics["loss"] == clean["loss"]
    if computations.kind == "stateful_clients":
        assert_same_state(state.server, expected.server)
        # A client that failed has not taken part; one that sent NaN has, with an unchanged state.
        assert state.versions[:4].tolist() == [0, state_files.NEVER, state_files.NEVER, 0]
    else:
        assert_same_state(state, expected)
    assert "continues without clients 1: " in caplog.text
    assert "no battery" in caplog.text


@pytest.mark.xdist_group("fedavg")
@pytest.mark.slow
def test_a_folded_group_loses_its_bad_client_only(worker, small_algorithm, store, tmp_path):
    _, computations = build(small_algorithm, "fedavg")
    state, metrics = Rounds(computations, store, tmp_path, groups=1)([0, 4, 5])
    assert metrics["dropped_clients"] == 1
    assert_same_state(state, Rounds(computations, store, tmp_path)([0, 5])[0])


@pytest.mark.long
@pytest.mark.xdist_group("fedavg")
@pytest.mark.slow
def test_a_cohort_of_any_size_takes_one_local_step(worker, small_algorithm, store, tmp_path):
    _, computations = build(small_algorithm, "fedavg")
    faulty = dropouts.Dropouts(dropout=0.01, max_dropped=1.0)
    cohort = np.array([0, 2, 5])
    assert len(faulty.reports(0, cohort).last) == 3  # Nobody drops out in this round.
    # Where clients may drop out, groups without clients keep the number of groups constant.
    padded = Rounds(computations, store, tmp_path, faulty=faulty)
    state, metrics = padded(cohort)
    assert metrics["dropped_clients"] == 0
    assert_same_state(state, Rounds(computations, store, tmp_path)(cohort)[0])
    state, metrics = padded(cohort[:0])
    assert (metrics["clients"], metrics["samples"], metrics["dropped_clients"]) == (0, 0, 0)
    assert_same_state(state.global_model_weights, padded.initial.global_model_weights)


@pytest.mark.parametrize("name", by_algorithm(OF_COHORTS, default=("dcco", "fedema")))
@pytest.mark.slow
def test_a_round_without_clients_changes_no_model_and_can_be_saved(
    worker, small_algorithm, store, tmp_path, name
):
    _, computations = build(small_algorithm, name)
    faulty = dropouts.Dropouts(dropout=0.01, max_dropped=0.5)
    round_of = Rounds(computations, store, tmp_path, faulty=faulty)
    nobody = np.zeros(0, np.int64)
    state, metrics = round_of(nobody)
    assert np.isnan(metrics["loss"])
    counts = ("clients", "samples", "dropped_clients", "bytes")
    assert [metrics[count] for count in counts] == [0, 0, 0, 0]
    assert all(packing.is_finite(part) for part in packing.pack(state).values())
    before, after = map(round_of.simulation.encoder_weights, (round_of.initial, state))
    assert_same_state(after, before)
    round_of.cohort = np.array([0, 2])
    after, metrics = round_of.simulation.run_round(state, 1)
    assert np.isfinite(metrics["loss"])
    work = after.server if computations.kind == "stateful_clients" else after.client_work
    if computations.kind == "stateful_clients" and not computations.plain_stages:
        # The first round with clients is round 0, in which Orchestra only finds its centroids.
        assert_same_state(after.server, round_of([0, 2])[0].server)
        assert round_of.simulation._without_clients(after, 2, 0)[0].server.round_number == 2
    elif hasattr(work, "round_number"):
        assert work.round_number == 2  # The next round runs, with its own number.


@pytest.mark.xdist_group("fedema")
@pytest.mark.slow
def test_all_clients_of_a_stateful_round_may_fail(worker, small_algorithm, store, tmp_path):
    _, computations = build(small_algorithm, "fedema")
    round_of = Rounds(computations, store, tmp_path, faulty=dropouts.Dropouts(max_dropped=1.0))
    state, metrics = round_of([1])
    counted = round_of.initial.server._replace(round_number=np.int64(1))
    assert_same_state(state, round_of.initial._replace(server=counted))
    assert (metrics["clients"], metrics["dropped_clients"], metrics["samples"]) == (1, 1, 0)
    with pytest.raises(TrainingError, match=r"1 of 1 .*no battery"):
        Rounds(computations, store, tmp_path)([1])


@pytest.mark.parametrize("name", by_algorithm(("fedavg", "fedbn")))
@pytest.mark.slow
def test_a_round_that_all_clients_leave_ends_the_run(
    worker, small_algorithm, store, tmp_path, name
):
    _, computations = build(small_algorithm, name)
    invited = np.array([0, 2])
    faulty = next(
        f for f in (dropouts.Dropouts(0.9, seed=k) for k in range(100))
        if not len(f.reports(0, invited).last)
    )  # fmt: skip
    with pytest.raises(TrainingError, match="2 of 2 clients were dropped"):
        Rounds(computations, store, tmp_path, faulty=faulty)(invited)
    lenient = dataclasses.replace(faulty, max_dropped=1.0)
    _, metrics = Rounds(computations, store, tmp_path, faulty=lenient)(invited)
    assert (metrics["clients"], metrics["dropped_clients"], metrics["samples"]) == (2, 2, 0)


@pytest.mark.xdist_group("dcco")
@pytest.mark.parametrize(
    ("groups", "faulty", "left"),
    [
        (1, dropouts.Dropouts(0.3, 1.0, seed=1), 2),
        (2, dropouts.Dropouts(0.3, 1.0, seed=1), 2),
        (2, dropouts.Dropouts(0.5, 1.0, seed=2), 1),
    ],
)
@pytest.mark.slow
def test_clients_that_drop_out_of_a_folded_dcco_round_count_as_in_an_unfolded_one(
    worker, small_algorithm, store, tmp_path, groups, faulty, left
):
    # Adam's first step would not depend on the size of the update.
    _, computations = build(
        small_algorithm, "dcco", server_optimizer="sgd", server_learning_rate=1.0
    )
    invited = np.array([0, 2, 5])
    reports = faulty.reports(0, invited)
    assert (len(reports.first), len(reports.last)) == (3, left)  # The seeds are chosen for this.
    folded, unfolded = (
        Rounds(computations, store, tmp_path, groups=n, faulty=faulty)(invited)[0]
        for n in (groups, 0)
    )
    for a, b in zip(
        folded.global_model_weights.trainable, unfolded.global_model_weights.trainable, strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.xdist_group("dcco")
@pytest.mark.parametrize("weighting", ["examples", pytest.param("uniform", marks=pytest.mark.long)])
@pytest.mark.slow
def test_after_all_clients_have_dropped_between_the_stages_dcco_goes_on(
    worker, small_algorithm, store, tmp_path, weighting
):
    _, computations = build(
        small_algorithm, "dcco", server_optimizer="sgd", server_learning_rate=1.0,
        client_weighting=weighting,
    )  # fmt: skip
    invited = np.array([0, 2])
    faulty = next(
        f for f in (dropouts.Dropouts(0.5, max_dropped=1.0, seed=k) for k in range(1000))
        if len(f.reports(0, invited).first) == 2 and not len(f.reports(0, invited).last)
        and len(f.reports(1, invited).last) == 2
    )  # fmt: skip
    round_of = Rounds(computations, store, tmp_path, faulty=faulty)
    state, _ = round_of(invited)
    assert_same_state(state.global_model_weights, round_of.initial.global_model_weights)
    state, metrics = round_of.simulation.run_round(state, 1)
    assert metrics["dropped_clients"] == 0
    assert all(packing.is_finite(part) for part in packing.pack(state).values())
    moved = [
        np.any(a != b)
        for a, b in zip(
            state.global_model_weights.trainable, round_of.initial.global_model_weights.trainable,
            strict=True,
        )
    ]  # fmt: skip
    assert any(moved)


@pytest.mark.xdist_group("fedavg")
@pytest.mark.slow
def test_too_many_bad_clients_end_the_run(worker, small_algorithm, store, tmp_path):
    _, computations = build(small_algorithm, "fedavg")
    with pytest.raises(TrainingError, match=r"2 of 3 clients were dropped.*--max_dropped=0.5"):
        Rounds(computations, store, tmp_path)([0, 3, 4])


@pytest.mark.xdist_group("dcco")
@pytest.mark.slow
def test_dcco_with_dropout_runs_its_stages_on_the_remaining_clients(
    worker, small_algorithm, store, tmp_path
):
    _, computations = build(small_algorithm, "dcco")
    faulty = dropouts.Dropouts(dropout=0.5, seed=1, max_dropped=1.0)
    invited = np.array([0, 2, 5])
    reports = faulty.reports(0, invited)
    assert (len(reports.first), len(reports.last)) == (2, 1)  # The seed is chosen for this.
    round_of = Rounds(computations, store, tmp_path, faulty=faulty)
    state, metrics = round_of(invited)
    assert metrics["dropped_clients"] == 2
    assert metrics["samples"] == SIZES[reports.last[0]]
    data = {int(k): store.create_tf_dataset_for_client(str(k)) for k in reports.first}
    half = computations.stages["statistics"].next(round_of.initial, list(data.values())).state
    by_hand = computations.stages["update"].next(half, [data[int(reports.last[0])]]).state
    assert_same_state(state, by_hand)


@pytest.mark.long
@pytest.mark.xdist_group("dcco")
@pytest.mark.slow
def test_a_client_that_drops_between_the_stages_does_not_bias_dcco(worker, small_algorithm):
    """The mean over all sets of reporting clients is the update of the complete round."""
    task = small_algorithm("dcco").task
    sgd = tff.learning.optimizers.build_sgdm(1.0)
    built = two_stage.build_dcco(task, two_stage.DCCOHyperparameters(), sgd)
    rng = np.random.default_rng(3)

    def client(k, n):
        return tf.data.Dataset.from_tensor_slices(
            collections.OrderedDict(
                client=np.full(n, k, np.int64),
                example_id=10 * k + np.arange(n, dtype=np.int64),
                image=rng.integers(0, 256, (n, *task.model.image_shape), np.uint8),
            )
        )

    sizes = np.array([1, 2, 3, 8])
    clients = [client(k, n) for k, n in enumerate(sizes)]
    weights = tff.learning.models.ModelWeights(
        *(tuple(np.asarray(w) for w in part) for part in built.initial_weights(0))
    )
    state = built.process.set_model_weights(built.process.initialize(), weights)
    after_first = built.stages["statistics"].next(state, clients).state

    def update(reporting):
        after = built.stages["update"].next(after_first, [clients[k] for k in reporting]).state
        return np.concatenate(
            [np.ravel(b - a) for b, a in zip(weights.trainable,
             after.global_model_weights.trainable, strict=True)]
        )  # fmt: skip

    whole = update(range(4))
    for left in (1, 2, 3):
        ways = list(itertools.combinations(range(4), left))
        updates = np.array([update(way) for way in ways])
        scale = np.linalg.norm(whole)
        np.testing.assert_allclose(updates.mean(0), whole, rtol=0, atol=1e-5 * scale)
        # A single set gives another update, and so does the mean with weights relative to the
        # reporting clients.
        assert np.linalg.norm(updates[0] - whole) > 0.05 * scale
        share = np.array([4 / left * sizes[list(way)].sum() / sizes.sum() for way in ways])
        assert np.linalg.norm((updates / share[:, None]).mean(0) - whole) > 0.01 * scale


@pytest.mark.long
@pytest.mark.xdist_group("fedavg")
@pytest.mark.slow
def test_a_client_that_takes_too_long_is_left_out(small_algorithm, store, tmp_path):
    _, computations = build(small_algorithm, "fedavg", hangs=True)
    with local_worker.start(call_seconds=20) as limited:
        before = limited.relay_pid
        round_of = Rounds(computations, store, tmp_path)
        state, metrics = round_of([0, 1])
        assert limited.relay_pid != before
        assert metrics["dropped_clients"] == 1
        expected, _ = round_of([0])
    assert_same_state(state, expected)
