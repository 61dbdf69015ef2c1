"""The means that the flags describe."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from launch.options import aggregation, settings
from launch.options.run_config import RunConfig
from tff_ssl.aggregation import differential_privacy as privacy
from tff_ssl.algorithms import registry
from tff_ssl.errors import ConfigurationError
from tff_ssl.losses import cco
from tff_ssl.losses.means import Means

CLIENTS, D = 4, 5
PRIVATE = {
    "sampling": "poisson", "clients_per_round": CLIENTS, "dp_clip": 1e6,
    "dp_statistics_clip": 1e6, "objective": "cco",
}  # fmt: skip


def choose(algorithm="dcco", clients=10 * CLIENTS, **given):
    """The means of an algorithm with these flags."""
    entry = registry.ALGORITHMS[algorithm]
    values = entry.hyperparameters(client_weighting="uniform")
    config = settings.replace(RunConfig(), **{**PRIVATE, "algorithm": algorithm, **given})
    return aggregation.choose_aggregation(config, entry, values, clients, min(clients, CLIENTS))


def statistics(rng):
    f = rng.normal(size=(12, D)).astype(np.float32)
    g = (f + 0.5 * rng.normal(size=(12, D))).astype(np.float32)
    return cco.EncodingStatistics(*map(np.asarray, cco.encoding_statistics(f, g, Means(0.0, 0.0))))


def test_half_of_the_statistics_can_be_private(worker):
    # An infinite epsilon is no noise, so that the result can be worked out.
    factory = choose(dp_epsilon=float("inf"), symmetric_statistics=True).arguments[
        "statistics_aggregator"
    ]
    zero = tff.tensorflow.computation(lambda: cco.zero_statistics(D)).type_signature.result
    process = factory.create(zero, tff.types.TensorType(np.float32))
    values = [statistics(np.random.default_rng(k)) for k in range(CLIENTS)]
    found = process.next(process.initialize(), values, [np.float32(1)] * CLIENTS).result
    expected = [np.mean(parts, 0) for parts in zip(*values, strict=True)]
    expected[4] = (expected[4] + expected[4].T) / 2
    for a, b in zip(tf.nest.flatten(found), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_private_clients_do_not_receive_the_number_of_clients():
    assert "expected_clients" not in choose(dp_epsilon=8.0).arguments
    chosen = choose("fedsc", dp_epsilon=8.0, objective="spectral")
    assert chosen.arguments["expected_clients"] == CLIENTS
    plain = dict.fromkeys(("sampling", "dp_clip", "dp_statistics_clip"))
    chosen = choose("fedsc", objective="spectral", symmetric_statistics=True, **plain)
    assert "expected_clients" not in chosen.arguments


@pytest.mark.slow
def test_private_means_divide_by_the_clients_that_are_expected_in_their_stage(worker):
    # Of 4 invited clients, 3 are expected to send statistics, and 2 to send an update.
    given = {"dp_epsilon": float("inf"), "clients_per_round": 2, "dropout": 0.5}

    def denominator(algorithm, mean, **more):
        factory = choose(algorithm, **{**given, **more}).arguments[f"{mean}_aggregator"]
        if mean == "statistics":
            value = tff.tensorflow.computation(lambda: cco.zero_statistics(D))
            process = factory.create(value.type_signature.result, tff.types.TensorType(np.float32))
            sent = statistics(np.random.default_rng(0))
            found = process.next(process.initialize(), [sent], [np.float32(1)]).result
            return sent.f / found.f
        process = factory.create(tff.types.to_type(np.float32), tff.types.TensorType(np.float32))
        return 1 / process.next(process.initialize(), [np.float32(1)], [np.float32(1)]).result

    np.testing.assert_allclose(denominator("dcco", "update"), 2, rtol=1e-5)
    # 3 / (1 - 0.2) is 3.75: of the 4 that are invited, 3.2 are expected to finish.
    found = denominator("dcco", "update", clients_per_round=3, dropout=0.2)
    np.testing.assert_allclose(found, 3.2, rtol=1e-5)
    np.testing.assert_allclose(denominator("dcco", "statistics"), 3, rtol=1e-5)
    # All that a client of one stage sends arrives at once.
    np.testing.assert_allclose(denominator("dcco_one_stage", "statistics"), 2, rtol=1e-5)
    spectral = {**given, "objective": "spectral"}
    assert choose("fedsc", **spectral).arguments["expected_clients"] == 3


def test_the_result_lists_what_privacy_covers_and_what_it_does_not():
    chosen = choose(dp_epsilon=8.0)
    assert "what clients receive" in chosen.result["privacy"]["covers"]
    listed = chosen.result["privacy"]["does_not_cover"]
    assert listed == list(privacy.NOT_COVERED)
    for part in (
        "kNN", "losses", "seed", "result.json", "clients.sqlite", "data_digests", "effective_rank",
        "train_images", "images.npz", "plan.json", "rounds.json",
    ):  # fmt: skip
        assert any(part in entry for entry in listed), part
    assert any("metrics.csv" in line and "not cover" in line for line in chosen.summary)


def test_one_client_cannot_be_hidden():
    choose(clients=2, dp_epsilon=8.0, clients_per_round=1)
    with pytest.raises(ConfigurationError, match="only one client"):
        choose(clients=1, dp_epsilon=8.0, clients_per_round=1)


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan"), float("inf"), 1e38])
def test_a_private_mean_has_a_clip_within_bounds(clip):
    with pytest.raises(ValueError, match="clip must be"):
        privacy.GaussianMean(1.0, clip)
    with pytest.raises(ValueError, match="noise_multiplier must be"):
        privacy.GaussianMean(clip or float("nan"), 1.0)
