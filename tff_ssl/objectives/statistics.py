"""The losses of DCCO, which depend on a batch only through averages over its examples."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tff_ssl.losses import cco, means, spectral, vicreg
from tff_ssl.losses.means import Means
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters


class StatisticsLoss(NamedTuple):
    """A loss of encoding statistics."""

    #: Dimension d -> statistics of zero, a NamedTuple of float32 tensors.
    zero: Callable[[int], Any]
    #: (f, g, reference), encodings of two views, float32 [n, d] each, and `Means` -> their
    #: statistics about the reference, averages over n.
    of_batch: Callable[[tf.Tensor, tf.Tensor, Means], Any]
    #: (statistics about a reference, the reference) -> centred statistics: the same structure with
    #: the means of the encodings in `f` and `g`, and second moments about them.
    centred: Callable[[Any, Means], Any]
    #: (centred statistics, hyperparameters) -> a NamedTuple of float32 scalars with `loss`; it does
    #: not depend on `f` and `g`.
    terms: Callable[[Any, ObjectiveHyperparameters], Any]
    #: Centred statistics -> mean over the dimensions of F's standard deviation.
    encoding_std: Callable[[Any], tf.Tensor]
    #: Noisy statistics about a reference -> similar ones that encodings can have.
    plausible: Callable[[Any], Any]
    #: (projections z, float32 [n, d]; hyperparameters) -> the encodings whose statistics the loss
    #: takes, of the same shape.
    prepared: Callable[[tf.Tensor, ObjectiveHyperparameters], tf.Tensor] = lambda z, h: z


STATISTICS_LOSSES = {
    "cco": StatisticsLoss(
        cco.zero_statistics, cco.encoding_statistics, cco.centred,
        lambda statistics, h: cco.cco_from_statistics(statistics, h.lambda_),
        cco.encoding_std, cco.plausible,
    ),
    "vicreg": StatisticsLoss(
        vicreg.zero_statistics, vicreg.encoding_statistics, vicreg.centred,
        lambda statistics, h: vicreg.vicreg_from_statistics(statistics, h.vicreg_weights),
        # Noise needs no correction: nothing is divided by a variance, and its root is guarded.
        vicreg.encoding_std, lambda statistics: statistics,
    ),
    "spectral": StatisticsLoss(
        spectral.zero_statistics, spectral.encoding_statistics, spectral.centred,
        lambda statistics, h: spectral.spectral_from_statistics(statistics),
        # Noise needs no correction: the loss is linear in what others contribute.
        spectral.encoding_std, lambda statistics: statistics,
        lambda z, h: spectral.in_ball(z, h.squared_radius),
    ),
}  # fmt: skip


def statistics_of_batch(loss: StatisticsLoss, f: tf.Tensor, g: tf.Tensor) -> Any:
    """Centred statistics of one batch by itself, encodings float32 [n, d] each."""
    reference = means.of_batch(f, g)
    return loss.centred(loss.of_batch(f, g, reference), reference)


def plausible_of_each(loss: StatisticsLoss, statistics: Any) -> Any:
    """`StatisticsLoss.plausible` of statistics, or of each in a (nested) NamedTuple of them."""
    if isinstance(statistics, type(loss.zero(2))):
        return loss.plausible(statistics)
    return type(statistics)(*(plausible_of_each(loss, each) for each in statistics))


def combined_statistics(
    loss: StatisticsLoss, f: tf.Tensor, g: tf.Tensor, aggregated: Any, centre: Means | None = None
) -> Any:
    """DCCO's <.>_C = <.>_k + sg(<.>_A - <.>_k): aggregated values, local gradients.

    The derivative of the aggregated variance <F^2>_A - <F>_A^2 through the values of client k is

      2 <F dF>_k - 2 <F>_A <dF>_k = 2 <(F - <F>_A) dF>_k,

    that of the client's second moment about the aggregated mean; likewise for covariances. So the
    client's statistics, of encodings f and g, float32 [n, d], are taken about the aggregated means
    (or about `centre`, if the model has moved since). The result is centred, as
    `StatisticsLoss.terms` takes it.
    """
    centre = centre or Means(aggregated.f, aggregated.g)
    local = loss.of_batch(f, g, Means(*map(tf.stop_gradient, centre)))
    return tf.nest.map_structure(lambda k, a: k + tf.stop_gradient(a - k), local, aggregated)
