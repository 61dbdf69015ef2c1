"""The default run of every algorithm: `launch.pretrain --algorithm=NAME`, with no other flag."""

from launch.options import presets
from tff_ssl.algorithms import registry
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

_COLUMN = "test accuracy"
# Number of labels of the probe -> title of its table.
_TABLES = {10: "Linear probe, one label a class", 50: "Linear probe, five labels a class"}
_MARGIN = 0.05  # With five labels a class, a default is this much above the untrained encoder.


def digits_defaults(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """The default run of every algorithm of the registry, beside its untrained encoder.

    Args:
      scale: `cpu` or `paper`; defaults are the same at both.
      dataset: Name of the data set; None for the preset's, the digits.
      rounds: Number of rounds of each run; None for the preset's.
    """
    changes = [f"--dataset={dataset}"] if dataset else []
    changes += [f"--rounds={rounds}"] if rounds else []
    cells = tuple(
        Cell(name, "pretrain", (f"--flagfile={_preset(name)}", f"--algorithm={name}", *changes))
        for name in registry.ALGORITHMS
    )
    return Experiment(
        "digits_defaults",
        f"The default run of every algorithm, at {scale} scale",
        cells,
        tuple(_table(labels, title) for labels, title in _TABLES.items()),
        tuple(_claim(name, labels) for labels in _TABLES for name in registry.ALGORITHMS),
        (
            "A default is what a user gets who names the algorithm and nothing else. Clients, "
            "encoders and rounds differ between kinds of algorithms, so that the table does not "
            "compare algorithms with each other. Each stands beside its own untrained encoder.",
            "Nothing of this is published; the claims are what a default has to do.",
        ),
    )


def _preset(name: str) -> str:
    path = presets.of_algorithm(name)
    assert path is not None, name  # Every kind of algorithm has a preset.
    return str(presets.shown(path))


def _table(labels: int, title: str) -> Table:
    """The accuracies of the trained and untrained encoders with so many labels."""
    untrained = Selector("linear", labels, baseline="random_encoder")
    rows = {"raw pixels": ("dcco",)}
    for name in registry.ALGORITHMS:
        rows[name] = rows[_untrained(name)] = (name,)
    selectors = {_untrained(name): untrained for name in registry.ALGORITHMS}
    selectors["raw pixels"] = untrained._replace(baseline="raw_pixels")
    return Table(title, Selector("linear", labels), (_COLUMN,), rows, {}, selectors)


def _untrained(name: str) -> str:
    return f"{name}, untrained"


def _claim(name: str, labels: int) -> Claim:
    """The claim that a default is above its untrained encoder, by a margin with more labels."""
    margin = 0.0 if labels == min(_TABLES) else _MARGIN

    def holds(value: Lookup) -> bool:
        return value(name, _COLUMN) > value(_untrained(name), _COLUMN) + margin

    points = f" by more than {100 * margin:.0f} points" if margin else ""
    return Claim(f"{name} is above its untrained encoder{points}", _TABLES[labels], holds)


EXPERIMENTS = {
    "digits_defaults": (digits_defaults, "the default run of every algorithm, on the digits"),
}
