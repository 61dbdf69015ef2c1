"""Frozen means frozen: a probe leaves the encoder's weights and statistics as they were."""

import numpy as np

from tff_ssl.models.dual_encoder import Weights


def check_unchanged(before: Weights, after: Weights) -> None:
    """Compares weights, and batch norm's moving averages, bit by bit.

    Raises:
      RuntimeError: If any differs.
    """
    for old, new in zip(before, after, strict=True):
        if any(not np.array_equal(a, b) for a, b in zip(old, new, strict=True)):
            raise RuntimeError("the encoder changed while it was evaluated")
