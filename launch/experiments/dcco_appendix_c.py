"""Appendix C of the DCCO paper: BYOL and SimSiam with batch norm and with group norm."""

from launch.experiments.dcco import UNTRAINED
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

# Appendix C, linear probe in percent: batch norm, group norm.
_NORMALIZATION = {"BYOL": (41.0, 3.0), "SimSiam": (None, None)}
_NORMS = {"batch norm": "batch", "group norm": "group"}
# With batch norm, small networks need it on the projector's output too; else encodings collapse.
_CPU_FLAGS = {"batch": ("--projector_output_batch_norm",), "group": ()}
_CPU_NOTE = (
    "Measured: CIFAR-10, because a tiny ResNet hardly learns CIFAR-100. With batch norm, the "
    "projector's output is normalized too, without which BYOL's encodings collapse here."
)


def appendix_c(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Appendix C: BYOL and SimSiam, centralized, with batch norm and with group norm."""
    cells, rows = [], {}
    for row in _NORMALIZATION:
        names = [f"{row.lower()}_{norm}" for norm in _NORMS.values()]
        for name, norm in zip(names, _NORMS.values(), strict=True):
            flags = [
                f"--flagfile=launch/presets/dcco_appendix_c/{scale}/centralized.flags",
                f"--objective={row.lower()}",
                f"--norm={norm}",
                *(_CPU_FLAGS[norm] if scale == "cpu" else ()),
                *((f"--dataset={dataset}",) if dataset else ()),
                *((f"--rounds={rounds}",) if rounds else ()),
            ]
            cells.append(Cell(name, "centralized", tuple(flags)))
        rows[row] = tuple(names)
    columns = tuple(_NORMS)
    # Networks of different norms have different untrained encoders.
    rows[UNTRAINED] = rows["BYOL"]
    title = "Linear probe, 5000 labels"
    table = Table(
        title, Selector("linear", 5000), columns, rows, _NORMALIZATION,
        {UNTRAINED: Selector("linear", 5000, baseline="random_encoder")},
    )  # fmt: skip

    def better(row: str):
        return lambda v: v(row, columns[0]) > v(row, columns[1])

    def nothing_learned(row: str):
        return lambda v: v(row, columns[1]) <= v(UNTRAINED, columns[1])

    claims = [
        Claim(f"{row} is better with batch norm", title, better(row)) for row in _NORMALIZATION
    ]
    claims += [
        Claim(f"{row} with group norm learns nothing: no better than an untrained encoder", title,
              nothing_learned(row))
        for row in _NORMALIZATION
    ]  # fmt: skip
    return Experiment(
        "dcco_appendix_c", f"DCCO, Appendix C, at {scale} scale", tuple(cells), (table,),
        tuple(claims),
        (
            "Published: CIFAR-100, ResNet-14, 800 epochs of batches of 512; the curves of "
            "SimSiam's Figure 3b have no numbers.",
            *([_CPU_NOTE] if scale == "cpu" else ()),
        ),
    )  # fmt: skip


EXPERIMENTS = {
    "dcco_appendix_c": (appendix_c, "BYOL and SimSiam with batch norm and with group norm"),
}
