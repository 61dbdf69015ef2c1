"""What the DCCO paper names as open work, each beside DCCO as it is published."""

from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

_PRESET = "launch/presets/dcco_extensions.flags"
_LARGER = ("--alpha=1000", "--samples_per_client=16", "--clients_per_round=8")
# Row -> the name of its folder, and its flags. A round has 128 images in all of them.
_SETTINGS = {
    "DCCO": ("dcco", ("--algorithm=dcco",)),
    "DCCO with VICReg": ("vicreg", ("--algorithm=dcco", "--objective=vicreg")),
    "two encoders, a view each": ("towers_views", ("--algorithm=dcco", "--towers=views")),
    "two encoders, a half each": (
        "towers_halves",
        ("--algorithm=dcco", "--towers=halves", "--view_size=32"),
    ),
    "one communication, last round's statistics": (
        "one_stage_0",
        ("--algorithm=dcco_one_stage", "--hparam=statistics_momentum=0"),
    ),
    "one communication, momentum 0.5": (
        "one_stage_0.5",
        ("--algorithm=dcco_one_stage", "--hparam=statistics_momentum=0.5"),
    ),
    "one communication, momentum 0.9": (
        "one_stage_0.9",
        ("--algorithm=dcco_one_stage", "--hparam=statistics_momentum=0.9"),
    ),
    "clients of 16, one local step": ("steps_1", ("--algorithm=dcco", *_LARGER)),
    "clients of 16, two local steps": (
        "steps_2",
        ("--algorithm=dcco", *_LARGER, "--hparam=local_steps=2",
         "--hparam=client_learning_rate=1e-4"),
    ),
    "clients of 16, four local steps": (
        "steps_4",
        ("--algorithm=dcco", *_LARGER, "--hparam=local_steps=4",
         "--hparam=client_learning_rate=1e-4"),
    ),
}  # fmt: skip
# The digits have one colour.
_COLOUR = {
    "two encoders, red and blue": (
        "towers_colour_planes",
        ("--algorithm=dcco", "--towers=colour_planes"),
    ),
}
_COLUMN = "test accuracy"


def extensions(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """DCCO's extensions on the digits (`cpu`) or on CIFAR-100 (`paper`), clients of one class.

    Args:
      scale: `cpu` or `paper`.
      dataset: Another data set.
      rounds: Rounds of a run instead of the preset's.
    """
    preset = "launch/presets/dcco_table1_paper_dcco.flags" if scale == "paper" else _PRESET
    common = [f"--flagfile={preset}"]
    if dataset:
        common.append(f"--dataset={dataset}")
    if rounds:
        common.append(f"--rounds={rounds}")
    settings = _SETTINGS | (_COLOUR if scale == "paper" else {})
    cells = tuple(Cell(name, "pretrain", (*common, *flags)) for name, flags in settings.values())
    rows = {row: (name,) for row, (name, _) in settings.items()}
    counts = (500, 5000) if scale == "paper" else (10, 50)
    tables = tuple(
        Table(f"Linear probe, {labels} labels", Selector("linear", labels), (_COLUMN,), rows, {})
        for labels in counts
    )
    return Experiment(
        "dcco_extensions",
        f"DCCO beyond its paper, at {scale} scale",
        cells,
        tables,
        tuple(claim for table in tables for claim in _claims(table)),
        (
            "Nothing of this is published: section 6 of the paper names it as open work. The "
            "claims are expectations.",
        ),
    )


def _claims(table: Table) -> list[Claim]:
    def value(lookup: Lookup, row: str) -> float:
        return lookup(row, _COLUMN)

    def close(row: str, other: str = "DCCO"):
        return lambda v: value(v, row) >= value(v, other) - 0.02

    return [
        Claim(text, table.title, holds)
        for text, holds in (
            ("VICReg's statistics do as well as CCO's (within 2 points)",
             close("DCCO with VICReg")),
            ("Two encoders do as well as one (within 2 points)",
             close("two encoders, a view each")),
            ("One communication a round costs at most 2 points",
             close("one communication, last round's statistics")),
            ("Several local steps with stale statistics cost at most 2 points",
             close("clients of 16, four local steps", "clients of 16, one local step")),
        )
    ]  # fmt: skip


EXPERIMENTS = {
    "dcco_extensions": (extensions, "VICReg, two encoders, local steps, one communication a round"),
}
