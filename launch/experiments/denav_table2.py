"""Table 2 of the DeNAV paper: DeNAV against federated self-supervised methods."""

import dataclasses
from typing import NamedTuple

from launch.experiments.denav_cells import (
    DEPTH,
    DOWNSTREAM,
    LOCAL_EPOCHS,
    NOTE,
    SCRATCH,
    STEPS,
    above,
    denav,
    finetunings,
    length,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

DENAV = "DeNAV"
_EPOCHS = {scale: 2 * epochs for scale, epochs in LOCAL_EPOCHS.items()}  # 10 in the paper.
# The paper's baselines train five clients in each of 200 rounds, and so five times as many local
# epochs as DeNAV in 200 steps. At the CPU's scale all methods have equally many.
_PER_ROUND = 5
_DEPTH_FLAGS: dict[str, tuple[str, ...]] = {
    "paper": (),  # A ResNet has no blocks to stack.
    "cpu": (f"--depth={DEPTH}",),
}
_ROUNDS = {"paper": 200, "cpu": STEPS["cpu"] // _PER_ROUND}
# Batch norm needs several images in the smallest client of all methods.
_SMALLEST = "--min_client_size=8"
_SPLITS = {"IID": ("--partition=iid",), "non-IID": ()}  # The presets have the non-IID one.
_AVERAGED = ("--algorithm=fedbn", "--hparam=batch_norm=averaged")


class _Baseline(NamedTuple):
    """A federated baseline.

    Attributes:
      folder: Start of the names of its cells.
      flags: Flags of its algorithm.
      only: Flags by scale.
      published: CIFAR-10 IID and non-IID, and CIFAR-100 likewise, in percent.
    """

    folder: str
    flags: tuple[str, ...]
    only: dict[str, tuple[str, ...]]
    published: tuple[float, float, float, float]


# At the CPU's scale a target network learns in as many steps as it has, and weights of one method
# alone are those of its preset for the digits.
_TARGET = "--hparam=target_momentum=0.98"
_BASELINES = {
    "Fed-SimSiam": _Baseline(
        "simsiam", (*_AVERAGED, "--objective=simsiam"), {"paper": (), "cpu": ()},
        (89.91, 89.58, 68.52, 71.46),
    ),
    "Fed-SimCLR": _Baseline(
        "simclr", (*_AVERAGED, "--objective=nt_xent"),
        {"paper": (), "cpu": ("--hparam=temperature=0.2",)}, (89.54, 90.39, 67.20, 71.24),
    ),
    "FedU": _Baseline(
        "fedu", ("--algorithm=fedu",),
        {"paper": ("--hparam=mu=0.4", "--hparam=divergence=mean_layer_l2"),
         "cpu": (_TARGET, "--hparam=mu=1.15")}, (77.43, 72.02, 40.40, 38.44),
    ),
    "FedEMA": _Baseline(
        "fedema", ("--algorithm=fedema",),
        {"paper": ("--hparam=tau=0.7",), "cpu": (_TARGET, "--hparam=tau=0.3")},
        (70.73, 71.00, 40.78, 41.13),
    ),
    "Orchestra": _Baseline(
        "orchestra", ("--algorithm=orchestra",),
        {"paper": (), "cpu": (_TARGET, "--hparam=temperature=0.3", "--hparam=global_clusters=64")},
        (88.87, 90.66, 72.11, 72.27),
    ),
}  # fmt: skip
_PUBLISHED = (91.12, 91.00, 74.50, 73.89)  # DeNAV, in the same order.
# Rates of `rates`, in factors of about 3.
_ADAM = ("0.0005", "0.0015", "0.0045")
_RATES = {
    "cpu": {DENAV: _ADAM, "baseline": _ADAM},
    "paper": {DENAV: ("0.00005", "0.00015", "0.00045"), "baseline": ("0.01", "0.032", "0.1")},
}
# The rate of each method, as a place in the rates. At the CPU's scale it was chosen by `rates`, and
# `measured/denav_table2_rates-cpu.jsonl` has the accuracies. At the paper's it is the presets' own.
_CHOSEN = {
    "cpu": {
        DENAV: 0, "Fed-SimSiam": 1, "Fed-SimCLR": 2, "FedU": 1, "FedEMA": 0, "Orchestra": 0,
    },
    "paper": dict.fromkeys((DENAV, *_BASELINES), 1),
}  # fmt: skip
_NOTES = (
    NOTE,
    "Published: 10 local epochs, 200 steps of DeNAV, 200 rounds of 5 clients of the baselines, "
    "which have ResNets. ImageNet and Mini-INAT, which the paper has too, are left out.",
    "At CPU scale: 20 local epochs, 60 steps of DeNAV and 12 rounds of 5 clients, equally many "
    "epochs in all. All methods have the encoder of DeNAV, so that methods are compared and not a "
    "ResNet with a transformer. Hyperparameters that belong to one method alone are those of "
    "its preset for the digits.",
)


def table2(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 2: DeNAV against federated methods on IID and non-IID clients.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set for pretraining; None for the preset's.
      rounds: Number of rounds of each run (DeNAV: steps); None for the experiment's.
    """
    cells: list[Cell] = []
    rows: dict[str, tuple[str, ...]] = {}
    for row in (*_BASELINES, DENAV):
        of_row = [
            _cell(row, split, scale, dataset, rounds, baseline=row == DENAV) for split in _SPLITS
        ]
        cells += of_row
        rows[row] = tuple(cell.name for cell in of_row)
    tables = [
        Table(
            f"Table 2: fine-tuned on {name}",
            Selector("finetune", dataset=downstream),
            tuple(_SPLITS),
            {**rows, SCRATCH: rows[DENAV]},
            {
                **{row: one.published[2 * i : 2 * i + 2] for row, one in _BASELINES.items()},
                DENAV: _PUBLISHED[2 * i : 2 * i + 2],
            },
            {SCRATCH: Selector("finetune", baseline="random_encoder", dataset=downstream)},
        )
        for i, (name, downstream) in enumerate(DOWNSTREAM[scale].items())
    ]
    claims = tuple(
        Claim(f"DeNAV is above {row} on {split} clients", table.title, above(DENAV, row, split))
        for table in tables
        for row in _BASELINES
        for split in _SPLITS
    )
    return Experiment(
        "denav_table2", f"DeNAV, Table 2, at {scale} scale", tuple(cells), tuple(tables), claims,
        (*_NOTES, "Rates of the CPU's scale: `denav_table2_rates`."),
        dict(zip(_SPLITS, rows[DENAV], strict=True)),
    )  # fmt: skip


def rates(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Three rates of each method of Table 2 on non-IID clients, to be run with one seed."""
    cells, rows, choices = [], {}, {}
    for row in (*_BASELINES, DENAV):
        of_row = [
            _cell(row, "non-IID", scale, dataset, rounds, trial) for trial in _trials(row, scale)
        ]
        cells += of_row
        rows[row], choices[row] = (row,), [cell.name for cell in of_row]
    return Experiment(
        "denav_table2_rates", f"Rates of DeNAV, Table 2, at {scale} scale", tuple(cells),
        (
            Table("Linear probe on the data of pretraining", Selector("linear"),
                  ("at the chosen rate",), rows, {}),
        ),
        (),
        (*_NOTES, "Run this with `--seeds=1`. What counts are the choices on training images."),
        choices=choices,
    )  # fmt: skip


def _trials(row: str, scale: str) -> tuple[str, str, str]:
    """The rates of a method that are tried."""
    return _RATES[scale][DENAV if row == DENAV else "baseline"]


def _cell(
    row: str,
    split: str,
    scale: str,
    dataset: str | None,
    rounds: int | None,
    trial: str | None = None,
    baseline: bool = False,
) -> Cell:
    """A method on clients of a split, at its rate, or at the rate `trial` without fine-tuning."""
    folder = "denav" if row == DENAV else _BASELINES[row].folder
    name = f"{folder}_{trial or split.lower().replace('-', '')}"
    rate = trial or _trials(row, scale)[_CHOSEN[scale][row]]
    own = (
        *_SPLITS[split], _SMALLEST, f"--hparam=local_epochs={_EPOCHS[scale]}",
        f"--hparam=client_learning_rate={rate}",
    )  # fmt: skip
    if row == DENAV:
        cell = denav(name, scale, dataset, rounds or STEPS[scale], *own, baseline=baseline)
        return dataclasses.replace(cell, evaluations=()) if trial else cell
    one = _BASELINES[row]
    return Cell(
        name,
        "pretrain",
        (
            f"--flagfile=launch/presets/denav/{scale}/federated.flags",
            *((f"--dataset={dataset}",) if dataset else ()),
            *length(rounds or _ROUNDS[scale]),
            *one.flags, *one.only[scale], *own,
        ),
        () if trial else finetunings(scale, False, *_DEPTH_FLAGS[scale]),
    )  # fmt: skip


EXPERIMENTS = {
    "denav_table2": (table2, "DeNAV against federated SimSiam, SimCLR, FedU, FedEMA, Orchestra"),
    "denav_table2_rates": (rates, "the learning rates of denav_table2, three for each method"),
}
