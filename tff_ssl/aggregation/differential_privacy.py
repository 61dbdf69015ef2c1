"""Client-level differential privacy: clipped and noised means, and the accounting of epsilon.

The unit of privacy is a client with all of its examples. Each round samples clients by Poisson
sampling (each client independently with probability q). Each aggregation of the round releases the
sum of the clipped contributions plus Gaussian noise of standard deviation z times the clip, divided
by the expected number of clients (McMahan et al., "Learning Differentially Private Recurrent
Language Models", 2018). DCCO has two aggregations, statistics and model deltas. On the same sample
they equal one Gaussian mechanism with noise multiplier (z_1^-2 + z_2^-2)^(-1/2), which is composed
over the rounds (`dp_accounting`'s RDP accountant; neighbours differ by one client added or
removed).

The guarantee covers the results of these aggregations: the model's weights, and the statistics that
clients receive. It assumes a trusted server, which adds the noise, and that `--seed` is secret,
because the cohorts are drawn from it. The guarantee does not cover the counts and
client losses among a run's metrics, which are exact sums, nor a monitor that evaluates on training
images.

The noise comes from TensorFlow Privacy, which does not seed it. A run with noise therefore cannot
be repeated bit for bit. This is intended: anyone who knew the seed could subtract the noise.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import dp_accounting
import tensorflow_federated as tff
from dp_accounting import rdp
from scipy import optimize

from tff_ssl.errors import ConfigurationError

# Relative accuracy of the search for a noise multiplier; the result is then rounded up.
_NOISE_TOLERANCE = 1e-3
_LARGEST_NOISE = 1e6
_SMALLEST_EPSILON = 1e-12  # Keeps the logarithm of a vanishing epsilon finite.


@dataclasses.dataclass(frozen=True)
class GaussianMean:
    """A private mean: the clipping and the noise of one of a round's aggregations.

    Attributes:
      noise_multiplier: z, the standard deviation of the noise on the sum, divided by the clip; 0
        for no noise.
      clip: C, the largest L2 norm of a client's contribution; the initial value if `adaptive`.
      adaptive: Whether C follows the median of the norms (Andrew et al. 2021, "Differentially
        Private Learning with Adaptive Clipping"); z then covers the query for the median too.
    """

    noise_multiplier: float
    clip: float
    adaptive: bool = False

    def factory(self, clients_per_round: float) -> tff.aggregators.WeightedAggregationFactory:
        """The aggregation: it ignores weights and divides by the expected number of clients.

        Args:
          clients_per_round: Expected number of clients, the denominator. A round with fewer clients
            has a smaller mean: dividing by their actual number would release that number too.

        Raises:
          ConfigurationError: If the clients are too few for adaptive clipping with this noise.
        """
        dp = tff.aggregators.DifferentiallyPrivateFactory
        try:
            inner = (
                dp.gaussian_adaptive(
                    float(self.noise_multiplier),
                    float(clients_per_round),
                    initial_l2_norm_clip=float(self.clip),
                )
                if self.adaptive
                else dp.gaussian_fixed(
                    float(self.noise_multiplier), float(clients_per_round), float(self.clip)
                )
            )
        except ValueError as error:
            raise ConfigurationError(
                f"--dp_adaptive_clipping: a noise multiplier of {self.noise_multiplier:.3g} needs "
                f"more clients than --clients_per_round={clients_per_round:g}, at least "
                f"{math.ceil(10 * self.noise_multiplier) + 1}"
            ) from error
        return tff.aggregators.as_weighted_aggregator(inner)


@dataclasses.dataclass(frozen=True)
class Accountant:
    """Computes the epsilon of a run.

    Attributes:
      sampling_rate: q, the probability that a client takes part in a round.
      noise_multipliers: z of each of a round's aggregations.
      delta: The delta of (epsilon, delta)-differential privacy.
    """

    sampling_rate: float
    noise_multipliers: tuple[float, ...]
    delta: float

    def epsilon(self, rounds: int) -> float:
        """Epsilon after this number of rounds; infinite if an aggregation has no noise."""
        if rounds == 0:
            return 0.0
        if min(self.noise_multipliers) == 0:
            return math.inf
        orders, divergences = self._round_divergences
        return float(rdp.compute_epsilon(orders, rounds * divergences, self.delta)[0])

    @functools.cached_property
    def _round_divergences(self) -> tuple[Any, Any]:
        """The accountant's Renyi orders, and the divergence of one round at each order."""
        event = dp_accounting.PoissonSampledDpEvent(
            self.sampling_rate,
            dp_accounting.ComposedDpEvent(
                [dp_accounting.GaussianDpEvent(z) for z in self.noise_multipliers]
            ),
        )
        accountant = rdp.RdpAccountant()
        accountant.compose(event)
        return accountant.orders, accountant.rdp


def noise_for(
    epsilon: float, rounds: int, sampling_rate: float, aggregations: int, delta: float
) -> float:
    """The noise multiplier with which a run costs `epsilon`, or slightly less.

    Args:
      epsilon: The epsilon to spend; infinite for no noise.
      rounds: Number of rounds of the run.
      sampling_rate: q, the probability that a client takes part in a round.
      aggregations: Number of aggregations per round, all with the same noise multiplier.
      delta: The delta of (epsilon, delta)-differential privacy.

    Returns:
      The noise multiplier z of each aggregation, rounded up by 0.2 %.

    Raises:
      ConfigurationError: If no noise is enough.
    """
    if math.isinf(epsilon):
        return 0.0

    def excess(log_noise: float) -> float:
        multipliers = (math.exp(log_noise),) * aggregations
        spent = Accountant(sampling_rate, multipliers, delta).epsilon(rounds)
        return math.log(max(spent, _SMALLEST_EPSILON) / epsilon)

    low = high = 0.0
    while excess(high) > 0:
        low, high = high, high + math.log(2)
        if high > math.log(_LARGEST_NOISE):
            raise ConfigurationError(f"--dp_epsilon={epsilon:g} cannot be had at delta {delta:g}")
    while excess(low) <= 0:
        low, high = low - math.log(2), low
    log_noise = optimize.brentq(excess, low, high, xtol=_NOISE_TOLERANCE)
    return math.exp(log_noise + 2 * _NOISE_TOLERANCE)


def default_delta(num_clients: int) -> float:
    """The usual choice of delta, slightly below 1 / num_clients: num_clients^-1.1."""
    return num_clients**-1.1


def post_processed(
    inner: tff.aggregators.WeightedAggregationFactory, function: Callable[[Any], Any]
) -> tff.aggregators.WeightedAggregationFactory:
    """An aggregation whose result is post-processed at the server, which costs no privacy.

    Args:
      inner: The aggregation.
      function: A TensorFlow function: result of `inner` -> value of the same type.
    """
    return _PostProcessed(inner, function)


class _PostProcessed(tff.aggregators.WeightedAggregationFactory):
    """See `post_processed`."""

    def __init__(self, inner, function):
        self._inner = inner
        self._function = function

    def create(self, value_type, weight_type):
        process = self._inner.create(value_type, weight_type)
        result_type = process.next.type_signature.result.result.member
        function = tff.tensorflow.computation(self._function, result_type)

        @tff.federated_computation(process.next.type_signature.parameter)
        def next_fn(state, value, weight):
            output = process.next(state, value, weight)
            return tff.templates.MeasuredProcessOutput(
                output.state, tff.federated_map(function, output.result), output.measurements
            )

        return tff.templates.AggregationProcess(process.initialize, next_fn)


def describe(
    means: Mapping[str, GaussianMean], accountant: Accountant, rounds: int, clients: int
) -> list[str]:
    """Describes the guarantee of a run, in lines of text for its announcement.

    Args:
      means: The private means, by the name of what they average.
      accountant: The accountant of the run.
      rounds: Number of rounds of the run.
      clients: Number of clients in the population.
    """
    epsilon = accountant.epsilon(rounds)
    guarantee = (
        "none promised (clipping without noise)"
        if math.isinf(epsilon)
        else f"epsilon {epsilon:.3g} at delta {accountant.delta:.2g} after {rounds} rounds, for "
        f"each of {clients} clients"
    )
    lines = [
        f"differential privacy: {guarantee}; a client is in a round with probability "
        f"{accountant.sampling_rate:.3g}"
    ]
    for name, mean in means.items():
        adapts = ", which adapts" if mean.adaptive else ""
        lines.append(
            f"  {name}: clip {mean.clip:g}{adapts}, noise multiplier {mean.noise_multiplier:.3g}"
        )
    return lines
