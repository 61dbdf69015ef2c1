"""Tables 8 to 13 of the DeNAV paper: the influence of S, K, C, omega, Z and lambda.

All tables vary one setting of the same two cells, the default one and that of parallel training: an
experiment with all six has the fewest runs. The caption of Table 12 says H, the highest computing
rank; its rows and its text (appendix A.6.5) are about the limit Z.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from launch.studies import denav
from launch.studies.engine.claims import PaperClaim, Trial, claim
from launch.studies.engine.statements import above, say, times_below
from launch.studies.engine.study import UNTRAINED, At, study
from tff_ssl.reporting.experiment import Claim, Contrast, Experiment, Table

_DEFAULT, _PARALLEL = "default", "parallel"
_TIME = "simulated time"
_MODELS = f"--hparam=models={denav.MODELS}"


class _Sweep(NamedTuple):
    """A table of one setting."""

    table: int
    start: str  # Of its cells' names.
    flags: str  # `{}` stands for the value; "" for the number of steps.
    # Value of the paper -> CIFAR-10 and CIFAR-100 in percent, and minutes if any.
    published: Mapping[float, tuple[float, ...]]
    cpu: Mapping[float, float]  # Value at the CPU's scale -> the paper's that is shown beside it.
    usual: tuple[float, float]  # The value by default at each scale,
    base: str = _DEFAULT  # and the cell that has it.


# By the paper's symbol.
_SWEEPS = {
    "S": _Sweep(
        8, "steps", "",
        {200: (90.64, 73.51, 37.6), 400: (90.85, 74.87, 73.1), 600: (91.83, 74.57, 111.9),
         800: (92.16, 75.04, 154.9), 1000: (92.47, 75.54, 194.1)},
        {60: 200, 120: 400, 300: 1000}, (60, 200),
    ),
    "K": _Sweep(
        9, "epochs", "--hparam=local_epochs={}",
        {1: (88.31, 70.16, 10.2), 5: (90.64, 73.51, 37.6), 10: (91.41, 74.98, 75.5),
         15: (91.74, 74.88, 109.3)},
        {2: 1, 10: 5, 20: 10, 30: 15}, (10, 5),
    ),
    "C": _Sweep(
        10, "models", "--hparam=models={}",
        {1: (90.90, 73.81, 36.8), 5: (91.48, 73.44, 40.1), 10: (91.81, 74.04, 43.4),
         15: (91.88, 75.25, 46.6)},
        {1: 1, 3: 10, 5: 15}, (1, 1),
    ),
    "omega": _Sweep(
        11, "connectivity", "--connectivity={}",
        {0.03: (89.17, 72.01), 0.15: (90.64, 73.51), 0.75: (91.16, 73.65)},
        {0.06: 0.03, 0.3: 0.15, 0.75: 0.75}, (0.3, 0.15),
    ),
    "Z": _Sweep(
        12, "limit", "--hparam=selection_limit={}",
        {1: (89.51, 71.90, 36.4), 3: (90.64, 73.51, 37.6), 5: (91.05, 74.31, 45.7),
         7: (92.15, 74.72, 54.2)},
        {1: 1, 3: 3, 5: 5, 7: 7}, (3, 3),
    ),
    "lambda": _Sweep(
        13, "staleness", f"{_MODELS} --hparam=staleness_bound={{}}",
        {1: (91.39, 74.35), 5: (91.46, 74.49), 20: (90.64, 73.51), 50: (90.52, 73.45),
         200: (90.43, 73.64)},
        {1: 1, 5: 5, 60: 200}, (5, 5), _PARALLEL,
    ),
}  # fmt: skip
_NOTES = (
    denav.NOTE,
    "Z is 1.5 S / M, rounded up, in Table 8, too. The caption of Table 12 says H, its rows and its "
    "text are about Z. The published figures beside a value of the CPU's scale are those of the "
    "paper's value with the same ratio to the number of clients (S, omega), or with the same "
    "meaning (lambda: no bound).",
    "Simulated time of parallel models is that of steps in which all models wait for the slowest "
    "one; the paper averages over models.",
)


@study("DeNAV, Tables 8 to 13, at {scale} scale")
def denav_influence(at: At) -> Experiment:
    """DeNAV's steps, epochs, models, network, limit and bound."""
    steps = at(*denav.STEPS)
    cells = {
        _DEFAULT: denav.denav(at, _DEFAULT, steps, scratch=True),
        _PARALLEL: denav.denav(at, _PARALLEL, steps, _MODELS),
    }
    tables: dict[str, Table] = {}
    statements: list[Any] = []
    for symbol, sweep in _SWEEPS.items():
        values = at(sweep.cpu, {value: value for value in sweep.published})
        usual, rows, published = at(*sweep.usual), {}, {}
        for value, papers in values.items():
            name = sweep.base if value == usual else f"{sweep.start}_{value}"
            name = _PARALLEL if (symbol, value) == ("C", denav.MODELS) else name
            if name not in cells:
                of_run = at
                if not sweep.flags:  # Table 8 has multiples of the user's number of rounds.
                    rounds = int((at.rounds or steps) * value // steps)
                    of_run = dataclasses.replace(at, rounds=rounds)
                cells[name] = denav.denav(of_run, name, steps, sweep.flags.format(value))
            rows[f"{symbol} = {value}"] = name
            published[f"{symbol} = {value}"] = sweep.published[papers]
        title = f"Table {sweep.table}"
        for key, shown in denav.accuracy_tables(at, title, rows, published, _DEFAULT).items():
            tables[f"{symbol}.{key}"] = shown
            statements.append(_better(shown, symbol, list(rows), f"{symbol} = {usual}"))
        if all(len(figures) > 2 for figures in published.values()):
            minutes = {row: figures[2:] for row, figures in published.items()}
            title = f"{title}: {_TIME} of pretraining (published: minutes)"
            shown = denav.counts(title, "simulated_time", rows, minutes)
            tables[f"{symbol}.time"] = shown
            statements.append(_longer(shown, symbol, list(values), usual))
    partitions = {"clients": _DEFAULT}
    return at.build(cells.values(), tables, statements, partitions, _NOTES, costs=denav.COSTS)


def _better(shown: Table, symbol: str, rows: list[str], usual: str) -> list[list[Claim]]:
    """The paper's statements on accuracy."""
    (first, *_, last), column = rows, "accuracy"
    pairs = [(usual, first), (usual, last)] if symbol == "lambda" else [(last, first)]
    if symbol in ("omega", "Z"):
        pairs += [(usual, first), (last, usual)]
    statements = [
        say(shown, "better", f"{better} is better than {worse}", above(better, worse, column))
        for better, worse in pairs
    ]
    if symbol == "K":
        second, third = rows[1:3]
        gains = {(second, column): 1, (first, column): -1, (last, column): -1, (third, column): 1}
        text = f"The gain levels off: {third} to {last} less than {first} to {second}"
        statements.append(say(shown, "better", text, (Contrast(gains),)))
    if symbol == "Z":
        z1, z3, z5, z7 = ((row, column) for row in rows)
        gaps = Contrast({z3: 2, z1: -1, z5: -1}), Contrast({z3: 1, z1: -1, z7: -1, z5: 1})
        text = f"From {first} to {usual} accuracy rises more than from each larger Z to the next"
        statements.append(say(shown, "gap", text, gaps))
    return statements


def _longer(shown: Table, symbol: str, values: list[float], usual: float) -> list[Claim]:
    """The paper's statement on time."""
    ratio = values[-1] / usual
    first = f"{symbol} = {values[0] if symbol == 'Z' else usual}"
    last = f"{symbol} = {values[-1]}"
    if symbol == "Z":
        return say(shown, "longer", f"{last} takes longer than {first}", above(last, first, _TIME))
    at_least, at_most = times_below(0.85 * ratio, first, last, _TIME), 1.15 * ratio
    words = "in proportion (within 15 %)"
    if symbol == "C":
        at_least, at_most, words = (), ratio / 2, "less than half as much as C"
    grows_less = Contrast({(first, _TIME): at_most, (last, _TIME): -1})
    text = f"From {first} to {last} time grows {words}"
    return say(shown, "longer", text, (*at_least, grows_less))


def _claim(
    name: str, symbol: str, text: str, note: str, statement: str = "better"
) -> PaperClaim:  # fmt: skip
    """A claim of a table, tried fine-tuned and in linear probes."""
    sweep = _SWEEPS[symbol]
    rows = [f"{symbol} = {value}" for value in sweep.cpu]
    time = " C.time" if symbol == "C" else ""
    kinds = (("", "tuned.*", denav.SCRATCH, note), (", linear probe", "probed", UNTRAINED, ""))
    return PaperClaim(
        name, f"Table {sweep.table}", text,
        tuple(
            Trial(
                f"{denav.SMALL} 60 steps of 10 epochs where they do not vary{measure}.",
                "denav_influence-cpu", f"{symbol}.{kind}.{statement}{time}", (*rows, baseline),
                ("accuracy",), own_note,
            )
            for measure, kind, baseline, own_note in kinds
        ),
    )  # fmt: skip


CLAIMS = (
    _claim("N8", "S", "More steps S are better: 90.64 with 200, 92.47 with 1000.",
           "Linear probes get better with more steps, too, by 1.4 points."),
    _claim("N9", "K", "More local epochs K are better, up to 10 to 15: 88.31, 90.64, 91.41, 91.74 "
           "with 1, 5, 10, 15.", "More local epochs are better. That the gain "
           "levels off is shown in linear probes alone."),
    _claim("N10", "C",
           "More parallel models C are better, for little time: 90.90 with one, 91.88 with 15.",
           "Neither fine-tuned nor in linear probes is a difference shown. Five models take twice "
           "the simulated time of one, here until the slowest has ended; the paper's is a mean."),
    _claim("N11", "omega",
           "A denser network is better: 89.17, 90.64, 91.16 at connectivity 0.03, 0.15, 0.75.",
           "Fine-tuned, the densest network has a lower mean than the sparsest one. Neither "
           "fine-tuned nor in linear probes is a difference shown."),
    _claim("N12", "Z", "A larger limit Z is better: 89.51, 90.64, 92.15 with 1, 3, 7.",
           "In linear probes a limit of one, with which the navigator has no choice, is lower, by "
           "1.3 points; between 3 and 7 no difference is shown. Fine-tuned, none is."),
    _claim("N13", "lambda", "A staleness bound of 5 is best: 91.46, with 1 91.39, with 200 90.43.",
           "A bound of 5 is two points above no bound (60). A bound of 1 is better still, by 1.3 "
           "points; in linear probes, no difference from 5 is shown."),
    _claim("N23", "Z", "The accuracy rises most from Z = 1 to 3, because Z must be at least S / M: "
           "by 1.1 points, then by 0.4 and 1.1.", "By the means, it rises by 0.9 points fine-tuned "
           "and by 1.3 in linear probes, and by 0.4 at most from 3 on.", "gap"),
    claim("N17", "Tables 8, 9 and 12", "Time grows in proportion to S and K, and with Z: 37.6 "
          "minutes with S = 200, 194.1 with 1000.", f"{denav.SMALL} Within 15 % of the proportion.",
          "denav_influence-cpu", "S.time K.time Z.time", ("S = 60", "S = 120", "S = 300"),
          (_TIME,), "Simulated time. With S it grows by 4.4 times for five times as many steps. "
          "With K and Z it grows as the paper says."),
)  # fmt: skip
