"""DCCO's theorem and its computations, against steps computed without TFF."""

import collections
import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.networks import OneLayer, two_views
from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.losses import cco, vicreg
from tff_ssl.losses.means import Means
from tff_ssl.models import two_towers
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, statistics_of_batch
from tff_ssl.templates.client_batches import drawn_in_round, shuffled
from tff_ssl.templates.task import Task
from tff_ssl.views import augmentation

pytestmark = pytest.mark.xdist_group("dcco")

N = 12  # Number of images.
SHAPE = (8, 8, 3)
IMAGES = np.random.default_rng(0).integers(0, 256, (N, *SHAPE), np.uint8)
ELEMENT_TYPE = tff.types.to_type(
    collections.OrderedDict(example_id=np.int64, image=(np.uint8, SHAPE))
)
PARTS = {"micro_batch_size": 5}
SGD = tff.learning.optimizers.build_sgdm(learning_rate=1.0)


def augmented(images, example_ids, round_number):
    return augmentation.two_views("affine", images, example_ids, seed=7, round_number=round_number)


class Network(NamedTuple):
    """A model and the views that it gets."""

    model: Any
    two_views: Any


RESNET = Network(DualEncoder("tiny", SHAPE, projector=(64, 16)), augmented)
ONE_LAYER = Network(OneLayer("tiny", SHAPE, projector=(16,)), two_views)


def build(network=ONE_LAYER, hyperparameters=PARTS, objective="cco", **aggregators):
    return two_stage.build_dcco(
        Task(*network, ELEMENT_TYPE, rounds=10, objective=objective),
        two_stage.DCCOHyperparameters(**hyperparameters),
        SGD,
        **aggregators,
    )


@pytest.fixture(scope="module")
def computations():
    return step_of(ONE_LAYER)[0]


@functools.cache
def step_of(network):
    """The computations of a network, and its loss and gradient of all examples at the start."""
    built = build(network)
    weights = start(built).global_model_weights.trainable
    return built, centralized_gradient(weights, np.arange(N), network=network)


def client(indices):
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(example_id=np.asarray(indices, np.int64), image=IMAGES[indices])
    )


def start(built, seed=0):
    weights = tuple(w.numpy() for w in built.initial_weights(seed).trainable)
    return built.process.set_model_weights(
        built.process.initialize(), tff.learning.models.ModelWeights(weights, ())
    )


def centralized_gradient(weights, indices, round_number=0, network=ONE_LAYER, objective="cco"):
    """Loss and gradient of an objective on the union of the examples, without TFF."""
    x1, x2 = network.two_views(
        tf.constant(IMAGES[indices]),
        tf.constant(indices, tf.int64),
        tf.constant(round_number, tf.int64),
    )
    weights = Weights(tuple(tf.constant(w) for w in weights), ())
    with tf.GradientTape() as tape:
        tape.watch(weights.trainable)
        f, g = (o.z for o in network.model.apply_pair(weights, x1, x2, training=True))
        if objective == "vicreg":
            statistics = statistics_of_batch(STATISTICS_LOSSES["vicreg"], f, g)
            loss = vicreg.vicreg_from_statistics(statistics).loss
        else:
            loss = cco.cco(f, g, 20.0).loss
    return loss, tape.gradient(loss, weights.trainable)


def assert_equal_steps(before, after, gradients, tolerance=2e-6):
    """Asserts after = before - gradients, with a tolerance relative to the gradients' norm."""
    scale = float(tf.linalg.global_norm(gradients))
    for b, a, g in zip(before, after, gradients, strict=True):
        np.testing.assert_allclose(b - a, g, rtol=0, atol=tolerance * scale)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
@pytest.mark.slow
@pytest.mark.parametrize("network", [ONE_LAYER, pytest.param(RESNET, marks=pytest.mark.long)])
def test_a_round_equals_a_centralized_step_for_any_split(worker, network, data):
    order = data.draw(st.permutations(range(N)))
    cuts = sorted(data.draw(st.sets(st.integers(1, N - 1))))
    split = np.split(np.array(order), cuts)
    built, (loss, gradients) = step_of(network)
    state = start(built)
    output = built.process.next(state, [client(part) for part in split])
    weights = state.global_model_weights.trainable
    assert_equal_steps(weights, output.state.global_model_weights.trainable, gradients)
    work = output.metrics["client_work"]
    assert work["loss"] == pytest.approx(float(loss), rel=1e-4)
    assert work["samples"] == N
    norm = float(tf.linalg.global_norm(gradients))
    assert output.metrics["finalizer"]["update_norm"] == pytest.approx(norm, rel=1e-4)


@pytest.mark.slow
def test_clients_of_one_sample_equal_a_centralized_step(worker, computations):
    state = start(computations, seed=5)
    output = computations.process.next(state, [client([i]) for i in range(N)])
    _, gradients = centralized_gradient(state.global_model_weights.trainable, np.arange(N))
    before = state.global_model_weights.trainable
    assert_equal_steps(before, output.state.global_model_weights.trainable, gradients)


def test_later_rounds_see_other_views(worker, computations):
    state = start(computations)
    whole = [client(np.arange(N))]
    second = computations.process.next(computations.process.next(state, whole).state, whole)
    weights = computations.process.next(state, whole).state.global_model_weights.trainable
    loss_of_round_1, _ = centralized_gradient(weights, np.arange(N), round_number=1)
    loss_of_round_0, _ = centralized_gradient(weights, np.arange(N), round_number=0)
    assert second.metrics["client_work"]["loss"] == pytest.approx(float(loss_of_round_1), rel=1e-4)
    assert abs(float(loss_of_round_1 - loss_of_round_0)) > 1e-2


class WithOffset(OneLayer):
    """A network whose encodings have 1000 added, on which the loss does not depend."""

    def apply_pair(self, *args, **kwargs):
        pair = super().apply_pair(*args, **kwargs)
        return tuple(outputs._replace(z=outputs.z + 1000) for outputs in pair)


@pytest.mark.slow
@pytest.mark.parametrize("earlier", ["none", "a cohort", "a cohort without finite clients"])
@pytest.mark.parametrize("objective", ["cco", "vicreg"])
def test_a_large_mean_costs_no_digits(worker, objective, earlier):
    """A round equals the step without the offset, also the first one."""
    model = WithOffset("tiny", SHAPE, projector=(16,))
    built = build(Network(model, two_views), objective=objective)
    state = start(built)
    # Before there is a cohort, the encodings of a grey image are the reference.
    first = state.client_work.statistics
    np.testing.assert_allclose(first.f, 1000, rtol=0.02)
    if earlier != "none":
        cohort = [client(np.arange(3, 9))] if earlier == "a cohort" else [client([])]
        state = built.stages["statistics"].next(state, cohort).state
        assert np.array_equal(first.f, state.client_work.statistics.f) == ("without" in earlier)
    np.testing.assert_allclose(state.client_work.statistics.f, 1000, rtol=0.02)
    output = built.process.next(state, [client(np.arange(5)), client(np.arange(5, N))])
    before = state.global_model_weights.trainable
    loss, gradients = centralized_gradient(before, np.arange(N), objective=objective)
    assert output.metrics["client_work"]["loss"] == pytest.approx(float(loss), rel=1e-3)
    after = output.state.global_model_weights.trainable
    assert_equal_steps(before, after, gradients, tolerance=2e-3)


@pytest.mark.slow
def test_a_cohort_without_finite_clients_leaves_no_reference_that_is_not_finite(worker):
    def spoiled_once(images, example_ids, round_number):
        bad = tf.where(tf.equal(round_number, 0), np.float32(np.nan), np.float32(1))
        return tuple(bad * x for x in two_views(images, example_ids, round_number))

    built = build(Network(ONE_LAYER.model, spoiled_once))
    process = built.process
    state = process.next(start(built), [client([0, 1]), client([2])]).state
    # The state can be saved: the statistics are those before the first round.
    statistics = start(built).client_work.statistics, state.client_work.statistics
    for then, now in zip(*map(tf.nest.flatten, statistics), strict=True):
        np.testing.assert_array_equal(then, now)
    before = state.global_model_weights.trainable
    after = process.next(state, [client(np.arange(N))]).state.global_model_weights.trainable
    _, gradients = centralized_gradient(before, np.arange(N), round_number=1)
    assert_equal_steps(before, after, gradients)


@pytest.mark.slow
def test_examples_of_a_round_are_a_centralized_step_on_those_that_are_drawn(worker):
    drawing = build(hyperparameters={**PARTS, "examples_per_round": 2})
    state = start(drawing)
    clients = [np.arange(5), np.arange(5, 6), np.arange(6, N)]
    everything = collections.OrderedDict(
        client=tf.constant(np.repeat(range(3), [len(c) for c in clients])),
        example_id=tf.constant(np.arange(N, dtype=np.int64)),
    )
    drawn = drawn_in_round(everything, 2, tf.constant(0, tf.int64), 0)["example_id"].numpy()
    assert len(drawn) == 5
    output = drawing.process.next(state, [client(c) for c in clients])
    loss, gradients = centralized_gradient(state.global_model_weights.trainable, drawn)
    after = output.state.global_model_weights.trainable
    assert_equal_steps(state.global_model_weights.trainable, after, gradients)
    assert output.metrics["client_work"]["loss"] == pytest.approx(float(loss), rel=1e-4)
    assert output.metrics["client_work"]["samples"] == 5


def test_local_statistics_alone_would_not_be_enough(worker, computations):
    # The test of the theorem is conclusive only if the mean of within-client gradients differs.
    halves = [np.arange(6), np.arange(6, 12)]
    weights = ONE_LAYER.model.init(0).trainable
    _, whole = centralized_gradient(weights, np.arange(N))
    parts = [centralized_gradient(weights, half)[1] for half in halves]
    difference = [(a + b) / 2 - w for a, b, w in zip(*parts, whole, strict=True)]
    assert tf.linalg.global_norm(difference) > 0.1 * tf.linalg.global_norm(whole)


def flat(state):
    return [np.asarray(leaf) for leaf in tf.nest.flatten(state)]


@pytest.mark.slow
def test_the_two_halves_equal_the_round_to_the_last_bit(worker, computations):
    cohort = [client([0, 1, 2]), client([3]), client(np.arange(4, N))]
    state = start(computations)
    for _ in range(2):
        whole = computations.process.next(state, cohort)
        half = computations.stages["statistics"].next(state, cohort)
        halves = computations.stages["update"].next(half.state, cohort)
        for a, b in zip(flat(whole.state), flat(halves.state), strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(flat(whole.metrics), flat(halves.metrics), strict=True):
            np.testing.assert_array_equal(a, b)
        state = whole.state


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch_size", [1, pytest.param(64, marks=pytest.mark.long)])
def test_micro_batches_do_not_change_the_result(worker, computations, micro_batch_size):
    other = build(hyperparameters={"micro_batch_size": micro_batch_size})
    cohort = [client(np.arange(7)), client(np.arange(7, N))]
    state = start(computations)
    expected = computations.process.next(state, cohort).state.global_model_weights.trainable
    actual = other.process.next(state, cohort).state.global_model_weights.trainable
    steps = [b - a for b, a in zip(state.global_model_weights.trainable, expected, strict=True)]
    assert_equal_steps(state.global_model_weights.trainable, actual, steps)


def test_a_client_without_examples_is_dropped_and_counted(worker, computations):
    state = start(computations)
    nothing = np.zeros(0, np.int64)
    output = computations.process.next(state, [client(np.arange(N)), client(nothing)])
    assert output.metrics["client_work"]["dropped_clients"] == 1
    assert output.metrics["client_work"]["samples"] == N
    _, gradients = centralized_gradient(state.global_model_weights.trainable, np.arange(N))
    before = state.global_model_weights.trainable
    assert_equal_steps(before, output.state.global_model_weights.trainable, gradients)


@pytest.mark.slow
def test_a_client_without_a_finite_update_is_dropped_and_counted(worker, computations):
    def spoiled(images, example_ids, round_number):
        bad = tf.reshape(tf.equal(example_ids, 3), [-1, 1, 1, 1])
        return tuple(
            tf.where(bad, tf.constant(np.nan, tf.float32), x)
            for x in two_views(images, example_ids, round_number)
        )

    built = build(Network(ONE_LAYER.model, spoiled))
    state = start(built)
    output = built.process.next(state, [client([0, 1, 2]), client([3, 4]), client(np.arange(5, N))])
    assert output.metrics["client_work"]["dropped_clients"] == 1
    rest = np.array([0, 1, 2, *range(5, N)])
    _, gradients = centralized_gradient(state.global_model_weights.trainable, rest)
    before = state.global_model_weights.trainable
    assert_equal_steps(before, output.state.global_model_weights.trainable, gradients)


@pytest.mark.long
@pytest.mark.slow
def test_a_round_without_any_finite_update_changes_nothing(worker):
    def all_nan(images, example_ids, round_number):
        x = tf.cast(images, tf.float32) * np.float32(np.nan)
        return x, x

    built = build(Network(ONE_LAYER.model, all_nan))
    state = start(built)
    output = built.process.next(state, [client([0, 1]), client([2])])
    assert output.metrics["client_work"]["dropped_clients"] == 2
    assert output.metrics["finalizer"]["update_non_finite"] == 1
    for before, after in zip(
        flat(state.global_model_weights), flat(output.state.global_model_weights), strict=True
    ):
        np.testing.assert_array_equal(before, after)


@pytest.mark.long
@pytest.mark.slow
def test_both_aggregators_are_the_callers(worker, computations):
    bound = 1e-3
    clipped = tff.aggregators.clipping_factory(bound, tff.aggregators.MeanFactory())
    cohort = [client(np.arange(5)), client(np.arange(5, N))]

    def round_metrics(built):
        return built.process.next(start(built), cohort).metrics

    update_clipped = round_metrics(build(update_aggregator=clipped))
    assert update_clipped["finalizer"]["update_norm"] <= bound * 1.001
    statistics_clipped = round_metrics(build(statistics_aggregator=clipped))
    plain = round_metrics(computations)["client_work"]["encoding_std"]
    assert statistics_clipped["client_work"]["encoding_std"] < 0.1 * plain


@pytest.mark.long
@pytest.mark.slow
def test_the_clients_learning_rate_scales_the_update(worker, computations):
    cohort = [client(np.arange(N))]
    state = start(computations)
    full = computations.process.next(state, cohort).metrics["finalizer"]["update_norm"]
    half = build(hyperparameters={"client_learning_rate": 0.5}).process.next(state, cohort)
    assert half.metrics["finalizer"]["update_norm"] == pytest.approx(full / 2, rel=1e-4)


def test_metrics_and_types(worker, computations):
    metrics = computations.process.next(start(computations), [client(np.arange(N))]).metrics
    work = metrics["client_work"]
    assert work["loss"] == pytest.approx(work["on_diagonal"] + 20 * work["off_diagonal"], rel=1e-5)
    assert work["encoding_std"] > 0
    assert isinstance(computations.process, tff.learning.templates.LearningProcess)
    assert computations.process.next.type_signature.parameter[1] == tff.types.FederatedType(
        tff.types.SequenceType(ELEMENT_TYPE), tff.CLIENTS
    )


def test_batch_norm_and_missing_projector_are_refused():
    for model, named in (
        (DualEncoder("small", SHAPE, (16, 16), norm="batch"), "--norm=group"),
        (DualEncoder("small", SHAPE), "--projector"),
        (DualEncoder("small", SHAPE, (16, 1)), "--projector"),
    ):
        with pytest.raises(ValueError, match=named):
            build(Network(model, augmented))


@pytest.mark.parametrize(
    "bad", [{"lambda_": -1.0}, {"micro_batch_size": 0}, {"server_learning_rate": 0.0}]
)
def test_impossible_hyperparameters_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad)).strip("_").split("_")[-1]):
        two_stage.DCCOHyperparameters(**bad)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "towers"),
    [
        ("vicreg", None),
        ("cco", "views"),
        pytest.param("cco", "halves", marks=pytest.mark.long),
        pytest.param("vicreg", "colour_planes", marks=pytest.mark.long),
    ],
)
def test_the_theorem_holds_for_vicreg_and_for_two_encoders(worker, objective, towers):
    one, views = ONE_LAYER
    network = Network(two_towers.TwoTowers(one, towers), views) if towers else ONE_LAYER
    built = build(network, objective=objective)
    state = start(built)
    output = built.process.next(state, [client([0]), client(np.arange(1, 6)), client([6, 7, 8])])
    before = state.global_model_weights.trainable
    loss, gradients = centralized_gradient(before, np.arange(9), 0, network, objective)
    assert_equal_steps(before, output.state.global_model_weights.trainable, gradients)
    assert output.metrics["client_work"]["loss"] == pytest.approx(float(loss), rel=1e-4)


@pytest.mark.long
@pytest.mark.slow
def test_the_theorem_holds_in_bfloat16(worker):
    network = Network(dataclasses.replace(RESNET.model, precision="bfloat16"), augmented)
    built = build(network)
    state = start(built)
    output = built.process.next(state, [client([0]), client(np.arange(1, 6)), client([6, 7, 8])])
    before = state.global_model_weights.trainable
    after = output.state.global_model_weights.trainable
    loss, gradients = centralized_gradient(before, np.arange(9), network=network)
    # A product's result has 8 bits, and gradients of kernels are rounded once for each micro-batch.
    assert_equal_steps(before, after, gradients, tolerance=1e-2)
    assert output.metrics["client_work"]["loss"] == pytest.approx(float(loss), rel=1e-3)
    _, of_float32 = centralized_gradient(before, np.arange(9), network=RESNET)
    with pytest.raises(AssertionError):
        assert_equal_steps(before, after, of_float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "batch_size", "means_follow"),
    [
        pytest.param(2, 0, True, marks=pytest.mark.long),
        (3, 3, True),
        pytest.param(3, 3, False, marks=pytest.mark.long),
    ],
)
def test_local_steps_use_the_statistics_of_the_broadcast_model(
    worker, steps, batch_size, means_follow
):
    # With held means, steps at a larger rate diverge, and magnify rounding errors.
    rate = 0.02 if means_follow else 1e-4
    values = {
        "local_steps": steps,
        "batch_size": batch_size,
        "client_learning_rate": rate,
        "means_follow": means_follow,
    }
    built = build(hyperparameters=values)
    state = start(built)
    parts = [np.arange(5), np.arange(5, N)]
    output = built.process.next(state, [client(part) for part in parts])
    initial = [tf.constant(w) for w in state.global_model_weights.trainable]

    def statistics(weights, indices, view_round):
        x1, x2 = two_views(
            tf.constant(IMAGES[indices]), tf.constant(indices, tf.int64), tf.constant(view_round)
        )
        pair = ONE_LAYER.model.apply_pair(Weights(tuple(weights), ()), x1, x2, training=True)
        return cco.encoding_statistics(*(o.z for o in pair), Means(0.0, 0.0))

    aggregated = statistics(initial, np.arange(N), np.int64(0))
    deltas = []
    for part in parts:
        weights = initial
        batches = max(len(part) // batch_size, 1) if batch_size else 1
        for step in range(steps):
            # Each pass over the client's examples has its own order and views.
            number, position = np.int64(step // batches), step % batches
            order = shuffled({"example_id": part}, len(part), number, 0).numpy()
            ends = (position * len(part) // batches, (position + 1) * len(part) // batches)
            batch = part[order[slice(*ends)]]
            held = aggregated
            if means_follow:
                now, first = (statistics(w, batch, number) for w in (weights, initial))
                f, g = aggregated.f, aggregated.g
                moved_f, moved_g = f + now.f - first.f, g + now.g - first.g
                held = cco.EncodingStatistics(
                    moved_f,
                    aggregated.f_squared - f**2 + moved_f**2,
                    moved_g,
                    aggregated.g_squared - g**2 + moved_g**2,
                    aggregated.f_g - f[:, None] * g + moved_f[:, None] * moved_g,
                )
            with tf.GradientTape() as tape:
                tape.watch(weights)
                local = statistics(weights, batch, number)
                combined = [k + tf.stop_gradient(a - k) for k, a in zip(local, held, strict=True)]
                # DCCO as the paper has it, with second moments about the origin.
                centred = cco.centred(cco.EncodingStatistics(*combined), Means(0.0, 0.0))
                loss = cco.cco_from_statistics(centred, 20.0).loss
            gradients = tape.gradient(loss, weights)
            weights = [w - rate * g for w, g in zip(weights, gradients, strict=True)]
        deltas.append([len(part) / N * (a - b) for a, b in zip(initial, weights, strict=True)])
    expected = [a + b for a, b in zip(*deltas, strict=True)]
    scale = float(tf.linalg.global_norm(expected))
    after = output.state.global_model_weights.trainable
    for b, a, delta in zip(initial, after, expected, strict=True):
        np.testing.assert_allclose(b - a, delta, rtol=0, atol=1e-4 * scale)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("means_follow", [True, False])
def test_means_that_follow_keep_local_steps_from_diverging(worker, means_follow):
    """Four steps with the lambda of the digits' preset; with held means, they soon diverge."""
    values = {
        "local_steps": 4,
        "client_learning_rate": 1e-2,
        "lambda_": 2.0,
        "means_follow": means_follow,
    }
    built = build(hyperparameters=values)
    state, norms = start(built), []
    for _ in range(15):
        output = built.process.next(state, [client(np.arange(6)), client(np.arange(6, N))])
        state = output.state
        norms.append(float(output.metrics["finalizer"]["update_norm"]))
    assert (bool(np.all(np.isfinite(norms))) and max(norms) < 10) == means_follow


def test_an_objective_without_statistics_is_refused():
    with pytest.raises(ValueError, match="cco or vicreg"):
        build(objective="nt_xent")
