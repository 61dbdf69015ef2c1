"""Differential privacy of clients: clipped and noised means, and what they guarantee.

The unit of privacy is a client with all of its examples. A round takes part of the clients by
Poisson sampling (each by itself with probability q) and releases, for each of its aggregations, a
sum of clipped contributions with Gaussian noise of standard deviation z times the clip, divided by
the expected number of clients (McMahan et al., "Learning Differentially Private Recurrent Language
Models", 2018). DCCO releases two, statistics and model deltas; on the same sample they are one
Gaussian mechanism of noise multiplier (z_1^-2 + z_2^-2)^(-1/2), composed over the rounds
(`dp_accounting`'s RDP accountant, neighbours differ by one client added or removed).

The guarantee is that of what comes out of these aggregations: the model's weights, and the
statistics that clients receive. It is for a trusted server, which adds the noise. Counts and
client losses among a run's metrics are exact sums, outside of it; so is a monitor that looks at
training images.

The noise comes from TensorFlow Privacy, which does not seed it: a run with noise cannot be repeated
bit for bit, and must not be, as who knows the seed can take the noise away.
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

# Relative accuracy of a noise multiplier that is searched for; it is then rounded up.
_NOISE_TOLERANCE = 1e-3
_LARGEST_NOISE = 1e6
_SMALLEST_EPSILON = 1e-12


@dataclasses.dataclass(frozen=True)
class GaussianMean:
    """How one of a round's aggregations is made private.

    Attributes:
      noise_multiplier: z, standard deviation of the noise on the sum over the clip; 0 for none.
      clip: C, largest L2 norm of a client's contribution; the first one where it adapts.
      adaptive: Whether C follows the median of the norms (Andrew et al. 2021, "Differentially
        Private Learning with Adaptive Clipping"); z then pays for this query too.
    """

    noise_multiplier: float
    clip: float
    adaptive: bool = False

    def factory(self, clients_per_round: float) -> tff.aggregators.WeightedAggregationFactory:
        """The aggregation: all weights count as 1, and the mean is over the expected clients.

        Args:
          clients_per_round: Expected number of clients, the denominator. The mean of a round with
            fewer is smaller: dividing by their number would be a release of its own.

        Raises:
          ConfigurationError: If adaptive clipping cannot be had for this little noise.
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
    """Epsilon of a run's rounds.

    Attributes:
      sampling_rate: q, probability with which a client is in a round.
      noise_multipliers: z of each of a round's aggregations.
      delta: Of (epsilon, delta)-differential privacy.
    """

    sampling_rate: float
    noise_multipliers: tuple[float, ...]
    delta: float

    def epsilon(self, rounds: int) -> float:
        """Epsilon after so many rounds; infinite where an aggregation has no noise."""
        if rounds == 0:
            return 0.0
        if min(self.noise_multipliers) == 0:
            return math.inf
        orders, divergence = self._round
        return float(rdp.compute_epsilon(orders, rounds * divergence, self.delta)[0])

    @functools.cached_property
    def _round(self) -> tuple[Any, Any]:
        """Orders, and the Renyi divergence of one round at them."""
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
    """The noise multiplier, the same for each aggregation, with which `rounds` rounds cost epsilon.

    Raises:
      ConfigurationError: If no noise is enough.
    """
    if math.isinf(epsilon):
        return 0.0

    def excess(log_noise: float) -> float:
        z = (math.exp(log_noise),) * aggregations
        spent = Accountant(sampling_rate, z, delta).epsilon(rounds)
        return math.log(max(spent, _SMALLEST_EPSILON) / epsilon)

    low = high = 0.0
    while excess(high) > 0:
        low, high = high, high + math.log(2)
        if high > math.log(_LARGEST_NOISE):
            raise ConfigurationError(f"--dp_epsilon={epsilon:g} cannot be had at delta {delta:g}")
    while excess(low) <= 0:
        low, high = low - math.log(2), low
    found = optimize.brentq(excess, low, high, xtol=_NOISE_TOLERANCE)
    return math.exp(found + 2 * _NOISE_TOLERANCE)


def default_delta(num_clients: int) -> float:
    """The usual choice, somewhat below one over the number of clients."""
    return num_clients**-1.1


def post_processed(
    inner: tff.aggregators.WeightedAggregationFactory, function: Callable[[Any], Any]
) -> tff.aggregators.WeightedAggregationFactory:
    """`inner`, and then `function` of its result at the server, which costs no privacy.

    Args:
      inner: The aggregation.
      function: TensorFlow; the result -> one of the same type.
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
    """Lines for a run's announcement.

    Args:
      means: What is private, by name.
      accountant: Its price.
      rounds: Of the run.
      clients: In the population.
    """
    epsilon = accountant.epsilon(rounds)
    promise = (
        "none promised (clipping without noise)"
        if math.isinf(epsilon)
        else f"epsilon {epsilon:.3g} at delta {accountant.delta:.2g} after {rounds} rounds, for "
        f"each of {clients} clients"
    )
    lines = [
        f"differential privacy: {promise}; a client is in a round with probability "
        f"{accountant.sampling_rate:.3g}"
    ]
    for name, mean in means.items():
        adapts = ", which adapts" if mean.adaptive else ""
        lines.append(
            f"  {name}: clip {mean.clip:g}{adapts}, noise multiplier {mean.noise_multiplier:.3g}"
        )
    return lines
