"""FedSC against a centralized step, DCCO, FedAvg, and its loss in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.algorithms import fedavg, fedsc
from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.losses import means, spectral
from tff_ssl.models.dual_encoder import Weights

pytestmark = pytest.mark.xdist_group("fedsc")

RATE = 0.05
ONE_STEP = {
    "client_learning_rate": RATE, "client_momentum": 0.0, "client_weight_decay": 0.0,
    "learning_rate_schedule": "constant", "local_epochs": 1, "batch_size": 0, "clip_norm": 1e6,
    "statistics_passes": 1, "squared_radius": 1.0,
}  # fmt: skip


def build(task, **values):
    return fedsc.build_fedsc(task, fedsc.FedSCHyperparameters(**{**ONE_STEP, **values}))


def moved(built, clients, rounds=1):
    """What the last of some rounds takes off the weights, and its metrics."""
    state = built.process.initialize()
    for _ in range(rounds):
        before, output = state, built.process.next(state, clients)
        state = output.state
    pair = (s.global_model_weights.trainable for s in (before, state))
    return [a - b for a, b in zip(*pair, strict=True)], output.metrics["client_work"]


def assert_close(got, expected, tolerance=1e-4):
    scale = max(np.abs(e).max() for e in expected)
    assert scale > 1e-4
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


def centralized_step(task, clients):
    """The loss on the union of the clients, and the step on it, without TFF."""
    everything = [next(iter(client.batch(100))) for client in clients]
    images, ids = (
        tf.concat([batch[key] for batch in everything], 0) for key in ("image", "example_id")
    )
    weights = task.model.init(0)
    with tf.GradientTape() as tape:
        tape.watch(weights.trainable)
        views = task.two_views(images, ids, tf.constant(0, tf.int64))
        pair = task.model.apply_pair(Weights(*weights), *views, training=True)
        f, g = (outputs.z for outputs in pair)
        f, g = (z * tf.minimum(1.0, 1 / tf.norm(z, axis=1, keepdims=True)) for z in (f, g))
        r = (tf.matmul(f, f, transpose_a=True) + tf.matmul(g, g, transpose_a=True)) / (2.0 * len(f))
        loss = -2 * tf.reduce_mean(tf.reduce_sum(f * g, 1)) + tf.reduce_sum(tf.square(r))
    return float(loss), [RATE * g for g in tape.gradient(loss, weights.trainable)]


@pytest.mark.slow
def test_one_step_with_shares_is_dccos_and_a_centralized_step(worker, small_algorithm):
    task, clients = small_algorithm("fedsc").inputs
    loss, expected = centralized_step(task, clients)
    got, metrics = moved(build(task, own_weight="share", client_weighting="examples"), clients)
    assert_close(got, expected)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-4)
    assert metrics["samples"] == 10
    values = two_stage.DCCOHyperparameters(
        client_learning_rate=RATE, squared_radius=1.0, server_optimizer="sgd",
        server_learning_rate=1.0, server_momentum=0.0, server_schedule="constant",
    )  # fmt: skip
    by_dcco, _ = moved(two_stage.build_dcco(task, values), clients)
    assert_close(by_dcco, expected)
    # The schedule begins with alpha = 1: the step on what each client has by itself is another.
    alone, _ = moved(build(task, client_weighting="examples"), clients)
    assert max(np.abs(a - e).max() for a, e in zip(alone, expected, strict=True)) > 0.05 * max(
        np.abs(e).max() for e in expected
    )


SEVERAL = {"local_epochs": 2, "batch_size": 2, "client_momentum": 0.5, "client_weight_decay": 0.01}


def fedavg_of(task):
    shared = {**ONE_STEP, **SEVERAL}
    for name in ("clip_norm", "statistics_passes"):
        shared.pop(name)
    values = fedavg.FedAvgHyperparameters(
        **shared, client_weighting="uniform", server_optimizer="sgd", server_learning_rate=1.0,
        server_momentum=0.0, server_schedule="constant",
    )  # fmt: skip
    return fedavg.build_fedavg(task, values)


@pytest.mark.long
@pytest.mark.slow
def test_with_own_weight_1_and_with_a_single_client_it_is_fedavg(worker, small_algorithm):
    task, clients = small_algorithm("fedsc").inputs
    averaging = fedavg_of(task)
    expected, _ = moved(averaging, clients, 2)
    got, _ = moved(build(task, **SEVERAL, last_own_weight=1.0), clients, 2)
    assert_close(got, expected)
    built = build(task, **SEVERAL)
    with_others, _ = moved(built, clients, 2)
    with pytest.raises(AssertionError):
        assert_close(with_others, expected)
    assert_close(moved(built, clients[1:2], 2)[0], moved(averaging, clients[1:2], 2)[0])


def test_the_moments_of_the_others_are_the_mean_without_the_own():
    rng = np.random.default_rng(0)
    r, weights = rng.normal(size=(3, 4, 4)), np.array([3.0, 5.0, 4.0])
    mean = np.average(r, 0, weights)
    got, has_others = fedsc.others_moments(
        tf.constant(mean), tf.constant(r[1]), tf.constant(5 / 12, tf.float64)
    )
    np.testing.assert_allclose(got, np.average(r[[0, 2]], 0, [3, 4]))
    assert has_others
    alone, has_others = fedsc.others_moments(*(tf.constant(x) for x in (r[0], r[0], np.float64(1))))
    np.testing.assert_array_equal(alone, 0)
    assert not has_others


def test_the_loss_in_numpy():
    rng = np.random.default_rng(1)
    f, g, r_ext = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), rng.normal(size=(3, 3))
    as_floats = (tf.constant(x, tf.float32) for x in (f, g))
    got = fedsc.fedsc_loss(*as_floats, 0.3, tf.constant(r_ext, tf.float32))
    r = (f.T @ f + g.T @ g) / 10
    expected = (
        -2 * np.mean(np.sum(f * g, 1)) + 0.3 * np.trace(r @ r) + 2 * 0.7 * np.trace(r @ r_ext)
    )
    assert float(got) == pytest.approx(expected, rel=1e-5)


def statistics_after(built, clients):
    return built.stages["statistics"].next(built.process.initialize(), clients).state.client_work


@pytest.mark.slow
def test_moments_are_means_over_passes_and_micro_batches(worker, small_algorithm):
    task, clients = small_algorithm("fedsc").inputs
    got = statistics_after(build(task, statistics_passes=3, micro_batch_size=2), clients[:1])
    batch = next(iter(clients[0].batch(100)))
    expected = []
    for number in range(3):
        views = task.two_views(batch["image"], batch["example_id"], tf.constant(number, tf.int64))
        pair = task.model.apply_pair(task.model.init(0), *views, training=True)
        z = (spectral.in_ball(outputs.z, 1.0) for outputs in pair)
        expected.append(spectral.encoding_statistics(*z, means.zero(4)).moments)
    np.testing.assert_allclose(got.statistics.moments, np.mean(expected, 0), atol=1e-6)
    assert got.cohort == fedsc.Cohort(1, 1)


@pytest.mark.long
@pytest.mark.slow
def test_noise_is_added_to_what_is_sent_and_differs_between_runs(worker, small_algorithm):
    task, clients = small_algorithm("fedsc").inputs
    exact = statistics_after(build(task), clients).statistics
    built = build(task, statistics_noise=0.5)
    first, second = (statistics_after(built, clients).statistics for _ in range(2))
    assert np.abs(first.moments - second.moments).max() > 0.01
    noise = np.concatenate([np.ravel(s.moments - exact.moments) for s in (first, second)])
    # The mean over three clients; 32 draws.
    assert 0.5 / 3**0.5 / 2 < noise.std() < 2 * 0.5 / 3**0.5


@pytest.mark.long
@pytest.mark.slow
def test_a_local_step_is_shortened_to_the_norm(worker, small_algorithm):
    task, clients = small_algorithm("fedsc").inputs
    free, _ = moved(build(task), clients[:1])
    norm = float(tf.linalg.global_norm(free))
    clipped, _ = moved(build(task, clip_norm=norm / RATE / 4), clients[:1])
    assert_close(clipped, [w / 4 for w in free])


def test_other_objectives_and_impossible_hyperparameters_are_refused(small_algorithm):
    task = small_algorithm("fedsc").task
    with pytest.raises(ValueError, match="spectral"):
        fedsc.build_fedsc(task._replace(objective="cco"))
    for bad in (
        {"own_weight": "half"}, {"last_own_weight": 1.5}, {"statistics_passes": 0},
        {"statistics_noise": -1.0}, {"clip_norm": 0.0}, {"micro_batch_size": 0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(bad))):
            fedsc.FedSCHyperparameters(**bad)


def test_it_sends_a_model_and_moments(worker, small_algorithm):
    small = small_algorithm("fedsc")
    task, built = small.task, small.computations
    parameters = sum(int(np.prod(w.shape)) for w in task.model.init(0).trainable)
    d = task.model.projector[-1]
    statistics = 2 * d + 1 + d * d
    down, up = built.client_bytes()
    # The statistics and their weight, the delta and its weight; four counts.
    assert up == 4 * (statistics + 1 + parameters + 1) + 4 * 8
    # The model; the round's number in both stages; the reference; statistics; the cohort.
    assert down == 4 * parameters + 2 * 8 + 4 * 2 * d + 4 * statistics + 2 * 8
