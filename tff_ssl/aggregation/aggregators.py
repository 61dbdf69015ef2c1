"""Other means than the plain one, by name: for faulty clients, for few bytes, for secret summands.

Each is a pair of `tff.aggregators` factories, for DCCO's encoding statistics and for model deltas.
They all look at single clients, so clients are not folded into groups.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.errors import ConfigurationError

# Smaller tensors (biases, norms) are sent as they are: they cost little, and matter.
_QUANTIZED_FROM = 256
# Largest sum over clients of a metric in a secure sum; counts have 20 bits, losses 2^20 either way.
_METRIC_BITS = 20
LARGEST_METRIC = 2**_METRIC_BITS - 1


class Means(NamedTuple):
    """How a round's contributions are averaged.

    Attributes:
      statistics: (seed, bits) -> factory for encoding statistics; None for the plain mean.
      update: (seed, bits) -> factory for model deltas; None for the plain mean.
      is_secure: Whether sums are such that the server sees nothing but them.
    """

    statistics: Callable[[int, int], tff.aggregators.WeightedAggregationFactory] | None = None
    update: Callable[[int, int], tff.aggregators.WeightedAggregationFactory] | None = None
    is_secure: bool = False


def _robust_statistics(seed: int, bits: int) -> tff.aggregators.WeightedAggregationFactory:
    # Not clipped: scaled down, means and second moments no longer fit together.
    return tff.learning.robust_aggregator(clipping=False)


def _robust_update(seed: int, bits: int) -> tff.aggregators.WeightedAggregationFactory:
    return tff.learning.robust_aggregator()


def _secure(seed: int, bits: int) -> tff.aggregators.WeightedAggregationFactory:
    return tff.learning.secure_aggregator(zeroing=False, clipping=False)


def _quantized_sum(bits: int) -> tff.aggregators.UnweightedAggregationFactory:
    # Rounded to the nearest: TFF's random rounding has no seed, and runs could not be repeated.
    return tff.aggregators.EncodedSumFactory.quantize_above_threshold(
        bits, _QUANTIZED_FROM - 1, stochastic=False
    )


def _quantized(seed: int, bits: int) -> tff.aggregators.WeightedAggregationFactory:
    return tff.aggregators.MeanFactory(_quantized_sum(bits))


def _rotated(seed: int, bits: int) -> tff.aggregators.WeightedAggregationFactory:
    # Of TFF's rotations the one that pads least: Hadamard's sends up to twice as many numbers.
    rotation = tff.aggregators.DiscreteFourierTransformFactory(_quantized_sum(bits))
    return tff.aggregators.MeanFactory(_SeededRotation(rotation, seed))


# By the names of `--aggregator`.
AGGREGATORS = {
    "mean": Means(),
    "robust": Means(_robust_statistics, _robust_update),
    "secure": Means(_secure, _secure, is_secure=True),
    "quantized": Means(_quantized, _quantized),
    "rotated": Means(_rotated, _rotated),
}


def secure_metric_sum(value: tff.Value) -> tff.Value:
    """`tff.federated_sum` that lets the server see nothing but the sum, for metrics."""
    member = value.type_signature.member
    if member.dtype.type is np.int64:
        factory = tff.aggregators.SecureSumFactory(LARGEST_METRIC, 0)
    else:
        factory = tff.aggregators.SecureSumFactory(float(LARGEST_METRIC), -float(LARGEST_METRIC))
    process = factory.create(member)
    return process.next(process.initialize(), value).result


class _SeededRotation(tff.aggregators.UnweightedAggregationFactory):
    """A rotation whose seed is given; TFF's own takes the time of day."""

    def __init__(self, rotation: tff.aggregators.UnweightedAggregationFactory, seed: int):
        self._rotation = rotation
        self._seed = seed

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        process = self._rotation.create(value_type)
        seed_type = process.initialize.type_signature.result.member[1]
        seed = self._seed

        @tff.tensorflow.computation
        def fixed_seed():
            return tf.fill(seed_type.shape, tf.constant(seed, seed_type.dtype.type))

        @tff.federated_computation
        def initialize():
            inner, _ = process.initialize()
            return tff.federated_zip((inner, tff.federated_eval(fixed_seed, tff.SERVER)))

        return tff.templates.AggregationProcess(initialize, process.next)


class SymmetricHalf(tff.aggregators.WeightedAggregationFactory):
    """Sends half of each square matrix of encoding statistics: the symmetric part's triangle.

    The mean that comes out has (C + C^T) / 2 in the place of <F G^T> = C. As both views of an image
    come from one distribution, so do C and C^T: their mean is an estimate from twice as many pairs,
    each pair in both orders. The gradient of the loss is that of the loss with pairs in both
    orders, since dC is multiplied with the symmetric part either way.
    """

    def __init__(self, inner: tff.aggregators.WeightedAggregationFactory):
        """`inner` gets the triangles."""
        self._inner = inner

    def create(
        self, value_type: tff.Type, weight_type: tff.Type
    ) -> tff.templates.AggregationProcess:
        """As of any factory; square matrices become their halves on the way.

        Raises:
          ConfigurationError: If there is no square matrix.
        """
        specs = tff.types.type_to_tf_tensor_specs(value_type)
        squares = [_is_square(spec) for spec in tf.nest.flatten(specs)]
        if not any(squares):
            raise ConfigurationError("--symmetric_statistics: there is no matrix to halve")

        @tff.tensorflow.computation(value_type)
        def halved(value):
            flat = tf.nest.flatten(value)
            pairs = zip(flat, squares, strict=True)
            return tuple(_triangle(t) if square else t for t, square in pairs)

        process = self._inner.create(halved.type_signature.result, weight_type)

        @tff.tensorflow.computation(process.next.type_signature.result.result.member)
        def whole(halves):
            pairs = zip(tf.nest.flatten(halves), squares, tf.nest.flatten(specs), strict=True)
            flat = [_from_triangle(t, spec.shape[0]) if sq else t for t, sq, spec in pairs]
            return tf.nest.pack_sequence_as(specs, flat)

        @tff.federated_computation(
            process.initialize.type_signature.result,
            tff.types.FederatedType(value_type, tff.CLIENTS),
            tff.types.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state, value, weight):
            output = process.next(state, tff.federated_map(halved, value), weight)
            return tff.templates.MeasuredProcessOutput(
                output.state, tff.federated_map(whole, output.result), output.measurements
            )

        return tff.templates.AggregationProcess(process.initialize, next_fn)


def _is_square(spec: tf.TensorSpec) -> bool:
    return spec.shape.rank == 2 and spec.shape[0] == spec.shape[1]


def _triangle(matrix: tf.Tensor) -> tf.Tensor:
    """The upper triangle of (C + C^T) / 2, row by row: float32 [d (d + 1) / 2]."""
    rows, columns = np.triu_indices(matrix.shape[0])
    symmetric = (matrix + tf.transpose(matrix)) / 2
    return tf.gather_nd(symmetric, np.stack([rows, columns], 1))


def _from_triangle(values: tf.Tensor, d: int) -> tf.Tensor:
    """The symmetric matrix [d, d] whose `_triangle` it is."""
    position = np.zeros([d, d], np.int32)
    position[np.triu_indices(d)] = np.arange(d * (d + 1) // 2)
    position = np.maximum(position, position.T)
    return tf.gather(values, position)
