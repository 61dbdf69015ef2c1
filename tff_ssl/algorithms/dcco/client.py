"""The work of a client of DCCO in the two stages of a round; see `two_stage`."""

from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.algorithms.dcco.parts import DCCOParts
from tff_ssl.losses import means
from tff_ssl.losses.means import Means
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.objectives.registry import Evaluated, Objective
from tff_ssl.objectives.statistics import combined_statistics
from tff_ssl.templates import group_training, local_training, non_finite
from tff_ssl.templates.client_batches import drawn_in_round
from tff_ssl.templates.micro_batches import mean_over_batch, read_all


class LocalStatistics(NamedTuple):
    """What a client sends in stage 1: its encoding statistics about the round's reference, and w_k.

    The weight w_k, float32, is 0 if the statistics are not finite.
    """

    statistics: Any
    weight: Any


class LocalUpdate(NamedTuple):
    """The values that a client sends in the second stage."""

    #: `tff.learning.templates.ClientResult` with the model delta times w_k over the mean weight,
    #: and weight 1; zeros if the delta is not finite.
    result: Any
    samples: Any  #: Number of examples N_k, int64.
    dropped: Any  #: 1 if the delta is not finite, otherwise 0; int64.


def examples_of_round(parts: DCCOParts, round_number: tf.Tensor, examples: tf.data.Dataset) -> Any:
    """The examples of a round of one step, a struct of tensors [n, ...]."""
    everything, count = read_all(examples), parts.hyperparameters.examples_per_round
    return drawn_in_round(everything, count, round_number, parts.task.seed) if count else everything


def encode(
    parts: DCCOParts, weights: Any, view_round: tf.Tensor, batch: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Encodings of the two views of a batch in a round, float32 [n, d] each."""
    x1, x2 = parts.task.two_views(batch["image"], batch["example_id"], view_round)
    return prepared(parts, parts.task.model.apply_pair(weights, x1, x2, training=True))


def prepared(parts: DCCOParts, pair: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """The encodings of two views that enter the statistics, float32 [n, d] each."""
    first, second = (parts.loss.prepared(each.z, parts.hyperparameters) for each in pair)
    return first, second


def first_reference(parts: DCCOParts, weights: Any) -> Means:
    """The reference of the first round: the encodings of a grey image by its weights.

    It takes away what all encodings share, such as a bias, which may be far larger than their
    deviation. Moments about the origin would then lose the digits of float32.
    """
    grey = tf.zeros([1, *parts.task.model.image_shape])  # Images are scaled to -1 to 1.
    return means.of_batch(
        *prepared(parts, parts.task.model.apply_pair(weights, grey, grey, training=True))
    )


def loss_with(
    parts: DCCOParts, aggregated: Any, f: tf.Tensor, g: tf.Tensor, centre: Means | None = None
) -> tf.Tensor:
    """The loss of aggregated statistics (`combined_statistics`), with local gradients only."""
    combined = combined_statistics(parts.loss, f, g, aggregated, centre)
    return parts.loss.terms(combined, parts.hyperparameters).loss


def local_statistics(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, reference: Means, examples: Any
) -> LocalStatistics:
    """Stage 1 of a client."""
    values = parts.hyperparameters
    # The views of the first local step: both stages must see the same views.
    view_round = round_number * values.local_steps

    def statistics_of(batch):
        return parts.loss.of_batch(*encode(parts, weights, view_round, batch), reference)

    drawn = examples_of_round(parts, round_number, examples)
    zero = parts.loss.zero(parts.task.model.projector[-1])
    mean, samples = mean_over_batch(drawn, statistics_of, zero, values.micro_batch_size)
    statistics, is_finite = non_finite.zero_unless_finite(mean)
    return LocalStatistics(statistics, values.client_weight(samples, is_finite))


def _one_step(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, aggregated: Any, examples: Any
) -> tuple[Any, tf.Tensor]:
    """The model delta of one step on all examples, in micro-batches; and the number of examples."""
    values = parts.hyperparameters

    def gradient(batch):
        with tf.GradientTape() as tape:
            tape.watch(weights.trainable)
            value = loss_with(parts, aggregated, *encode(parts, weights, round_number, batch))
        return tape.gradient(value, weights.trainable)

    zeros = tf.nest.map_structure(tf.zeros_like, weights.trainable)
    drawn = examples_of_round(parts, round_number, examples)
    mean, samples = mean_over_batch(drawn, gradient, zeros, values.micro_batch_size)
    # TFF's convention: initial minus final weights, which the server takes as a gradient.
    return tf.nest.map_structure(lambda g: values.client_learning_rate * g, mean), samples


def _many_steps(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, aggregated: Any, examples: Any
) -> tuple[Any, tf.Tensor]:
    """The model delta of several local steps; and the number of examples."""
    values = parts.hyperparameters

    def evaluate(model, weights, target, batch, hyperparameters):
        first, second = model.apply_pair(weights, batch.x1, batch.x2, training=True)
        centre, (f, g) = Means(aggregated.f, aggregated.g), prepared(parts, (first, second))
        if values.means_follow:
            # The target network's place holds the broadcast model.
            before = model.apply_pair(target, batch.x1, batch.x2, training=True)
            f_before, g_before = prepared(parts, before)
            moves = means.of_batch(f - f_before, g - g_before)
            centre = Means(centre.f + moves.f, centre.g + moves.g)
        losses = tf.fill(tf.shape(f)[:1], loss_with(parts, aggregated, f, g, centre))
        return Evaluated.of_pair(losses, first, second)

    training = local_training.LocalTraining(
        parts.task.model,
        Objective("CCO of aggregated statistics", evaluate),
        values,
        parts.task.two_views,
        optimizers.build_optimizer(
            "sgd", values.client_learning_rate, 0.0, xla=parts.task.model.xla
        ),
        local_steps=values.local_steps,
        batch_size=values.batch_size,
        seed=parts.task.seed,
    )
    broadcast = weights if values.means_follow else Weights((), ())
    trained = group_training.many_steps(training, weights, broadcast, round_number, examples)
    return trained.means.delta, trained.samples


def scaled_update(delta: Any, scale: tf.Tensor, samples: tf.Tensor) -> LocalUpdate:
    """What a client sends for a model delta times `scale`, its part of the mean over clients."""
    scaled = tf.nest.map_structure(lambda t: scale * t, delta)
    delta, is_finite = non_finite.zero_unless_finite(scaled)
    result = tff.learning.templates.ClientResult(delta, tf.cast(is_finite, tf.float32))
    return LocalUpdate(result, samples, 1 - tf.cast(is_finite, tf.int64))


def local_update(
    parts: DCCOParts, weights: Any, round_number: tf.Tensor, aggregated: Any,
    mean_weight: tf.Tensor, examples: Any,
) -> LocalUpdate:  # fmt: skip
    """Stage 2 of a client, with the cohort's statistics and the mean of the weights w_k."""
    values = parts.hyperparameters
    # One step on all examples needs no copy of the weights, and can use micro-batches.
    train = _one_step if values.is_one_step else _many_steps
    delta, samples = train(parts, weights, round_number, aggregated, examples)
    return scaled_update(delta, values.client_weight(samples, True) / mean_weight, samples)
