"""Simulated computing resources and training times of clients (DeNAV, section 6.1)."""

import zlib

import numpy as np


def draw_ranks(num_clients: int, highest: int, seed: int) -> tuple[int, ...]:
    """Random computing ranks h of the clients, from 1 (slow) to `highest`."""
    rng = np.random.default_rng([seed, zlib.crc32(b"computing_ranks")])
    return tuple(rng.integers(1, highest, num_clients, endpoint=True).tolist())


def training_time(actual: float, rank: int, highest: int) -> float:
    """Simulated time t_m = actual / (1 + (h_m - 1) / (H - 1)) of a client's training.

    The fastest clients need half the time of the slowest; with H = 1, all are equally fast.
    `actual` is a measured time in any unit, or an amount of work such as examples times epochs,
    which makes a route reproducible. Raises a ValueError if `rank` is not from 1 to H.
    """
    if not 1 <= rank <= highest:
        raise ValueError(f"rank must be from 1 to {highest}, not {rank}")
    return actual if highest == 1 else actual / (1 + (rank - 1) / (highest - 1))
