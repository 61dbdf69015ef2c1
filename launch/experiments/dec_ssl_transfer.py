"""Table 2 (bottom) and Figures 8 (e) and 16 (right) of the Dec-SSL paper: CIFAR-100."""

from launch.experiments.dec_ssl_sweeps import (
    LOCAL_EPOCHS,
    MANY_LOCAL_EPOCHS,
    SL,
    SLREP,
    SSL,
    UNTRAINED,
    above,
    accuracies,
    evaluations,
    loses_less,
    robustness_claims,
    skewed,
    training_flags,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

_BETA = 0.1  # Table 3, for Figure 8 (e).
# Figure 8 (e): numbers of local epochs E.
_EPOCHS = {
    "paper": (1, 5, 10, 50, 100),
    "cpu": (LOCAL_EPOCHS["cpu"], MANY_LOCAL_EPOCHS["cpu"]),
}
_FEDPROX, _FEATARC = "FedProx", "FeatARC"
_MU = "0.01"  # Weight of FedProx's proximal term, which the paper does not give.
# Figure 16: local epochs.
_FIGURE16_EPOCHS = {**LOCAL_EPOCHS, "paper": 50}
# FeatARC as its paper prints it; see the head of `algorithms.featarc`.
_PRINTED = (
    "--algorithm=featarc", "--hparam=exclude_own=false", "--hparam=first_cluster=parity",
    "--hparam=switch_probability=1", "--hparam=warmup_rounds=0",
)  # fmt: skip
# Labels of the probes on the other data set: share -> number.
_LABELS = {
    "paper": {"100%": 50_000, "10%": 5000, "1%": 500},
    "cpu": {"10%": 5000, "1%": 500},
}
_COLUMNS = ("IID", "non-IID")
# Table 2 (bottom) in percent.
_TABLE2 = {
    "100%": {SSL: (71, 70), SLREP: (65, 43), UNTRAINED: (31,)},
    "10%": {SSL: (67, 66), SLREP: (60, 35), UNTRAINED: (27,)},
    "1%": {SSL: (57, 57), SLREP: (47, 32), UNTRAINED: (25,)},
}


def transfer(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Transfer from CIFAR-100 to CIFAR-10, local epochs on CIFAR-100, FedProx and FeatARC on it.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set of the pretraining; None for cifar100.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    source = dataset or "cifar100"
    target = "cifar100" if source == "cifar10" else "cifar10"
    numbers = ",".join(str(number) for number in _LABELS[scale].values())
    evaluation = ("--protocol=transfer", f"--dataset={target}", f"--labels={numbers}")

    def cell(objective: str, beta: float, epochs: int, extra=(), name: str = "") -> Cell:
        transferred = epochs == LOCAL_EPOCHS[scale] and not extra
        compared = objective == "nt_xent" and beta == _BETA and epochs == figure16
        return Cell(
            name or f"{objective}_beta{beta:g}_epochs{epochs}", "pretrain",
            (
                *training_flags(scale, source, rounds, epochs), *skewed(beta),
                f"--objective={objective}",
                *(["--personalized_clients=5"] if compared else []), *extra,
            ),
            (*evaluations(objective, scale), *([evaluation] if transferred else [])),
        )  # fmt: skip

    figure16 = _FIGURE16_EPOCHS[scale]
    cells: dict[str, Cell] = {}
    for objective in ("nt_xent", "supervised"):
        found = [cell(objective, 1, LOCAL_EPOCHS[scale])]
        found += [cell(objective, _BETA, epochs) for epochs in _EPOCHS[scale]]
        cells |= {one.name: one for one in found}
    fedprox = cell("nt_xent", _BETA, figure16, (f"--hparam=mu={_MU}",), "fedprox")
    featarc = cell("nt_xent", _BETA, figure16, _PRINTED, "featarc")
    columns = tuple(f"E = {epochs}" for epochs in _EPOCHS[scale])
    epochs_table = accuracies(
        "Figure 8 (e): local epochs on CIFAR-100", scale, columns,
        {
            row: tuple(f"{objective}_beta{_BETA:g}_epochs{epochs}" for epochs in _EPOCHS[scale])
            for row, objective in ((SSL, "nt_xent"), (SLREP, "supervised"), (SL, "supervised"))
        },
    )  # fmt: skip
    personalized = Table(
        "Figure 16 (right): clients' models, mean over clients",
        Selector("linear_personalized"), ("accuracy",),
        {
            "FedAvg": (f"nt_xent_beta{_BETA:g}_epochs{figure16}",),
            _FEDPROX: ("fedprox",), _FEATARC: ("featarc",),
        },
        {},
    )  # fmt: skip
    tables = [_transfer_table(scale, share) for share in _LABELS[scale]]
    claims = [claim for table in tables for claim in _transfer_claims(table)]
    claims += robustness_claims(epochs_table, columns[0], columns[-1])
    claims += [
        Claim(f"FeatARC is above {other}", personalized.title, above(_FEATARC, other, "accuracy"))
        for other in (_FEDPROX, "FedAvg")
    ]
    return Experiment(
        "dec_ssl_transfer",
        f"Dec-SSL, Table 2 (bottom), Figures 8 (e) and 16 (right), on {source} at {scale} scale",
        (*cells.values(), fedprox, featarc), (*tables, epochs_table, personalized), tuple(claims),
        (f"Non-IID clients have beta = {_BETA}; the paper does not give the one of Table 2. Its "
         "figures are published as curves without numbers. FeatARC is the printed algorithm.",),
        {"non-IID": f"nt_xent_beta{_BETA:g}_epochs{LOCAL_EPOCHS[scale]}"},
    )  # fmt: skip


def _transfer_table(scale: str, share: str) -> Table:
    """Table 2 (bottom) with a share of the labels."""
    probe = Selector("transfer", _LABELS[scale][share])
    epochs = LOCAL_EPOCHS[scale]
    rows = {
        row: (f"{objective}_beta1_epochs{epochs}", f"{objective}_beta{_BETA:g}_epochs{epochs}")
        for row, objective in ((SSL, "nt_xent"), (SLREP, "supervised"))
    }
    return Table(
        f"Table 2: transfer with {share} of the labels", probe, _COLUMNS,
        {**rows, UNTRAINED: rows[SSL]}, _TABLE2[share],
        {UNTRAINED: probe._replace(baseline="random_encoder")},
    )  # fmt: skip


def _transfer_claims(table: Table) -> list[Claim]:
    iid, non_iid = _COLUMNS
    return [
        loses_less(table, SSL, SLREP, iid, non_iid),
        *(
            Claim(f"On {column} clients, Dec-SSL is above Dec-SLRep", table.title,
                  above(SSL, SLREP, column))
            for column in _COLUMNS
        ),
    ]  # fmt: skip


EXPERIMENTS = {
    "dec_ssl_transfer": (
        transfer,
        "Dec-SSL and Dec-SLRep from CIFAR-100 to CIFAR-10, and FedProx and FeatARC on CIFAR-100",
    ),
}
