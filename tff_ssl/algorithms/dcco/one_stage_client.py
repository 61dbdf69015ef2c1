"""The work of a client of DCCO with one communication; `one_stage` derives its variants."""

import collections
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms.dcco.client import encode, examples_of_round, loss_with
from tff_ssl.algorithms.dcco.earlier_statistics import Earlier, PairedStatistics
from tff_ssl.algorithms.dcco.parts import DCCOParts
from tff_ssl.losses.means import Means
from tff_ssl.templates import non_finite
from tff_ssl.templates.client_batches import clients_of
from tff_ssl.templates.micro_batches import mean_over_batch


class LocalRound(NamedTuple):
    """The values that a client sends."""

    result: Any  #: `tff.learning.templates.ClientResult` with the model delta and w_k.
    #: Encoding statistics of its examples, about the earlier means; in `paired_moments`
    #: `PairedStatistics`.
    statistics: Any
    samples: Any  #: Number of examples N_k, int64.
    #: 1 if delta or statistics are not finite, so that both weigh 0; otherwise 0; int64.
    dropped: Any


def _encode_with_both(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, earlier: Earlier, examples: Any
) -> tuple[tf.Tensor, Any]:
    """Encodes the same views of the examples with both models.

    Returns:
      Delta_k of F and of G for the client of each example, float32 [n, 2, d]; and the statistics at
      theta_(r-1), about the earlier means.
    """
    n, d = tf.shape(examples["example_id"])[0], parts.task.model.projector[-1]
    clients = clients_of(examples)
    count = tf.shape(clients.sizes)[0]

    def moves_and_statistics(batch):
        now = tf.stack(encode(parts, weights, round_number, batch), 1)
        encodings = encode(parts, earlier.weights, round_number, batch)
        moves = now - tf.stack(encodings, 1)
        total = tf.math.unsorted_segment_sum(moves, batch["segment"], count)
        total = tf.ensure_shape(total, [clients.sizes.shape[0], 2, d])  # One client's is known.
        mean = total / tf.cast(tf.shape(now)[0], tf.float32)
        return mean, parts.loss.of_batch(*encodings, earlier.means)

    (mean, before), _ = mean_over_batch(
        collections.OrderedDict(examples, segment=clients.ids),
        moves_and_statistics,
        (tf.zeros([count, 2, d]), parts.loss.zero(d)),
        parts.hyperparameters.micro_batch_size,
    )
    total = mean * tf.cast(n, tf.float32)
    return tf.gather(total / tf.reshape(clients.sizes, [-1, 1, 1]), clients.ids), before


def local_round(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, earlier: Earlier, examples: Any
) -> LocalRound:
    """The client's work in a round; `one_stage` derives what the variants compute."""
    values, d = parts.hyperparameters, parts.task.model.projector[-1]
    everything, before = examples_of_round(parts, round_number, examples), None
    if values.variant in ("paired_mean", "paired_moments"):
        moves, before = _encode_with_both(parts, weights, round_number, earlier, everything)
        everything = collections.OrderedDict(everything, moves=moves)
    is_delayed = values.variant == "delayed_gradient"
    # Before there is an earlier round, the delayed gradient is not used.
    earlier_round = tf.maximum(earlier.round_number, 0)
    if is_delayed and values.examples_per_round:
        # The earlier draw, which has as many examples of each client as this round's.
        drawn = examples_of_round(parts, earlier_round, examples)
        everything = collections.OrderedDict(everything, drawn_earlier=drawn)

    def statistics_and_gradient(batch):
        centre = None
        if before is not None:
            pairs = zip(earlier.means, tf.unstack(batch["moves"], 2, axis=1), strict=True)
            centre = Means(*(a + b for a, b in pairs))
        at, views = (earlier.weights, earlier_round) if is_delayed else (weights, round_number)
        with tf.GradientTape() as tape:
            tape.watch(at.trainable)
            encodings = encode(parts, at, views, batch.get("drawn_earlier", batch))
            value = loss_with(parts, earlier.statistics, *encodings, centre)
        gradient = tape.gradient(value, at.trainable)
        if is_delayed:
            encodings = encode(parts, weights, round_number, batch)
        return parts.loss.of_batch(*encodings, earlier.means), gradient

    zeros = (parts.loss.zero(d), tf.nest.map_structure(tf.zeros_like, weights.trainable))
    (statistics, gradient), samples = mean_over_batch(
        everything, statistics_and_gradient, zeros, values.micro_batch_size
    )
    if values.moves_moments:
        statistics = PairedStatistics(statistics, before)
    (statistics, gradient), is_finite = non_finite.zero_unless_finite((statistics, gradient))
    rate = tf.where(earlier.round_number < 0, 0.0, values.client_learning_rate)
    delta = tf.nest.map_structure(lambda g: rate * g, gradient)
    weight = values.client_weight(samples, is_finite)
    result = tff.learning.templates.ClientResult(delta, weight)
    return LocalRound(result, statistics, samples, 1 - tf.cast(is_finite, tf.int64))
