"""From flags to a round's clients and means: sampling, dropout, aggregators, privacy."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow_federated as tff
from absl import flags

from tff_ssl.aggregation import aggregators, differential_privacy
from tff_ssl.algorithms.registry import Algorithm
from tff_ssl.errors import ConfigurationError
from tff_ssl.objectives.statistics import STATISTICS_LOSSES
from tff_ssl.simulation import cohort
from tff_ssl.simulation.dropouts import Dropouts, clients_to_invite

_PRIVACY_FLAGS = (
    "dp_epsilon",
    "dp_noise_multiplier",
    "dp_statistics_noise_multiplier",
    "dp_clip",
    "dp_statistics_clip",
    "dp_adaptive_clipping",
    "dp_delta",
)
_COVERS = "the model and what clients receive; not the counts and losses of metrics.csv"


class Participation(NamedTuple):
    """Who takes part in a round.

    Attributes:
      cohorts: Round number -> indices of the invited clients.
      invited: How many of them there are, on average.
      vary: Whether their number varies.
      faults: What is borne.
    """

    cohorts: Callable[[int], cohort.Cohort]
    invited: int
    vary: bool
    faults: Dropouts


class Aggregation(NamedTuple):
    """How contributions are averaged.

    Attributes:
      arguments: For the algorithm's `build`.
      folds: Whether clients may be folded into groups.
      epsilon: Rounds -> the privacy that they cost; None without differential privacy.
      summary: Lines for the announcement.
      result: What `result.json` says of it.
    """

    arguments: dict[str, Any]
    folds: bool
    epsilon: Callable[[int], float] | None
    summary: list[str]
    result: dict[str, Any]


def participation(num_clients: int, args: flags.FlagValues) -> Participation:
    """The cohorts that the flags describe.

    Raises:
      ConfigurationError: If there are not enough clients, or a rate is impossible.
    """
    if not 0 <= args.dropout < 1:
        raise ConfigurationError(f"--dropout must be at least 0 and below 1; got {args.dropout}")
    if args.round_timeout is not None and not args.round_timeout > 0:
        raise ConfigurationError(f"--round_timeout must be positive; got {args.round_timeout}")
    invited = clients_to_invite(args.clients_per_round, args.dropout)
    if args.clients_per_round <= num_clients < invited:
        raise ConfigurationError(
            f"--dropout={args.dropout} takes {invited} invited clients for --clients_per_round="
            f"{args.clients_per_round} that finish, and there are {num_clients}"
        )
    poisson = args.sampling == "poisson"
    sample = cohort.poisson_cohorts if poisson else cohort.uniform_cohorts
    return Participation(
        sample(num_clients, invited, args.seed),
        invited,
        poisson,
        Dropouts(args.dropout, args.max_dropped, args.seed),
    )


def is_private(args: flags.FlagValues) -> bool:
    """Whether differential privacy is asked for; a noise of 0 is, to be refused."""
    return not all(args[name].value is args[name].default for name in _PRIVACY_FLAGS)


def choose(
    args: flags.FlagValues, algorithm: Algorithm, values: Any, num_clients: int, invited: int
) -> Aggregation:
    """The means that the flags describe.

    Args:
      args: The flags.
      algorithm: What they are for.
      values: Its hyperparameters.
      num_clients: Size of the population.
      invited: Expected size of a cohort.

    Raises:
      ConfigurationError: If the algorithm has no such means, or if a promised privacy would not
        hold.
    """
    private = is_private(args)
    folds = algorithm.folds_with(values)
    if not (private or args.aggregator != "mean" or args.symmetric_statistics):
        return Aggregation({}, folds, None, [], {})
    if not algorithm.aggregates:
        flag = "dp_*" if private else "aggregator, --symmetric_statistics"
        raise ConfigurationError(
            f"--{flag}: clients of {args.algorithm} send whole models, not contributions that "
            "could be clipped, quantized or left out of a mean"
        )
    chosen, summary, result = _plain(args, algorithm), [], {"aggregator": args.aggregator}
    epsilon = None
    if args.aggregator != "mean":
        summary.append(f"aggregator: {args.aggregator}{_bits(args)}")
    if private:
        means, accountant = _private_means(args, algorithm, values, num_clients, invited)
        chosen = {
            f"{what}_aggregator": mean.factory(args.clients_per_round)
            for what, mean in means.items()
        }
        if "statistics" in means:
            chosen["statistics_aggregator"] = differential_privacy.post_processed(
                chosen["statistics_aggregator"], STATISTICS_LOSSES[args.objective].plausible
            )
        epsilon = accountant.epsilon
        summary += differential_privacy.describe(means, accountant, args.rounds, num_clients)
        result["privacy"] = {
            "epsilon": _number(epsilon(args.rounds)),
            "delta": accountant.delta,
            "rounds": args.rounds,
            "sampling_rate": accountant.sampling_rate,
            **{f"{what}_{key}": value for what, mean in means.items()
               for key, value in vars(mean).items()},
            "covers": _COVERS,
        }  # fmt: skip
    if args.symmetric_statistics:
        fits = args.objective == "cco" and args.towers == "one"
        if not fits or "statistics" not in algorithm.aggregates:
            raise ConfigurationError(
                "--symmetric_statistics is for dcco and dcco_one_stage with --objective=cco and "
                "--towers=one"
            )
        inner = chosen.get("statistics_aggregator") or tff.aggregators.MeanFactory()
        chosen["statistics_aggregator"] = aggregators.SymmetricHalf(inner)
        summary.append("half of <F G^T> is sent, the triangle of its symmetric part")
    return Aggregation(
        chosen, args.aggregator == "mean" and not private and folds, epsilon, summary, result
    )


def _plain(args: flags.FlagValues, algorithm: Algorithm) -> dict[str, Any]:
    """`build`'s arguments for `--aggregator`."""
    means = aggregators.AGGREGATORS[args.aggregator]
    chosen: dict[str, Any] = {}
    for what in algorithm.aggregates:
        factory = means.statistics if what == "statistics" else means.update
        if factory:
            chosen[f"{what}_aggregator"] = factory(args.seed, args.quantization_bits)
    if means.is_secure:
        chosen["metric_sum"] = aggregators.secure_metric_sum
    return chosen


def _bits(args: flags.FlagValues) -> str:
    quantizes = args.aggregator in ("quantized", "rotated")
    return f", {args.quantization_bits} bits a number" if quantizes else ""


def _private_means(
    args: flags.FlagValues, algorithm: Algorithm, values: Any, num_clients: int, invited: int
) -> tuple[dict[str, differential_privacy.GaussianMean], differential_privacy.Accountant]:
    """What is clipped and noised, and what that is worth."""
    _check_guarantee(args, values, num_clients, invited)
    has_statistics = "statistics" in algorithm.aggregates
    for flag, needed in (("dp_clip", True), ("dp_statistics_clip", has_statistics)):
        value = args[flag].value
        if needed and (value is None or value <= 0):
            raise ConfigurationError(
                f"differential privacy of {args.algorithm} needs a positive --{flag}; got {value}"
            )
    for flag in ("dp_statistics_clip", "dp_statistics_noise_multiplier"):
        if args[flag].value is not None and not has_statistics:
            raise ConfigurationError(f"--{flag}: clients of {args.algorithm} send no statistics")
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
        own = args.dp_statistics_noise_multiplier
        means["statistics"] = differential_privacy.GaussianMean(
            noise if own is None else own, args.dp_statistics_clip, args.dp_adaptive_clipping
        )
    multipliers = tuple(mean.noise_multiplier for mean in means.values())
    return means, differential_privacy.Accountant(rate, multipliers, delta)


def _check_guarantee(args: flags.FlagValues, values: Any, num_clients: int, invited: int) -> None:
    """Refuses what differential privacy would be promised for and not be had."""
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


def _number(value: float) -> float | str:
    """JSON has no infinity."""
    return value if math.isfinite(value) else str(value)
