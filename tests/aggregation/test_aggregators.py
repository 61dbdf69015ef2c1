"""Robust, compressed and secure aggregators: errors, bytes, malicious clients, secure sums."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.aggregators import primitives

from launch.options import settings
from launch.options.run_config import RunConfig
from tests.by_algorithm import by_algorithm
from tff_ssl.aggregation import aggregators
from tff_ssl.algorithms import registry
from tff_ssl.errors import ConfigurationError
from tff_ssl.losses import cco
from tff_ssl.losses.means import Means
from tff_ssl.templates import message_sizes

D = 20
STATISTICS = tff.tensorflow.computation(lambda: cco.zero_statistics(D)).type_signature.result
ORIGIN = Means(0.0, 0.0)
WEIGHT = tff.types.TensorType(np.float32)


def statistics_of_clients(count, seed=0, images=8):
    rng = np.random.default_rng(seed)
    clients = []
    for _ in range(count):
        f = rng.normal(size=(images, D)).astype(np.float32)
        g = (f + rng.normal(size=(images, D))).astype(np.float32)
        clients.append(
            cco.EncodingStatistics(*map(np.asarray, cco.encoding_statistics(f, g, ORIGIN)))
        )
    return clients


@pytest.mark.slow
def test_aggregators_are_built_without_messages(monkeypatch, caplog):
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    for name in ("robust", "secure"):
        aggregators.AGGREGATORS[name].update(0, 8).create(WEIGHT, WEIGHT)
    assert "never used" not in caplog.text


def test_secure_sums_check_their_bounds():
    shift = primitives._client_tensor_shift_for_secure_sum
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be smaller"):
        shift(tf.zeros([2]), tf.constant(1.0), tf.constant(-1.0))


def weighted_mean(values, weights):
    return [np.average(np.stack(parts), 0, weights) for parts in zip(*values, strict=True)]


def rounds(factory, values, weights, count=1):
    """The results of `count` rounds with the same contributions in each."""
    process = factory.create(STATISTICS, WEIGHT)
    state, results = process.initialize(), []
    for _ in range(count):
        output = process.next(state, values, [np.float32(w) for w in weights])
        state = output.state
        results.append(output.result)
    return results


@pytest.mark.parametrize("name", ["quantized", pytest.param("rotated", marks=pytest.mark.long)])
@pytest.mark.slow
def test_quantized_means_are_near_the_mean_and_smaller(worker, name):
    values, weights = statistics_of_clients(4), [1, 2, 3, 4]
    expected = weighted_mean(values, weights)
    factory = aggregators.AGGREGATORS[name].statistics
    errors, sizes = {}, {}
    for bits in (4, 8):
        process = factory(0, bits).create(STATISTICS, WEIGHT)
        sizes[bits] = message_sizes.client_bytes(process.next)[1]
        (found,) = rounds(factory(0, bits), values, weights)
        for i, vector in enumerate(found[:4]):  # Vectors of less than 256 numbers are exact.
            np.testing.assert_allclose(vector, expected[i], atol=1e-5)
        errors[bits] = np.abs(found.f_g - expected[4]).max()
    # A client's w * <F G^T> is rounded to the nearest of 2^bits - 1 steps, so its error is at most
    # half a step. A rotation keeps norms, so that the largest entry's error may be slightly larger.
    for bits, error in errors.items():
        step = sum(w * np.ptp(v.f_g) for w, v in zip(weights, values, strict=True)) / 10
        assert error < (2 if name == "rotated" else 0.5) * step / (2**bits - 1)
    assert errors[8] < errors[4] / 4
    # A word of 4 bytes holds 28 bits. The rest is the matrix's bounds, four vectors and a weight.
    rest = 4 * (2 + 4 * D + 1)
    assert sizes == {bits: rest + 4 * math.ceil(D * D * bits / 28) for bits in (4, 8)}


@pytest.mark.long
@pytest.mark.slow
def test_a_rotation_is_that_of_its_seed(worker):
    values, weights = statistics_of_clients(2), [1, 1]

    def of_seed(seed):
        return rounds(aggregators.AGGREGATORS["rotated"].statistics(seed, 4), values, weights, 2)

    one, same, other = of_seed(1), of_seed(1), of_seed(2)
    np.testing.assert_array_equal(one[1].f_g, same[1].f_g)
    assert np.abs(one[0].f_g - other[0].f_g).max() > 1e-4
    assert np.abs(one[0].f_g - one[1].f_g).max() > 1e-4  # The next round has another rotation.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "size"), [("statistics", 1.0), pytest.param("update", 0.1, marks=pytest.mark.long)]
)
def test_one_malicious_client_of_a_hundred_hardly_moves_a_robust_mean(worker, what, size):
    """`size` is near TFF's initial bounds, which adapt over the rounds."""
    honest = [type(v)(*(np.float32(size) * x for x in v)) for v in statistics_of_clients(99)]
    factory = getattr(aggregators.AGGREGATORS["robust"], what)(0, 0)

    def flat(value):
        return np.concatenate([np.ravel(v) for v in value])

    expected = flat(weighted_mean(honest, np.ones(99)))
    for attack in (-1e6, 100.0):
        malicious = cco.EncodingStatistics(*(attack * np.ones_like(v) for v in honest[0]))
        everyone = [*honest, malicious]
        found = flat(rounds(factory, everyone, np.ones(100), count=6)[-1])
        assert np.linalg.norm(found - expected) < 0.1 * np.linalg.norm(expected)
        plain = flat(weighted_mean(everyone, np.ones(100)))
        assert np.linalg.norm(plain - expected) > np.linalg.norm(expected)


def test_half_of_the_cross_statistics_are_sent_and_give_the_symmetric_part(worker):
    values, weights = statistics_of_clients(3), [1, 2, 3]
    factory = aggregators.SymmetricHalf(tff.aggregators.MeanFactory())
    (found,) = rounds(factory, values, weights)
    expected = weighted_mean(values, weights)
    for i in range(4):
        np.testing.assert_allclose(found[i], expected[i], rtol=1e-5, atol=1e-6)
    symmetric = (expected[4] + expected[4].T) / 2
    np.testing.assert_allclose(found.f_g, symmetric, rtol=1e-5, atol=1e-6)
    process = factory.create(STATISTICS, WEIGHT)
    assert message_sizes.client_bytes(process.next)[1] == 4 * (4 * D + D * (D + 1) // 2 + 1)


def test_the_symmetric_half_has_the_gradient_of_pairs_in_both_orders():
    (s,) = statistics_of_clients(1)
    f_g = tf.constant(s.f_g)
    symmetric = s._replace(f_g=(s.f_g + s.f_g.T) / 2)

    def loss(matrix):
        centred = cco.centred(cco.EncodingStatistics(*s[:4], matrix), ORIGIN)
        return cco.cco_from_statistics(centred, 3.0).loss

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(f_g)
        # The loss of DCCO's client, with the symmetric part as the aggregated value.
        ours = loss(f_g + tf.stop_gradient(symmetric.f_g - f_g))
        both_orders = loss((f_g + tf.transpose(f_g)) / 2)
    exact = tape.gradient(both_orders, f_g)
    # The exact gradient is symmetric, so it is compared with the symmetric part of the client's.
    found = tape.gradient(ours, f_g)
    np.testing.assert_allclose((found + tf.transpose(found)) / 2, exact, rtol=1e-4, atol=1e-5)


def test_without_a_matrix_there_is_no_half():
    factory = aggregators.SymmetricHalf(tff.aggregators.MeanFactory())
    with pytest.raises(ConfigurationError, match="no matrix"):
        factory.create(tff.types.to_type([(np.float32, [3]), (np.float32, [2, 3])]), WEIGHT)


SECURE = [name for name, entry in registry.ALGORITHMS.items() if entry.aggregates]


def secure(small_algorithm, name):
    """The algorithm with plain means, the algorithm with secure means, and the clients' data.

    Adam's first step has the sign of the gradient, and the rounding of secure sums decides the sign
    of a gradient of nearly 0. The server's step is therefore one of SGD. Its rate keeps the weights
    at the size of a network's, where rounding is that of the means and not of large weights. The
    objective is, where possible, one whose gradients stay within the bounds for clients of two
    examples.
    """
    algorithm = registry.ALGORITHMS[name]
    task, clients = small_algorithm(name).inputs
    if "nt_xent" in algorithm.objectives:
        task = task._replace(objective="nt_xent")
    means = aggregators.AGGREGATORS["secure"]
    factories = {f"{what}_aggregator": getattr(means, what)(0, 0) for what in algorithm.aggregates}
    values = algorithm.hyperparameters(server_optimizer="sgd", server_learning_rate=0.1)
    plain = algorithm.build(task, values)
    built = algorithm.build(task, values, **factories, metric_sum=aggregators.secure_metric_sum)
    return plain, built, clients


def distance(one, other):
    return tf.linalg.global_norm([a - b for a, b in zip(one, other, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(SECURE, default=()))
def test_with_secure_sums_the_server_sees_no_client_and_learns_the_same(
    worker, small_algorithm, name
):
    plain, built, clients = secure(small_algorithm, name)
    stages = getattr(built, "stages", {}) or {"round": built.process}
    for stage in stages.values():
        sent = message_sizes.messages(stage.next)
        # Adaptive bounds come from secure sums too, so that every message is secure.
        assert all(message.is_secure for message in sent if not message.down)
        form = tff.backends.mapreduce.get_map_reduce_form_for_computation(stage.next)
        assert form.securely_aggregates_tensors
    results = [plain.process.next(plain.process.initialize(), clients)]
    state = built.process.initialize()
    context = tff.backends.test.create_sync_test_cpp_execution_context()
    with tff.framework.get_context_stack().install(context):
        results.append(built.process.next(state, clients))
    before = state.global_model_weights.trainable
    one, other = (r.state.global_model_weights.trainable for r in results)
    # DCCO's clients have statistics of two examples, which are rounded to multiples of 2^-12.
    assert distance(one, other) <= 1e-3 * distance(before, one) + 1e-6
    one, other = (r.metrics["client_work"] for r in results)
    assert one["samples"] == other["samples"]
    assert other["loss"] == pytest.approx(one["loss"], rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("images", [1, 2, 400])
def test_secure_means_of_statistics_are_rounded_but_not_clipped(worker, images):
    weights = [images, images, 3 * images]
    values = statistics_of_clients(3, images=images)
    (found,) = rounds(aggregators.AGGREGATORS["secure"].statistics(0, 0), values, weights)
    # Each product of statistics and weight is rounded to the nearest multiple of 2^-11.
    error = len(weights) * 2**-12 / sum(weights)
    for a, b in zip(found, weighted_mean(values, weights), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=error + 1e-6)
    variances = cco.centred(found, ORIGIN)
    assert min(np.min(variances.f_squared), np.min(variances.g_squared)) > 0


def test_the_flag_names_the_aggregators():
    choices = settings.settings(RunConfig)["aggregator"].choices
    assert list(choices) == list(aggregators.AGGREGATORS)
