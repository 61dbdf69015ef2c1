"""Figures 2 and 5 and Table 2 (top) of the Dec-SSL paper."""

from launch.experiments.dec_ssl_sweeps import (
    SSL,
    UNTRAINED,
    above,
    evaluations,
    robustness_claims,
    sweep,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

# Degrees of non-IIDness: alpha of the Dirichlet partition by class; K = 5 clients.
_ALPHAS = {"paper": ("5", "1", "0.5", "0.1", "0.01"), "cpu": ("5", "0.1", "0.01")}
# Number of epochs in all, which does not depend on E.
_TOTAL_EPOCHS = {"paper": 500, "cpu": 48}
# The local epochs of Figure 2.
_FIGURE2_EPOCHS = {"paper": 50, "cpu": 4}
_BY_LABELS = "--partition=dirichlet_per_class"
# Table 2 (top) in percent: IID and non-IID clients.
_TABLE2 = {
    "FURL": (71.25, 68.01),
    "FedEMA": (86.26, 83.34),
    "Per-SSFL": (None, 83.10),
    "FedU": (83.96, 80.52),
    "FeatARC": (86.74, 84.63),
}


def _flags(scale: str, dataset: str, epochs: int, rounds: int | None) -> tuple[str, ...]:
    """Flags of all cells: preset, data set, local epochs and rounds."""
    return (
        f"--flagfile=launch/presets/dec_ssl/{scale}/server.flags",
        f"--dataset={dataset}",
        f"--hparam=local_epochs={epochs}",
        f"--rounds={rounds or max(1, _TOTAL_EPOCHS[scale] // epochs)}",
    )


def figure2(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figure 2, non-IIDness of labels; `dec_ssl_features` has its feature clusters.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    epochs = _FIGURE2_EPOCHS[scale]
    columns = {f"alpha {alpha}": alpha for alpha in _ALPHAS[scale]}

    def build_cell(objective, alpha):
        return Cell(
            f"{objective}_labels_alpha{alpha}",
            "pretrain",
            (
                *_flags(scale, dataset, epochs, rounds), _BY_LABELS,
                f"--alpha={alpha}", f"--objective={objective}",
            ),
            evaluations(objective, scale),
        )  # fmt: skip

    cells, table = sweep(f"Non-IIDness of labels, E = {epochs}", scale, columns, build_cell)
    first, *_, last = columns
    return Experiment(
        "dec_ssl_figure2", f"Dec-SSL, Figure 2, on {dataset} at {scale} scale", cells, (table,),
        tuple(robustness_claims(table, first, last)),
        ("Published as curves without numbers: Dec-SSL hardly falls with non-IIDness, supervised "
         "learning does. 5 clients, ResNet-18, 500 epochs in all.",),
        {column: str(cell) for column, cell in zip(columns, table.rows[SSL], strict=True)},
    )  # fmt: skip


# FeatARC as its paper prints it; see the head of `algorithms.featarc`.
PRINTED = (
    "--hparam=exclude_own=false", "--hparam=first_cluster=parity",
    "--hparam=switch_probability=1", "--hparam=warmup_rounds=0",
)  # fmt: skip
# Row -> (name of its folders, its flags): FeatARC with its parts, and other methods.
_FEATARC = {
    "FedAvg": ("fedavg", ("--algorithm=fedbn",)),
    "align only": ("align", ("--algorithm=featarc", "--hparam=clusters=1", *PRINTED)),
    "cluster only": ("cluster", ("--algorithm=featarc", "--hparam=lambda_align=0", *PRINTED)),
    "FeatARC": ("featarc", ("--algorithm=featarc", *PRINTED)),
}
OTHER_METHODS = {
    "FedU": ("fedu", ("--algorithm=fedu", "--objective=byol")),
    "FedEMA": ("fedema", ("--algorithm=fedema", "--objective=byol")),
}


_FIGURE5_EPOCHS = {"paper": 5, "cpu": 4}


def figure5(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figure 5 and Table 2 (top): FeatARC against FedAvg, its parts, FedU and FedEMA.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    epochs = _FIGURE5_EPOCHS[scale]
    splits = {"non-IID": "0.02"} if scale == "cpu" else {"IID": "inf", "non-IID": "0.02"}
    methods = {**_FEATARC, **OTHER_METHODS} if scale == "paper" else _FEATARC
    columns = tuple(splits)
    cells, rows = [], {}
    for row, (name, flags) in methods.items():
        names = []
        for split, alpha in splits.items():
            names.append(f"{name}_{split.lower().replace('-', '')}")
            preset = _flags(scale, dataset, epochs, rounds)
            if row in OTHER_METHODS:
                # FedU's threshold is no hyperparameter of FedEMA.
                file = "fedu" if name == "fedu" else "clients"
                preset = (f"--flagfile=launch/presets/fedu/{scale}/{file}.flags", *preset[1:])
            cells.append(
                Cell(names[-1], "pretrain", (
                    *preset, _BY_LABELS, f"--alpha={alpha}",
                    "--personalized_clients=5", *flags,
                ))
            )  # fmt: skip
        rows[row] = tuple(names)
    title = "Clients' models, mean over clients"
    table = Table(
        title, Selector("linear_personalized"), columns, rows,
        {row: figures[-len(columns):] for row, figures in _TABLE2.items()},
    )  # fmt: skip
    # Methods with clusters of clients have no global model.
    one_model = {row: rows[row] for row in ("FedAvg", "align only")}
    untrained = Selector("linear", baseline="random_encoder")
    global_table = Table(
        "Global model", Selector("linear"), columns, one_model | {UNTRAINED: rows["FedAvg"]}, {},
        {UNTRAINED: untrained},
    )  # fmt: skip
    worst = columns[-1]
    claims = tuple(
        Claim(f"FeatARC is above {other}", title, above("FeatARC", other, worst))
        for other in methods
        if other != "FeatARC"
    )
    return Experiment(
        "dec_ssl_figure5", f"Dec-SSL, Figure 5 and Table 2, on {dataset} at {scale} scale",
        tuple(cells), (table, global_table), claims,
        ("Published (Table 2): CIFAR-10, 5 clients, ResNet-18; FeatARC's clients are evaluated "
         "with the models of their clusters. FedU and FedEMA: their global model.",),
        dict(zip(columns, rows["FedAvg"], strict=True)),
    )  # fmt: skip


EXPERIMENTS = {
    "dec_ssl_figure2": (figure2, "Dec-SSL, Dec-SLRep and Dec-SL against non-IIDness"),
    "dec_ssl_figure5": (figure5, "FeatARC against FedAvg, its parts, FedU and FedEMA"),
}
