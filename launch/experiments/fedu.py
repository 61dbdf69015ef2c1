"""Tables 1 and 2 of the FedU paper, with its two encoders side by side."""

from collections.abc import Callable

from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

# Split -> flags of the partition.
SPLITS = {"IID": ("--partition=iid",), "non-IID": ("--partition=skew", "--beta=0")}
SINGLE, SUPERVISED = "Single client training", "FedAvg (supervised)"
CENTRAL = "BYOL (centralized)"
UNTRAINED = "untrained encoder"
# The threshold of DAPU at the CPU's scale, of the squared distance (Eq. 3) and of its mean over the
# parameters, which hardly depends on the encoder.
_CPU_MU, _CPU_MEAN_MU = "2.6", "2.75e-5"
_BYOL, _SIMSIAM, _SIMCLR = "--objective=byol", "--objective=simsiam", "--objective=nt_xent"
# Table 1 in percent: CIFAR-10 IID and non-IID, CIFAR-100 IID and non-IID; with ResNet-18 if the
# paper has it, else with ResNet-50.
_TABLE1 = {
    SINGLE: (81.24, 71.98, 51.33, 49.69),
    "FedSimCLR": (68.10, 64.06, 39.75, 38.70),
    "FedCA": (71.25, 68.01, 43.30, 42.34),
    "FedSimSiam": (79.64, 76.70, 46.28, 48.80),
    "FedBYOL": (None, None, None, None),
    "FedU": (85.21, 78.71, 56.52, 57.08),
    SUPERVISED: (91.51, 67.74, 65.77, 64.38),
    CENTRAL: (91.85, None, 66.51, None),
}
# FedU with ResNet-50 in the same table.
_FEDU_RESNET50 = (86.48, 83.25, 59.51, 61.94)
# Row -> (name of its folders, its flags).
METHODS = {
    SINGLE: (
        "single",
        ("--algorithm=fedbn", _BYOL, "--hparam=averaging=none", "--personalized_clients=5"),
    ),
    "FedSimCLR": ("fedsimclr", ("--algorithm=fedbn", _SIMCLR, "--hparam=batch_norm=averaged")),
    # The alignment needs an encoder of public images, which are not here.
    "FedCA": ("fedca", ("--algorithm=fedca", "--hparam=alignment_weight=0")),
    # SimSiam's own projector has batch norm on its output (Chen and He 2021, section 4).
    "FedSimSiam": (
        "fedsimsiam",
        (
            "--algorithm=fedbn",
            _SIMSIAM,
            "--hparam=batch_norm=averaged",
            "--projector_output_batch_norm",
        ),
    ),
    "FedBYOL": (
        "fedbyol",
        ("--algorithm=fedu", "--hparam=update=both", "--hparam=predictor_update=global"),
    ),
    "FedU": ("fedu", ("--algorithm=fedu",)),
    SUPERVISED: (
        "supervised",
        ("--algorithm=fedbn", "--objective=supervised", "--hparam=batch_norm=averaged"),
    ),
}
# Table 2 in percent, by share of the labels: the columns of Table 1.
_TABLE2: dict[str, dict[float, tuple[float | None, ...]]] = {
    SINGLE: {
        0.01: (74.76, 60.25, 26.32, 21.95), 0.1: (78.08, 70.60, 43.05, 37.70),
    },
    SUPERVISED: {0.01: (26.68, 17.72, 8.09, 14.47), 0.1: (40.44, 21.69, 5.37, 13.98)},
    "FedSimCLR": {0.01: (50.00, 26.03, 23.01, 14.02), 0.1: (60.67, 33.83, 31.56, 20.01)},
    "FedCA": {0.01: (50.67, 28.50, 23.32, 16.48), 0.1: (61.02, 36.28, 32.09, 22.46)},
    "FedU": {0.01: (79.40, 68.28, 31.31, 30.36), 0.1: (82.61, 78.52, 47.64, 48.80)},
    CENTRAL: {0.01: (89.07, None, 41.49, None), 0.1: (89.66, None, 60.23, None)},
}  # fmt: skip
_FRACTIONS = (0.01, 0.1)
_TABLE1_NOTES = {
    "paper": ("FedCA has no alignment, because it needs an encoder of public images.",),
    "cpu": (
        "At this scale: clients with 160 images each, a ResNet of three blocks at 12x12, 200 "
        "rounds of one epoch. Supervised clients have all images whose labels the probe or the "
        "fine-tuning has, in as many steps; in Table 1 these are 5000. BYOL (centralized) is one "
        "client with 800 images. FedCA has no alignment, because it needs an encoder of public "
        "images.",
    ),
}
_ENCODER_NOTES = {
    "paper": ("Published in Table 1.",),
    "cpu": (
        "At this scale the larger encoder has twice the channels of the smaller one, and as many "
        "layers. 75 rounds. The threshold of DAPU is one of the mean over the parameters.",
    ),
}
# Fine-tuning: 100 epochs of a tenth of the labels (section 4.3, which gives neither optimizer nor
# learning rate).
_FINETUNING = {"paper": ("--finetune_batch_size=128", "--finetune_steps=3900"), "cpu": ()}
_TRAIN_IMAGES = 50_000
# At the CPU's scale, clients have less than 2 % of the images, and the probe has a tenth of the
# labels. Supervised clients have the probe's images there, in as many steps as the others.
_SUPERVISED_ROUNDS = {0.01: 333, 0.1: 32}
# The CPU scale's centralized BYOL: one client that has as many images as all clients together, so
# that 25 steps a round replace 54 % of its target network.
_CENTRAL_CPU = (
    "--algorithm=fedu", "--partition=iid", "--num_clients=1", "--clients_per_round=1",
    "--hparam=target_momentum=0.97",
)  # fmt: skip
# The encoders of the last statement of section 4.2, and the rounds in which they are compared.
_ENCODERS = {"paper": ("resnet18", "resnet50"), "cpu": ("tiny", "small")}
_ENCODER_ROUNDS = {"paper": None, "cpu": 75}


def common(scale: str, dataset: str, rounds: int | None) -> tuple[str, ...]:
    """Flags of all federated cells."""
    name = {"cpu": "fedu", "paper": "clients"}[scale]
    preset = f"--flagfile=launch/presets/fedu/{scale}/{name}.flags"
    return (preset, f"--dataset={dataset}", *_length(rounds))


def _length(rounds: int | None) -> tuple[str, ...]:
    return (f"--rounds={rounds}",) if rounds else ()


def threshold(scale: str, dataset: str) -> tuple[str, ...]:
    """Flags of DAPU: the paper's mu for the data set (section 4.1), or the CPU scale's own.

    The paper's mu belongs to the divergence that the authors' code takes. At the CPU's scale the
    divergence falls from 2.8 in the first round to 2.4 from the fifth round on, and passes 2.6 on
    the way; with a cosine schedule it passes 2.6 in the middle of the run.
    """
    if scale == "cpu":
        return (f"--hparam=mu={_CPU_MU}",)
    mu = {"cifar100": 0.6, "mini_imagenet": 0.6}.get(dataset, 0.4)
    return (f"--hparam=mu={mu}", "--hparam=divergence=mean_layer_l2")


def above(row: str, other: str, column: str) -> Callable[[Lookup], bool]:
    """The comparison of two rows of a column."""
    return lambda v: v(row, column) > v(other, column)


def method_flags(row: str, scale: str, dataset: str) -> tuple[str, ...]:
    """Flags of a row of `METHODS`, with the threshold of those that have one."""
    _, flags = METHODS[row]
    return (*flags, *(threshold(scale, dataset) if "--algorithm=fedu" in flags else ()))


def central_cell(
    scale: str, dataset: str, rounds: int | None, evaluations: tuple[tuple[str, ...], ...]
) -> Cell:
    """Centralized BYOL on the images of all clients, or on as many."""
    if scale == "cpu":
        return Cell(
            "central", "pretrain", (*common(scale, dataset, rounds), *_CENTRAL_CPU), evaluations
        )
    preset = f"--flagfile=launch/presets/fedu/{scale}/centralized.flags"
    flags = (preset, f"--dataset={dataset}", *_length(rounds))
    return Cell("central", "centralized", flags, evaluations)


def _fraction_cell(cell: str, fraction: float) -> str:
    """Name of the cell that is `cell` with a fraction of the labels."""
    return f"{cell}_{round(100 * fraction)}_percent"


def table1(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Tables 1 and 2: linear probe, and fine-tuning with 1 % and 10 % of the labels.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for the presets'.
    """
    dataset = dataset or "cifar10"
    cells, rows = _table1_cells(scale, dataset, rounds)
    tables = _table1_tables(scale, dataset, rows)
    columns = tuple(SPLITS)
    claims = [
        Claim(f"FedU is above {other} on {column} clients", tables[0].title,
              above("FedU", other, column))
        for other in (SINGLE, "FedSimCLR", "FedCA", "FedSimSiam")
        for column in columns
    ]  # fmt: skip
    claims += [
        Claim(f"FedU is above {other} on {column} clients", table.title,
              above("FedU", other, column))
        for table in tables[1:]
        for other in (SINGLE, "FedSimCLR", "FedCA", SUPERVISED)
        for column in columns
    ]  # fmt: skip
    claims.append(
        Claim("On non-IID clients FedU is above supervised FedAvg's own classifier",
              tables[0].title, above("FedU", SUPERVISED, "non-IID"))
    )  # fmt: skip
    claims += [
        Claim(f"{CENTRAL} is above FedU on IID clients", table.title, above(CENTRAL, "FedU", "IID"))
        for table in tables
    ]
    return Experiment(
        "fedu_table1", f"FedU, Tables 1 and 2, on {dataset} at {scale} scale", tuple(cells),
        tables, tuple(claims),
        (
            "Published: 5 clients, 100 rounds of 5 epochs, ResNet-18 for single client training "
            "and FedU, ResNet-50 for the others. Single client training: in Table 1 the mean over "
            "the clients' own models, in Table 2 the first client's.",
            *_TABLE1_NOTES[scale],
        ),
        {split: str(name) for split, name in zip(SPLITS, rows["FedU"], strict=True)},
    )  # fmt: skip


def _table1_cells(
    scale: str, dataset: str, rounds: int | None
) -> tuple[list[Cell], dict[str, tuple[str | None, ...]]]:
    """The trainings with their evaluations, and the rows of Table 1."""
    few_labels = ("--protocol=semi_supervised", "--label_draws=1", *_FINETUNING[scale])
    cells = []
    rows: dict[str, tuple[str | None, ...]] = {}
    for row, (name, _) in METHODS.items():
        names = []
        for split, partition in SPLITS.items():
            names.append(f"{name}_{split.lower().replace('-', '')}")
            flags = (
                *common(scale, dataset, rounds), *partition, *method_flags(row, scale, dataset),
            )  # fmt: skip
            if row == SUPERVISED:
                cells += _supervised_cells(names[-1], flags, scale, rounds)
                continue
            evaluations = (few_labels,) if row in _TABLE2 else ()
            cells.append(Cell(names[-1], "pretrain", flags, evaluations))
        rows[row] = tuple(names)
    if scale == "cpu":
        rows[SUPERVISED] = tuple(_fraction_cell(str(name), 0.1) for name in rows[SUPERVISED])
    cells.append(central_cell(scale, dataset, rounds, (few_labels,)))
    rows[CENTRAL] = ("central", None)
    return cells, rows


def _supervised_cells(
    name: str, flags: tuple[str, ...], scale: str, rounds: int | None
) -> list[Cell]:
    """Supervised clients with all labels (at the paper's scale), and with fractions of them.

    With few labels, clients have only the images of these labels.
    """
    cells = [Cell(name, "pretrain", flags)] if scale == "paper" else []
    for fraction in _FRACTIONS:
        length = _length(rounds or _SUPERVISED_ROUNDS[fraction]) if scale == "cpu" else ()
        cells.append(
            Cell(
                _fraction_cell(name, fraction), "pretrain",
                (*flags, f"--data_fraction={fraction}", *length),
            )
        )  # fmt: skip
    return cells


def _table1_tables(
    scale: str, dataset: str, rows: dict[str, tuple[str | None, ...]]
) -> tuple[Table, ...]:
    """Table 1, and Table 2 with a table for each fraction of the labels."""
    columns = tuple(SPLITS)
    first = 2 if dataset == "cifar100" else 0
    linear = Selector("linear")
    tables = [
        Table(
            "Table 1: linear probe",
            linear,
            columns,
            {**rows, UNTRAINED: rows["FedU"]},
            {row: figures[first : first + 2] for row, figures in _TABLE1.items()},
            {
                SUPERVISED: Selector("supervised"),
                SINGLE: Selector("linear_personalized"),
                UNTRAINED: linear._replace(baseline="random_encoder"),
            },
        )
    ]
    for fraction in _FRACTIONS:
        fraction_rows = {row: rows[row] for row in _TABLE2}
        fraction_rows[SUPERVISED] = tuple(
            _fraction_cell(f"supervised_{split.lower().replace('-', '')}", fraction)
            for split in SPLITS
        )
        fraction_rows[UNTRAINED] = rows["FedU"]
        selector = Selector("semi_supervised", round(fraction * _TRAIN_IMAGES))
        tables.append(
            Table(
                f"Table 2: fine-tuning with {fraction:.0%} of the labels",
                selector,
                columns,
                fraction_rows,
                {row: figures[fraction][first : first + 2] for row, figures in _TABLE2.items()},
                {
                    SUPERVISED: Selector("supervised"),
                    UNTRAINED: selector._replace(baseline="random_encoder"),
                },
            )
        )
    return tuple(tables)


def encoders(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """FedU with two encoders, of Table 1; arguments as for `table1`."""
    dataset = dataset or "cifar10"
    rounds = rounds or _ENCODER_ROUNDS[scale]
    first = 2 if dataset == "cifar100" else 0
    dapu = threshold(scale, dataset)
    if scale == "cpu":
        dapu = (f"--hparam=mu={_CPU_MEAN_MU}", "--hparam=divergence=mean_squared")
    cells, rows, published = [], {}, {}
    for encoder, figures in zip(_ENCODERS[scale], (_TABLE1["FedU"], _FEDU_RESNET50), strict=True):
        names = []
        for split, partition in SPLITS.items():
            names.append(f"{encoder}_{split.lower().replace('-', '')}")
            flags = (
                *common(scale, dataset, rounds), *partition, f"--encoder={encoder}",
                *METHODS["FedU"][1], *dapu,
            )  # fmt: skip
            cells.append(Cell(names[-1], "pretrain", flags))
        rows[f"FedU, {encoder}"] = tuple(names)
        published[f"FedU, {encoder}"] = figures[first : first + 2]
    smaller, larger = rows
    linear = Selector("linear")
    untrained = {
        f"{UNTRAINED}, {encoder}": linear._replace(baseline="random_encoder")
        for encoder in _ENCODERS[scale]
    }
    table = Table(
        "Table 1: FedU by encoder", linear, tuple(SPLITS),
        {**rows, **dict(zip(untrained, rows.values(), strict=True))}, published, untrained,
        starts=dict(zip(rows, untrained, strict=True)),
    )  # fmt: skip
    return Experiment(
        "fedu_encoders", f"FedU with two encoders, on {dataset} at {scale} scale", tuple(cells),
        (table,),
        tuple(
            Claim(f"The larger encoder is better on {column} clients", table.title,
                  above(larger, smaller, column))
            for column in SPLITS
        ),
        _ENCODER_NOTES[scale],
        {split: str(name) for split, name in zip(SPLITS, rows[smaller], strict=True)},
    )  # fmt: skip


EXPERIMENTS = {
    "fedu_table1": (table1, "FedU against single clients, FedSimCLR, FedCA, FedSimSiam, FedBYOL"),
    "fedu_encoders": (encoders, "FedU with a smaller and with a larger encoder"),
}
