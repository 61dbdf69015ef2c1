"""Tables 8 to 13 of the DeNAV paper: the influence of S, K, C, omega, Z and lambda.

All tables vary one setting of the same two cells, the default one and that of parallel training, so
that an experiment with all six has the fewest runs. The caption of Table 12 says H; its rows and
its text (appendix A.6.5) are about the limit Z. H is the highest computing rank.
"""

from collections.abc import Mapping
from typing import NamedTuple

from launch.experiments.denav_cells import (
    COSTS,
    LOCAL_EPOCHS,
    MODELS,
    NOTE,
    PROBED,
    STEPS,
    above,
    accuracy_tables,
    counts,
    denav,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table

_Number = int | float
_DEFAULT, _PARALLEL = "default", "parallel"
_TIME, _TIME_COLUMN = "simulated time of pretraining (published: minutes)", "simulated time"


class _Sweep(NamedTuple):
    """A table of one setting.

    Attributes:
      table: Name of the table.
      symbol: The paper's symbol of the setting.
      folder: Start of the names of its cells.
      published: Value of the paper -> CIFAR-10 and CIFAR-100 in percent, and minutes if any.
      cpu: Values at the CPU's scale, each with the paper's value in whose row the paper's figures
        are shown.
      base: The cell that has the value `usual`.
      usual: Value of `base` at each scale.
    """

    table: str
    symbol: str
    folder: str
    published: Mapping[_Number, tuple[float, ...]]
    cpu: Mapping[_Number, _Number]
    base: str
    usual: Mapping[str, _Number]

    def values(self, scale: str) -> Mapping[_Number, _Number]:
        """The values at a scale, each with the paper's value beside it."""
        return self.cpu if scale == "cpu" else {value: value for value in self.published}

    def row(self, value: _Number) -> str:
        return f"{self.symbol} = {value}"

    def rows(self, scale: str) -> list[str]:
        return [self.row(value) for value in self.values(scale)]


_S = _Sweep(
    "Table 8", "S", "steps",
    {200: (90.64, 73.51, 37.6), 400: (90.85, 74.87, 73.1), 600: (91.83, 74.57, 111.9),
     800: (92.16, 75.04, 154.9), 1000: (92.47, 75.54, 194.1)},
    {60: 200, 120: 400, 300: 1000}, _DEFAULT, STEPS,
)  # fmt: skip
_K = _Sweep(
    "Table 9", "K", "epochs",
    {1: (88.31, 70.16, 10.2), 5: (90.64, 73.51, 37.6), 10: (91.41, 74.98, 75.5),
     15: (91.74, 74.88, 109.3)},
    {2: 1, 10: 5, 20: 10, 30: 15}, _DEFAULT, LOCAL_EPOCHS,
)  # fmt: skip
_C = _Sweep(
    "Table 10", "C", "models",
    {1: (90.90, 73.81, 36.8), 5: (91.48, 73.44, 40.1), 10: (91.81, 74.04, 43.4),
     15: (91.88, 75.25, 46.6)},
    {1: 1, 3: 10, 5: 15}, _DEFAULT, {"paper": 1, "cpu": 1},
)  # fmt: skip
_OMEGA = _Sweep(
    "Table 11", "omega", "connectivity",
    {0.03: (89.17, 72.01), 0.15: (90.64, 73.51), 0.75: (91.16, 73.65)},
    {0.06: 0.03, 0.3: 0.15, 0.75: 0.75}, _DEFAULT, {"paper": 0.15, "cpu": 0.3},
)  # fmt: skip
_Z = _Sweep(
    "Table 12", "Z", "limit",
    {1: (89.51, 71.90, 36.4), 3: (90.64, 73.51, 37.6), 5: (91.05, 74.31, 45.7),
     7: (92.15, 74.72, 54.2)},
    {1: 1, 3: 3, 5: 5, 7: 7}, _DEFAULT, {"paper": 3, "cpu": 3},
)  # fmt: skip
_LAMBDA = _Sweep(
    "Table 13", "lambda", "staleness",
    {1: (91.39, 74.35), 5: (91.46, 74.49), 20: (90.64, 73.51), 50: (90.52, 73.45),
     200: (90.43, 73.64)},
    {1: 1, 5: 5, 60: 200}, _PARALLEL, {"paper": 5, "cpu": 5},
)  # fmt: skip
_SWEEPS = (_S, _K, _C, _OMEGA, _Z, _LAMBDA)


def influence(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Tables 8 to 13.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set for pretraining; None for the preset's.
      rounds: Number of steps by default; None for the experiment's. Table 8 has multiples of it.
    """
    cells = {
        _DEFAULT: _cell(_DEFAULT, scale, dataset, rounds, baseline=True),
        _PARALLEL: _cell(_PARALLEL, scale, dataset, rounds, f"--hparam=models={MODELS}"),
    }
    tables: list[Table] = []
    claims: list[Claim] = []
    for sweep in _SWEEPS:
        rows = {}
        for value in sweep.values(scale):
            name = _name(sweep, value, scale)
            if name not in cells:
                cells[name] = _changed(sweep, value, name, scale, dataset, rounds)
            rows[sweep.row(value)] = name
        published = {
            sweep.row(value): sweep.published[papers]
            for value, papers in sweep.values(scale).items()
        }
        accuracies = accuracy_tables(sweep.table, scale, rows, published, _DEFAULT, scale in PROBED)
        tables += accuracies
        claims += [claim for table in accuracies for claim in _claims(sweep, table, scale)]
        if all(len(figures) > 2 for figures in published.values()):
            minutes = {row: (figures[2],) for row, figures in published.items()}
            tables.append(counts(f"{sweep.table}: {_TIME}", "simulated_time", rows, minutes))
            claims += _time_claims(sweep, tables[-1], scale)
    return Experiment(
        "denav_influence", f"DeNAV, Tables 8 to 13, at {scale} scale", tuple(cells.values()),
        tuple(tables), tuple(claims),
        (
            NOTE,
            "Z is 1.5 S / M, rounded up, in Table 8, too. The caption of Table 12 says H, its rows "
            "and its text are about Z. The published figures beside a value of the CPU's scale are "
            "those of the paper's value with the same ratio to the number of clients (S, omega), "
            "or with the same meaning (lambda: no bound).",
            "Simulated time of parallel models is that of steps in which all models wait for the "
            "slowest one; the paper averages over models.",
        ),
        {"clients": _DEFAULT},
        costs=COSTS,
    )  # fmt: skip


def _name(sweep: _Sweep, value: _Number, scale: str) -> str:
    """Name of the cell with a value."""
    if value == sweep.usual[scale]:
        return sweep.base
    return _PARALLEL if (sweep, value) == (_C, MODELS) else f"{sweep.folder}_{value}"


def _cell(
    name: str, scale: str, dataset: str | None, rounds: int | None, *flags: str,
    baseline: bool = False,
) -> Cell:  # fmt: skip
    return denav(
        name, scale, dataset, rounds or STEPS[scale], *flags, baseline=baseline,
        probed=scale in PROBED,
    )  # fmt: skip


def _changed(
    sweep: _Sweep, value: _Number, name: str, scale: str, dataset: str | None, rounds: int | None
) -> Cell:
    """The cell of a value that neither base has."""
    if sweep is _S:
        steps = int(value) if rounds is None else rounds * int(value) // STEPS[scale]
        return _cell(name, scale, dataset, steps)
    flags = {
        "epochs": (f"--hparam=local_epochs={value}",),
        "models": (f"--hparam=models={value}",),
        "connectivity": (f"--connectivity={value}",),
        "limit": (f"--hparam=selection_limit={value}",),
        "staleness": (f"--hparam=models={MODELS}", f"--hparam=staleness_bound={value}"),
    }[sweep.folder]
    return _cell(name, scale, dataset, rounds, *flags)


def _claims(sweep: _Sweep, table: Table, scale: str) -> list[Claim]:
    """The paper's statements on accuracy."""
    rows = sweep.rows(scale)
    first, last, usual = rows[0], rows[-1], sweep.row(sweep.usual[scale])
    pairs = [(last, first)]
    if sweep is _OMEGA or sweep is _Z:
        pairs.append((usual, first))
    if sweep is _LAMBDA:
        pairs = [(usual, first), (usual, last)]
    claims = [
        Claim(f"{better} is better than {worse}", table.title, above(better, worse))
        for better, worse in pairs
    ]
    if sweep is _K:
        second, third = rows[1:3]

        def levels_off(v: Lookup) -> bool:
            gained = v(second, "accuracy") - v(first, "accuracy")
            return v(last, "accuracy") - v(third, "accuracy") < gained

        claims.append(
            Claim(f"The gain levels off: {third} to {last} less than {first} to {second}",
                  table.title, levels_off)
        )  # fmt: skip
    return claims


def _time_claims(sweep: _Sweep, table: Table, scale: str) -> list[Claim]:
    """The paper's statements on time."""
    values = list(sweep.values(scale))
    usual = sweep.usual[scale]
    ratio = values[-1] / usual
    first, last = sweep.row(usual), sweep.row(values[-1])
    if sweep is _Z:
        first = sweep.row(values[0])
        return [
            Claim(
                f"{last} takes longer than {first}", table.title, above(last, first, _TIME_COLUMN)
            )
        ]

    def grown(v: Lookup) -> float:
        return v(last, _TIME_COLUMN) / v(first, _TIME_COLUMN)

    if sweep is _C:
        return [
            Claim(f"From {first} to {last} time grows less than half as much as C", table.title,
                  lambda v: grown(v) < ratio / 2)
        ]  # fmt: skip
    return [
        Claim(f"From {first} to {last} time grows in proportion (within 15 %)", table.title,
              lambda v: abs(grown(v) / ratio - 1) < 0.15)
    ]  # fmt: skip


EXPERIMENTS = {
    "denav_influence": (influence, "DeNAV's steps, epochs, models, network, limit and bound"),
}
