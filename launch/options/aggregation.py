"""Builds the means of a round from the flags: aggregators and differential privacy."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow_federated as tff
from absl import flags

from tff_ssl.aggregation import aggregators, differential_privacy
from tff_ssl.algorithms.registry import Algorithm
from tff_ssl.errors import ConfigurationError
from tff_ssl.objectives.statistics import STATISTICS_LOSSES, plausible_of_each
from tff_ssl.simulation.dropouts import expected_in_first_stage, expected_to_finish

_PRIVACY_FLAGS = (
    "dp_epsilon",
    "dp_noise_multiplier",
    "dp_statistics_noise_multiplier",
    "dp_clip",
    "dp_statistics_clip",
    "dp_adaptive_clipping",
    "dp_delta",
)
_LARGEST_EPSILON = 1e6  # More is no guarantee, and the search for its noise has no end.
_COVERAGE = "the model, and what clients receive"


class Aggregation(NamedTuple):
    """The means of a round.

    Attributes:
      arguments: Keyword arguments for the algorithm's `build`.
      folds: Whether clients may be folded into groups.
      epsilon: Number of rounds -> their privacy loss epsilon; None without differential privacy.
      summary: Lines for the announcement of the run.
      result: Fields for `result.json`.
    """

    arguments: dict[str, Any]
    folds: bool
    epsilon: Callable[[int], float] | None
    summary: list[str]
    result: dict[str, Any]


def is_private(args: flags.FlagValues) -> bool:
    """Whether a flag of differential privacy is given."""
    # A noise of 0 counts as given, so that it is rejected later.
    return not all(args[name].value is args[name].default for name in _PRIVACY_FLAGS)


def choose_aggregation(
    args: flags.FlagValues, algorithm: Algorithm, values: Any, num_clients: int, invited: int
) -> Aggregation:
    """Builds the means that the flags describe.

    Args:
      args: The flags.
      algorithm: Registry entry of the algorithm.
      values: Hyperparameters of the algorithm.
      num_clients: Number of clients of the population.
      invited: Expected number of clients of a cohort.

    Raises:
      ConfigurationError: If the algorithm does not support these means, or if the announced
        differential privacy would not hold.
    """
    private = is_private(args)
    folds = algorithm.folds_with(values)
    if not (private or args.aggregator != "mean" or args.symmetric_statistics):
        return Aggregation({}, folds, None, [], {})
    if not algorithm.aggregates:
        flag = "dp_*" if private else "aggregator, --symmetric_statistics"
        if algorithm.collects:
            raise ConfigurationError(
                f"--{flag}: the server of {args.algorithm} reads {algorithm.collects} of each "
                "client by itself, which neither sums nor noise in a mean would hide"
            )
        raise ConfigurationError(
            f"--{flag}: clients of {args.algorithm} send whole models, not contributions that "
            "could be clipped, quantized or left out of a mean"
        )
    arguments, summary = _aggregator_arguments(args, algorithm), []
    result: dict[str, Any] = {"aggregator": args.aggregator}
    epsilon = None
    if args.aggregator != "mean":
        summary.append(f"aggregator: {args.aggregator}{_describe_bits(args)}")
    if private:
        means, accountant = _private_means(args, algorithm, values, num_clients, invited)
        in_first_stage = expected_in_first_stage(invited, args.dropout)
        to_the_end = expected_to_finish(invited, args.dropout)
        arguments = {
            f"{name}_aggregator": mean.factory(
                in_first_stage if name in algorithm.first_stage else to_the_end
            )
            for name, mean in means.items()
        }
        if algorithm.counts_clients:
            arguments["expected_clients"] = round(in_first_stage)
        epsilon = accountant.epsilon
        summary += differential_privacy.describe(means, accountant, args.rounds, num_clients)
        result["privacy"] = _privacy_fields(means, accountant, args.rounds)
    if args.symmetric_statistics:
        arguments["statistics_aggregator"] = _symmetric(
            args, algorithm, arguments.get("statistics_aggregator")
        )
        summary.append("half of <F G^T> is sent, the triangle of its symmetric part")
    if private and "statistics" in algorithm.aggregates:
        # Outside the halving, so that it sees whole matrices.
        arguments["statistics_aggregator"] = differential_privacy.PostProcessed(
            arguments["statistics_aggregator"],
            functools.partial(plausible_of_each, STATISTICS_LOSSES[args.objective]),
        )
    folds = folds and args.aggregator == "mean" and not private
    return Aggregation(arguments, folds, epsilon, summary, result)


def _privacy_fields(
    means: Mapping[str, differential_privacy.GaussianMean],
    accountant: differential_privacy.Accountant,
    rounds: int,
) -> dict[str, Any]:
    """Fields of `result.json` that state the guarantee."""
    return {
        "epsilon": _finite_or_text(accountant.epsilon(rounds)),
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
    args: flags.FlagValues,
    algorithm: Algorithm,
    inner: tff.aggregators.WeightedAggregationFactory | None,
) -> tff.aggregators.WeightedAggregationFactory:
    """The aggregator of `--symmetric_statistics`, which wraps another one."""
    supported = args.objective == "spectral" or (args.objective == "cco" and args.towers == "one")
    if not supported or "statistics" not in algorithm.aggregates:
        raise ConfigurationError(
            "--symmetric_statistics is for dcco and dcco_one_stage with --objective=cco and "
            "--towers=one, and for fedsc and them with --objective=spectral"
        )
    return aggregators.SymmetricHalf(inner or tff.aggregators.MeanFactory())


def _aggregator_arguments(args: flags.FlagValues, algorithm: Algorithm) -> dict[str, Any]:
    """Arguments of `build` for `--aggregator`."""
    means = aggregators.AGGREGATORS[args.aggregator]
    arguments: dict[str, Any] = {}
    for name in algorithm.aggregates:
        factory = means.statistics if name == "statistics" else means.update
        if factory:
            arguments[f"{name}_aggregator"] = factory(args.seed, args.quantization_bits)
    if means.is_secure:
        arguments["metric_sum"] = aggregators.secure_metric_sum
    return arguments


def _describe_bits(args: flags.FlagValues) -> str:
    """Number of bits for the announcement, where the aggregator quantizes."""
    quantizes = args.aggregator in ("quantized", "rotated")
    return f", {args.quantization_bits} bits a number" if quantizes else ""


def _private_means(
    args: flags.FlagValues, algorithm: Algorithm, values: Any, num_clients: int, invited: int
) -> tuple[dict[str, differential_privacy.GaussianMean], differential_privacy.Accountant]:
    """The clipped and noised means by name, and the accountant of their privacy loss."""
    has_statistics = "statistics" in algorithm.aggregates
    _check_guarantee(args, values, num_clients, invited)
    _check_clips(args, has_statistics)
    rate = invited / num_clients
    delta = (
        differential_privacy.default_delta(num_clients) if args.dp_delta is None else args.dp_delta
    )
    if args.dp_epsilon is not None:
        noise = differential_privacy.noise_for(
            args.dp_epsilon, args.rounds, rate, len(algorithm.aggregates), delta
        )
    else:
        noise = args.dp_noise_multiplier
    means = {
        "update": differential_privacy.GaussianMean(noise, args.dp_clip, args.dp_adaptive_clipping)
    }
    if has_statistics:
        statistics_noise = args.dp_statistics_noise_multiplier
        means["statistics"] = differential_privacy.GaussianMean(
            noise if statistics_noise is None else statistics_noise,
            args.dp_statistics_clip,
            args.dp_adaptive_clipping,
        )
    multipliers = tuple(mean.noise_multiplier for mean in means.values())
    return means, differential_privacy.Accountant(rate, multipliers, delta)


def _check_guarantee(args: flags.FlagValues, values: Any, num_clients: int, invited: int) -> None:
    """Rejects settings with which the announced differential privacy would not hold."""
    if (args.dp_epsilon is None) == (args.dp_noise_multiplier is None):
        raise ConfigurationError(
            "differential privacy needs either --dp_epsilon or --dp_noise_multiplier"
        )
    if args.dp_epsilon is not None and args.dp_statistics_noise_multiplier is not None:
        raise ConfigurationError(
            "--dp_statistics_noise_multiplier goes with --dp_noise_multiplier, not --dp_epsilon"
        )
    for flag in ("dp_epsilon", "dp_noise_multiplier", "dp_statistics_noise_multiplier"):
        if args[flag].value is not None and not args[flag].value > 0:
            raise ConfigurationError(
                f"--{flag} must be positive; for clipping without noise, and without a guarantee, "
                "say --dp_epsilon=inf"
            )
    if args.dp_epsilon is not None and _LARGEST_EPSILON < args.dp_epsilon < math.inf:
        raise ConfigurationError(
            f"--dp_epsilon must be at most {_LARGEST_EPSILON:g}, or inf; got {args.dp_epsilon:g}"
        )
    if args.aggregator != "mean":
        raise ConfigurationError(
            f"--aggregator={args.aggregator} with differential privacy: its adaptive bounds or its "
            "rounding are not accounted for; leave it at mean"
        )
    if values.client_weighting != "uniform":
        raise ConfigurationError(
            "differential privacy with weights by examples would not hold, as nothing bounds them: "
            "add --hparam=client_weighting=uniform"
        )
    if args.sampling != "poisson" and invited != num_clients:
        raise ConfigurationError(
            f"differential privacy with --sampling={args.sampling} would not hold, as the "
            "accountant is for Poisson sampling: add --sampling=poisson"
        )
    if args.dp_delta is not None and not 0 < args.dp_delta < 1 / num_clients:
        raise ConfigurationError(
            f"--dp_delta must be positive and below one over the {num_clients} clients: with more, "
            f"all of a client's data may be published; got {args.dp_delta:g}"
        )


def _check_clips(args: flags.FlagValues, has_statistics: bool) -> None:
    """Checks that each mean has a clip, and that no flag is given for a mean that does not exist.

    Args:
      args: The flags.
      has_statistics: Whether clients send encoding statistics beside their model deltas.
    """
    for flag, needed in (("dp_clip", True), ("dp_statistics_clip", has_statistics)):
        value = args[flag].value
        if needed and (value is None or value <= 0):
            raise ConfigurationError(
                f"differential privacy of {args.algorithm} needs a positive --{flag}; got {value}"
            )
    for flag in ("dp_statistics_clip", "dp_statistics_noise_multiplier"):
        if args[flag].value is not None and not has_statistics:
            raise ConfigurationError(f"--{flag}: clients of {args.algorithm} send no statistics")


def _finite_or_text(value: float) -> float | str:
    """The value, or its text if it is infinite, because JSON has no infinity."""
    return value if math.isfinite(value) else str(value)
