"""Builds the means of a round: aggregators and differential privacy."""

import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow_federated as tff

from launch.options.run_config import PrivacyConfig, RunConfig
from launch.options.settings import json_value
from tff_ssl.aggregation import aggregators, differential_privacy
from tff_ssl.algorithms.registry import Algorithm
from tff_ssl.errors import ConfigurationError
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, plausible_of_each
from tff_ssl.simulation.dropouts import expected_in_first_stage, expected_to_finish
from tff_ssl.templates.stages import SumRule

_LARGEST_EPSILON = 1e6  # More is no guarantee, and the search for its noise would not end.
_COVERAGE = "the model, and what clients receive"


class Aggregation(NamedTuple):
    """The means of a round."""

    arguments: dict[str, Any]  # Keyword arguments for the algorithm's `build`.
    folds: bool  # Whether clients may be folded into groups.
    # Number of rounds -> their privacy loss epsilon; None without differential privacy.
    epsilon: Callable[[int], float] | None
    summary: list[str]  # Lines that announce the aggregation.
    result: dict[str, Any]  # Fields for `result.json`.
    # The private means by name, as functions of tensors for client packages (`SumRule`).
    private: Mapping[str, SumRule] = MappingProxyType({})


def choose_aggregation(
    config: RunConfig, algorithm: Algorithm, values: Any, num_clients: int, invited: int
) -> Aggregation:
    """Builds the means that a configuration describes."""
    aggregator, bits = config.aggregation.aggregator, config.aggregation.quantization_bits
    # A noise of 0 counts as given, so that it is rejected later.
    private = config.privacy != PrivacyConfig()
    symmetric = config.aggregation.symmetric_statistics
    folds = algorithm.folds_with(values)
    if not (private or aggregator != "mean" or symmetric):
        return Aggregation({}, folds, None, [], {})
    _check_contributions(config, algorithm, private)
    arguments, summary = _aggregator_arguments(config, algorithm), []
    result: dict[str, Any] = {"aggregator": aggregator}
    epsilon, rules = None, {}
    plausible = functools.partial(plausible_of_each, STATISTICS_LOSSES.get(config.objective))
    if aggregator != "mean":
        quantizes = aggregator in ("quantized", "rotated")
        summary.append(f"aggregator: {aggregator}{f', {bits} bits a number' if quantizes else ''}")
    if private:
        means, accountant = _private_means(config, algorithm, values, num_clients, invited)
        in_first_stage = expected_in_first_stage(invited, config.participation.dropout)
        to_the_end = expected_to_finish(invited, config.participation.dropout)
        expected = {
            name: in_first_stage if name in algorithm.first_stage else to_the_end for name in means
        }
        arguments = {f"{n}_aggregator": mean.factory(expected[n]) for n, mean in means.items()}
        if not config.privacy.dp_adaptive_clipping:
            rules = {name: SumRule(*mean.functions(expected[name])) for name, mean in means.items()}
        if "statistics" in rules:
            rules["statistics"] = rules["statistics"].then(plausible)
        if algorithm.counts_clients:
            arguments["expected_clients"] = round(in_first_stage)
        epsilon = accountant.epsilon
        summary += differential_privacy.describe(means, accountant, config.rounds, num_clients)
        result["privacy"] = _privacy_fields(means, accountant, config.rounds)
    if symmetric:
        inner = arguments.get("statistics_aggregator")
        arguments["statistics_aggregator"] = _symmetric(config, algorithm, inner)
        summary.append("half of <F G^T> is sent, the triangle of its symmetric part")
    if private and "statistics" in algorithm.aggregates:
        # Outside the halving: it needs whole matrices.
        arguments["statistics_aggregator"] = differential_privacy.PostProcessed(
            arguments["statistics_aggregator"], plausible
        )
    folds = folds and aggregator == "mean" and not private
    return Aggregation(arguments, folds, epsilon, summary, result, rules)


def _check_contributions(config: RunConfig, algorithm: Algorithm, private: bool) -> None:
    """Rejects other means than the plain one if contributions are not averaged."""
    if algorithm.aggregates:
        return
    flag = "dp_*" if private else "aggregator, --symmetric_statistics"
    if algorithm.collects:
        raise ConfigurationError(
            f"--{flag}: the server of {config.algorithm.algorithm} reads {algorithm.collects} of "
            "each client by itself, which neither sums nor noise in a mean would hide"
        )
    raise ConfigurationError(
        f"--{flag}: clients of {config.algorithm.algorithm} send whole models, not contributions "
        "that could be clipped, quantized or left out of a mean"
    )


def _privacy_fields(
    means: Mapping[str, differential_privacy.GaussianMean],
    accountant: differential_privacy.Accountant,
    rounds: int,
) -> dict[str, Any]:
    return {
        "epsilon": json_value(accountant.epsilon(rounds)),
        "delta": accountant.delta,
        "rounds": rounds,
        "sampling_rate": accountant.sampling_rate,
        **{
            f"{name}_{key}": value
            for name, mean in means.items()
            for key, value in vars(mean).items()
        },
        "covers": _COVERAGE,
        "does_not_cover": list(differential_privacy.NOT_COVERED),
    }


def _symmetric(
    config: RunConfig,
    algorithm: Algorithm,
    inner: tff.aggregators.WeightedAggregationFactory | None,
) -> tff.aggregators.WeightedAggregationFactory:
    """The aggregator of `--symmetric_statistics`, which wraps `inner`."""
    is_one = config.model.towers == "one"
    supported = config.objective == "spectral" or (config.objective == "cco" and is_one)
    if not supported or "statistics" not in algorithm.aggregates:
        raise ConfigurationError(
            "--symmetric_statistics is for dcco and dcco_one_stage with --objective=cco and "
            "--towers=one, and for fedsc and them with --objective=spectral"
        )
    return aggregators.SymmetricHalf(inner or tff.aggregators.MeanFactory())


def _aggregator_arguments(config: RunConfig, algorithm: Algorithm) -> dict[str, Any]:
    """Arguments of `build` for `--aggregator`."""
    means = aggregators.AGGREGATORS[config.aggregation.aggregator]
    bits = config.aggregation.quantization_bits
    arguments: dict[str, Any] = {}
    for name in algorithm.aggregates:
        factory = means.statistics if name == "statistics" else means.update
        if factory:
            arguments[f"{name}_aggregator"] = factory(config.seed, bits)
    if means.is_secure:
        arguments["metric_sum"] = aggregators.secure_metric_sum
    return arguments


def _private_means(
    config: RunConfig, algorithm: Algorithm, values: Any, num_clients: int, invited: int
) -> tuple[dict[str, differential_privacy.GaussianMean], differential_privacy.Accountant]:
    """The clipped and noised means by name, and the accountant of their privacy loss."""
    privacy, has_statistics = config.privacy, "statistics" in algorithm.aggregates
    _check_guarantee(config, values, num_clients, invited)
    _check_clips(config, has_statistics)
    rate, delta = invited / num_clients, privacy.dp_delta
    if delta is None:
        delta = differential_privacy.default_delta(num_clients)
    noise = privacy.dp_noise_multiplier
    if privacy.dp_epsilon is not None:
        noise = differential_privacy.noise_for(
            privacy.dp_epsilon, config.rounds, rate, len(algorithm.aggregates), delta
        )
    adaptive = privacy.dp_adaptive_clipping
    assert noise is not None  # Checked above, as are the clips.
    assert privacy.dp_clip is not None
    means = {"update": differential_privacy.GaussianMean(noise, privacy.dp_clip, adaptive)}
    if has_statistics:
        of_statistics = privacy.dp_statistics_noise_multiplier
        assert privacy.dp_statistics_clip is not None
        means["statistics"] = differential_privacy.GaussianMean(
            noise if of_statistics is None else of_statistics, privacy.dp_statistics_clip, adaptive
        )
    multipliers = tuple(mean.noise_multiplier for mean in means.values())
    return means, differential_privacy.Accountant(rate, multipliers, delta)


def _check_guarantee(config: RunConfig, values: Any, num_clients: int, invited: int) -> None:
    """Rejects settings with which the announced guarantee would not hold."""
    privacy, sampling = config.privacy, config.participation.sampling
    epsilon, delta = privacy.dp_epsilon, privacy.dp_delta
    if num_clients < 2:
        raise ConfigurationError(
            "differential privacy hides a client among others, and there is only one client"
        )
    if config.runtime.deterministic:
        raise ConfigurationError(
            "--deterministic with differential privacy: its noise is drawn anew in every run; "
            "leave one of the two out"
        )
    if (epsilon is None) == (privacy.dp_noise_multiplier is None):
        raise ConfigurationError(
            "differential privacy needs either --dp_epsilon or --dp_noise_multiplier"
        )
    if epsilon is not None and privacy.dp_statistics_noise_multiplier is not None:
        raise ConfigurationError(
            "--dp_statistics_noise_multiplier goes with --dp_noise_multiplier, not --dp_epsilon"
        )
    for flag in ("dp_epsilon", "dp_noise_multiplier", "dp_statistics_noise_multiplier"):
        value = getattr(privacy, flag)
        if value is not None and not value > 0:
            raise ConfigurationError(
                f"--{flag} must be positive; for clipping without noise, and without a guarantee, "
                "say --dp_epsilon=inf"
            )
    if epsilon is not None and _LARGEST_EPSILON < epsilon < math.inf:
        raise ConfigurationError(
            f"--dp_epsilon must be at most {_LARGEST_EPSILON:g}, or inf; got {epsilon:g}"
        )
    if config.aggregation.aggregator != "mean":
        raise ConfigurationError(
            f"--aggregator={config.aggregation.aggregator} with differential privacy: its adaptive "
            "bounds or its rounding are not accounted for; leave it at mean"
        )
    if values.client_weighting != "uniform":
        raise ConfigurationError(
            "differential privacy does not hold with weights by examples, which nothing bounds: "
            "add --hparam=client_weighting=uniform"
        )
    if sampling != "poisson" and invited != num_clients:
        raise ConfigurationError(
            f"differential privacy with --sampling={sampling} would not hold, as the "
            "accountant is for Poisson sampling: add --sampling=poisson"
        )
    if delta is not None and not 0 < delta < 1 / num_clients:
        raise ConfigurationError(
            f"--dp_delta must be positive and below one over the {num_clients} clients: with more, "
            f"all of a client's data may be published; got {delta:g}"
        )


def _check_clips(config: RunConfig, has_statistics: bool) -> None:
    """Checks that each mean has a clip, and that no flag is for a missing mean."""
    name = config.algorithm.algorithm
    for flag, needed in (("dp_clip", True), ("dp_statistics_clip", has_statistics)):
        value = getattr(config.privacy, flag)
        if needed and (value is None or value <= 0):
            raise ConfigurationError(
                f"differential privacy of {name} needs a positive --{flag}; got {value}"
            )
    for flag in ("dp_statistics_clip", "dp_statistics_noise_multiplier"):
        if getattr(config.privacy, flag) is not None and not has_statistics:
            raise ConfigurationError(f"--{flag}: clients of {name} send no statistics")
