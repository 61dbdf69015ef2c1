"""Figures 2 (features), 9, 11 and 18 of the Dec-SSL paper: clients whose images differ in kind."""

from launch.experiments.dec_ssl_sweeps import (
    LABELS,
    LOCAL_EPOCHS,
    MANY_LOCAL_EPOCHS,
    OBJECTIVES,
    SL,
    SLREP,
    SSL,
    accuracies,
    evaluations,
    keeps_most,
    robustness_claims,
    sweep,
    training_flags,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

# Numbers of local epochs in Figures 2 and 11; the paper gives none for the latter.
_EPOCHS = {**LOCAL_EPOCHS, "paper": 50}
# Degrees of non-IIDness: alpha of the Dirichlet partition.
_ALPHAS = {"paper": ("5", "1", "0.5", "0.1", "0.01"), "cpu": ("5", "0.01")}
_BY_LABELS = "--partition=dirichlet_per_class"
_BY_FEATURES = (
    "--partition=feature_clusters", "--clusters=5", "--cluster_partition=dirichlet_per_class",
    "--cluster_encoder={needed}",
)  # fmt: skip
# Kind of input shift -> name of the table.
_SHIFTS = {"rotation": "Rotated clients", "style": "Styled clients"}
_CURVES = "Published as curves without numbers: "


def _claims(table: Table, best: str, worst: str) -> list[Claim]:
    """Claims that Dec-SSL is robust from column `best` to `worst`, by itself and beside others."""
    return [keeps_most(table, SSL, best, worst), *robustness_claims(table, best, worst)]


def features(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figures 2 (features) and 18: non-IID clusters of features of a supervised encoder.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    encoder = Cell(
        "features", "centralized",
        (f"--flagfile=launch/presets/dec_ssl/{scale}/features.flags", f"--dataset={dataset}"),
    )  # fmt: skip

    def build_cell(objective, alpha):
        return Cell(
            f"{objective}_alpha{alpha}", "pretrain",
            (
                *training_flags(scale, dataset, rounds, _EPOCHS[scale]), *_BY_FEATURES,
                f"--alpha={alpha}", f"--objective={objective}",
            ),
            evaluations(objective, scale), encoder.name,
        )  # fmt: skip

    columns = {f"alpha {alpha}": alpha for alpha in _ALPHAS[scale]}
    cells, table = sweep("Non-IIDness of features", scale, columns, build_cell)
    first, *_, last = columns
    return Experiment(
        "dec_ssl_features",
        f"Dec-SSL, Figures 2 (features) and 18, on {dataset} at {scale} scale",
        (encoder, *cells), (table,), tuple(_claims(table, first, last)),
        (
            f"{_CURVES}Dec-SSL hardly falls where clients have clusters of features of their own, "
            "supervised learning does. The clusters are those of the features of an encoder that "
            "was trained on the labels (`features`), in the paper a ResNet-50.",
        ),
        {column: f"{OBJECTIVES[SSL]}_alpha{alpha}" for column, alpha in columns.items()},
    )  # fmt: skip


def figure11(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figure 11: clients with rotated or styled images, against the non-IIDness of labels.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    cells: tuple[Cell, ...] = ()
    tables: tuple[Table, ...] = ()
    columns = {f"alpha {alpha}": alpha for alpha in _ALPHAS[scale]}
    for shift, title in _SHIFTS.items():

        def build_cell(objective, alpha, shift=shift):
            return Cell(
                f"{objective}_{shift}_alpha{alpha}", "pretrain",
                (
                    *training_flags(scale, dataset, rounds, _EPOCHS[scale]),
                    _BY_LABELS, f"--alpha={alpha}", f"--shift={shift}", f"--objective={objective}",
                ),
                evaluations(objective, scale),
            )  # fmt: skip

        shift_cells, table = sweep(title, scale, columns, build_cell)
        cells, tables = (*cells, *shift_cells), (*tables, table)
    first, *_, last = columns
    return Experiment(
        "dec_ssl_figure11", f"Dec-SSL, Figure 11, on {dataset} at {scale} scale", cells, tables,
        tuple(claim for table in tables for claim in _claims(table, first, last)),
        (
            f"{_CURVES}Dec-SSL is as robust to non-IID labels where, in addition, each of five "
            "clients sees its images turned by an angle of its own, or in a style of its own. "
            "Evaluated on images that are neither turned nor styled.",
        ),
        {
            f"{shift}, {column}": f"{OBJECTIVES[SSL]}_{shift}_alpha{alpha}"
            for shift in _SHIFTS
            for column, alpha in columns.items()
        },
    )  # fmt: skip


_FIGURE9_ALPHA = "0.1"
_D_W = "d_w"
# Distances of local models in appendix B.3: w_1 from the global model, and w_1 from w_3.
_DISTANCES = {
    "Local models from the global one": ("local_distance_to_global", (17.16,), (178.92,)),
    "Local models from each other": ("local_distance_between", (20.27,), (202.69,)),
}


def figure9(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figure 9 and appendix B.3: how far local models of a round are from the global one.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    cells = {
        row: Cell(
            OBJECTIVES[row], "pretrain",
            (
                *training_flags(scale, dataset, rounds, MANY_LOCAL_EPOCHS[scale]), _BY_LABELS,
                f"--alpha={_FIGURE9_ALPHA}", f"--objective={OBJECTIVES[row]}",
                "--hparam=keep_local=true", "--personalized_clients=3",
            ),
            evaluations(OBJECTIVES[row], scale),
        )
        for row in (SSL, SLREP)
    }  # fmt: skip
    rows = {row: (cell.name,) for row, cell in cells.items()}
    tables = [
        Table(
            title, Selector("linear", LABELS[scale], metric=metric), (_D_W,), rows,
            {SSL: of_ssl, SLREP: of_slrep}, {SLREP: Selector("supervised", metric=metric)},
            percent=False,
        )
        for title, (metric, of_ssl, of_slrep) in _DISTANCES.items()
    ]  # fmt: skip
    tables.append(accuracies("Accuracy", scale, ("accuracy",), {**rows, SL: rows[SLREP]}))
    return Experiment(
        "dec_ssl_figure9",
        f"Dec-SSL, Figure 9 and appendix B.3, on {dataset} at {scale} scale",
        tuple(cells.values()), tuple(tables),
        tuple(
            Claim(
                f"{title}: Dec-SSL's are closer than Dec-SLRep's", title,
                lambda v: v(SSL, _D_W) < v(SLREP, _D_W),
            )
            for title in _DISTANCES
        ),
        (
            "The distance d_w of two encoders is the sum over their layers of the l2 norm of the "
            "difference. Published: of the first client's model from the global one, and from the "
            "third client's, after the last round. Measured: means over the first three clients.",
        ),
        {f"alpha {_FIGURE9_ALPHA}": cells[SSL].name},
    )  # fmt: skip


EXPERIMENTS = {
    "dec_ssl_features": (features, "Dec-SSL and Dec-SL on clients with clusters of features"),
    "dec_ssl_figure11": (figure11, "Dec-SSL and Dec-SL on rotated and styled clients"),
    "dec_ssl_figure9": (figure9, "distances of local models from the global one"),
}
