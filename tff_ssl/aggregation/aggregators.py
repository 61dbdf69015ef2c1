"""Robust, compressed and secure aggregators, by name.

Each entry has a `tff.aggregators` factory for DCCO's encoding statistics and one for model deltas.
They process the contributions of single clients, so clients are not folded into groups.

A contribution of zeros with weight zero is that of no client. Such contributions pad cohorts, and
stand for clients whose values are not finite. They add nothing to sums, and the bounds that adapt
to the clients' norms ignore them (`_norm_quantile`).
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_ssl.aggregation import secure_bounds  # noqa: F401
from tff_ssl.aggregation.differential_privacy import PostProcessed
from tff_ssl.errors import ConfigurationError

# Smaller tensors (biases, norms) are not quantized: they cost few bytes, and errors in them matter.
_MIN_QUANTIZED_SIZE = 256
# Largest metric of a client in a secure sum: counts have 20 bits, losses lie in +-(2^20 - 1).
_LARGEST_METRIC = 2**20 - 1
# Largest product of a client's statistics and its weight in a secure sum: 2^17 examples, squares of
# encodings up to 8. With 32 bits, the products are rounded to multiples of 2^-11.
_LARGEST_STATISTIC = 2.0**20

WeightedFactory: TypeAlias = tff.aggregators.WeightedAggregationFactory
UnweightedFactory: TypeAlias = tff.aggregators.UnweightedAggregationFactory


class Means(NamedTuple):
    """The aggregators of a round; an entry of `AGGREGATORS`."""

    #: (seed, bits) -> factory for encoding statistics; None for the plain mean.
    statistics: Callable[[int, int], WeightedFactory] | None = None
    #: (seed, bits) -> factory for model deltas; None for the plain mean.
    update: Callable[[int, int], WeightedFactory] | None = None
    #: Whether the server sees only the sums, not the contributions of single clients.
    is_secure: bool = False


def _robust_statistics(seed: int, bits: int) -> WeightedFactory:
    # No clipping: a client's means and second moments no longer fit together once scaled down.
    return _zeroing(tff.aggregators.MeanFactory())


def _robust_update(seed: int, bits: int) -> WeightedFactory:
    clip = _norm_quantile(1.0, 0.8, 0.2)
    return _zeroing(tff.aggregators.clipping_factory(clip, tff.aggregators.MeanFactory()))


def _zeroing(inner: WeightedFactory) -> WeightedFactory:
    """Zeroes contributions with entries far above those of most clients.

    The settings are those of `tff.learning.robust_aggregator`, here and in `_robust_update`.
    """
    bound = _norm_quantile(10.0, 0.98, math.log(10.0)).map(_affine(2.0, 1.0))
    return tff.aggregators.zeroing_factory(bound, inner)


def _secure_statistics(seed: int, bits: int) -> WeightedFactory:
    # The bound does not adapt, because clipped means and second moments give negative variances.
    return _secure_mean(tff.aggregators.SecureSumFactory(_LARGEST_STATISTIC))


def _secure_update(seed: int, bits: int) -> WeightedFactory:
    """The settings are those of `tff.learning.secure_aggregator`."""
    # The records of a quantile are counts of -1/2 to 1.
    bound = _norm_quantile(50.0, 0.95, 1.0, tff.aggregators.SecureSumFactory(1.0))
    return _secure_mean(tff.aggregators.SecureSumFactory(bound.map(_affine(2.0, 0.0))))


def _secure_mean(value_sum: UnweightedFactory) -> WeightedFactory:
    weight_sum = tff.aggregators.SecureSumFactory(float(_LARGEST_METRIC), 0.0)
    return tff.aggregators.MeanFactory(value_sum, weight_sum)


def _norm_quantile(
    initial: float, quantile: float, learning_rate: float, counts: UnweightedFactory | None = None
) -> tff.aggregators.PrivateQuantileEstimationProcess:
    """A quantile of the norms of contributions, which adapts without noise (Andrew et al. 2021)."""
    query = _QuantileOfClients(initial, quantile, learning_rate, geometric_update=True)
    return tff.aggregators.PrivateQuantileEstimationProcess(query, counts)


class _QuantileOfClients(tfp.NoPrivacyQuantileEstimatorQuery):
    """A quantile of positive norms; a norm of zero is that of no client."""

    def preprocess_record(self, params, record):
        counts = super().preprocess_record(params, record)
        return tf.nest.map_structure(lambda t: tf.where(record > 0, t, 0.0), counts)

    def get_noised_result(self, sample_state, global_state):
        estimate, state, event = super().get_noised_result(sample_state, global_state)
        # Without clients, the share below the estimate is 0 / 0.
        _, clients = sample_state
        estimate = tf.where(clients > 0, estimate, global_state.current_estimate)
        return estimate, state._replace(current_estimate=estimate), event


def _affine(factor: float, summand: float) -> tff.Computation:
    """(x@SERVER) -> factor * x + summand @SERVER."""
    function = tff.tensorflow.computation(lambda x: factor * x + summand, np.float32)
    return tff.federated_computation(
        lambda x: tff.federated_map(function, x), tff.types.FederatedType(np.float32, tff.SERVER)
    )


def _quantized_sum(bits: int) -> UnweightedFactory:
    # Rounds to the nearest step: TFF's random rounding has no seed, so runs could not be repeated.
    return tff.aggregators.EncodedSumFactory.quantize_above_threshold(
        bits, _MIN_QUANTIZED_SIZE - 1, stochastic=False
    )


def _quantized(seed: int, bits: int) -> WeightedFactory:
    return tff.aggregators.MeanFactory(_quantized_sum(bits))


def _rotated(seed: int, bits: int) -> WeightedFactory:
    # The Fourier rotation pads least: the Hadamard rotation sends up to twice as many numbers.
    rotation = tff.aggregators.DiscreteFourierTransformFactory(_quantized_sum(bits))
    return tff.aggregators.MeanFactory(_SeededRotation(rotation, seed))


# The keys are the values of `--aggregator`.
AGGREGATORS = {
    "mean": Means(),
    "robust": Means(_robust_statistics, _robust_update),
    "secure": Means(_secure_statistics, _secure_update, is_secure=True),
    "quantized": Means(_quantized, _quantized),
    "rotated": Means(_rotated, _rotated),
}


def secure_metric_sum(value: tff.Value) -> tff.Value:
    """A secure `tff.federated_sum` for metrics: the server sees only the sum.

    An int64 metric of a client is clipped to 0 to 2^20 - 1, a float to -(2^20 - 1) to 2^20 - 1.
    """
    member = value.type_signature.member
    if member.dtype.type is np.int64:
        factory = tff.aggregators.SecureSumFactory(_LARGEST_METRIC, 0)
    else:
        factory = tff.aggregators.SecureSumFactory(float(_LARGEST_METRIC), -float(_LARGEST_METRIC))
    process = factory.create(member)
    return process.next(process.initialize(), value).result


class _SeededRotation(UnweightedFactory):
    """A rotation with a given seed; TFF's own is seeded with the time of day."""

    def __init__(self, rotation: UnweightedFactory, seed: int):
        self._rotation = rotation
        self._seed = seed

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        process = self._rotation.create(value_type)
        seed_type = process.initialize.type_signature.result.member[1]

        @tff.tensorflow.computation
        def fixed_seed():
            return tf.fill(seed_type.shape, tf.constant(self._seed, seed_type.dtype.type))

        @tff.federated_computation
        def initialize():
            inner, _ = process.initialize()
            return tff.federated_zip((inner, tff.federated_eval(fixed_seed, tff.SERVER)))

        return tff.templates.AggregationProcess(initialize, process.next)


class SymmetricHalf(WeightedFactory):
    """Sends only the triangle of the symmetric part of each square matrix of encoding statistics.

    The aggregated mean has (C + C^T) / 2 in place of <F G^T> = C. Both views of an image come from
    one distribution, so C and C^T have the same distribution: their mean is an estimate from twice
    as many pairs, each pair in both orders. The gradient of the loss is that of the loss with pairs
    in both orders, since dC is multiplied with the symmetric part in both cases.
    """

    def __init__(self, inner: WeightedFactory):
        """Wraps the aggregation of the triangles and of the tensors that are not square."""
        self._inner = inner

    def create(
        self, value_type: tff.Type, weight_type: tff.Type
    ) -> tff.templates.AggregationProcess:
        """The process; a ConfigurationError if the value has no square matrix."""
        specs = tff.types.type_to_tf_tensor_specs(value_type)
        flat_specs = tf.nest.flatten(specs)
        if not any(map(_is_square, flat_specs)):
            raise ConfigurationError("--symmetric_statistics: there is no matrix to halve")

        @tff.tensorflow.computation(value_type)
        def to_triangles(value):
            pairs = zip(tf.nest.flatten(value), flat_specs, strict=True)
            return tuple(_triangle(t) if _is_square(spec) else t for t, spec in pairs)

        def to_matrices(triangles):
            pairs = zip(tf.nest.flatten(triangles), flat_specs, strict=True)
            flat = [_from_triangle(t, s.shape[0]) if _is_square(s) else t for t, s in pairs]
            return tf.nest.pack_sequence_as(specs, flat)

        process = PostProcessed(self._inner, to_matrices).create(
            to_triangles.type_signature.result, weight_type
        )

        @tff.federated_computation(
            process.initialize.type_signature.result,
            tff.types.FederatedType(value_type, tff.CLIENTS),
            tff.types.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state, value, weight):
            return process.next(state, tff.federated_map(to_triangles, value), weight)

        return tff.templates.AggregationProcess(process.initialize, next_fn)


def _is_square(spec: tf.TensorSpec) -> bool:
    return spec.shape.rank == 2 and spec.shape[0] == spec.shape[1]


def _triangle(matrix: tf.Tensor) -> tf.Tensor:
    """The upper triangle of (C + C^T) / 2, row by row: float32 [d (d + 1) / 2]."""
    rows, columns = np.triu_indices(matrix.shape[0])
    symmetric = (matrix + tf.transpose(matrix)) / 2
    return tf.gather_nd(symmetric, np.stack([rows, columns], 1))


def _from_triangle(values: tf.Tensor, d: int) -> tf.Tensor:
    """The symmetric matrix [d, d] with the upper triangle `values`."""
    position = np.zeros([d, d], np.int32)
    position[np.triu_indices(d)] = np.arange(d * (d + 1) // 2)
    position = np.maximum(position, position.T)
    return tf.gather(values, position)
