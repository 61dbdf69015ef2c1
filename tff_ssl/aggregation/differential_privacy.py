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
because the cohorts are drawn from it. `NOT_COVERED` lists what else a run writes or shows that
depends on the clients' data; none of it may be published with the model.

A contribution of weight zero is that of no client. Such contributions pad cohorts, and stand for
clients whose values are not finite. They add neither to the sum nor to the count of contributions
below an adaptive clip: otherwise one client would change the padding, and thus the count, by more
than the noise on it is calibrated for.

The noise comes from TensorFlow Privacy, which does not seed it, so a run with noise cannot be
repeated bit for bit. This is intended: anyone who knew the seed could subtract the noise.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import dp_accounting
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp
from dp_accounting import rdp
from scipy import optimize

from tff_ssl.bounds import Bounded, bounded
from tff_ssl.errors import ConfigurationError

# Relative accuracy of the search for a noise multiplier; the result is then rounded up.
_NOISE_TOLERANCE = 1e-3
_SMALLEST_EPSILON = 1e-12  # Keeps the logarithm of a vanishing epsilon finite.
# Bounds of the settings: the deviation of the noise, their product, is far from overflowing.
LARGEST_CLIP = 1e9
LARGEST_NOISE = 1e6
# Larger numbers are scaled down before a contribution is clipped; their squares could overflow.
_LARGEST_ENTRY = 1e12
# Deviation of the noise on the count of contributions below an adaptive clip, per expected client
# (Andrew et al. 2021, section 3).
_COUNT_NOISE = 0.05

# What a run writes or shows that depends on the clients' data and is not covered by the guarantee.
NOT_COVERED = (
    "numbers of clients, samples, dropped clients and bytes, clients' losses, and times "
    "in metrics.csv, curves.png and TensorBoard",
    "the spread of the encodings (encoding_std) of algorithms whose clients send no statistics, "
    "which the server computes from sums without noise of their encodings and squared encodings",
    "kNN accuracies and effective ranks in metrics.csv, curves.png and TensorBoard, and an encoder "
    "chosen by them (--encoder_round=best)",
    "results of probes and of fine-tuning in result.json, which take labels of training images, "
    "and the effective_rank of the encodings of training images",
    "images of clients with their views, encodings and neighbours in run.html, embed.html and "
    "TensorBoard",
    "sizes and classes of the clients in partition.json and run.html",
    "seed, number and sizes of the clients, and hashes of the images, of the labels and of the "
    "partition (data_digests) in config.json, and what the run prints of them",
    "numbers of clients and of images in result.json (clients, skipped_clients, train_images, "
    "examples_left_out)",
    "warnings about clients that failed, and whether the run ended with an error",
    "the clients' images in clients.sqlite, which a run that was stopped leaves in its folder, and "
    "in node_N/images.npz of launch.stacks.flower",
    "the cohorts in plan.json and the metrics of each round in rounds.json of launch.stacks.flower",
    "hyperparameters and clips that were chosen by earlier runs on the same clients",
)


@dataclasses.dataclass(frozen=True)
class GaussianMean(Bounded):
    """A private mean: the clipping and the noise of one of a round's aggregations."""

    #: z, the standard deviation of the noise on the sum, in clips; 0 for none.
    noise_multiplier: float = bounded(at_least=0, at_most=LARGEST_NOISE)
    #: C, the largest L2 norm of a client's contribution; the initial value if `adaptive`.
    clip: float = bounded(above=0, at_most=LARGEST_CLIP)
    #: Whether C follows the median of the norms (Andrew et al. 2021, "Differentially Private
    #: Learning with Adaptive Clipping"); z then covers the query for the median too.
    adaptive: bool = False

    def factory(self, clients_per_round: float) -> tff.aggregators.WeightedAggregationFactory:
        """The aggregation: it divides by the expected number of clients.

        Dividing by their actual number would release that number too. A weight says whether there
        is a client, and is otherwise ignored.

        Raises:
          ConfigurationError: If the clients are too few for adaptive clipping with this noise.
        """
        return _PrivateMeanFactory(self._query(clients_per_round))

    def _query(self, clients_per_round: float) -> tfp.SumAggregationDPQuery:
        clip = float(self.clip)
        if self.adaptive:
            query = self._adaptive_sum(clients_per_round)
        else:
            query = tfp.GaussianSumQuery(l2_norm_clip=clip, stddev=clip * self.noise_multiplier)
        return tfp.NormalizedQuery(query, denominator=float(clients_per_round))

    def functions(
        self, clients_per_round: float
    ) -> tuple[Callable[[Any, tf.Tensor], Any], Callable[[Any], Any]]:
        """The mean of `factory` as functions of tensors, for a clip that does not adapt.

        Returns:
          (a client's contribution, its weight) -> what it adds to the sum, with an L2 norm of at
          most C; and the sum over the clients -> the mean with noise, at the server.
        """
        query = _QueryOfClients(self._query(clients_per_round))
        state = query.initial_global_state()
        parameters = query.derive_sample_params(state)
        return (
            lambda value, weight: query.preprocess_record(parameters, (value, weight)),
            lambda total: query.get_noised_result(total, state)[0],
        )

    def _adaptive_sum(self, clients_per_round: float) -> tfp.SumAggregationDPQuery:
        """The settings are those of `DifferentiallyPrivateFactory.gaussian_adaptive`."""
        z, count_stddev = float(self.noise_multiplier), 0.0
        if z:
            count_stddev = _COUNT_NOISE * clients_per_round
            if z >= 2 * count_stddev:
                raise ConfigurationError(
                    f"--dp_adaptive_clipping: a noise multiplier of {z:.3g} needs more clients "
                    f"than --clients_per_round={clients_per_round:g}, at least "
                    f"{math.ceil(10 * z) + 1}"
                )
            # The count has sensitivity 1/2. Together the two releases cost what one with z costs.
            z = (z**-2 - (2 * count_stddev) ** -2) ** -0.5
        return tfp.QuantileAdaptiveClipSumQuery(
            initial_l2_norm_clip=float(self.clip),
            noise_multiplier=z,
            target_unclipped_quantile=0.5,
            learning_rate=0.2,
            clipped_count_stddev=count_stddev,
            expected_num_records=float(clients_per_round),
            geometric_update=True,
        )


class _PrivateMeanFactory(tff.aggregators.WeightedAggregationFactory):
    """The mean of a query over the contributions of clients; a weight of zero is no client."""

    def __init__(self, query: tfp.SumAggregationDPQuery):
        self._factory = tff.aggregators.DifferentiallyPrivateFactory(_QueryOfClients(query))

    def create(
        self, value_type: tff.Type, weight_type: tff.Type
    ) -> tff.templates.AggregationProcess:
        process = self._factory.create(tff.types.to_type((value_type, weight_type)))

        @tff.federated_computation(
            process.initialize.type_signature.result,
            tff.types.FederatedType(value_type, tff.CLIENTS),
            tff.types.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state, value, weight):
            return process.next(state, tff.federated_zip((value, weight)))

        return tff.templates.AggregationProcess(process.initialize, next_fn)


class _QueryOfClients(tfp.SumAggregationDPQuery):
    """A query over pairs of a contribution and its weight; a weight of zero is no client."""

    def __init__(self, inner: tfp.SumAggregationDPQuery):
        self._inner = inner

    def initial_global_state(self):
        return self._inner.initial_global_state()

    def derive_sample_params(self, global_state):
        return self._inner.derive_sample_params(global_state)

    def initial_sample_state(self, template):
        return self._inner.initial_sample_state(template[0])

    def preprocess_record(self, params, record):
        value, weight = record
        clipped = self._inner.preprocess_record(params, _without_overflow(value))
        # Records are sums in the making: zeros are what no client adds to them.
        return tf.nest.map_structure(lambda t: tf.where(weight > 0, t, tf.zeros_like(t)), clipped)

    def get_noised_result(self, sample_state, global_state):
        return self._inner.get_noised_result(sample_state, global_state)

    def derive_metrics(self, global_state):
        return self._inner.derive_metrics(global_state)


def _without_overflow(value: Any) -> Any:
    """The value, scaled down where its L2 norm could overflow float32.

    The norm stays above `LARGEST_CLIP`, so that clipping gives the same result.
    """
    largest = tf.reduce_max(tf.stack([tf.reduce_max(tf.abs(t)) for t in tf.nest.flatten(value)]))
    factor = tf.minimum(1.0, _LARGEST_ENTRY / largest)
    return tf.nest.map_structure(lambda t: factor * t, value)


@dataclasses.dataclass(frozen=True)
class Accountant:
    """Computes the epsilon of a run."""

    sampling_rate: float  #: q, the probability that a client takes part in a round.
    noise_multipliers: tuple[float, ...]  #: z of each of a round's aggregations.
    delta: float  #: The delta of (epsilon, delta)-differential privacy.

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
        releases = [dp_accounting.GaussianDpEvent(z) for z in self.noise_multipliers]
        event = dp_accounting.PoissonSampledDpEvent(
            self.sampling_rate, dp_accounting.ComposedDpEvent(releases)
        )
        accountant = rdp.RdpAccountant()
        accountant.compose(event)
        return accountant.orders, accountant.rdp


def noise_for(
    epsilon: float, rounds: int, sampling_rate: float, aggregations: int, delta: float
) -> float:
    """The noise multiplier z with which a run costs `epsilon` or slightly less: up to 0.2 % more z.

    An infinite epsilon needs no noise. The sampling rate is q, the probability that a client takes
    part in a round; all aggregations of a round have the same noise multiplier.

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
        if high > math.log(LARGEST_NOISE):
            raise ConfigurationError(f"--dp_epsilon={epsilon:g} cannot be had at delta {delta:g}")
    while excess(low) <= 0:
        low, high = low - math.log(2), low
    log_noise = optimize.brentq(excess, low, high, xtol=_NOISE_TOLERANCE)
    return math.exp(log_noise + 2 * _NOISE_TOLERANCE)


def default_delta(num_clients: int) -> float:
    """The usual choice of delta, slightly below 1 / num_clients: num_clients^-1.1."""
    return num_clients**-1.1


@dataclasses.dataclass(frozen=True)
class PostProcessed(tff.aggregators.WeightedAggregationFactory):
    """An aggregation whose result is post-processed at the server, which costs no privacy."""

    inner: tff.aggregators.WeightedAggregationFactory  #: The aggregation.
    #: A TensorFlow function of a result of `inner`.
    function: Callable[[Any], Any]

    def create(self, value_type, weight_type):
        process = self.inner.create(value_type, weight_type)
        result_type = process.next.type_signature.result.result.member
        function = tff.tensorflow.computation(self.function, result_type)

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
    """The guarantee of a run with these private means, in lines for the user."""
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
    lines.append("  it does not cover " + "; ".join(NOT_COVERED))
    return lines
