"""Groups without clients pad cohorts, and nothing that is aggregated depends on their number."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.by_algorithm import by_algorithm
from tff_ssl.aggregation import aggregators
from tff_ssl.aggregation import differential_privacy as privacy
from tff_ssl.algorithms import registry
from tff_ssl.simulation import cohort

SIZES = range(18)
SOME_SIZES = (0, 1, 2, 5, 8, 9, 16)  # They have 8 groups and 16.
D = 17  # Such a square matrix is large enough to be quantized.
VALUE = tff.types.to_type((np.float32, [D, D]))
WEIGHT = tff.types.TensorType(np.float32)
EXPECTED_CLIENTS = 40.0


def private(adaptive, clip=1.0):
    return privacy.GaussianMean(0.0, clip, adaptive).factory(EXPECTED_CLIENTS)


FACTORIES = {
    "mean": lambda: tff.aggregators.MeanFactory(),
    "symmetric": lambda: aggregators.SymmetricHalf(tff.aggregators.MeanFactory()),
    "private": lambda: private(adaptive=False),
    "private adaptive": lambda: private(adaptive=True),
    "private adaptive symmetric": lambda: aggregators.SymmetricHalf(private(adaptive=True)),
    **{
        f"{name} {what}": lambda means=means, what=what: getattr(means, what)(0, BITS)
        for name, means in aggregators.AGGREGATORS.items()
        for what in ("statistics", "update")
        if getattr(means, what)
    },
}


BITS = 8
WILD = 3  # A client with large values.


def contributions(clients, total):
    """Values and weights of some clients, and zeros with weight zero up to a total number."""
    rng = np.random.default_rng(0)
    values = list(rng.normal(size=(clients, D, D)).astype(np.float32))
    if clients > WILD:
        values[WILD] *= 10
    weights = list(rng.integers(1, 9, clients).astype(np.float32))
    nobody = total - clients
    return (
        [*values, *[np.zeros([D, D], np.float32)] * nobody],
        [*weights, *[np.float32(0)] * nobody],
    )


def padded(clients):
    """The number of groups of a cohort of so many clients."""
    return len(cohort.fold(np.arange(clients), 0, 8))


def mean_of(values, weights):
    """The weighted mean, and the error that rounding may have."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.tensordot(weights, values, 1) / weights.sum(), 1e-4


def clipped(values, clip):
    """The values, float64 [n, ...], scaled down to an L2 norm of at most the clip."""
    norms = np.linalg.norm(values.reshape(len(values), -1), axis=1) if len(values) else []
    factors = [clip / max(norm, clip) for norm in norms]
    return np.array([f * v for f, v in zip(factors, values, strict=True)]).reshape(values.shape)


def triangles(values):
    rows, columns = np.triu_indices(D)
    return ((values + values.transpose(0, 2, 1)) / 2)[:, rows, columns]


def matrix(triangle):
    upper = np.zeros([D, D])
    upper[np.triu_indices(D)] = triangle
    return upper + np.triu(upper, 1).T


def zeroed(values):
    """Without values above the first bound of `robust`: 2 * 10 + 1."""
    return values * (np.abs(values).max(axis=(1, 2), initial=0) <= 21)[:, None, None]


def rounded_mean(values, weights):
    """The mean, and the largest error of rounding D^2 products of each client by 2^-12."""
    mean, _ = mean_of(values, weights)
    return mean, 1e-4 + D * 2**-12 * len(weights) / max(weights.sum(), 1)


def clipped_mean(values, weights):
    """The mean of products of values and weights, each cut off at the first bound, 2 * 50."""
    products = np.clip(weights[:, None, None] * values, -100, 100)
    with np.errstate(invalid="ignore", divide="ignore"):
        return products.sum(0) / weights.sum(), 1e-4


def quantized_mean(values, weights):
    """The mean of products of values and weights that have been rounded to one of 2^BITS levels."""
    rounded = np.zeros([D, D])
    for product in weights[:, None, None] * values:
        low, high = product.min(), product.max()
        step = (high - low) / (2**BITS - 1)
        rounded += np.round((product - low) / step) * step + low
    with np.errstate(invalid="ignore", divide="ignore"):
        return rounded / weights.sum(), 1e-2  # A number halfway between two levels may go to either


def rotated_mean(values, weights):
    """The mean, and the largest error of rounding rotated vectors of norm |w v|."""
    mean, _ = mean_of(values, weights)
    norms = np.linalg.norm(values.reshape(len(values), D * D), axis=1) * weights
    # A step is at most 2 |w v| / (2^BITS - 1), and half of it the error of each of D^2 + 1 numbers.
    return mean, np.sqrt(D**2 + 1) * norms.sum() / (2**BITS - 1) / max(weights.sum(), 1)


# (values float64 [n, D, D], weights [n]) -> the result by NumPy, and the largest L2 error.
EXPECTED = {
    "mean": mean_of,
    "symmetric": lambda v, w: (matrix(mean_of(triangles(v), w)[0]), 1e-4),
    "private": lambda v, w: (clipped(v, 1.0).sum(0) / EXPECTED_CLIENTS, 1e-6),
    "private adaptive": lambda v, w: (clipped(v, 1.0).sum(0) / EXPECTED_CLIENTS, 1e-6),
    "private adaptive symmetric": lambda v, w: (
        matrix(clipped(triangles(v), 1.0).sum(0) / EXPECTED_CLIENTS),
        1e-6,
    ),
    "robust statistics": lambda v, w: mean_of(zeroed(v), w),
    "robust update": lambda v, w: (mean_of(clipped(zeroed(v), 1.0), w)[0], 1e-5),
    "secure statistics": rounded_mean,
    "secure update": clipped_mean,
    "quantized statistics": quantized_mean,
    "quantized update": quantized_mean,
    "rotated statistics": rotated_mean,
    "rotated update": rotated_mean,
}


def leaves(value):
    """The numbers of a nested value; the states of private means hold names too."""
    flat = [x for x in tf.nest.flatten(value) if not isinstance(x, bytes)]
    return [np.asarray(x, np.float64) for x in flat]


def assert_same(few, many, sizes=SIZES):
    """Compares the outputs of cohorts of these sizes, with few and with many groups."""
    for size, one, other in zip(sizes, few, many, strict=True):
        for a, b in zip(leaves(one), leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"{size} clients")


DEFAULT = ("private adaptive", "quantized update")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name not in DEFAULT)) for name in FACTORIES],
)
def test_no_aggregator_sees_how_many_groups_have_no_client(worker, name):
    process = FACTORIES[name]().create(VALUE, WEIGHT)
    state = process.initialize()
    # The worker prepares a computation anew whenever the number of groups changes.
    many = [process.next(state, *contributions(size, 24)) for size in SIZES]
    few = [process.next(state, *contributions(size, padded(size))) for size in SIZES]
    assert_same(few, many)  # With the states, which hold the bounds of later rounds.
    for size in SIZES:
        values, weights = (np.array(part) for part in contributions(size, size))
        values = values.reshape([-1, D, D]).astype(float)
        expected, error = EXPECTED[name](values, weights)
        result = np.asarray(few[size].result)
        if np.isnan(expected).any():  # A weighted mean of nobody.
            assert np.isnan(result).all()
        else:
            assert np.linalg.norm(result - expected) <= error, f"{size} clients"


@pytest.mark.slow
@pytest.mark.parametrize("below", [True, pytest.param(False, marks=pytest.mark.long)])
def test_one_client_more_moves_the_private_count_by_half_at_most(worker, below):
    # The logarithm of the clip moves by 0.2 (1/2 + count / expected clients - 1/2).
    first = 1000.0 if below else 1.0  # Above or below all norms, that of the wild client too.
    process = private(adaptive=True, clip=first).create(VALUE, WEIGHT)
    state = process.initialize()
    counts = []
    for clients in SIZES:
        output = process.next(state, *contributions(clients, padded(clients)))
        clip = output.measurements["dp_query_metrics"]["clip"]
        counts.append(-np.log(clip / first) / 0.2 * EXPECTED_CLIENTS)
    expected = np.arange(len(SIZES)) * (0.5 if below else -0.5)
    np.testing.assert_allclose(counts, expected, atol=1e-3)


@pytest.mark.parametrize("adaptive", [False, True])
def test_one_client_with_huge_values_is_clipped(worker, adaptive):
    process = private(adaptive).create(VALUE, WEIGHT)
    for size in (1e19, 1e20, 3e38):
        huge = np.full([D, D], -size, np.float32)
        result = process.next(
            process.initialize(), [huge, np.zeros([D, D], np.float32)], [np.float32(1)] * 2
        ).result
        # Every entry has an equal share of the clip, 1.
        np.testing.assert_allclose(result, np.full([D, D], -1 / D / EXPECTED_CLIENTS), rtol=1e-5)


AGGREGATING = [name for name, entry in registry.ALGORITHMS.items() if entry.aggregates]
# Each adaptive bound counts clients, so an aggregation that counted groups would show.
COUNTING = {
    "robust": aggregators.AGGREGATORS["robust"].update,
    "private": lambda seed, bits: privacy.GaussianMean(0.0, 1.0, True).factory(EXPECTED_CLIENTS),
}


def build(small_algorithm, name, factory, **options):
    entry = registry.ALGORITHMS[name]
    task, clients = small_algorithm(name).inputs
    arguments = {f"{what}_aggregator": factory for what in entry.aggregates}
    values = entry.hyperparameters(server_optimizer="sgd", **options)
    return entry.build(task, values, **arguments).process, clients


@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(AGGREGATING, default=()))
def test_no_algorithm_depends_on_how_many_groups_have_no_client(worker, small_algorithm, name):
    # An algorithm hands its groups to every aggregator alike.
    check_empty_groups(small_algorithm, name, "robust")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(("dcco", "fedavg")))
def test_private_means_do_not_depend_on_it_either(worker, small_algorithm, name):
    check_empty_groups(small_algorithm, name, "private")


def check_empty_groups(small_algorithm, name, aggregator):
    """Compares rounds with 24 groups and with few, of which some have no client."""
    factory = COUNTING[aggregator](0, 0)
    process, clients = build(small_algorithm, name, factory, client_weighting="uniform")
    state, nobody = process.initialize(), clients[0].take(0)

    def after(size, total):
        some = [clients[k % len(clients)] for k in range(size)]
        return process.next(state, [*some, *[nobody] * (total - size)]).state

    many = [after(size, 24) for size in SOME_SIZES]
    few = [after(size, padded(size)) for size in SOME_SIZES]
    assert_same(few, many, SOME_SIZES)
    for a, b in zip(*(leaves(s.global_model_weights) for s in (state, few[0])), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(("fedavg", "fedprox")))
def test_one_local_step_of_no_client_is_no_update(worker, small_algorithm, name):
    one_step = {"local_epochs": 1, "batch_size": 0}
    process, clients = build(small_algorithm, name, tff.aggregators.MeanFactory(), **one_step)
    output = process.next(process.initialize(), [clients[0].take(0)])
    assert output.metrics["client_work"]["samples"] == 0
    one, other = (s.global_model_weights.trainable for s in (process.initialize(), output.state))
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
