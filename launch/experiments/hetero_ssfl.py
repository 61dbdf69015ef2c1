"""Tables 1 to 6 of the Hetero-SSFL paper."""

from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

SSFL, LOCAL, CENTRAL, SUPERVISED = (
    "Hetero-SSFL", "Local SSL", "Central-BYOL", "Supervised FedAvg",
)  # fmt: skip
# Smaller and larger encoder at each scale.
_ENCODERS = {"cpu": ("tiny", "small"), "paper": ("resnet18", "resnet34")}
ALONE = ("--hparam=mu=0",)
# Row -> (name of its folder, its flags). All clients of the baselines have the larger encoder
# (section 5.1).
_BASELINES = {
    "FedBYOL": (
        "fedbyol",
        ("--algorithm=fedu", "--hparam=update=both", "--hparam=predictor_update=global"),
    ),
    "FedSimSiam": (
        "fedsimsiam",
        ("--algorithm=fedbn", "--objective=simsiam", "--hparam=batch_norm=averaged"),
    ),
    "FedU": ("fedu", ("--algorithm=fedu",)),
    "FedEMA": ("fedema", ("--algorithm=fedema",)),
}
# FedU's threshold mu: that of its paper with the divergence of its authors' code, and at the CPU's
# scale one that the divergences of the run pass.
_DAPU = {
    "cpu": ("--hparam=mu=10",),
    "paper": ("--hparam=mu=0.4", "--hparam=divergence=mean_layer_l2"),
}
_SUPERVISED = ("--algorithm=fedbn", "--objective=supervised", "--hparam=batch_norm=averaged")
# Table 1, in percent.
_TABLE1 = {
    "cifar10": {"FedBYOL": 78.1, "FedSimSiam": 76.7, "FedU": 79.6, "FedEMA": 81.2, SSFL: 90.29,
                SUPERVISED: 68.5, CENTRAL: 94.3},
    "cifar100": {"FedBYOL": 58.1, "FedSimSiam": 53.2, "FedU": 58.9, "FedEMA": 61.8, SSFL: 67.7,
                 SUPERVISED: 44.29, CENTRAL: 74.2},
}  # fmt: skip
# Table 2 (IID clients) in percent: FedBYOL, FedSimSiam, FedU, FedEMA, Hetero-SSFL.
_TABLE2 = {
    "cifar10": (82.24, 80.4, 81.6, 85.9, 88.5), "cifar100": (23.8, 22.19, 20.4, 25.7, 34.8),
}  # fmt: skip
# Table 5 (CIFAR-100) and Table 6 (CIFAR-10) in percent: with 1 % and 10 % of the labels.
_FEW_LABELS = {
    "cifar10": {"FedU": (72.9, 86.8), "FedEMA": (75.8, 87.4), SSFL: (79.3, 88.7)},
    "cifar100": {"FedU": (20.5, 46.3), "FedEMA": (23.11, 48.6), SSFL: (37.4, 57.4)},
}
_FRACTIONS = (0.01, 0.1)
_TRAIN_IMAGES = 50_000
# Fine-tuning: 100 epochs of a tenth of the labels in batches of 512 (Appendix B).
_FINETUNING = {"paper": ("--finetune_batch_size=512", "--finetune_steps=1000"), "cpu": ()}
# Table 3 in percent, by population.
_TABLE3 = {"FedU": (58.9, 48.29, 41.1), "FedEMA": (61.8, 52.5, 42.0), SSFL: (67.7, 57.5, 43.3)}
# Table 4 in percent: smaller and larger encoder, each local and collaborative.
_TABLE4 = ((71.9, 85.4), (77.8, 93.7))
# Column -> (clients and clients in a round, share of its images that each client keeps at the CPU's
# scale). With these shares a round has 1280 images in all columns.
_POPULATIONS = {
    "5 (5)": ((5, 5), "0.0256"), "20 (5)": ((20, 5), "0.1024"), "100 (10)": ((100, 10), "0.256"),
}  # fmt: skip
PERSONALIZED = Selector("linear_personalized")
UNSEEN = PERSONALIZED._replace(metric="unseen_accuracy")
_TRAINED_ROUNDS = Selector("linear_personalized", metric="trained_rounds")
# Rows of the untrained encoders: those of Hetero-SSFL's clients, and the larger one of the others.
UNTRAINED_CLIENTS, UNTRAINED_LARGER = "untrained, clients' own", "untrained, the larger"
UNTRAINED = {
    UNTRAINED_CLIENTS: Selector("linear_personalized", baseline="random_encoder"),
    UNTRAINED_LARGER: Selector("linear", baseline="random_encoder"),
}
# The rows that did not start with the encoders of Hetero-SSFL's clients.
STARTS = dict.fromkeys((*_BASELINES, SUPERVISED, CENTRAL), UNTRAINED_LARGER)


def preset_flags(scale: str, dataset: str, rounds: int | None, preset: str) -> tuple[str, ...]:
    """Flags of a cell with a preset of this paper; `rounds` is None for those of the preset."""
    return (
        f"--flagfile=launch/presets/hetero_ssfl/{scale}/{preset}.flags",
        f"--dataset={dataset}",
        *((f"--rounds={rounds}",) if rounds else ()),
    )


def baseline_flags(scale: str, dataset: str, rounds: int | None, row: str) -> tuple[str, ...]:
    """Flags of a cell with a baseline, a row of the paper's tables."""
    _, flags = _BASELINES[row]
    threshold = _DAPU[scale] if row == "FedU" else ()
    return (*preset_flags(scale, dataset, rounds, "clients"), *flags, *threshold)


def above(row: str, other: str, column: str):
    """The condition that one row of a table is above another in a column."""
    return lambda v: v(row, column) > v(other, column)


def table1(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 1: non-IID clients, linear probe; Tables 5 and 6: few labels.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for the presets'.
    """
    dataset = dataset or "cifar10"
    hetero = preset_flags(scale, dataset, rounds, "hetero_ssfl")
    supervised = preset_flags(scale, dataset, rounds, "clients") + _SUPERVISED
    few_labels = ("--protocol=semi_supervised", "--label_draws=1", *_FINETUNING[scale])
    cells = [
        Cell("hetero_ssfl", "pretrain", hetero, (few_labels,)),
        Cell("local", "pretrain", (*hetero, *ALONE)),
        *(
            Cell(name, "pretrain", baseline_flags(scale, dataset, rounds, row),
                 (few_labels,) if row in _FEW_LABELS["cifar10"] else ())
            for row, (name, _) in _BASELINES.items()
        ),
        Cell("supervised", "pretrain", supervised),
        Cell("central", "centralized", preset_flags(scale, dataset, rounds, "centralized")),
    ]  # fmt: skip
    rows = {
        **{row: (name,) for row, (name, _) in _BASELINES.items()},
        LOCAL: ("local",),
        SSFL: ("hetero_ssfl",),
        SUPERVISED: ("supervised",),
        CENTRAL: ("central",),
        UNTRAINED_CLIENTS: ("hetero_ssfl",),
        UNTRAINED_LARGER: ("fedbyol",),
    }
    title, column = f"Table 1: linear probe on {dataset}", "accuracy"
    table = Table(
        title, Selector("linear"), (column,), rows,
        {row: (figure,) for row, figure in _TABLE1.get(dataset, {}).items()},
        {LOCAL: PERSONALIZED, SSFL: PERSONALIZED, SUPERVISED: Selector("supervised"),
         **UNTRAINED},
        starts=STARTS,
    )  # fmt: skip
    claims = [
        Claim(f"{SSFL} is above {other}", title, above(SSFL, other, column))
        for other in (*_BASELINES, LOCAL, SUPERVISED)
    ]
    claims.append(Claim(f"{CENTRAL} is above {SSFL}", title, above(CENTRAL, SSFL, column)))
    few = _few_labels_tables(dataset)
    claims += [
        Claim(f"{SSFL} is above {other}", of_few.title, above(SSFL, other, column))
        for of_few in few
        for other in ("FedU", "FedEMA")
    ]
    return Experiment(
        "hetero_table1", f"Hetero-SSFL, Tables 1, 5 and 6, on {dataset} at {scale} scale",
        tuple(cells), (table, *few), tuple(claims),
        (
            "Published: 5 clients of exclusive classes, 200 rounds of 5 epochs; "
            f"{SSFL} with ResNet-18 and ResNet-34, the others with ResNet-34. "
            f"{SSFL} and {LOCAL} (not in the paper's table): mean over the clients' own models.",
            f"Few labels: {SSFL} is fine-tuned with the model of a client that has the larger "
            "encoder, as the others have. Fine-tuning is that of DCCO, with Adam, where the paper "
            "has SGD.",
        ),
        {"non-IID": "hetero_ssfl"},
    )  # fmt: skip


def _few_labels_tables(dataset: str) -> tuple[Table, ...]:
    """Table 5 (CIFAR-100) or Table 6 (CIFAR-10), with a table for each fraction of the labels."""
    number = {"cifar10": "Table 6", "cifar100": "Table 5"}.get(dataset, "Few labels")
    published = _FEW_LABELS.get(dataset, {})
    rows = {row: (_BASELINES[row][0],) for row in ("FedU", "FedEMA")}
    tables = []
    for i, fraction in enumerate(_FRACTIONS):
        selector = Selector("semi_supervised", round(fraction * _TRAIN_IMAGES))
        untrained = selector._replace(baseline="random_encoder")
        tables.append(
            Table(
                f"{number}: fine-tuning with {fraction:.0%} of the labels",
                selector,
                ("accuracy",),
                {**rows, SSFL: ("hetero_ssfl",), UNTRAINED_LARGER: ("hetero_ssfl",)},
                {row: (figures[i],) for row, figures in published.items()},
                {UNTRAINED_LARGER: untrained},
            )
        )
    return tuple(tables)


def table2(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 2: IID clients; arguments as for `table1`."""
    dataset = dataset or "cifar10"
    iid = ("--partition=iid",)
    hetero = preset_flags(scale, dataset, rounds, "hetero_ssfl")
    cells = [
        Cell(name, "pretrain", (*baseline_flags(scale, dataset, rounds, row), *iid))
        for row, (name, _) in _BASELINES.items()
    ]
    cells.append(Cell("hetero_ssfl", "pretrain", (*hetero, *iid)))
    title, column = f"Table 2: IID clients, linear probe on {dataset}", "accuracy"
    rows = {row: (name,) for row, (name, _) in _BASELINES.items()} | {SSFL: ("hetero_ssfl",)}
    figures = _TABLE2.get(dataset, ())
    table = Table(
        title, Selector("linear"), (column,),
        {**rows, UNTRAINED_CLIENTS: ("hetero_ssfl",), UNTRAINED_LARGER: ("fedbyol",)},
        {row: (figure,) for row, figure in zip(rows, figures, strict=False)},
        {SSFL: PERSONALIZED, **UNTRAINED}, starts=STARTS,
    )  # fmt: skip
    return Experiment(
        "hetero_table2", f"Hetero-SSFL, Table 2, on {dataset} at {scale} scale", tuple(cells),
        (table,),
        tuple(
            Claim(f"{SSFL} is above {other}", title, above(SSFL, other, column))
            for other in _BASELINES
        ),
        (f"{SSFL}: mean over the clients' own models.",),
        {"IID": "hetero_ssfl"},
    )  # fmt: skip


def table3(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 3: more clients, some of which take part in a round.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar100, or at the CPU's scale cifar10.
      rounds: Number of rounds of each run; None for the presets'.
    """
    dataset = dataset or ("cifar100" if scale == "paper" else "cifar10")
    methods = {
        **{
            row: (_BASELINES[row][0], baseline_flags(scale, dataset, rounds, row))
            for row in ("FedU", "FedEMA")
        },
        SSFL: ("hetero_ssfl", preset_flags(scale, dataset, rounds, "hetero_ssfl")),
    }
    cells, rows = [], {}
    for row, (name, flags) in methods.items():
        names = []
        for (clients, in_round), share in _POPULATIONS.values():
            names.append(f"{name}_{clients}")
            data = (f"--data_fraction={share}",) if scale == "cpu" else ()
            cells.append(
                Cell(names[-1], "pretrain", (
                    *flags, f"--num_clients={clients}", f"--clients_per_round={in_round}", *data,
                ))
            )  # fmt: skip
        rows[row] = tuple(names)
    columns = tuple(_POPULATIONS)
    title = f"Table 3: clients (in a round), linear probe on {dataset}"
    shown = {**rows, UNTRAINED_CLIENTS: rows[SSFL], UNTRAINED_LARGER: rows["FedU"]}
    table = Table(
        title,
        Selector("linear"),
        columns,
        shown,
        _TABLE3,
        {SSFL: PERSONALIZED, **UNTRAINED},
        starts=STARTS,
    )
    trained = Table(
        "Rounds in which an evaluated client trained, mean", _TRAINED_ROUNDS, columns,
        {SSFL: rows[SSFL]}, {}, percent=False,
    )  # fmt: skip

    def falls(row: str):
        return lambda v: v(row, columns[0]) > v(row, columns[1]) > v(row, columns[2])

    claims = [
        Claim(f"{SSFL} is above {other} with {column} clients", title, above(SSFL, other, column))
        for column in columns
        for other in ("FedU", "FedEMA")
    ]
    claims += [Claim(f"{row} falls with the number of clients", title, falls(row)) for row in rows]
    return Experiment(
        "hetero_table3", f"Hetero-SSFL, Table 3, on {dataset} at {scale} scale", tuple(cells),
        (table, trained), tuple(claims),
        (
            "Published for CIFAR-100. With more clients than classes, some share a class. "
            f"{SSFL}: mean over the own models of the first five clients that trained, to whom "
            "architectures and classes were dealt at random. With more clients, each trains in "
            "fewer of the rounds; the second table shows in how many.",
        ),
        {column: str(name) for column, name in zip(columns, rows[SSFL], strict=True)},
    )  # fmt: skip


def table4(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 4: the gain of each architecture by collaboration; arguments as for `table1`."""
    dataset = dataset or "cifar10"
    flags = preset_flags(scale, dataset, rounds, "hetero_ssfl")
    cells = (Cell("local", "pretrain", (*flags, *ALONE)), Cell("hetero_ssfl", "pretrain", flags))
    names = tuple(cell.name for cell in cells)
    smaller, larger = _ENCODERS[scale]
    columns, all_clients = (LOCAL, SSFL), "all clients"
    title = f"Table 4: clients by architecture, linear probe on {dataset}"
    substitution = {"cpu": "in place of ", "paper": ""}[scale]
    rows = {
        f"{smaller} ({substitution}ResNet-18)": (smaller, _TABLE4[0]),
        f"{larger} ({substitution}ResNet-34)": (larger, _TABLE4[1]),
    }
    untrained = {
        UNTRAINED_CLIENTS: UNTRAINED[UNTRAINED_CLIENTS],
        **{
            f"untrained {encoder}": Selector(
                f"linear_personalized_{encoder}", baseline="random_encoder"
            )
            for encoder in (smaller, larger)
        },
    }
    table = Table(
        title, PERSONALIZED, columns, dict.fromkeys((*rows, all_clients, *untrained), names),
        {row: published for row, (_, published) in rows.items()},
        {
            **{row: Selector(f"linear_personalized_{name}") for row, (name, _) in rows.items()},
            **untrained,
        },
        starts={row: f"untrained {encoder}" for row, (encoder, _) in rows.items()},
    )  # fmt: skip
    unseen = f"Classes that a client has never seen, {dataset}"
    of_unseen = Table(
        unseen, UNSEEN, columns, dict.fromkeys((all_clients, UNTRAINED_CLIENTS), names), {},
        {UNTRAINED_CLIENTS: UNSEEN._replace(baseline="random_encoder")},
    )  # fmt: skip
    low, high = rows

    def gain(v: Lookup, row: str) -> float:
        return v(row, SSFL) - v(row, LOCAL)

    def gains(row: str):
        return lambda v: v(row, SSFL) > v(row, LOCAL)

    claims = [
        Claim(f"Collaboration helps {row}", title, gains(row)) for row in (*rows, all_clients)
    ]
    claims += [
        Claim(f"The larger architecture is above the smaller one with {column}", title,
              above(high, low, column))
        for column in columns
    ]  # fmt: skip
    claims.append(
        Claim("The larger architecture gains at least as much as the smaller one", title,
              lambda v: gain(v, high) >= gain(v, low))
    )  # fmt: skip
    claims.append(
        Claim("Collaboration helps on classes that a client has never seen", unseen,
              gains(all_clients))
    )  # fmt: skip
    return Experiment(
        "hetero_table4", f"Hetero-SSFL, Table 4, on {dataset} at {scale} scale", cells,
        (table, of_unseen), tuple(claims),
        (
            "The paper names no data set for this table. Two ResNet-18 and three ResNet-34 have a "
            "mean of 90.4, which is Table 1's figure for CIFAR-10 (90.3).",
            "The second table, which the paper has not, scores the same probes on the test images "
            "of classes that a client has no training images of.",
        ),
        {"non-IID": "hetero_ssfl"},
    )  # fmt: skip


EXPERIMENTS = {
    "hetero_table1": (
        table1,
        "Hetero-SSFL against FedBYOL, FedSimSiam, FedU, FedEMA, central BYOL; with few labels",
    ),
    "hetero_table2": (table2, "the same on IID clients"),
    "hetero_table3": (table3, "Hetero-SSFL, FedU and FedEMA with 5, 20 and 100 clients"),
    "hetero_table4": (table4, "Hetero-SSFL: what small and large clients gain by collaboration"),
}
