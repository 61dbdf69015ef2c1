"""Tables 1, 2 and 4 and Figure 5 of the FedU paper."""

from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

# Split -> flags of the partition.
_SPLITS = {"IID": ("--partition=iid",), "non-IID": ("--partition=skew", "--beta=0")}
SINGLE, SUPERVISED = "Single client training", "FedAvg (supervised)"
CENTRAL = "BYOL (centralized)"
_ONLINE, _TARGET, UNTRAINED = "online, online", "online, target", "untrained encoder"
# Table 4: (aggregated, updated) encoder -> accuracy in percent with the global and with the local
# predictor.
_TABLE4 = {
    ("online", "online"): (84.07, 82.18),
    ("online", "target"): (9.99, 19.22),
    ("online", "both"): (81.24, 18.23),
    ("target", "online"): (82.10, 78.06),
    ("target", "target"): (9.99, 25.02),
    ("target", "both"): (82.32, 29.03),
}
# Settings of Table 4 by scale. A client's local steps of a round replace the share 1 - m^steps of
# its target network: 54 % in the paper, where 10,000 images in batches of 128 are 78 steps with
# m = 0.99. At the CPU's scale, 400 images in batches of 64 are 6 steps, which takes m = 0.88; with
# m = 0.98 it would be 11 %.
_TABLE4_FLAGS = {
    "paper": ("--encoder=resnet50", "--hparam=local_epochs=1"),
    "cpu": ("--hparam=target_momentum=0.88",),
}
_TABLE4_ROUNDS = {"paper": 800, "cpu": 200}
_TABLE4_NOTES = {
    "paper": (),
    "cpu": (
        "At this scale: five clients of 400 images, a small ResNet at 16x16, six steps a round. "
        "The target network's momentum of 0.88 lets them replace 54 % of it, as the paper's 78 "
        "steps with 0.99 do.",
    ),
}
# Rows of Table 4 at the CPU's scale, the most informative ones.
_TABLE4_CPU = (("online", "online"), ("online", "target"), ("online", "both"),
               ("target", "online"))  # fmt: skip
_BYOL, _SIMSIAM, _SIMCLR = "--objective=byol", "--objective=simsiam", "--objective=nt_xent"
# Table 1 in percent: CIFAR-10 IID and non-IID, CIFAR-100 IID and non-IID; with ResNet-18 if the
# paper has it, else with ResNet-50.
_TABLE1 = {
    SINGLE: (81.24, 71.98, 51.33, 49.69),
    "FedSimCLR": (68.10, 64.06, 39.75, 38.70),
    "FedSimSiam": (79.64, 76.70, 46.28, 48.80),
    "FedBYOL": (None, None, None, None),
    "FedU": (85.21, 78.71, 56.52, 57.08),
    SUPERVISED: (91.51, 67.74, 65.77, 64.38),
    CENTRAL: (91.85, None, 66.51, None),
}
# Row -> (name of its folders, its flags).
_METHODS = {
    SINGLE: (
        "single",
        ("--algorithm=fedbn", _BYOL, "--hparam=averaging=none", "--personalized_clients=5"),
    ),
    "FedSimCLR": ("fedsimclr", ("--algorithm=fedbn", _SIMCLR, "--hparam=batch_norm=averaged")),
    "FedSimSiam": ("fedsimsiam", ("--algorithm=fedbn", _SIMSIAM, "--hparam=batch_norm=averaged")),
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
    "FedU": {0.01: (79.40, 68.28, 31.31, 30.36), 0.1: (82.61, 78.52, 47.64, 48.80)},
    CENTRAL: {0.01: (89.07, None, 41.49, None), 0.1: (89.66, None, 60.23, None)},
}  # fmt: skip
_FRACTIONS = (0.01, 0.1)
# Fine-tuning: 100 epochs of a tenth of the labels (section 4.3, which gives neither optimizer nor
# learning rate).
_FINETUNING = {"paper": ("--finetune_batch_size=128", "--finetune_steps=3900"), "cpu": ()}
_TRAIN_IMAGES = 50_000


def _common(scale: str, dataset: str, rounds: int | None) -> tuple[str, ...]:
    """Flags of all federated cells."""
    name = {"cpu": "fedu", "paper": "clients"}[scale]
    preset = f"--flagfile=launch/presets/fedu/{scale}/{name}.flags"
    return (preset, f"--dataset={dataset}", *_length(rounds))


def _length(rounds: int | None) -> tuple[str, ...]:
    return (f"--rounds={rounds}",) if rounds else ()


def _threshold(scale: str, dataset: str) -> tuple[str, ...]:
    """Flags of DAPU: the paper's mu for the data set (section 4.1), or the CPU scale's 10.

    The paper's mu belongs to the divergence that the authors' code takes.

    Under Adam a client's encoder moves farther in a round than under SGD. The divergence falls from
    14 in the first round to 9 from the tenth round on, and passes 10 on the way.
    """
    if scale == "cpu":
        return ("--hparam=mu=10",)
    mu = {"cifar100": 0.6}.get(dataset, 0.4)
    return (f"--hparam=mu={mu}", "--hparam=divergence=mean_layer_l2")


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
    tables = _table1_tables(dataset, rows)
    columns = tuple(_SPLITS)

    def above(row: str, other: str, column: str):
        return lambda v: v(row, column) > v(other, column)

    claims = [
        Claim(f"FedU is above {other} on {column} clients", tables[0].title,
              above("FedU", other, column))
        for other in (SINGLE, "FedSimCLR", "FedSimSiam")
        for column in columns
    ]  # fmt: skip
    claims += [
        Claim(f"FedU is above {other} on {column} clients", table.title,
              above("FedU", other, column))
        for table in tables[1:]
        for other in (SINGLE, "FedSimCLR", SUPERVISED)
        for column in columns
    ]  # fmt: skip
    claims.append(
        Claim("On non-IID clients FedU is above supervised FedAvg's own classifier",
              tables[0].title, above("FedU", SUPERVISED, "non-IID"))
    )  # fmt: skip
    return Experiment(
        "fedu_table1", f"FedU, Tables 1 and 2, on {dataset} at {scale} scale", tuple(cells),
        tables, tuple(claims),
        (
            "Published: 5 clients, 100 rounds of 5 epochs, ResNet-18 for single client training "
            "and FedU, ResNet-50 for the others. Single client training: in Table 1 the mean over "
            "the clients' own models, in Table 2 the first client's.",
        ),
        {split: str(name) for split, name in zip(_SPLITS, rows["FedU"], strict=True)},
    )  # fmt: skip


def _table1_cells(
    scale: str, dataset: str, rounds: int | None
) -> tuple[list[Cell], dict[str, tuple[str | None, ...]]]:
    """The trainings with their evaluations, and the rows of Table 1."""
    common = _common(scale, dataset, rounds)
    few_labels = ("--protocol=semi_supervised", "--label_draws=1", *_FINETUNING[scale])
    cells = []
    rows: dict[str, tuple[str | None, ...]] = {}
    for row, (name, flags) in _METHODS.items():
        names = []
        for split, partition in _SPLITS.items():
            names.append(f"{name}_{split.lower().replace('-', '')}")
            all_flags = (*common, *partition, *flags)
            all_flags += _threshold(scale, dataset) if "--algorithm=fedu" in flags else ()
            evaluations = (few_labels,) if row in _TABLE2 and row != SUPERVISED else ()
            cells.append(Cell(names[-1], "pretrain", all_flags, evaluations))
            if row == SUPERVISED:
                # With few labels, supervised clients have only the images of these labels.
                cells += [
                    Cell(
                        _fraction_cell(names[-1], fraction),
                        "pretrain",
                        (*all_flags, f"--data_fraction={fraction}"),
                    )
                    for fraction in _FRACTIONS
                ]
        rows[row] = tuple(names)
    preset = f"--flagfile=launch/presets/fedu/{scale}/centralized.flags"
    flags = (preset, f"--dataset={dataset}", *_length(rounds))
    cells.append(Cell("central", "centralized", flags, (few_labels,)))
    rows[CENTRAL] = ("central", None)
    return cells, rows


def _table1_tables(dataset: str, rows: dict[str, tuple[str | None, ...]]) -> tuple[Table, ...]:
    """Table 1, and Table 2 with a table for each fraction of the labels."""
    columns = tuple(_SPLITS)
    first = 2 if dataset == "cifar100" else 0
    tables = [
        Table(
            "Table 1: linear probe",
            Selector("linear"),
            columns,
            rows,
            {row: figures[first : first + 2] for row, figures in _TABLE1.items()},
            {SUPERVISED: Selector("supervised"), SINGLE: Selector("linear_personalized")},
        )
    ]
    for fraction in _FRACTIONS:
        fraction_rows = {row: rows[row] for row in _TABLE2}
        fraction_rows[SUPERVISED] = tuple(
            _fraction_cell(str(name), fraction) for name in rows[SUPERVISED]
        )
        tables.append(
            Table(
                f"Table 2: fine-tuning with {fraction:.0%} of the labels",
                Selector("semi_supervised", round(fraction * _TRAIN_IMAGES)),
                columns,
                fraction_rows,
                {row: figures[fraction][first : first + 2] for row, figures in _TABLE2.items()},
                {SUPERVISED: Selector("supervised")},
            )
        )
    return tuple(tables)


def table4(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 4 and Figure 5: which encoder is aggregated and updated, and the predictor's rule.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for the preset's.
    """
    dataset = dataset or "cifar10"
    cells, rows, published = _table4_cells(scale, dataset, rounds)
    title4, title5 = "Table 4: aggregated, updated encoder", "Figure 5a: predictor's rule"
    columns = ("global predictor", "local predictor")
    tables = (
        Table(
            title4, Selector("linear"), columns, {**rows, UNTRAINED: ("dapu",)}, published,
            {UNTRAINED: Selector("linear", baseline="random_encoder")},
        ),
        Table(
            title5, Selector("linear"), ("accuracy",),
            {"dapu": ("dapu",), "global": ("online_online_global",),
             "local": ("online_online_local",)}, {},
        ),
    )  # fmt: skip

    def best(lookup: Lookup) -> bool:
        others = [lookup(row, c) for row in rows if row != _ONLINE for c in columns]
        return lookup(_ONLINE, columns[0]) >= max(others)

    def worst(lookup: Lookup) -> bool:
        others = [lookup(row, columns[0]) for row in rows if not row.endswith(", target")]
        return lookup(_TARGET, columns[0]) < min(others)

    claims = (
        Claim("Aggregating and updating the online encoder is best", title4, best),
        Claim("Updating only the target encoder is worst (global predictor)", title4, worst),
        Claim("Updating only the target encoder collapses: no better than an untrained one", title4,
              lambda v: max(v(_TARGET, c) for c in columns) <= v(UNTRAINED, columns[0])),
        Claim("The global predictor is better than the local one, for the online encoder", title4,
              lambda v: v(_ONLINE, columns[0]) > v(_ONLINE, columns[1])),
        Claim("DAPU is better than either static rule", title5,
              lambda v: v("dapu", "accuracy")
              > max(v("global", "accuracy"), v("local", "accuracy"))),
    )  # fmt: skip
    return Experiment(
        "fedu_table4", f"FedU, Table 4 and Figure 5, on {dataset} at {scale} scale", tuple(cells),
        tables, claims,
        (
            "Published: ResNet-50, 800 rounds of one epoch, 5 clients of two classes each. Figure "
            "5 prints no numbers; its text says that DAPU is about 5 points above both rules.",
            *_TABLE4_NOTES[scale],
        ),
        {"non-IID": "dapu"},
    )  # fmt: skip


def _table4_cells(
    scale: str, dataset: str, rounds: int | None
) -> tuple[list[Cell], dict[str, tuple[str, ...]], dict[str, tuple[float, ...]]]:
    """The trainings, the rows of Table 4, and the paper's figures of each row."""
    combinations = tuple(_TABLE4) if scale == "paper" else _TABLE4_CPU
    common = (
        *_common(scale, dataset, rounds or _TABLE4_ROUNDS[scale]), *_SPLITS["non-IID"],
        "--algorithm=fedu", "--personalized_clients=0", *_TABLE4_FLAGS[scale],
    )  # fmt: skip
    cells: list[Cell] = []
    rows: dict[str, tuple[str, ...]] = {}
    published: dict[str, tuple[float, ...]] = {}
    for aggregate, update in combinations:
        row = f"{aggregate}, {update}"
        names = []
        for rule in ("global", "local"):
            names.append(f"{aggregate}_{update}_{rule}")
            cells.append(
                Cell(names[-1], "pretrain", (
                    *common, f"--hparam=aggregate={aggregate}", f"--hparam=update={update}",
                    f"--hparam=predictor_update={rule}",
                ))
            )  # fmt: skip
        rows[row] = tuple(names)
        published[row] = _TABLE4[aggregate, update]
    threshold = _threshold(scale, dataset)
    cells.append(Cell("dapu", "pretrain", (*common, "--hparam=predictor_update=dapu", *threshold)))
    return cells, rows, published


EXPERIMENTS = {
    "fedu_table1": (table1, "FedU against single clients, FedSimCLR, FedSimSiam, FedBYOL"),
    "fedu_table4": (table4, "FedU's encoders and predictor: which to aggregate, which to update"),
}
