"""Builds the cohorts of clients that take part in each round from the flags."""

from absl import flags

from tff_ssl.errors import ConfigurationError
from tff_ssl.simulation import cohort
from tff_ssl.simulation.dropouts import Dropouts, clients_to_invite
from tff_ssl.simulation.participation import Participation


def build_participation(num_clients: int, args: flags.FlagValues) -> Participation:
    """Builds the cohorts that the flags describe.

    Args:
      num_clients: Number of clients of the population.
      args: The flags.

    Raises:
      ConfigurationError: If there are too few clients, or fewer than the dropout needs.
    """
    invited = clients_to_invite(args.clients_per_round, args.dropout)
    if args.clients_per_round <= num_clients < invited:
        raise ConfigurationError(
            f"--dropout={args.dropout} takes {invited} invited clients for --clients_per_round="
            f"{args.clients_per_round} that finish, and there are {num_clients}"
        )
    is_poisson = args.sampling == "poisson"
    sample = cohort.poisson_cohorts if is_poisson else cohort.uniform_cohorts
    return Participation(
        sample(num_clients, invited, args.seed),
        args.clients_per_round,
        invited,
        is_poisson,
        Dropouts(args.dropout, args.max_dropped, args.seed),
    )
