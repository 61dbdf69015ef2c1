"""Figures 6 (b), 14 and 16 (left) and Table 4 of the Dec-SSL paper, and Dec-SSL beside one client.

All of them share the runs on skewed clients.
"""

from launch.experiments.dec_ssl_sweeps import (
    MANY_LOCAL_EPOCHS,
    SL,
    SLREP,
    SSL,
    UNTRAINED,
    above,
    accuracies,
    evaluations,
    keeps_most,
    loses_less,
    robustness_claims,
    skewed,
    sweep,
    training_flags,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

_BETAS = {"paper": (1, 0.7, 0.5, 0.3, 0), "cpu": (1, 0.3, 0)}
# Shares of the images in Figure 14, and the share of all images that the sweeps' preset leaves.
_SHARES = {"paper": (0.1, 0.25, 0.5, 1), "cpu": (0.1, 0.3, 1)}
_ALL_IMAGES = {"paper": 1.0, "cpu": 0.1}
_CENTRALIZED, _FEDPROX = "Centralized SSL", "Dec-SSL with FedProx"
_MU = "0.01"  # Weight of FedProx's proximal term, which the paper does not give.
# Largest distance from centralized SSL that counts as the paper's "comparable".
_COMPARABLE = 0.02
# Transfer (Table 4): numbers of labels of the other data set, by the paper's share of its labels.
_TRANSFER_LABELS = {
    "paper": {"100%": 5000, "10%": 500, "1%": 50},  # Of STL-10.
    "cpu": {"100%": 5000, "10%": 500},
}
_TRANSFER = ("IID", "non-IID", "non-IID, less communication")
# Table 4 in percent: share of the labels -> row -> figures in the order of `_TRANSFER`.
_TABLE4 = {
    "100%": {SSL: (65, 60, 33), SLREP: (65, 31, None), UNTRAINED: (25,)},
    "10%": {SSL: (61, 54, 28), SLREP: (60, 30, None), UNTRAINED: (24,)},
    "1%": {SSL: (48, 36, 17), SLREP: (47, 25, None), UNTRAINED: (13,)},
}


def robustness(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Skewed clients, transfer, centralized training, amounts of data, and FedProx.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    transfer = _transfer_evaluation(scale, dataset)
    iid, non_iid = f"beta {_BETAS[scale][0]}", f"beta {_BETAS[scale][-1]}"

    def build_cell(objective, beta):
        return Cell(
            f"{objective}_beta{beta:g}",
            "pretrain",
            (
                *training_flags(scale, dataset, rounds), *skewed(beta), f"--objective={objective}",
            ),
            (*evaluations(objective, scale), *([transfer] if beta in (0, 1) else [])),
        )  # fmt: skip

    columns = {f"beta {beta:g}": beta for beta in _BETAS[scale]}
    skewed_cells, skewness = sweep("Figure 6 (b): skewness", scale, columns, build_cell)
    ssl = dict(zip(columns, skewness.rows[SSL], strict=True))
    cells = [
        *skewed_cells,
        Cell(
            "nt_xent_beta0_less", "pretrain",
            (
                *training_flags(scale, dataset, rounds, MANY_LOCAL_EPOCHS[scale]), *skewed(0),
                "--objective=nt_xent",
            ),
            (transfer,),
        ),
        Cell(
            "centralized", "pretrain",
            (
                *training_flags(scale, dataset, rounds), "--partition=iid", "--num_clients=1",
                "--clients_per_round=1", "--objective=nt_xent",
            ),
        ),
        *(
            Cell(
                f"fedprox_beta{beta}", "pretrain",
                (
                    *training_flags(scale, dataset, rounds), *skewed(beta), "--objective=nt_xent",
                    f"--hparam=mu={_MU}",
                ),
            )
            for beta in (1, 0)
        ),
        *(_fewer_images(scale, dataset, rounds, share) for share in _SHARES[scale][:-1]),
    ]  # fmt: skip
    beside = accuracies(
        "Section 3.1: centralized training", scale, (iid, non_iid),
        {SSL: (ssl[iid], ssl[non_iid]), _CENTRALIZED: ("centralized",)},
    )  # fmt: skip
    shares = tuple(f"{share:.0%} of the images" for share in _SHARES[scale])
    amounts = accuracies(
        "Figure 14: amounts of data", scale, shares,
        {SSL: (*(f"nt_xent_{share:g}" for share in _SHARES[scale][:-1]), ssl[iid])},
    )  # fmt: skip
    fedprox = accuracies(
        "Figure 16 (left): FedProx", scale, (iid, non_iid),
        {_FEDPROX: ("fedprox_beta1", "fedprox_beta0"),
         **{row: (skewness.rows[row][0], skewness.rows[row][-1]) for row in (SSL, SLREP, SL)}},
    )  # fmt: skip
    transfers = [_transfer_table(scale, share) for share in _TRANSFER_LABELS[scale]]
    claims = [
        *robustness_claims(skewness, iid, non_iid),
        *(
            Claim(f"At {column}, Dec-SLRep is above Dec-SL", skewness.title,
                  above(SLREP, SL, column))
            for column in columns
        ),
        *(_comparable(beside, column) for column in (iid, non_iid)),
        *_amounts_claims(amounts),
        keeps_most(fedprox, _FEDPROX, iid, non_iid),
        loses_less(fedprox, _FEDPROX, SLREP, iid, non_iid),
        *(claim for table in transfers for claim in _transfer_claims(table)),
    ]  # fmt: skip
    return Experiment(
        "dec_ssl_robustness",
        f"Dec-SSL, Figures 6 (b), 14 and 16 (left) and Table 4, on {dataset} at {scale} scale",
        tuple(cells), (skewness, beside, *transfers, amounts, fedprox), tuple(claims),
        ("Figures are published as curves without numbers. Centralized training is that of one "
         "client with all images. With fewer images, the number of epochs stays, as in the paper. "
         "The published transfer is to STL-10; at CPU scale the other data set is one of the "
         "CIFARs, and \"less communication\" the largest number of local epochs.",),
        {column: f"nt_xent_beta{beta:g}" for column, beta in columns.items()},
    )  # fmt: skip


def _fewer_images(scale: str, dataset: str, rounds: int | None, share: float) -> Cell:
    """Dec-SSL on a share of the images of each client."""
    return Cell(
        f"nt_xent_{share:g}", "pretrain",
        (
            *training_flags(scale, dataset, rounds), *skewed(1), "--objective=nt_xent",
            f"--data_fraction={share * _ALL_IMAGES[scale]:g}",
        ),
    )  # fmt: skip


def _transfer_evaluation(scale: str, dataset: str) -> tuple[str, ...]:
    """The flags of the evaluation on another data set."""
    near = "cifar10" if dataset == "cifar100" else "cifar100"
    target = {"paper": "stl10", "cpu": near}[scale]
    labels = ",".join(str(number) for number in _TRANSFER_LABELS[scale].values())
    return ("--protocol=transfer", f"--dataset={target}", f"--labels={labels}")


def _transfer_table(scale: str, share: str) -> Table:
    """Table 4 with a share of the labels."""
    probe = Selector("transfer", _TRANSFER_LABELS[scale][share])
    rows = {
        SSL: ("nt_xent_beta1", "nt_xent_beta0", "nt_xent_beta0_less"),
        SLREP: ("supervised_beta1", "supervised_beta0", None),
    }
    return Table(
        f"Table 4: transfer with {share} of the labels", probe, _TRANSFER,
        {**rows, UNTRAINED: rows[SSL]}, _TABLE4[share],
        {UNTRAINED: probe._replace(baseline="random_encoder")},
    )  # fmt: skip


def _transfer_claims(table: Table) -> list[Claim]:
    iid, non_iid, less = _TRANSFER
    return [
        loses_less(table, SSL, SLREP, iid, non_iid),
        Claim("On non-IID clients, Dec-SSL is above Dec-SLRep", table.title,
              above(SSL, SLREP, non_iid)),
        Claim("Less communication costs Dec-SSL transfer", table.title,
              lambda v: v(SSL, less) < v(SSL, non_iid)),
    ]  # fmt: skip


def _comparable(table: Table, column: str) -> Claim:
    def holds(value: Lookup) -> bool:
        return value(_CENTRALIZED, column) - value(SSL, column) < _COMPARABLE

    return Claim(
        f"At {column}, Dec-SSL is less than 2 points below centralized SSL", table.title, holds
    )


def _amounts_claims(table: Table) -> list[Claim]:
    first, *_, last = table.columns
    return [
        Claim("Dec-SSL falls with the images of a client", table.title,
              lambda v: v(SSL, first) < v(SSL, last)),
        Claim("Dec-SSL on a tenth of the images is above the untrained encoder", table.title,
              above(SSL, UNTRAINED, first)),
    ]  # fmt: skip


EXPERIMENTS = {
    "dec_ssl_robustness": (
        robustness,
        "Dec-SSL on skewed clients: transfer, centralized training, fewer images, FedProx",
    ),
}
