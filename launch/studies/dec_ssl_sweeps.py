"""What the experiments of the Dec-SSL paper share: rows, flags, tables and statements.

At the CPU's scale, all sweeps but Figures 2 and 5 have the setting of
`presets/dec_ssl/cpu/sweeps.flags`, in which a run takes about a minute.
"""

from collections.abc import Iterable, Mapping

from launch.studies.engine.statements import each_above, keeps_most, loses_less, say, slug
from launch.studies.engine.study import UNTRAINED, At, Rows, grid, table
from tff_ssl.reporting.experiment import Cell, Claim, Table
from tff_ssl.reporting.measured import Selector

SSL, SLREP, SL = "Dec-SSL", "Dec-SLRep", "Dec-SL"
METHODS = (SSL, SLREP, SL)
BY_LABELS = "--partition=dirichlet_per_class"
# Degrees of non-IIDness in the paper: alpha of the Dirichlet partition.
PAPERS_ALPHAS = ("5", "1", "0.5", "0.1", "0.01")
CURVES = "Published as curves without numbers: "
# The setting of the sweeps at the CPU's scale, for the claims.
SWEEPS = "CIFAR-10, 5000 images, tiny ResNet at 16x16, 10 epochs in all."


def local_epochs(at: At) -> int:
    """Number of local epochs E where they do not vary; the paper has E = 5 or 50."""
    return at(2, 5)


def labels(at: At) -> int:
    """Number of labels of the probes, as in the presets."""
    return at(5000, 50_000)


def training(
    at: At,
    epochs: int | None = None,
    total_epochs: int | None = None,
    share: float = 1.0,
    preset: str = "",
) -> str:
    """Flags of preset, data set, local epochs and rounds.

    Args:
      at: The scale.
      epochs: Number of local epochs E; None for `local_epochs`.
      total_epochs: Number of epochs in all over all clients' images; None for 10 and 500.
      share: Share rho of the clients that take part in a round.
      preset: Name of the preset, of this paper if it has no folder; "" for that of the sweeps.
    """
    epochs = epochs or local_epochs(at)
    rounds = max(1, round((total_epochs or at(10, 500)) / epochs / share))
    preset = preset or at("sweeps", "server")
    path = preset if "/" in preset else f"dec_ssl/{preset}"
    return f"{at.training(path, rounds)} --hparam=local_epochs={epochs}"


def skewed(beta: float) -> str:
    """Flags of clients with a fraction beta of IID images and exclusive classes beside them."""
    return f"--partition=skew --beta={beta:g}"


def by_alpha(alphas: Iterable[str], start: str, *flags: str) -> dict[str, tuple[str, str]]:
    """Columns of `grid` for degrees of non-IIDness."""
    return {
        f"alpha {alpha}": (f"{start}alpha{alpha}", f"{' '.join(flags)} --alpha={alpha}")
        for alpha in alphas
    }


def probe(at: At) -> str:
    """The evaluation of a supervised encoder, whose run ends with the result of its classifier."""
    draws = at(5, 1)  # All labels can be drawn in one way only.
    return f"--protocol=linear --labels={labels(at)} --label_draws={draws}"


def sweep(
    at: At,
    title: str,
    columns: Mapping[str, tuple[str, ...]],
    *flags: str,
    needs: str | None = None,
) -> tuple[list[Cell], Table]:
    """The cells and the table of a figure: a row for each learning method.

    Dec-SL is the classifier of the supervised run, Dec-SLRep a probe of its encoder, so that both
    take one training.

    Args:
      at: The scale.
      title: Title of the table.
      columns, flags, needs: See `grid`.
    """
    rows = {
        SSL: ("nt_xent", "--objective=nt_xent"),
        SLREP: ("supervised", "--objective=supervised", probe(at)),
    }
    cells, names = grid(rows, columns, *flags, needs=needs)
    return cells, accuracies(at, title, columns, {**names, SL: names[SLREP]})


def accuracies(at: At, title: str, columns: Iterable[str], rows: Rows) -> Table:
    """A table of linear probes and Dec-SL's classifier; the first row is also shown untrained."""
    first = next(iter(rows))
    return table(
        title, Selector("linear", labels(at)), columns, rows, untrained={UNTRAINED: first},
        selectors={SL: Selector("supervised")} if SL in rows else {},
    )  # fmt: skip


def robust(shown: Table, start: str = "") -> list[Claim]:
    """Statements that Dec-SSL suffers less than supervised methods from first to last column.

    Their ids are `START` with `less.` or `above.` and the other method.
    """
    text = "At {column}, {row} is above {other}"
    return [
        *loses(shown, f"{start}less", SSL, (SLREP, SL)),
        *each_above(shown, f"{start}above", SSL, (SLREP, SL), text, shown.columns[-1]),
    ]


def loses(
    shown: Table, name: str, row: str, others: Iterable[str], columns: Iterable[str] = ()
) -> list[Claim]:
    """A statement for each of others: `row` loses less from the first to the last column."""
    first, *_, last = columns or shown.columns
    return [
        Claim(f"From {first} to {last}, {row} loses less than {other}", shown.title,
              loses_less(row, other, first, last), f"{name}.{slug(other)}")
        for other in others
    ]  # fmt: skip


def keeps(shown: Table, name: str, row: str = SSL) -> list[Claim]:
    """The statement that `row` is stable from the first to the last column."""
    first, *_, last = shown.columns
    return say(
        shown, name, f"From {first} to {last}, {row} keeps more than half of its gain over the "
        "untrained encoder", keeps_most(row, first, last),
    )  # fmt: skip
