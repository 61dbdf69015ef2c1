"""Draws from Dirichlet distributions: class counts of clients, exact at any concentration."""

import heapq
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

_MIXTURES_AT_ONCE = 512  # clients whose class mixtures are drawn together
_SIZE_RANGE = (0.5, 1.5)  # of the even share; where the authors' released code draws again
_REDRAWS = 1000  # as there; then the last draw is taken
_MOST_PORTIONS = 3_000_000  # of all redraws, a second's work: many clients get fewer redraws
_SMALLEST = np.nextafter(0.0, 1.0)  # stands for alpha = 0: one weight is 1, the others are 0


def draw_classes(
    rng: np.random.Generator, counts: Counts, alpha: float, sizes: Counts
) -> Iterator[Counts]:
    """Yields each client's classes, int64 [size], as positions in `counts`.

    Draws of a class beyond what is left of it are drawn again from the classes that have some
    left. That is the same process as drawing one by one and renormalizing when a class runs out.
    """
    left = counts.copy()
    positions = np.arange(len(counts))
    for client, size in enumerate(sizes):
        row = client % _MIXTURES_AT_ONCE
        if row == 0:
            log_gammas, waiting = mixtures(rng, counts / counts.sum(), alpha, _MIXTURES_AT_ONCE)
        taken = np.zeros(len(counts), np.int64)
        missing = int(size)
        while missing:
            q = weights(log_gammas[row], waiting[row], alpha, taken < left)
            taken += np.minimum(rng.multinomial(missing, q), left - taken)
            missing = int(size - taken.sum())
        left -= taken
        yield np.repeat(positions, taken)


def deal_classes(
    rng: np.random.Generator, sizes: Counts, alpha: float, num_clients: int, balance: bool
) -> Counts:
    """Deals each class out by portions p_j ~ Dir_K(alpha) of its own.

    Args:
      rng: Source of all randomness.
      sizes: int64 [classes], how many examples there are of each.
      alpha: 0 (a class goes to one client) to infinity (all portions are the same).
      num_clients: K, at most `sizes.sum()`.
      balance: A client that has its even share gets nothing of the classes that follow, and the
        whole is drawn again until all clients have half to one and a half even shares (at most
        1000 times; less often where clients x classes is above 3000).

    Returns:
      int64 [classes, K], rows that sum to `sizes`, no column of zeros.
    """
    even = sizes.sum() / num_clients
    draws = max(1, min(_REDRAWS, _MOST_PORTIONS // (len(sizes) * num_clients)))
    for _ in range(draws if balance else 1):
        shares = _deal_once(rng, sizes, alpha, num_clients, even if balance else math.inf)
        held = shares.sum(axis=0)
        if held.min() >= _SIZE_RANGE[0] * even and held.max() <= _SIZE_RANGE[1] * even:
            break
    return _fill_empty(shares)


def _deal_once(
    rng: np.random.Generator, sizes: Counts, alpha: float, num_clients: int, enough: float
) -> Counts:
    """One draw of `deal_classes`; clients with `enough` examples get no more."""
    shares = np.zeros((len(sizes), num_clients), np.int64)
    held = np.zeros(num_clients, np.int64)
    if not math.isinf(alpha):
        alpha = max(alpha, _SMALLEST)
        drawn = mixtures(rng, np.ones(num_clients), alpha, len(sizes))
    for label, size in enumerate(sizes):
        open_ = held < enough
        if math.isinf(alpha):
            portions = open_ / open_.sum()
        else:
            portions = weights(drawn[0][label], drawn[1][label], alpha, open_)
        bounds = np.rint(np.cumsum(portions) * size).astype(np.int64)
        # The sum of the portions may be a rounding error away from 1.
        bounds[np.flatnonzero(portions)[-1] :] = size
        shares[label] = np.diff(bounds, prepend=0)
        held += shares[label]
    return shares


def _fill_empty(shares: Counts) -> Counts:
    """Gives clients that got nothing half of the largest client's largest class."""
    by_client, held = np.ascontiguousarray(shares.T), shares.sum(axis=0)
    largest = [(-size, client) for client, size in enumerate(held.tolist()) if size]
    heapq.heapify(largest)
    for client in np.flatnonzero(held == 0).tolist():
        size, donor = heapq.heappop(largest)
        label = by_client[donor].argmax()
        given = max(1, int(by_client[donor, label]) // 2)
        by_client[[donor, client], label] += [-given, given]
        heapq.heappush(largest, (size + given, donor))
        heapq.heappush(largest, (-given, client))
    return by_client.T


def mixtures(
    rng: np.random.Generator, prior: npt.NDArray[np.float64], alpha: float, count: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Draws `count` times from Dir(alpha * prior), in a form that keeps any alpha > 0 exact.

    A Gamma(a) variable is a Gamma(a + 1) variable times U^(1/a), and the logarithm of the second
    factor is -E / a with E exponential. So the logarithm of an unnormalized draw is
    `log_gammas - waiting / alpha`, with the E / prior as `waiting`. At very small alpha, where
    `Generator.dirichlet` gives zeros or NaN, the class with the shortest waiting time wins.

    Returns:
      `log_gammas` and `waiting`, float64 [count, classes].
    """
    shape = (count, len(prior))
    log_gammas = np.log(rng.standard_gamma(np.broadcast_to(alpha * prior + 1, shape)))
    return log_gammas, rng.standard_exponential(shape) / prior


def weights(
    log_gammas: npt.NDArray[np.float64],
    waiting: npt.NDArray[np.float64],
    alpha: float,
    available: npt.NDArray[np.bool_],
) -> npt.NDArray[np.float64]:
    """One of `mixtures`, [classes], normalized over the available classes."""
    with np.errstate(over="ignore"):  # of 1 / alpha: a weight of 0
        later = (waiting - waiting[available].min()) / alpha
    logs = np.where(available, log_gammas - later, -np.inf)
    unnormalized = np.exp(logs - logs.max())
    return unnormalized / unnormalized.sum()
