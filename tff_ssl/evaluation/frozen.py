"""Checks that an evaluation leaves the encoder's weights and moving averages unchanged."""

import numpy as np

from tff_ssl.models.dual_encoder import Weights


def check_unchanged(before: Weights, after: Weights) -> None:
    """Raises a RuntimeError if a weight or a moving average of batch norm differs in a bit."""
    if not equal(before, after):
        raise RuntimeError("the encoder changed while it was evaluated")


def equal(one: Weights, other: Weights) -> bool:
    """Whether all weights and moving averages are the same, bit by bit."""
    return all(
        len(a) == len(b) and all(map(np.array_equal, a, b)) for a, b in zip(one, other, strict=True)
    )
