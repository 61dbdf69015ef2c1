"""Builds the cohorts of clients that take part in each round."""

from launch.options.run_config import ParticipationConfig
from tff_ssl.errors import ConfigurationError
from tff_ssl.simulation import cohort
from tff_ssl.simulation.dropouts import Dropouts, clients_to_invite
from tff_ssl.simulation.participation import Participation


def build_participation(
    num_clients: int, participation: ParticipationConfig, seed: int
) -> Participation:
    """Builds the cohorts of a population of `num_clients`, and their simulated dropouts."""
    wanted, dropout = participation.clients_per_round, participation.dropout
    invited = clients_to_invite(wanted, dropout)
    if wanted <= num_clients < invited:
        raise ConfigurationError(
            f"--dropout={dropout} takes {invited} invited clients for --clients_per_round="
            f"{wanted} that finish, and there are {num_clients}"
        )
    is_poisson = participation.sampling == "poisson"
    sample = cohort.poisson_cohorts if is_poisson else cohort.uniform_cohorts
    cohorts = sample(num_clients, invited, seed)
    dropouts = Dropouts(dropout, participation.max_dropped, seed)
    return Participation(cohorts, wanted, invited, is_poisson, dropouts)
