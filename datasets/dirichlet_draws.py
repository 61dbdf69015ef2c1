"""Class counts of clients from Dirichlet distributions, exact at any concentration."""

import heapq
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_CLIENTS_AT_ONCE = 512  # number of clients whose class mixtures are drawn together
# Sizes of clients, in even shares, outside which the released code of Dec-SSL draws again.
_SIZE_RANGE = (0.5, 1.5)
_MAX_DRAWS = 1000  # as in that code; after so many, the last draw is taken
_MAX_PORTIONS = 3_000_000  # in all draws together, about a second: many clients have fewer draws
_SMALLEST_ALPHA = np.nextafter(0.0, 1.0)  # stands for 0: one weight is 1, the others are 0


def draw_classes(
    rng: np.random.Generator, counts: Counts, alpha: float, sizes: Counts
) -> Iterator[Counts]:
    """Draws the classes of each client's examples from a mixture q ~ Dir(alpha * p) of its own.

    p is the share of each class in `counts`, int64 [classes], alpha is above 0 and finite, and the
    sizes of clients, int64 [clients], sum to at most `counts.sum()`. Draws from a class that exceed
    its remaining examples are repeated over the classes that have examples left, which is the same
    process as drawing one by one and renormalizing q when a class runs out.

    Yields:
      The classes of one client as positions in `counts`, int64 [size].
    """
    remaining = counts.copy()
    positions = np.arange(len(counts))
    for client, size in enumerate(sizes):
        row = client % _CLIENTS_AT_ONCE
        if row == 0:
            log_gammas, waits = _draw_mixtures(rng, counts / counts.sum(), alpha, _CLIENTS_AT_ONCE)
        drawn = np.zeros(len(counts), np.int64)
        missing = int(size)
        while missing:
            q = _normalize(log_gammas[row], waits[row], alpha, drawn < remaining)
            drawn += np.minimum(rng.multinomial(missing, q), remaining - drawn)
            missing = int(size - drawn.sum())
        remaining -= drawn
        yield np.repeat(positions, drawn)


def allocate_classes(
    rng: np.random.Generator,
    class_sizes: Counts,
    alpha: float,
    num_clients: int,
    balance: bool,
    smallest: int = 1,
) -> Counts:
    """Allocates each class j to the K clients by its own portions p_j ~ Dir_K(alpha).

    alpha is from 0 (a class goes to one client) to infinity (all portions are the same). With
    `balance`, a client that has its even share gets nothing of the following classes, and
    everything is drawn again until all clients have half to one and a half even shares (at most
    1000 times, fewer if clients x classes is above 3000). Clients below the smallest size, at most
    `class_sizes.sum() / K`, are filled up with examples of the largest ones.

    Returns:
      Examples of each class at each client, int64 [classes, K]; rows sum to `class_sizes`.
    """
    even_share = class_sizes.sum() / num_clients
    draws = max(1, min(_MAX_DRAWS, _MAX_PORTIONS // (len(class_sizes) * num_clients)))
    full_size = even_share if balance else math.inf
    for _ in range(draws if balance else 1):
        counts = _allocate_once(rng, class_sizes, alpha, num_clients, full_size)
        sizes = counts.sum(axis=0)
        low, high = (factor * even_share for factor in _SIZE_RANGE)
        if low <= sizes.min() and sizes.max() <= high:
            break
    return _fill_small_clients(_fill_empty_clients(counts), smallest)


def _allocate_once(
    rng: np.random.Generator, class_sizes: Counts, alpha: float, num_clients: int, full_size: float
) -> Counts:
    """One draw of `allocate_classes`; clients with `full_size` examples get no more."""
    counts = np.zeros((len(class_sizes), num_clients), np.int64)
    sizes = np.zeros(num_clients, np.int64)
    if not math.isinf(alpha):
        alpha = max(alpha, _SMALLEST_ALPHA)
        log_gammas, waits = _draw_mixtures(rng, np.ones(num_clients), alpha, len(class_sizes))
    for j, class_size in enumerate(class_sizes):
        not_full = sizes < full_size
        if math.isinf(alpha):
            portions = not_full / not_full.sum()
        else:
            portions = _normalize(log_gammas[j], waits[j], alpha, not_full)
        bounds = np.rint(np.cumsum(portions) * class_size).astype(np.int64)
        # The sum of the portions may be a rounding error away from 1.
        bounds[np.flatnonzero(portions)[-1] :] = class_size
        counts[j] = np.diff(bounds, prepend=0)
        sizes += counts[j]
    return counts


def _fill_empty_clients(counts: Counts) -> Counts:
    """Gives each empty client half of the largest client's largest class; [classes, clients]."""
    by_client, sizes = np.ascontiguousarray(counts.T), counts.sum(axis=0)
    largest = [(-size, client) for client, size in enumerate(sizes.tolist()) if size]
    heapq.heapify(largest)
    for client in np.flatnonzero(sizes == 0).tolist():
        negative_size, donor = heapq.heappop(largest)
        j = by_client[donor].argmax()
        given = max(1, int(by_client[donor, j]) // 2)
        by_client[[donor, client], j] += [-given, given]
        heapq.heappush(largest, (negative_size + given, donor))
        heapq.heappush(largest, (-given, client))
    return by_client.T


def _fill_small_clients(counts: Counts, smallest: int) -> Counts:
    """Fills clients up to `smallest` from the largest class of the client that is then largest."""
    by_client, sizes = counts.T.copy(), counts.sum(axis=0)
    for client in np.flatnonzero(sizes < smallest).tolist():
        while sizes[client] < smallest:
            donor = int(sizes.argmax())
            j = by_client[donor].argmax()
            # This client is below `smallest` and the mean is not, so that the donor is above it.
            given = min(smallest - sizes[client], sizes[donor] - smallest, by_client[donor, j])
            by_client[[donor, client], j] += [-given, given]
            sizes[[donor, client]] += [-given, given]
    return by_client.T


def _draw_mixtures(
    rng: np.random.Generator, prior: Floats, alpha: float, count: int
) -> tuple[Floats, Floats]:
    """Draws `count` times from Dir(alpha * prior), in a form that is exact for any alpha > 0.

    A Gamma(a) variable is a Gamma(a + 1) variable times U^(1/a), and the logarithm of the second
    factor is -E / a with E exponential. So the logarithm of an unnormalized draw is the first
    result minus the second (E / prior) divided by alpha, both float64 [count, classes]. At very
    small alpha, where `Generator.dirichlet` gives zeros or NaN, the class with the shortest waiting
    time wins.
    """
    shape = (count, len(prior))
    log_gammas = np.log(rng.standard_gamma(np.broadcast_to(alpha * prior + 1, shape)))
    return log_gammas, rng.standard_exponential(shape) / prior


def _normalize(
    log_gammas: Floats, waits: Floats, alpha: float, available: npt.NDArray[np.bool_]
) -> Floats:
    """Normalizes one draw of `_draw_mixtures`, [classes], over the available classes."""
    with np.errstate(over="ignore"):  # 1 / alpha may overflow, and the weight is then 0
        delays = (waits - waits[available].min()) / alpha
    logs = np.where(available, log_gammas - delays, -np.inf)
    unnormalized = np.exp(logs - logs.max())
    return unnormalized / unnormalized.sum()
