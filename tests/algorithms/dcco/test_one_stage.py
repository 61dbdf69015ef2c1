"""DCCO with one communication: its moving average and its rounds, against direct calculations."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco import one_stage
from tff_ssl.algorithms.dcco.parts import build_parts
from tff_ssl.losses import cco
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.objectives.statistics import STATISTICS_LOSSES
from tff_ssl.templates.task import Task
from tff_ssl.views import augmentation

N = 12  # Number of images.
SHAPE = (8, 8, 3)
MODEL = DualEncoder("tiny", SHAPE, projector=(64, 16))
IMAGES = np.random.default_rng(0).integers(0, 256, (N, *SHAPE), np.uint8)
ELEMENT_TYPE = tff.types.to_type(
    collections.OrderedDict(client=np.int64, example_id=np.int64, image=(np.uint8, SHAPE))
)
CLIENTS = (np.arange(5), np.arange(5, N))
SGD = tff.learning.optimizers.build_sgdm(learning_rate=1.0)


def augmented(images, example_ids, round_number):
    return augmentation.two_views("affine", images, example_ids, seed=7, round_number=round_number)


def task(objective="cco"):
    return Task(MODEL, augmented, ELEMENT_TYPE, rounds=10, objective=objective)


@pytest.mark.parametrize("drift", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("objective", ["cco", "vicreg"])
def test_a_drift_of_the_means_does_not_enter_the_second_moments(worker, objective, drift):
    """Independent F and G, whose common mean moves by `drift` deviations in each round."""
    loss, rng = STATISTICS_LOSSES[objective], np.random.default_rng(1)
    hyperparameters = one_stage.DCCOOneStageHyperparameters(statistics_momentum=0.8)
    parts = build_parts(task(objective), hyperparameters, None, None, None, tff.federated_sum)
    moving_average = one_stage.build_moving_average(parts, 0.8)
    average = loss.zero(16)
    rounds = []
    for r in range(10):
        f, g = rng.normal(size=(2, 2000, 16))
        rounds.append((f + drift * r, g + drift * r))
        cohort = loss.of_batch(*(tf.constant(x, tf.float32) for x in rounds[-1]))
        average = type(average)(*moving_average(np.int64(r), average, cohort))
    weights = 0.2 * 0.8 ** np.arange(9, -1.0, -1)
    weights[0] = 0.8**9
    mean = sum(w * f.mean(0) for w, (f, _) in zip(weights, rounds, strict=True))
    np.testing.assert_allclose(average.f, mean, rtol=1e-4)
    if objective == "cco":
        correlation = cco.correlation(loss.uncentred(average))
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
    statistics = loss.of_batch(f, g)
    means = (tf.reduce_mean(f, 0), tf.reduce_mean(g, 0))
    expected = loss.of_batch(f - means[0], g - means[1])._replace(f=means[0], g=means[1])
    for actual, value in zip(loss.centred(statistics), expected, strict=True):
        np.testing.assert_allclose(actual, value, atol=1e-5)
    for actual, value in zip(loss.uncentred(expected), statistics, strict=True):
        np.testing.assert_allclose(actual, value, rtol=1e-5)


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


@pytest.mark.slow
def test_one_communication_uses_the_statistics_of_the_round_before(worker):
    built = one_stage.build_dcco_one_stage(
        task(),
        one_stage.DCCOOneStageHyperparameters(
            statistics_momentum=0.5, client_learning_rate=0.02, micro_batch_size=5
        ),
        SGD,
    )
    first = start(built, MODEL.init(0).trainable)
    weights = [tf.constant(w) for w in first.global_model_weights.trainable]
    parts = [client(k) for k in range(2)]
    second = built.process.next(first, parts).state
    for a, b in zip(weights, second.global_model_weights.trainable, strict=True):
        np.testing.assert_array_equal(a, b)  # Round 0 only gathers statistics.

    def statistics(weights, view_round):
        indices = np.arange(N)
        x1, x2 = augmented(tf.constant(IMAGES), tf.constant(indices), tf.constant(view_round))
        pair = MODEL.apply_pair(Weights(tuple(weights), ()), x1, x2, training=True)
        return cco.encoding_statistics(*(o.z for o in pair))

    earlier = statistics(weights, np.int64(0))
    state = second
    for round_number in (1, 2):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            current = statistics(weights, np.int64(round_number))
            combined = [c + tf.stop_gradient(e - c) for c, e in zip(current, earlier, strict=True)]
            loss = cco.cco_from_statistics(cco.EncodingStatistics(*combined), 20.0).loss
        gradients = tape.gradient(loss, weights)
        output = built.process.next(state, parts)
        assert_equal_steps(
            [np.asarray(w) for w in weights],
            output.state.global_model_weights.trainable,
            [0.02 * g for g in gradients],
            tolerance=5e-4,  # The loss of earlier statistics is steep.
        )
        assert output.metrics["client_work"]["loss"] == pytest.approx(
            float(cco.cco_from_statistics(current, 20.0).loss), rel=1e-3
        )
        state = output.state
        weights = [tf.constant(w) for w in state.global_model_weights.trainable]
        centred = [
            0.5 * e + 0.5 * c
            for e, c in zip(cco.centred(earlier), cco.centred(current), strict=True)
        ]
        earlier = cco.uncentred(cco.EncodingStatistics(*centred))
