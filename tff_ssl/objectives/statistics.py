"""The losses of DCCO, which depend on a batch only through averages over its examples."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tff_ssl.losses import cco, vicreg
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters


class StatisticsLoss(NamedTuple):
    """A loss of encoding statistics, in two parts.

    Attributes:
      zero: Dimension d -> statistics of zero, a NamedTuple of float32 tensors.
      of_batch: (f, g), encodings of two views, float32 [n, d] each -> their statistics, which are
        averages over n.
      of_moved_batch: (f, g, f_shift, g_shift), float32 [n, d] each -> statistics whose gradients
        matter and whose values do not. Combined with aggregated statistics S, they give the loss
        the gradient that `of_batch` gives it where the means of S are moved by the shifts. The
        shifts may differ between examples.
      centred: Statistics -> the same with second moments about the means `f` and `g`.
      uncentred: Inverse of `centred`.
      terms: (statistics, hyperparameters) -> a NamedTuple of float32 scalars, `loss` among them.
      encoding_std: Statistics -> mean over the dimensions of the standard deviation of F, float32.
      plausible: Statistics to which noise was added -> similar statistics that encodings can have.
    """

    zero: Callable[[int], Any]
    of_batch: Callable[[tf.Tensor, tf.Tensor], Any]
    of_moved_batch: Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], Any]
    centred: Callable[[Any], Any]
    uncentred: Callable[[Any], Any]
    terms: Callable[[Any, ObjectiveHyperparameters], Any]
    encoding_std: Callable[[Any], tf.Tensor]
    plausible: Callable[[Any], Any]


STATISTICS_LOSSES = {
    "cco": StatisticsLoss(
        cco.zero_statistics,
        cco.encoding_statistics,
        cco.moved_encoding_statistics,
        cco.centred,
        cco.uncentred,
        lambda statistics, h: cco.cco_from_statistics(statistics, h.lambda_),
        cco.encoding_std,
        cco.plausible,
    ),
    "vicreg": StatisticsLoss(
        vicreg.zero_statistics,
        vicreg.encoding_statistics,
        vicreg.moved_encoding_statistics,
        vicreg.centred,
        vicreg.uncentred,
        lambda statistics, h: vicreg.vicreg_from_statistics(statistics, h.vicreg_weights),
        vicreg.encoding_std,
        # Noise needs no correction: nothing is divided by a variance, and its root is guarded.
        lambda statistics: statistics,
    ),
}


def combined_statistics(local: Any, aggregated: Any) -> Any:
    """DCCO's <.>_C = <.>_k + sg(<.>_A - <.>_k): aggregated values, local gradients."""
    return tf.nest.map_structure(lambda k, a: k + tf.stop_gradient(a - k), local, aggregated)


def with_means_moved(loss: StatisticsLoss, statistics: Any, before: Any, after: Any) -> Any:
    """Statistics whose means move from those of `before` to those of `after`, without a gradient.

    The second moments about the means stay. All arguments but the loss are statistics with second
    moments about the origin, and so is the result.
    """
    centred = loss.centred(statistics)
    f, g = centred.f + after.f - before.f, centred.g + after.g - before.g
    return tf.nest.map_structure(tf.stop_gradient, loss.uncentred(centred._replace(f=f, g=g)))
