"""Sampling of cohorts, and their division into groups of clients for one call each."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow_federated as tff

from tff_ssl.errors import ConfigurationError

Cohort = npt.NDArray[np.int64]
# These make the draws independent of other draws from the same seed.
_POISSON, _UNIFORM = 0x706F6973, 0x756E6966
# Larger populations are sampled in time that depends on the cohort alone. In smaller ones, the
# cohorts of a seed are those of TFF's sampling function, which goes through all clients.
LARGE_POPULATION = 100_000


def uniform_cohorts(num_clients: int, clients_per_round: int, seed: int) -> Callable[[int], Cohort]:
    """Uniform sampling of cohorts of a fixed size, without replacement within a round.

    The function, round number -> indices of the clients, int64 [clients_per_round], is pure in the
    seed and the round: a resumed run has the cohorts of an uninterrupted one.

    Raises:
      ConfigurationError: If a cohort is empty or larger than the population.
    """
    if not 1 <= clients_per_round <= num_clients:
        raise ConfigurationError(
            f"--clients_per_round must be between 1 and the number of clients, {num_clients}; "
            f"got {clients_per_round}"
        )
    if num_clients > LARGE_POPULATION:
        return lambda round_number: _draw_clients(
            np.random.default_rng([_UNIFORM, seed, round_number]), num_clients, clients_per_round
        )
    sample = tff.simulation.build_uniform_sampling_fn(range(num_clients), random_seed=seed)
    # TFF gets rounds from 1; another offset would change the cohorts of every seed.
    return lambda round_number: np.array(sample(round_number + 1, clients_per_round), np.int64)


def poisson_cohorts(
    num_clients: int, clients_per_round: float, seed: int
) -> Callable[[int], Cohort]:
    """Poisson sampling: each client independently takes part with the same probability.

    Privacy accountants support this sampling best. Cohorts have `clients_per_round` clients on
    average and may be empty; see `uniform_cohorts`.

    Raises:
      ConfigurationError: If the expected cohort is empty or larger than the population.
    """
    if not 0 < clients_per_round <= num_clients:
        raise ConfigurationError(
            f"--clients_per_round must be between 1 and the number of clients, {num_clients}; "
            f"got {clients_per_round:g}"
        )
    rate = clients_per_round / num_clients

    def cohort(round_number: int) -> Cohort:
        rng = np.random.default_rng([_POISSON, seed, round_number])
        if num_clients > LARGE_POPULATION:
            # The number of clients is binomial; given it, all sets of clients are equally likely.
            return np.sort(_draw_clients(rng, num_clients, rng.binomial(num_clients, rate)))
        return np.flatnonzero(rng.random(num_clients) < rate)

    return cohort


def _draw_clients(rng: np.random.Generator, num_clients: int, size: int) -> Cohort:
    """Draws clients without replacement; the time depends on `size` alone if that is small."""
    return rng.choice(num_clients, size, replace=False).astype(np.int64)


def fold(cohort: Cohort, groups: int, multiple: int = 1) -> list[Cohort]:
    """Splits a cohort into groups of clients, one call each; 0 makes each client a group.

    Empty groups are added until their number is a positive multiple of `multiple`, so that few
    numbers occur: TFF's worker prepares its graphs anew for each number of groups.

    Raises:
      ConfigurationError: If there would be more groups than clients.
    """
    if not 0 <= groups <= len(cohort):
        raise ConfigurationError(
            f"--fold must be between 0 and --clients_per_round={len(cohort)}; got {groups}"
        )
    parts = np.array_split(cohort, groups or len(cohort) or 1)
    return [*parts, *[cohort[:0]] * (-len(parts) % multiple)]
