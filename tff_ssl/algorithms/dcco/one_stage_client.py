"""The work of a client of DCCO with one communication; `one_stage` derives its variants."""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco.client import encode, examples_of_round, loss_with
from tff_ssl.algorithms.dcco.earlier_statistics import Earlier, PairedStatistics
from tff_ssl.algorithms.dcco.parts import DCCOParts
from tff_ssl.losses import segments as segments_lib
from tff_ssl.losses.means import Means
from tff_ssl.templates import non_finite
from tff_ssl.templates.micro_batches import mean_over_batch


class LocalRound(NamedTuple):
    """The values that a client sends.

    Attributes:
      result: `tff.learning.templates.ClientResult` with the model delta and w_k.
      statistics: Encoding statistics of its examples, about the earlier means; in `paired_moments`
        a `PairedStatistics` of them.
      samples: Number of examples N_k, int64.
      dropped: 1 where delta or statistics are not finite, so that both weigh 0; else 0; int64.
    """

    result: Any
    statistics: Any
    samples: Any
    dropped: Any


class _Paired(NamedTuple):
    """What a client computes from the encodings of its examples with both models.

    Attributes:
      moves: Delta_k of F and of G for the client of each example, float32 [n, 2, d].
      before: Statistics at theta_(r-1), about the earlier means.
    """

    moves: tf.Tensor
    before: Any


def _encode_with_both(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, earlier: Earlier, examples: Any
) -> _Paired:
    """Encodes the same views of the examples with both models."""
    n = tf.shape(examples["example_id"])[0]
    clients = (
        segments_lib.by_client(examples["client"]) if "client" in examples else segments_lib.one(n)
    )
    d = parts.task.model.projector[-1]

    def moves_and_statistics(batch):
        now = tf.stack(encode(parts, weights, round_number, batch), 1)
        encodings = encode(parts, earlier.weights, round_number, batch)
        count = tf.shape(clients.sizes)[0]
        moves = now - tf.stack(encodings, 1)
        total = tf.math.unsorted_segment_sum(moves, batch["segment"], count)
        mean = total / tf.cast(tf.shape(now)[0], tf.float32)
        return mean, parts.loss.of_batch(*encodings, earlier.means)

    with_segments = collections.OrderedDict(examples, segment=clients.ids)
    (mean, before), _ = mean_over_batch(
        with_segments,
        moves_and_statistics,
        (tf.zeros([tf.shape(clients.sizes)[0], 2, d]), parts.loss.zero(d)),
        parts.hyperparameters.micro_batch_size,
    )
    total = mean * tf.cast(n, tf.float32)
    moves = tf.gather(total / tf.reshape(clients.sizes, [-1, 1, 1]), clients.ids)
    return _Paired(moves, before)


class _ClientWork(NamedTuple):
    """What a client computes in a round, as a mean over micro-batches.

    Attributes:
      examples: Its examples, a struct of tensors [n, ...].
      statistics_and_gradient: Batch of them -> statistics about the earlier means, and gradients.
      before: Statistics at the earlier model; None in variants that do not encode with both.
    """

    examples: Any
    statistics_and_gradient: Callable[[Any], Any]
    before: Any = None


def _stale_statistics(parts: DCCOParts, weights, round_number, earlier: Earlier, examples):
    """The statistics and the gradient with a fixed centre; see `one_stage`."""

    def statistics_and_gradient(batch):
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            encodings = encode(parts, weights, round_number, batch)
            value = loss_with(parts, earlier.statistics, *encodings)
        statistics = parts.loss.of_batch(*encodings, earlier.means)
        return statistics, tape.gradient(value, weights.trainable)

    return _ClientWork(examples, statistics_and_gradient)


def _paired(parts: DCCOParts, weights, round_number, earlier: Earlier, examples):
    """The statistics and the gradient with a centre that follows the model; see `one_stage`."""
    paired = _encode_with_both(parts, weights, round_number, earlier, examples)

    def statistics_and_gradient(batch):
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            encodings = encode(parts, weights, round_number, batch)
            moves = tf.unstack(batch["moves"], 2, axis=1)
            centre = Means(*(a + b for a, b in zip(earlier.means, moves, strict=True)))
            value = loss_with(parts, earlier.statistics, *encodings, centre)
        statistics = parts.loss.of_batch(*encodings, earlier.means)
        return statistics, tape.gradient(value, weights.trainable)

    with_moves = collections.OrderedDict(examples, moves=paired.moves)
    return _ClientWork(with_moves, statistics_and_gradient, paired.before)


def _delayed_gradient(parts: DCCOParts, weights, round_number, earlier: Earlier, examples):
    """The statistics of this round and the gradient of the earlier one; see `one_stage`."""
    # Before there is an earlier round, the gradient is not used.
    earlier_round = tf.maximum(earlier.round_number, 0)

    def statistics_and_gradient(batch):
        with tf.GradientTape() as tape:
            tape.watch(earlier.weights.trainable)
            encodings = encode(parts, earlier.weights, earlier_round, batch)
            value = loss_with(parts, earlier.statistics, *encodings)
        current = encode(parts, weights, round_number, batch)
        statistics = parts.loss.of_batch(*current, earlier.means)
        return statistics, tape.gradient(value, earlier.weights.trainable)

    return _ClientWork(examples, statistics_and_gradient)


_CLIENT_WORK: dict[str, Callable[..., _ClientWork]] = {
    "stale_statistics": _stale_statistics,
    "paired_mean": _paired,
    "delayed_gradient": _delayed_gradient,
    "paired_moments": _paired,
}


def build_local_round(parts: DCCOParts, earlier_type: tff.Type) -> tff.Computation:
    """Builds the client's work: (weights, round number, earlier, examples) -> `LocalRound`."""
    hyperparameters = parts.hyperparameters
    work = _CLIENT_WORK[hyperparameters.variant]
    d = parts.task.model.projector[-1]

    @tff.tensorflow.computation(parts.weights_type, np.int64, earlier_type, parts.examples_type)
    @tf.function(autograph=False)
    def local_round(weights, round_number, earlier, examples):
        everything, statistics_and_gradient, before = work(
            parts, weights, round_number, earlier, examples_of_round(parts, round_number, examples)
        )
        zeros = (parts.loss.zero(d), tf.nest.map_structure(tf.zeros_like, weights.trainable))
        (statistics, gradient), samples = mean_over_batch(
            everything, statistics_and_gradient, zeros, hyperparameters.micro_batch_size
        )
        if hyperparameters.moves_moments:
            statistics = PairedStatistics(statistics, before)
        (statistics, gradient), is_finite = non_finite.zero_unless_finite((statistics, gradient))
        rate = tf.where(earlier.round_number < 0, 0.0, hyperparameters.client_learning_rate)
        delta = tf.nest.map_structure(lambda g: rate * g, gradient)
        weight = hyperparameters.client_weight(samples, is_finite)
        return LocalRound(
            tff.learning.templates.ClientResult(delta, weight),
            statistics,
            samples,
            1 - tf.cast(is_finite, tf.int64),
        )

    return local_round
