"""Who takes part in round r, and how many clients share a call."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow_federated as tff

from tff_ssl.errors import ConfigurationError

Cohort = npt.NDArray[np.int64]


def uniform_cohorts(num_clients: int, clients_per_round: int, seed: int) -> Callable[[int], Cohort]:
    """Uniform sampling without replacement within a round.

    Args:
      num_clients: Size of the population.
      clients_per_round: Size of a cohort.
      seed: Seed of all rounds.

    Returns:
      round number -> indices of its clients, int64 [clients_per_round]: a pure function of the seed
      and the round, so that a resumed run sees the cohorts that it would have seen.

    Raises:
      ConfigurationError: If a cohort is empty or larger than the population.
    """
    if not 1 <= clients_per_round <= num_clients:
        raise ConfigurationError(
            f"--clients_per_round must be between 1 and the number of clients, {num_clients}; "
            f"got {clients_per_round}"
        )
    sample = tff.simulation.build_uniform_sampling_fn(range(num_clients), random_seed=seed)
    # TFF's generator makes round 0 of a seed alike for all seeds' multiples; rounds start at 1.
    return lambda round_number: np.array(sample(round_number + 1, clients_per_round), np.int64)


def fold(cohort: Cohort, groups: int) -> list[Cohort]:
    """Splits a cohort into groups of clients, each worked on in one call.

    Args:
      cohort: Client indices.
      groups: Number of groups; 0 leaves every client by itself.

    Raises:
      ConfigurationError: If there would be more groups than clients.
    """
    if not 0 <= groups <= len(cohort):
        raise ConfigurationError(
            f"--fold must be between 0 and --clients_per_round={len(cohort)}; got {groups}"
        )
    return np.array_split(cohort, groups or len(cohort))
