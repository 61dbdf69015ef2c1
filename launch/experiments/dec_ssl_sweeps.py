"""What the experiments of the Dec-SSL paper have in common: rows, flags, tables and claims.

At the CPU's scale, all sweeps but Figures 2 and 5 have the setting of
`presets/dec_ssl/cpu/sweeps.flags`, in which a run takes about a minute.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tff_ssl.reporting.experiment import Cell, Claim, Lookup, Table
from tff_ssl.reporting.measured import Selector

SSL, SLREP, SL = "Dec-SSL", "Dec-SLRep", "Dec-SL"
UNTRAINED = "(untrained encoder)"
OBJECTIVES = {SSL: "nt_xent", SLREP: "supervised", SL: "supervised"}
LABELS = {"paper": 50_000, "cpu": 5000}  # Number of labels of the probes, as in the presets.
# Number of epochs in all, and of local epochs E where they do not vary. The paper has E = 5 or 50.
TOTAL_EPOCHS = {"paper": 500, "cpu": 10}
LOCAL_EPOCHS = {"paper": 5, "cpu": 2}
MANY_LOCAL_EPOCHS = {"paper": 50, "cpu": 5}
_PRESETS = {"paper": "server", "cpu": "sweeps"}


def training_flags(
    scale: str,
    dataset: str,
    rounds: int | None,
    epochs: int | None = None,
    total_epochs: int | None = None,
    participation: float = 1.0,
    preset: str | None = None,
) -> tuple[str, ...]:
    """Flags of preset, data set, local epochs and rounds.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set.
      rounds: Number of rounds; None for those that follow from the epochs.
      epochs: Number of local epochs E; None for `LOCAL_EPOCHS`.
      total_epochs: Number of epochs in all over all clients' images; None for `TOTAL_EPOCHS`.
      participation: Share rho of the clients that take part in a round.
      preset: Name of the preset; None for that of the sweeps.
    """
    epochs = epochs or LOCAL_EPOCHS[scale]
    total_epochs = total_epochs or TOTAL_EPOCHS[scale]
    return (
        f"--flagfile=launch/presets/dec_ssl/{scale}/{preset or _PRESETS[scale]}.flags",
        f"--dataset={dataset}",
        f"--hparam=local_epochs={epochs}",
        f"--rounds={rounds or max(1, round(total_epochs / epochs / participation))}",
    )


def skewed(beta: float) -> tuple[str, ...]:
    """Flags of clients with a fraction beta of IID images and exclusive classes beside them."""
    return ("--partition=skew", f"--beta={beta:g}")


def sweep(
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
    for row, objective in OBJECTIVES.items():
        row_cells = [build_cell(objective, setting) for setting in columns.values()]
        cells |= {cell.name: cell for cell in row_cells}
        rows[row] = tuple(cell.name for cell in row_cells)
    return tuple(cells.values()), accuracies(title, scale, tuple(columns), rows)


def accuracies(
    title: str, scale: str, columns: tuple[str, ...], rows: Mapping[str, tuple[str | None, ...]]
) -> Table:
    """A table of linear probes, with Dec-SL's classifier and the untrained encoder.

    Args:
      title: Title of the table.
      scale: `cpu` or `paper`.
      columns: Headings of the columns.
      rows: Names of the cells by row; the encoder of the first row is also shown untrained.
    """
    probe = Selector("linear", LABELS[scale])
    first = next(iter(rows.values()))
    return Table(
        title, probe, columns, {**rows, UNTRAINED: first}, {},
        {
            **({SL: Selector("supervised")} if SL in rows else {}),
            UNTRAINED: probe._replace(baseline="random_encoder"),
        },
    )  # fmt: skip


def evaluations(objective: str, scale: str) -> tuple[tuple[str, ...], ...]:
    """Evaluations after a training.

    A supervised run ends with the result of its classifier, so that its encoder is probed here; the
    other runs probe theirs.
    """
    draws = {"paper": 1, "cpu": 5}[scale]  # All labels can be drawn in one way only.
    probe = ("--protocol=linear", f"--labels={LABELS[scale]}", f"--label_draws={draws}")
    return (probe,) if objective == "supervised" else ()


def robustness_claims(table: Table, best: str, worst: str) -> list[Claim]:
    """Claims that Dec-SSL suffers less than supervised methods from column `best` to `worst`."""
    return [loses_less(table, SSL, other, best, worst) for other in (SLREP, SL)] + [
        Claim(f"At {worst}, Dec-SSL is above {other}", table.title, above(SSL, other, worst))
        for other in (SLREP, SL)
    ]


def loses_less(table: Table, row: str, other: str, best: str, worst: str) -> Claim:
    """The claim that `row` loses less than `other` from column `best` to `worst`."""
    return Claim(
        f"From {best} to {worst}, {row} loses less than {other}",
        table.title,
        lambda v: v(row, best) - v(row, worst) < v(other, best) - v(other, worst),
    )


def keeps_most(table: Table, row: str, best: str, worst: str) -> Claim:
    """The claim that `row` is stable from column `best` to `worst`.

    The paper shows curves and gives no bound. Here a method is stable if it keeps more than half of
    what training has gained.
    """

    def holds(value: Lookup) -> bool:
        gains = [value(row, column) - value(UNTRAINED, column) for column in (best, worst)]
        return gains[1] > max(gains[0], 0) / 2

    return Claim(
        f"From {best} to {worst}, {row} keeps more than half of its gain over the untrained "
        "encoder",
        table.title,
        holds,
    )


def above(row: str, other: str, column: str) -> Callable[[Lookup], bool]:
    """The condition that `row` is above `other` in a column."""
    return lambda v: v(row, column) > v(other, column)
