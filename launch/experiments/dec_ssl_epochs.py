"""Figures 6 (c) and 8 (a, b) of the Dec-SSL paper: local epochs E, and other SSL methods."""

from collections.abc import Mapping

from launch.experiments.dec_ssl_sweeps import (
    SL,
    SLREP,
    SSL,
    TOTAL_EPOCHS,
    accuracies,
    evaluations,
    keeps_most,
    loses_less,
    robustness_claims,
    sweep,
    training_flags,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table

# Scale -> numbers of epochs in all -> numbers of local epochs E. The paper has one budget.
_BUDGETS: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "paper": {TOTAL_EPOCHS["paper"]: (1, 5, 10, 50, 100, 250)},
    "cpu": {TOTAL_EPOCHS["cpu"]: (1, 2, 5), 2 * TOTAL_EPOCHS["cpu"]: (1, 10)},
}
_ALPHA = "0.02"  # Table 3.
_CLIENTS = (
    "--partition=dirichlet_per_class", f"--alpha={_ALPHA}",
    "--hparam=learning_rate_schedule=constant",
)  # fmt: skip
_OTHER_METHODS = {"BYOL": "byol", "SimSiam": "simsiam"}
# Without batch norm on the projector's output, the small networks' encodings collapse. The target
# network has to follow in fewer steps than the paper's.
_SIAMESE_CPU = ("--projector_output_batch_norm",)
_BYOL_CPU = ("--hparam=target_momentum=0.95",)


def figure6(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figures 6 (c) and 8 (a, b): local epochs E on non-IID clients, with equal epochs in all.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    cells: tuple[Cell, ...] = ()
    tables: tuple[Table, ...] = ()
    claims: list[Claim] = []
    for total, numbers in _BUDGETS[scale].items():

        def build_cell(objective, epochs, total=total):
            name = f"{objective}_epochs{epochs}"
            return Cell(
                name if total == TOTAL_EPOCHS[scale] else f"{name}_of{total}",
                "pretrain",
                (
                    *training_flags(scale, dataset, rounds, epochs, total), *_CLIENTS,
                    f"--objective={objective}",
                ),
                evaluations(objective, scale),
            )  # fmt: skip

        columns = {f"E = {epochs}": epochs for epochs in numbers}
        title = f"Local epochs, alpha = {_ALPHA}, {total} epochs in all"
        budget_cells, table = sweep(title, scale, columns, build_cell)
        first, *_, last = columns
        cells, tables = (*cells, *budget_cells), (*tables, table)
        claims += robustness_claims(table, first, last)
    other_cells, table = _other_methods(scale, dataset, rounds, tables[0])
    first, last = table.columns
    for row in _OTHER_METHODS:
        claims += [
            keeps_most(table, row, first, last),
            loses_less(table, row, SLREP, first, last),
        ]
    return Experiment(
        "dec_ssl_figure6", f"Dec-SSL, Figures 6 (c) and 8, on {dataset} at {scale} scale",
        (*cells, *other_cells), (*tables, table), tuple(claims),
        ("Published as curves without numbers: Dec-SSL hardly falls with E, supervised learning "
         "does; so it is with BYOL and SimSiam. The number of epochs in all is the same in each "
         "column, and the learning rate constant: steps between rounds would come at other epochs "
         "in each.",),
        {f"alpha {_ALPHA}": cells[0].name},
    )  # fmt: skip


def _other_methods(
    scale: str, dataset: str, rounds: int | None, table: Table
) -> tuple[list[Cell], Table]:
    """The cells and the table of BYOL and SimSiam at the smallest and the largest E.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set.
      rounds: Number of rounds; None for those that follow from the epochs.
      table: The table of the local epochs, whose supervised runs are shown, too.
    """
    numbers = _BUDGETS[scale][TOTAL_EPOCHS[scale]]
    ends = (0, len(numbers) - 1)
    cells: list[Cell] = []
    rows: dict[str, tuple[str | None, ...]] = {}
    for row, objective in _OTHER_METHODS.items():
        names: list[str | None] = []
        for epochs in (numbers[i] for i in ends):
            names.append(f"{objective}_epochs{epochs}")
            if scale == "paper":
                flags = training_flags(scale, dataset, rounds, epochs, preset="byol")
            else:
                flags = (*training_flags(scale, dataset, rounds, epochs), *_SIAMESE_CPU)
                flags += _BYOL_CPU if objective == "byol" else ()
            cells.append(
                Cell(str(names[-1]), "pretrain", (*flags, *_CLIENTS, f"--objective={objective}"))
            )
        rows[row] = tuple(names)
    for row in (SSL, SLREP, SL):
        rows[row] = tuple(table.rows[row][i] for i in ends)
    columns = tuple(table.columns[i] for i in ends)
    return cells, accuracies("Figure 8: other SSL methods", scale, columns, rows)


EXPERIMENTS = {
    "dec_ssl_figure6": (
        figure6,
        "Dec-SSL with SimCLR, BYOL and SimSiam, Dec-SLRep and Dec-SL against local epochs",
    ),
}
