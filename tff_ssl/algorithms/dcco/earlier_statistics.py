"""The server's memory of earlier rounds in DCCO with one communication; see `one_stage`."""

from typing import Any, NamedTuple

import tensorflow as tf

from tff_ssl.algorithms.dcco.parts import DCCOParts
from tff_ssl.losses.means import Means
from tff_ssl.templates import non_finite
from tff_ssl.templates.weight_groups import where


class Earlier(NamedTuple):
    """What a client receives from earlier rounds."""

    round_number: Any  #: Number of the last round that gave statistics, int64; -1 before the first.
    statistics: Any  #: Centred statistics S.
    weights: Any  #: Weights of the model in round `round_number`; () in `stale_statistics`.

    @property
    def means(self) -> Means:
        """The means mu of F and of G, the reference of the statistics of the next round."""
        return Means(self.statistics.f, self.statistics.g)


class PairedStatistics(NamedTuple):
    """Encoding statistics of the same examples at theta_r, and before, at theta_(r-1)."""

    current: Any
    before: Any


def initial_earlier(parts: DCCOParts) -> Earlier:
    """`Earlier` before the first round."""
    zero = parts.loss.zero(parts.task.model.projector[-1])
    weights = parts.initial_weights(0) if parts.hyperparameters.pairs_models else ()
    return Earlier(tf.constant(-1, tf.int64), zero, weights)


def moving_average(
    parts: DCCOParts, round_number: tf.Tensor, earlier: Earlier, current: Any
) -> Earlier:
    """The server's moving average of the cohorts' statistics.

    All statistics are centred. The weights of the result are still the earlier ones.
    """
    hyperparameters = parts.hyperparameters
    m = tf.where(earlier.round_number < 0, 0.0, hyperparameters.statistics_momentum)
    moved = _weighted_sum(m, earlier.statistics, 1 - m, current)
    if hyperparameters.pairs_models:
        moved = moved._replace(f=current.f, g=current.g)
    is_finite, kept = _keep_finite(moved, earlier.statistics)
    number = tf.where(is_finite, round_number, earlier.round_number)
    return Earlier(number, kept, earlier.weights)


def moved_average(
    parts: DCCOParts, round_number: tf.Tensor, earlier: Earlier, average: Any,
    cohort: PairedStatistics,
) -> tuple[Any, Earlier]:  # fmt: skip
    """The average of `paired_moments`, which follows the model: (average, earlier).

    All statistics are centred. The weights of the result are still the earlier ones.
    """
    momentum = parts.hyperparameters.statistics_momentum
    current, before = cohort
    # In round 0, there is neither an earlier model nor an average.
    m = tf.where(earlier.round_number < 0, 0.0, momentum)
    share = tf.where(earlier.round_number < 0, 0.0, 1.0)
    moves = _weighted_sum(share, current, -share, before)
    moved = _weighted_sum(m, _weighted_sum(1.0, average, 1.0, moves), 1 - m, current)
    # The nearest centred second moments that encodings can have, with means of zero.
    zeros = {"f": tf.zeros_like(current.f), "g": tf.zeros_like(current.g)}
    extrapolated = _weighted_sum(1.0, moved, 1.0, moves)._replace(**zeros)
    expected = parts.loss.plausible(extrapolated)
    means = {"f": current.f, "g": current.g}
    is_finite, (moved, expected) = _keep_finite(
        (moved._replace(**means), expected._replace(**means)), (average, earlier.statistics)
    )
    number = tf.where(is_finite, round_number, earlier.round_number)
    return moved, Earlier(number, expected, earlier.weights)


def _weighted_sum(a: Any, x: Any, b: Any, y: Any) -> Any:
    """a x + b y of two structures."""
    return tf.nest.map_structure(lambda s, t: a * s + b * t, x, y)


def _keep_finite(new: Any, old: Any) -> tuple[tf.Tensor, Any]:
    """Whether the new values are finite, and these or the old ones.

    The statistics of a cohort without any finite client are NaN.
    """
    finite_values, is_finite = non_finite.zero_unless_finite(new)
    return is_finite, where(is_finite, finite_values, old)
