"""Figures 2, 5, 6 and 12 and Table 2 (top) of the Dec-SSL paper."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

SSL, SLREP, SL = "Dec-SSL", "Dec-SLRep", "Dec-SL"
UNTRAINED = "(untrained encoder)"
_OBJECTIVES = {SSL: "nt_xent", SLREP: "supervised", SL: "supervised"}
# Degrees of non-IIDness: alpha of the Dirichlet partition by class; K = 5 clients.
_ALPHAS = {"paper": ("5", "1", "0.5", "0.1", "0.01"), "cpu": ("5", "0.1", "0.01")}
# Numbers of local epochs E in Figure 6.
_EPOCHS = {"paper": (1, 5, 10, 50, 100, 250), "cpu": (1, 4, 16)}
_LABELS = {"paper": 50_000, "cpu": 5000}  # Number of labels of the probes, as in the presets.
# Number of epochs in all, which does not depend on E.
_TOTAL_EPOCHS = {"paper": 500, "cpu": 48}
# The alpha of Figure 6 (Table 3), and the local epochs of Figure 2.
_FIGURE6_ALPHA = "0.02"
_FIGURE2_EPOCHS = {"paper": 50, "cpu": 4}
_PARTITIONS = {
    "labels": ("--partition=dirichlet_per_class",),
    "features": (
        "--partition=feature_clusters", "--clusters=5", "--cluster_partition=dirichlet_per_class",
        "--cluster_encoder={needed}",
    ),
}  # fmt: skip
# The encoder whose features are clustered (appendix C.2: a ResNet-50 trained on the labels).
_FEATURES = Cell(
    "features", "centralized",
    ("--flagfile=launch/presets/dec_ssl/paper/features.flags",),
)  # fmt: skip
# Table 2 (top) in percent: IID and non-IID clients.
_TABLE2 = {
    "FURL": (71.25, 68.01),
    "FedEMA": (86.26, 83.34),
    "Per-SSFL": (None, 83.10),
    "FedU": (83.96, 80.52),
    "FeatARC": (86.74, 84.63),
}


def _flags(
    scale: str, dataset: str, epochs: int, rounds: int | None, preset: str = "server"
) -> tuple[str, ...]:
    """Flags of all cells: preset, data set, local epochs and rounds."""
    return (
        f"--flagfile=launch/presets/dec_ssl/{scale}/{preset}.flags",
        f"--dataset={dataset}",
        f"--hparam=local_epochs={epochs}",
        f"--rounds={rounds or max(1, _TOTAL_EPOCHS[scale] // epochs)}",
    )


def _sweep(
    title: str, scale: str, columns: Mapping[str, Any], build_cell: Callable[[str, Any], Cell]
) -> tuple[tuple[Cell, ...], Table]:
    """The cells and the table of a figure: a row for each learning method, a column for a setting.

    Dec-SL is the classifier of the supervised run, Dec-SLRep a probe of its encoder, so that both
    take one training.

    Args:
      title: Title of the table.
      scale: `cpu` or `paper`.
      columns: Heading of a column -> its setting.
      build_cell: Function from an objective and a setting to the cell.
    """
    cells: dict[str, Cell] = {}
    rows = {}
    for row, objective in _OBJECTIVES.items():
        row_cells = [build_cell(objective, setting) for setting in columns.values()]
        cells |= {cell.name: cell for cell in row_cells}
        rows[row] = tuple(cell.name for cell in row_cells)
    probe = Selector("linear", _LABELS[scale])
    table = Table(
        title, probe, tuple(columns), rows | {UNTRAINED: rows[SSL]}, {},
        {SL: Selector("supervised"), UNTRAINED: probe._replace(baseline="random_encoder")},
    )  # fmt: skip
    return tuple(cells.values()), table


def _evaluations(objective: str, scale: str) -> tuple[tuple[str, ...], ...]:
    """Evaluations after a training.

    A supervised run ends with the result of its classifier, so that its encoder is probed here; the
    other runs probe theirs.
    """
    draws = {"paper": 1, "cpu": 5}[scale]  # All labels can be drawn in one way only.
    probe = ("--protocol=linear", f"--labels={_LABELS[scale]}", f"--label_draws={draws}")
    return (probe,) if objective == "supervised" else ()


def _robustness_claims(table: Table, best: str, worst: str) -> list[Claim]:
    """Claims that Dec-SSL suffers less than supervised methods from column `best` to `worst`."""

    def loses_less_than(other: str) -> Callable[[Lookup], bool]:
        return lambda v: v(SSL, best) - v(SSL, worst) < v(other, best) - v(other, worst)

    return [
        Claim(
            f"From {best} to {worst}, Dec-SSL loses less than {other}",
            table.title,
            loses_less_than(other),
        )
        for other in (SLREP, SL)
    ] + [
        Claim(f"At {worst}, Dec-SSL is above {other}", table.title, _above(SSL, other, worst))
        for other in (SLREP, SL)
    ]


def _above(row: str, other: str, column: str) -> Callable[[Lookup], bool]:
    return lambda v: v(row, column) > v(other, column)


def figure2(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figure 2: non-IIDness of labels, and of feature clusters.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    epochs = _FIGURE2_EPOCHS[scale]
    cells: tuple[Cell, ...] = ()
    tables: tuple[Table, ...] = ()
    columns = {f"alpha {alpha}": alpha for alpha in _ALPHAS[scale]}
    # The CPU's scale has the non-IIDness of labels only.
    kinds = ("labels", "features") if scale == "paper" else ("labels",)
    if "features" in kinds:
        flags = (*_FEATURES.flags, f"--dataset={dataset}")
        cells = (dataclasses.replace(_FEATURES, flags=flags),)
    for kind in kinds:

        def build_cell(objective, alpha, kind=kind):
            return Cell(
                f"{objective}_{kind}_alpha{alpha}",
                "pretrain",
                (
                    *_flags(scale, dataset, epochs, rounds), *_PARTITIONS[kind],
                    f"--alpha={alpha}", f"--objective={objective}",
                ),
                _evaluations(objective, scale),
                _FEATURES.name if kind == "features" else None,
            )  # fmt: skip

        title = f"Non-IIDness of {kind}, E = {epochs}"
        kind_cells, table = _sweep(title, scale, columns, build_cell)
        cells, tables = (*cells, *kind_cells), (*tables, table)
    first, *_, last = columns
    return Experiment(
        "dec_ssl_figure2", f"Dec-SSL, Figure 2, on {dataset} at {scale} scale", cells, tables,
        tuple(claim for table in tables for claim in _robustness_claims(table, first, last)),
        ("Published as curves without numbers: Dec-SSL hardly falls with non-IIDness, supervised "
         "learning does. 5 clients, ResNet-18, 500 epochs in all.",),
        {column: str(cell) for column, cell in zip(columns, tables[0].rows[SSL], strict=True)},
    )  # fmt: skip


def figure6(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figure 6: local epochs E on non-IID clients, with the same number of epochs in all.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    columns = {f"E = {epochs}": epochs for epochs in _EPOCHS[scale]}

    def build_cell(objective, epochs):
        return Cell(
            f"{objective}_epochs{epochs}",
            "pretrain",
            (
                *_flags(scale, dataset, epochs, rounds), *_PARTITIONS["labels"],
                f"--alpha={_FIGURE6_ALPHA}", f"--objective={objective}",
                "--hparam=learning_rate_schedule=constant",
            ),
            _evaluations(objective, scale),
        )  # fmt: skip

    cells, table = _sweep(f"Local epochs, alpha = {_FIGURE6_ALPHA}", scale, columns, build_cell)
    first, *_, last = columns
    return Experiment(
        "dec_ssl_figure6", f"Dec-SSL, Figure 6, on {dataset} at {scale} scale", cells, (table,),
        tuple(_robustness_claims(table, first, last)),
        ("Published as curves without numbers: Dec-SSL hardly falls with E, supervised learning "
         "does. The number of epochs in all is the same in each column, and the learning rate "
         "constant: steps between rounds would come at other epochs in each.",),
        {f"alpha {_FIGURE6_ALPHA}": cells[0].name},
    )  # fmt: skip


# FeatARC as its paper prints it; see the head of `algorithms.featarc`.
_PRINTED = (
    "--hparam=exclude_own=false", "--hparam=first_cluster=parity",
    "--hparam=switch_probability=1", "--hparam=warmup_rounds=0",
)  # fmt: skip
# Row -> (name of its folders, its flags): FeatARC with its parts, and other methods.
_FEATARC = {
    "FedAvg": ("fedavg", ("--algorithm=fedbn",)),
    "align only": ("align", ("--algorithm=featarc", "--hparam=clusters=1", *_PRINTED)),
    "cluster only": ("cluster", ("--algorithm=featarc", "--hparam=lambda_align=0", *_PRINTED)),
    "FeatARC": ("featarc", ("--algorithm=featarc", *_PRINTED)),
}
_OTHER_METHODS = {
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
    methods = {**_FEATARC, **_OTHER_METHODS} if scale == "paper" else _FEATARC
    columns = tuple(splits)
    cells, rows = [], {}
    for row, (name, flags) in methods.items():
        names = []
        for split, alpha in splits.items():
            names.append(f"{name}_{split.lower().replace('-', '')}")
            preset = _flags(scale, dataset, epochs, rounds)
            if row in _OTHER_METHODS:
                # FedU's threshold is no hyperparameter of FedEMA.
                file = "fedu" if name == "fedu" else "clients"
                preset = (f"--flagfile=launch/presets/fedu/{scale}/{file}.flags", *preset[1:])
            cells.append(
                Cell(names[-1], "pretrain", (
                    *preset, *_PARTITIONS["labels"], f"--alpha={alpha}",
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
        Claim(f"FeatARC is above {other}", title, _above("FeatARC", other, worst))
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


# Row -> (name of its folders, number of clients, flags). The paper's star has a server in its
# centre.
_NETWORKS = {
    "Star with a server": ("star_server", 10, ()),
    "Star": ("star", 10, ("--algorithm=dfedavg", "--topology=star")),
    "Cycle": ("cycle", 10, ("--algorithm=dfedavg", "--topology=cycle")),
    "Binary tree": ("tree", 20, ("--algorithm=dfedavg", "--topology=tree")),
    "Random graph": (
        "random", 20, ("--algorithm=dfedavg", "--topology=erdos_renyi", "--connectivity=0.7"),
    ),
}  # fmt: skip
# Images of the smallest client. With 20 clients and 10 classes at alpha = 0.01, the partition may
# leave a client a single image, and NT-Xent needs two. The paper does not give its smallest client.
_SMALLEST = 10
_NETWORK_EPOCHS = {"paper": 50, "cpu": 4}
# Largest loss of accuracy that counts as the paper's "stable to the non-IIDness" and "a similar
# behaviour".
_STABLE = 0.05


def figure12(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figure 12: Dec-SSL on networks without a server, against non-IIDness.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    alphas = _ALPHAS[scale] if scale == "paper" else ("5", "0.01")
    columns = tuple(f"alpha {alpha}" for alpha in alphas)
    cells, rows = [], {}
    for row, (name, clients, flags) in _NETWORKS.items():
        names = []
        for alpha in alphas:
            names.append(f"{name}_alpha{alpha}")
            cohort = () if flags else (f"--clients_per_round={clients}",)
            cells.append(
                Cell(names[-1], "pretrain", (
                    *_flags(scale, dataset, _NETWORK_EPOCHS[scale], rounds, "networks"),
                    *_PARTITIONS["labels"], f"--alpha={alpha}", f"--num_clients={clients}",
                    f"--min_client_size={_SMALLEST}",
                    "--objective=nt_xent", *(flags or ("--algorithm=fedbn",)), *cohort,
                ))
            )  # fmt: skip
        rows[row] = tuple(names)
    title, best, worst = "Topologies", columns[0], columns[-1]

    def stable(row: str) -> Callable[[Lookup], bool]:
        return lambda v: v(row, best) - v(row, worst) < _STABLE

    def near_the_server(row: str) -> Callable[[Lookup], bool]:
        return lambda v: v("Star with a server", worst) - v(row, worst) < _STABLE

    claims = [
        Claim(f"{row}: less than 5 points lost from {best} to {worst}", title, stable(row))
        for row in rows
    ]
    claims += [
        Claim(f"{row}: less than 5 points below the server at {worst}", title, near_the_server(row))
        for row in rows
        if row != "Star with a server"
    ]
    untrained = Table(
        "Untrained encoder", Selector("linear", baseline="random_encoder"), ("accuracy",),
        {"untrained": (cells[0].name,)}, {},
    )  # fmt: skip
    return Experiment(
        "dec_ssl_figure12", f"Dec-SSL, Figure 12, on {dataset} at {scale} scale", tuple(cells),
        (Table(title, Selector("linear"), columns, rows, {}), untrained), tuple(claims),
        ("Published as curves without numbers: on every topology Dec-SSL is stable to "
         "non-IIDness. 10 clients on star and cycle, 20 on tree and random graph (connectivity "
         "0.7), all take part, E = 50. The model evaluated is the mean of the clients' models. "
         f"Clients with fewer than {_SMALLEST} images are filled up from the largest client.",),
    )  # fmt: skip


EXPERIMENTS = {
    "dec_ssl_figure2": (figure2, "Dec-SSL, Dec-SLRep and Dec-SL against non-IIDness"),
    "dec_ssl_figure6": (figure6, "Dec-SSL, Dec-SLRep and Dec-SL against local epochs"),
    "dec_ssl_figure5": (figure5, "FeatARC against FedAvg, its parts, FedU and FedEMA"),
    "dec_ssl_figure12": (figure12, "Dec-SSL on networks without a server"),
}
