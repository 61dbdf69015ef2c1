"""Figures 6 (d), 13 and 15 of the Dec-SSL paper: participation, one class a client, 100 clients."""

from launch.experiments.dec_ssl_sweeps import (
    LOCAL_EPOCHS,
    SSL,
    evaluations,
    keeps_most,
    robustness_claims,
    skewed,
    sweep,
    training_flags,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment

# Figure 6 (d): numbers of the 20 clients that take part in a round; alpha 0.02 (Table 3).
_TAKING_PART = {"paper": (20, 10, 4, 1), "cpu": (20, 5, 1)}
_OF_20 = ("--num_clients=20", "--partition=dirichlet_per_class", "--alpha=0.02")
# Images of the smallest client, of which the partition may leave some too few for NT-Xent.
_SMALLEST = 10
# Figures 13 and 15: local epochs.
_ONE_CLASS_EPOCHS = {**LOCAL_EPOCHS, "paper": 50}
_HUNDRED_EPOCHS = {"paper": 50, "cpu": 4}
_HUNDRED_ALPHAS = {"paper": ("5", "1", "0.5", "0.1", "0.01"), "cpu": ("5", "0.01")}
_HUNDRED_SHARE = 0.2  # Share of the 100 clients that take part in a round.
# At CPU scale, 64 images a client in batches of 32, and as many epochs in all as elsewhere.
_HUNDRED_CPU = ("--samples_per_client=64", "--data_fraction=1", "--hparam=batch_size=32")


def clients(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Participation of 20 clients, ten clients of one class each, and 100 clients.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"

    def few_take_part(objective, number):
        return Cell(
            f"{objective}_{number}of20", "pretrain",
            (
                *training_flags(scale, dataset, rounds, participation=number / 20), *_OF_20,
                f"--min_client_size={_SMALLEST}", f"--clients_per_round={number}",
                f"--objective={objective}",
            ),
            evaluations(objective, scale),
        )  # fmt: skip

    def ten_clients(objective, beta):
        return Cell(
            f"{objective}_10_beta{beta}", "pretrain",
            (
                *training_flags(scale, dataset, rounds, _ONE_CLASS_EPOCHS[scale]), *skewed(beta),
                "--num_clients=10", "--clients_per_round=10", f"--objective={objective}",
            ),
            evaluations(objective, scale),
        )  # fmt: skip

    def hundred_clients(objective, alpha):
        return Cell(
            f"{objective}_100_alpha{alpha}", "pretrain",
            (
                *training_flags(
                    scale, dataset, rounds, _HUNDRED_EPOCHS[scale], participation=_HUNDRED_SHARE
                ),
                "--partition=dirichlet", f"--alpha={alpha}", "--num_clients=100",
                f"--clients_per_round={100 * _HUNDRED_SHARE:.0f}", f"--objective={objective}",
                *(_HUNDRED_CPU if scale == "cpu" else ()),
            ),
            evaluations(objective, scale),
        )  # fmt: skip

    few, participation = sweep(
        "Figure 6 (d): participation of 20 clients, alpha = 0.02", scale,
        {f"{number} of 20": number for number in _TAKING_PART[scale]}, few_take_part,
    )  # fmt: skip
    ten, one_class = sweep(
        "Figure 13: 10 clients", scale, {"IID": 1, "one class a client": 0}, ten_clients
    )
    hundred, many = sweep(
        "Figure 15: 20 of 100 clients in a round", scale,
        {f"alpha {alpha}": alpha for alpha in _HUNDRED_ALPHAS[scale]}, hundred_clients,
    )  # fmt: skip
    claims: list[Claim] = []
    for table in (participation, one_class, many):
        first, *_, last = table.columns
        claims += [*robustness_claims(table, first, last), keeps_most(table, SSL, first, last)]
    return Experiment(
        "dec_ssl_clients",
        f"Dec-SSL, Figures 6 (d), 13 and 15, on {dataset} at {scale} scale",
        (*few, *ten, *hundred), (participation, one_class, many), tuple(claims),
        ("Published as curves without numbers: Dec-SSL is robust to few participants, to clients "
         "of one class, and to 100 clients. With fewer participants there are more rounds, so that "
         "all runs see as many images. The 100 clients are of equal size "
         "(`--partition=dirichlet`): portions of each class, as in the other figures, would leave "
         "most of them without images at alpha 0.01.",),
        {"one class a client": "nt_xent_10_beta0", "100 clients": hundred[-1].name},
    )  # fmt: skip


EXPERIMENTS = {
    "dec_ssl_clients": (
        clients,
        "Dec-SSL, Dec-SLRep and Dec-SL with few participants, one class a client, 100 clients",
    ),
}
