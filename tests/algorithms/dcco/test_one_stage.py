"""DCCO with one communication: its moving average and its rounds, against direct calculations."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.networks import OneLayer, two_views
from tff_ssl.algorithms.dcco import earlier_statistics, one_stage
from tff_ssl.algorithms.dcco.parts import build_parts
from tff_ssl.losses import cco
from tff_ssl.losses.means import Means
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, statistics_of_batch
from tff_ssl.templates.client_batches import drawn_in_round
from tff_ssl.templates.task import Task

pytestmark = pytest.mark.xdist_group("dcco_one_stage")

N = 12  # Number of images.
SHAPE = (8, 8, 3)
MODEL = OneLayer("tiny", SHAPE, projector=(16,))
IMAGES = np.random.default_rng(0).integers(0, 256, (N, *SHAPE), np.uint8)
ELEMENT_TYPE = tff.types.to_type(
    collections.OrderedDict(client=np.int64, example_id=np.int64, image=(np.uint8, SHAPE))
)
CLIENTS = (np.arange(5), np.arange(5, N))
SGD = tff.learning.optimizers.build_sgdm(learning_rate=1.0)


def task(objective="cco"):
    return Task(MODEL, two_views, ELEMENT_TYPE, rounds=10, objective=objective)


@pytest.mark.slow
@pytest.mark.parametrize("drift", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("objective", ["cco", "vicreg"])
def test_a_drift_of_the_means_does_not_enter_the_second_moments(worker, objective, drift):
    """Independent F and G, whose common mean moves by `drift` deviations in each round."""
    loss, rng = STATISTICS_LOSSES[objective], np.random.default_rng(1)
    hyperparameters = one_stage.DCCOOneStageHyperparameters(
        variant="stale_statistics", statistics_momentum=0.8
    )
    parts = build_parts(task(objective), hyperparameters, None, None, None, tff.federated_sum)
    earlier = earlier_statistics.initial_earlier(parts)
    rounds = []
    for r in range(10):
        f, g = rng.normal(size=(2, 2000, 16))
        rounds.append((f + drift * r, g + drift * r))
        f, g = (tf.constant(x, tf.float32) for x in rounds[-1])
        # The reference of the cohort's statistics, as in the round.
        cohort = loss.centred(loss.of_batch(f, g, earlier.means), earlier.means)
        earlier = earlier_statistics.moving_average(parts, np.int64(r), earlier, cohort)
        assert earlier.round_number == r
    average = earlier.statistics
    weights = 0.2 * 0.8 ** np.arange(9, -1.0, -1)
    weights[0] = 0.8**9
    mean = sum(w * f.mean(0) for w, (f, _) in zip(weights, rounds, strict=True))
    np.testing.assert_allclose(average.f, mean, rtol=1e-4)
    if objective == "cco":
        correlation = cco.correlation(average)
        assert abs(np.mean(np.diag(correlation))) < 0.02
        variance = average.f_squared
    else:
        variance = np.diag(average.f_f)
    expected = sum(w * f.var(0) for w, (f, _) in zip(weights, rounds, strict=True))
    np.testing.assert_allclose(variance, expected, rtol=0.02)


@pytest.mark.parametrize("objective", ["cco", "vicreg"])
def test_centred_statistics_equal_those_of_centred_encodings(objective):
    loss = STATISTICS_LOSSES[objective]
    f, g = tf.unstack(tf.random.stateless_normal([2, 30, 4], (1, 2)) + 3.0)
    means = Means(tf.reduce_mean(f, 0), tf.reduce_mean(g, 0))
    expected = loss.of_batch(f, g, means)._replace(f=means.f, g=means.g)
    for reference in (Means(0.0, 0.0), Means(f[0], g[1])):
        statistics = loss.of_batch(f, g, reference)
        for actual, value in zip(loss.centred(statistics, reference), expected, strict=True):
            np.testing.assert_allclose(actual, value, atol=1e-5)


def client(k):
    ids = CLIENTS[k].astype(np.int64)
    columns = {"client": np.full(len(ids), k, np.int64), "example_id": ids, "image": IMAGES[ids]}
    return tf.data.Dataset.from_tensor_slices(collections.OrderedDict(columns))


def start(built, weights):
    weights = tff.learning.models.ModelWeights(tuple(np.asarray(w) for w in weights), ())
    return built.process.set_model_weights(built.process.initialize(), weights)


def assert_equal_steps(before, after, gradients, tolerance=2e-6):
    """Asserts after = before - gradients, with a tolerance relative to the gradients' norm."""
    scale = float(tf.linalg.global_norm(gradients))
    for b, a, g in zip(before, after, gradients, strict=True):
        np.testing.assert_allclose(b - a, g, rtol=0, atol=tolerance * scale)


def encode(weights, indices, round_number):
    x1, x2 = two_views(
        tf.constant(IMAGES[indices]), tf.constant(indices), tf.constant(round_number, tf.int64)
    )
    return tuple(o.z for o in MODEL.apply_pair(Weights(weights, ()), x1, x2, training=True))


def centred_loss(objective, f_mean, g_mean, second):
    """The loss of centred second moments `second` about these means."""
    loss = STATISTICS_LOSSES[objective]
    values = iter(second)
    centred = {name: next(values) for name in loss.zero(2)._fields if name not in ("f", "g")}
    statistics = type(loss.zero(2))(f=f_mean, g=g_mean, **centred)
    return loss.terms(statistics, one_stage.DCCOOneStageHyperparameters()).loss


def second_moments(objective, f, g, centres):
    """Second moments of encodings about the centres, in the order of the statistics."""
    n, difference_squared = len(f), tf.reduce_mean((f - g) ** 2, 0)
    f, g = f - centres[0], g - centres[1]
    if objective == "cco":
        return [tf.reduce_mean(f**2, 0), tf.reduce_mean(g**2, 0), tf.transpose(f) @ g / n]
    return [tf.transpose(f) @ f / n, tf.transpose(g) @ g / n, difference_squared]


def surrogate_gradient(objective, weights, indices, round_number, s, centres):
    """The gradient of sum dL/dv <(F - c)^2> + dL/dK <(F - c)(G - c')> + ..., for one client.

    The invariance of VICReg is a mean of (F - G)^2, which has no centre.
    """
    with tf.GradientTape() as tape:
        tape.watch(s["second"])
        value = centred_loss(objective, s["f"], s["g"], s["second"])
    slopes = tape.gradient(value, s["second"])
    with tf.GradientTape() as tape:
        tape.watch(weights)
        f, g = encode(weights, indices, round_number)
        moments = second_moments(objective, f, g, centres)
        surrogate = sum(tf.reduce_sum(a * b) for a, b in zip(slopes, moments, strict=True))
    return tape.gradient(surrogate, weights)


def reference_rounds(objective, variant, momentum, weights, rounds, rate):
    """Weights after each round, computed without TFF and without the project's client work."""
    weights, before, s, history = list(weights), None, None, []
    for r in range(rounds):
        update = [tf.zeros_like(w) for w in weights]
        for indices in CLIENTS if s else ():
            at, view_round = (before, r - 1) if variant == "delayed_gradient" else (weights, r)
            centres = [s["f"], s["g"]]
            if variant.startswith("paired"):
                moved = [
                    tf.reduce_mean(a - b, 0)
                    for a, b in zip(
                        encode(weights, indices, r), encode(before, indices, r), strict=True
                    )
                ]
                centres = [c + m for c, m in zip(centres, moved, strict=True)]
            gradient = surrogate_gradient(objective, at, indices, view_round, s, centres)
            update = [u + len(indices) / N * g for u, g in zip(update, gradient, strict=True)]
        now = cohort_statistics(objective, weights, r)
        now["average"] = now["second"]
        if s and variant == "paired_moments":
            # The change of the cohort's moments from the model before to this one.
            at_before = cohort_statistics(objective, before, r)["second"]
            change = [a - b for a, b in zip(now["second"], at_before, strict=True)]
            average = [
                momentum * (old + c) + (1 - momentum) * new
                for old, c, new in zip(s["average"], change, now["second"], strict=True)
            ]
            expected = [a + c for a, c in zip(average, change, strict=True)]
            now = {**now, "average": average, "second": expected}
        elif s:
            keep = momentum if variant == "stale_statistics" else 0
            averaged = tf.nest.map_structure(
                lambda a, b: momentum * a + (1 - momentum) * b, s["second"], now["second"]
            )
            means = {k: keep * s[k] + (1 - keep) * now[k] for k in ("f", "g")}
            now = {**means, "second": averaged}
        before, s = weights, now
        weights = [w - rate * u for w, u in zip(weights, update, strict=True)]
        history.append(weights)
    return history


def cohort_statistics(objective, weights, round_number):
    """Means and centred second moments of the encodings of all images."""
    f, g = encode(weights, np.arange(N), round_number)
    means = tf.reduce_mean(f, 0), tf.reduce_mean(g, 0)
    return {"f": means[0], "g": means[1], "second": second_moments(objective, f, g, means)}


def build(variant, momentum, objective="cco", rate=0.02, drawn=0):
    return _build(variant, momentum, objective, rate, drawn)


@functools.cache
def _build(variant, momentum, objective, rate, drawn):
    hyperparameters = one_stage.DCCOOneStageHyperparameters(
        variant=variant,
        statistics_momentum=momentum,
        client_learning_rate=rate,
        micro_batch_size=2 if drawn else 5,
        examples_per_round=drawn,
    )
    return one_stage.build_dcco_one_stage(task(objective), hyperparameters, SGD)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["cco", pytest.param("vicreg", marks=pytest.mark.long)])
@pytest.mark.parametrize("variant", one_stage.VARIANTS)
def test_rounds_equal_the_gradient_of_the_surrogate(worker, variant, objective):
    # With large steps, moments are expected that encodings cannot have; the reference has no bound.
    rate = 0.0005 if variant == "paired_moments" else 0.02
    built = build(variant, 0.5, objective, rate)
    initial = [tf.constant(w) for w in MODEL.init(0).trainable]
    expected = reference_rounds(objective, variant, 0.5, initial, 4, rate)
    state = start(built, initial)
    for a, b in zip(initial, expected[0], strict=True):
        np.testing.assert_array_equal(a, b)  # Round 0 only gathers statistics.
    # Unfolded, and folded into one group in which each client has a centre of its own.
    cohorts = [[client(0), client(1)], [client(1).concatenate(client(0))]]
    for r, weights in enumerate(expected):
        outputs = [built.process.next(state, cohort) for cohort in cohorts]
        before = state.global_model_weights.trainable
        steps = [b - a for b, a in zip(before, weights, strict=True)]
        for output in outputs:
            after = output.state.global_model_weights.trainable
            if r == 0:
                assert_equal_steps(before, after, steps)
            else:
                assert float(tf.linalg.global_norm(steps)) > 0
                assert_equal_steps(before, after, steps, tolerance=5e-3)
        state = outputs[0].state


def dcco_gradient(weights, round_number, per_client=0):
    indices = np.arange(N)
    if per_client:
        ids = {"client": np.repeat([0, 1], list(map(len, CLIENTS))), "example_id": indices}
        everything = {name: tf.constant(values, tf.int64) for name, values in ids.items()}
        number = tf.constant(round_number, tf.int64)
        indices = drawn_in_round(everything, per_client, number, 0)["example_id"].numpy()
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = cco.cco(*encode(weights, indices, round_number), 20.0).loss
    return tape.gradient(loss, weights)


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [0, 3])
def test_a_delayed_gradient_equals_dcco_in_the_round_before(worker, drawn):
    built = build("delayed_gradient", 0.0, drawn=drawn)
    state = start(built, MODEL.init(0).trainable)
    earlier = None
    for r in range(4):
        before = [tf.constant(w) for w in state.global_model_weights.trainable]
        state = built.process.next(state, [client(0), client(1)]).state
        if earlier:
            expected = [0.02 * g for g in dcco_gradient(earlier, r - 1, drawn)]
            after = state.global_model_weights.trainable
            assert_equal_steps([w.numpy() for w in before], after, expected, tolerance=1e-4)
        earlier = before


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("objective", ["cco", "vicreg"])
def test_a_large_mean_costs_no_digits(worker, objective):
    """All encodings have 1000 added, on which the loss does not depend."""

    class WithOffset(OneLayer):
        def apply_pair(self, *args, **kwargs):
            pair = super().apply_pair(*args, **kwargs)
            return tuple(outputs._replace(z=outputs.z + 1000) for outputs in pair)

    losses = []
    for model in (MODEL, WithOffset(MODEL.encoder, SHAPE, projector=MODEL.projector)):
        moved_task = task(objective)._replace(model=model)
        built = one_stage.build_dcco_one_stage(moved_task, server_optimizer=SGD)
        first = built.process.next(start(built, MODEL.init(0).trainable), [client(0)])
        second = built.process.next(first.state, [client(0), client(1)])  # At the same weights.
        losses.append([r.metrics["client_work"]["loss"] for r in (first, second)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.slow
def test_pairing_has_no_effect_before_the_model_moves(worker):
    # Round 0 takes no step, so that in round 1 the model is that of the statistics.
    after = []
    for variant in ("stale_statistics", "paired_mean", "paired_moments"):
        built = build(variant, 0.5)
        state = start(built, MODEL.init(0).trainable)
        for _ in range(2):
            state = built.process.next(state, [client(0), client(1)]).state
        after.append(state.global_model_weights.trainable)
    before = MODEL.init(0).trainable
    steps = [b.numpy() - a for b, a in zip(before, after[0], strict=True)]
    for paired in after[1:]:
        assert_equal_steps([w.numpy() for w in before], paired, steps, tolerance=1e-4)


@pytest.mark.parametrize("objective", ["cco", "vicreg"])
def test_the_average_follows_the_model_without_lag(worker, objective):
    """Moments that all cohorts agree on are known exactly, however fast they change."""
    loss, rng = STATISTICS_LOSSES[objective], np.random.default_rng(2)
    parts = build_parts(
        task(objective), one_stage.DCCOOneStageHyperparameters(), None, None, None,
        tff.federated_sum,
    )  # fmt: skip
    f, g = rng.normal(size=(2, 500, 16)).astype(np.float32)

    def at_model(r):
        """Centred statistics at theta_r; an encoding's scale grows by 0.3 in each round."""
        scale = np.float32(1 + 0.3 * r)
        return statistics_of_batch(loss, tf.constant(f * scale), tf.constant(g * scale))

    earlier, average = earlier_statistics.initial_earlier(parts), loss.zero(16)
    for r in range(8):
        cohort = earlier_statistics.PairedStatistics(at_model(r), at_model(r - 1))
        average, earlier = earlier_statistics.moved_average(
            parts, np.int64(r), earlier, average, cohort
        )
        for name, value in at_model(r)._asdict().items():
            np.testing.assert_allclose(getattr(average, name), value, rtol=1e-4, atol=1e-5)
    # What clients get is the average plus the last change.
    for name, now, before in zip(average._fields, at_model(7), at_model(6), strict=True):
        expected = now if name in ("f", "g") else 2 * now - before
        np.testing.assert_allclose(
            getattr(earlier.statistics, name), expected, rtol=1e-4, atol=1e-4
        )


def test_expected_variances_stay_positive(worker):
    """A variance that falls to a tenth in one round is not expected to become negative."""
    loss = STATISTICS_LOSSES["cco"]
    parts = build_parts(
        task(), one_stage.DCCOOneStageHyperparameters(), None, None, None, tff.federated_sum
    )
    f = np.random.default_rng(3).normal(size=(100, 16)).astype(np.float32)
    wide = statistics_of_batch(loss, tf.constant(f), tf.constant(f))
    f[:, 0] *= 0.1
    narrow = statistics_of_batch(loss, tf.constant(f), tf.constant(f))
    average, earlier = loss.zero(16), earlier_statistics.initial_earlier(parts)
    for r, (now, before) in enumerate([(wide, wide), (narrow, wide)]):
        average, earlier = earlier_statistics.moved_average(
            parts, np.int64(r), earlier, average, earlier_statistics.PairedStatistics(now, before)
        )
    assert earlier.statistics.f_squared[0] > 0.01
    assert np.abs(cco.correlation(earlier.statistics)).max() <= 1.001


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["paired_mean", "delayed_gradient", "paired_moments"])
def test_the_model_is_kept_with_its_statistics(worker, variant):
    """A cohort without any finite client changes neither."""
    built = build(variant, 0.5)
    state = start(built, MODEL.init(0).trainable)
    for _ in range(2):
        moved = built.process.next(state, [client(0), client(1)]).state
        earlier = moved.client_work.earlier
        for kept, model in zip(
            earlier.weights.trainable, state.global_model_weights.trainable, strict=True
        ):
            np.testing.assert_array_equal(kept, model)
        state = moved
    nothing = built.process.next(state, [client(0).take(0)])
    assert nothing.metrics["client_work"]["dropped_clients"] == 1
    kept = nothing.state.client_work.earlier
    assert kept.round_number == earlier.round_number == 1
    for a, b in zip(tf.nest.flatten(kept), tf.nest.flatten(earlier), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "bad", [{"variant": "fresh"}, {"statistics_momentum": 1.0}, {"local_steps": 2}]
)
def test_impossible_hyperparameters_are_refused(bad):
    with pytest.raises(ValueError, match=r"variant|statistics_momentum|one local step"):
        one_stage.DCCOOneStageHyperparameters(**bad)
