"""Staleness-aware model aggregation of DeNAV's parallel training (Algorithm 2).

A client that receives a model averages it with its copies of other models whose numbers of steps
differ by at most a bound.

Choices: psi^Volume is the number of examples that a model has been trained on, summed over its
steps (the paper only says that the log contains it). It enters the SoftMax unscaled, as printed:
with hundreds of examples, nearly all weight is on one model; the last SoftMax, of products in
[0, 1], brings the weights back to within a factor of e. In Table 5's other rows, average weights
are 1 / n, and "only data volume weights" omit w^Stale from the products.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tff_ssl.algorithms.denav.state_log import StateLog

WEIGHTINGS = ("staleness", "volume", "average")


def eligible(received: StateLog, local: StateLog, staleness_bound: int) -> bool:
    """Whether a copy, at most lambda steps away and of another model, is averaged (line 3)."""
    return (
        local.model_id != received.model_id and abs(local.steps - received.steps) <= staleness_bound
    )


def _softmax(values: Sequence[float] | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = np.exp(np.asarray(values, np.float64) - max(values))
    return shifted / shifted.sum()


def aggregation_weights(
    logs: Sequence[StateLog], weighting: str = "staleness"
) -> npt.NDArray[np.float64]:
    """Lines 7 to 11: the weights of the models that are averaged, which sum to 1.

    The logs are those of the received model and of the eligible copies. The weighting is
    `staleness` (Algorithm 2) or a row of Table 5, `volume` or `average`; others are a ValueError.
    """
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting must be one of {', '.join(WEIGHTINGS)}; got {weighting!r}")
    if weighting == "average":
        return np.full(len(logs), 1 / len(logs))
    weights = _softmax([log.volume for log in logs])
    if weighting == "staleness":
        weights *= _softmax([log.steps for log in logs])
    return _softmax(weights)


def weights_at_client(
    received: StateLog,
    local: Sequence[StateLog],
    staleness_bound: int,
    weighting: str = "staleness",
) -> npt.NDArray[np.float64]:
    """Algorithm 2: weights with which a client averages the received model with its copies.

    The client trains the average, whose state log is the received one. `local` has the logs Psi_m
    of its n copies, and `staleness_bound` is lambda.

    Returns:
      Weights of the received model and of the copies, in order, float64 [1 + n]; zero for copies
      that are not eligible.
    """
    copies = [i for i, log in enumerate(local, 1) if eligible(received, log, staleness_bound)]
    averaged, logs = [0, *copies], [received, *local]
    weights = np.zeros(len(logs))
    weights[averaged] = aggregation_weights([logs[i] for i in averaged], weighting)
    return weights
