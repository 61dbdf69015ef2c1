"""Staleness-aware model aggregation of DeNAV's parallel training (Algorithm 2).

A client that receives a model averages it with its copies of the other models, as far as these are
not too many steps behind.

Choices: psi^Volume is the number of examples that a model has been trained on, summed over its
steps (the paper only says that the log has it). It goes into the SoftMax as it is, as printed: with
hundreds of examples nearly all weight is on one model, and the last SoftMax, of products in [0, 1],
brings the weights back to within a factor of e. Of Table 5's other rows, average weights are 1 / n,
and "only data volume weights" leave w^Stale out of the products.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tff_ssl.algorithms.denav.state_log import StateLog

WEIGHTINGS = ("staleness", "volume", "average")


def eligible(received: StateLog, local: StateLog, staleness_bound: int) -> bool:
    """Line 3: another model, and at most lambda steps away."""
    return (
        local.model_id != received.model_id and abs(local.steps - received.steps) <= staleness_bound
    )


def aggregation_weights(
    logs: Sequence[StateLog], weighting: str = "staleness"
) -> npt.NDArray[np.float64]:
    """Lines 7 to 11: the weights of the models that are averaged, which sum to 1.

    Args:
      logs: Of the received model and of the eligible local ones, in the models' order.
      weighting: `staleness` (Algorithm 2), or a row of Table 5: `volume` or `average`.

    Raises:
      ValueError: An unknown weighting.
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
    """Algorithm 2: how a client averages the model that it received with its own copies.

    The average is the model that the client trains; its state log stays the received one.

    Args:
      received: psi.
      local: Psi_m, the logs of the client's copies.
      staleness_bound: lambda, in steps.
      weighting: See `aggregation_weights`.

    Returns:
      The weight of the received model and those of the copies, in order, [1 + n]: zero where a copy
      is not eligible.
    """
    chosen = [0, *(i for i, log in enumerate(local, 1) if eligible(received, log, staleness_bound))]
    weights = np.zeros(1 + len(local))
    logs = [received, *local]
    weights[chosen] = aggregation_weights([logs[i] for i in chosen], weighting)
    return weights


def _softmax(values: Sequence[float] | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = np.exp(np.asarray(values, np.float64) - max(values))
    return shifted / shifted.sum()
