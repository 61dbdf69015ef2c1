"""Tables 3, 4 and 5 of the DeNAV paper."""

from collections.abc import Mapping, Sequence

from tff_ssl.algorithms.denav import navigator
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

_CLIENTS, _LOCAL_EPOCHS = 100, 5
# Numbers of local epochs of all clients together, which give DeNAV's steps and gossip's rounds.
_EPOCHS = {"paper": (5000, 15000, 25000), "cpu": (1500,)}
# Steps of Table 4 and of Table 5 (the paper's: Table 6), and the models that train at the same time
# in Table 5.
_STEPS = {"paper": 200, "cpu": 300}
_PARALLEL_STEPS = {"paper": 200, "cpu": 60}
_MODELS = 5
# Data sets on which the pretrained block is fine-tuned, by name in the tables.
_DOWNSTREAM = {"paper": {"CIFAR10": "cifar10", "CIFAR100": "cifar100"},
               "cpu": {"CIFAR10": "cifar10"}}  # fmt: skip
_LABELS = {"paper": 50_000, "cpu": 5000}
_FINETUNE = {
    # At the paper's scale, 100 epochs of all 50,000 images, at the size of the pretraining images.
    "paper": ("--image_size=224", "--finetune_steps=19532", "--finetune_batch_size=256",
              "--finetune_learning_rate=0.001"),
    "cpu": ("--finetune_steps=150", "--finetune_batch_size=128", "--finetune_learning_rate=0.001"),
}  # fmt: skip
_DEPTH = 5  # Blocks of the downstream model (Table 6).
_MONITORED = 10  # Number of times that a training is monitored, if it has as many rounds.
# Axes of the learning curves. A round of DeNAV is the training of one client, and one of gossip
# learning that of all clients, so that rounds cannot be compared.
_COSTS = {
    "simulated time (examples x epochs of a slow client)": "simulated_time",
    "samples (images of the clients that train x epochs)": "examples_trained",
}

DENAV, RANDOM, GOSSIP, ALL_REDUCE = "DeNAV", "Random route", "Gossip learning", "All-reduce"
# Table 3: (method, epochs) -> CIFAR-10 and CIFAR-100 in percent, communications.
_TABLE3 = {
    (DENAV, 5000): (92.80, 75.62, 1000),
    (GOSSIP, 5000): (90.52, 72.34, 14850),
    (DENAV, 15000): (93.44, 77.30, 3000),
    (GOSSIP, 15000): (90.30, 72.52, 44550),
    (DENAV, 25000): (93.88, 77.94, 5000),
    (GOSSIP, 25000): (92.91, 75.71, 74250),
}
# Table 4: CIFAR-10 and CIFAR-100 in percent, minutes.
_WITHOUT_VOLUME, _WITHOUT_TIME = "Formula w/o data volume", "Formula w/o computing resources"
_WITHOUT_HISTORY, _OURS = "Formula w/o selection history", navigator.OURS
_TABLE4 = {
    "Random selection": (90.28, 71.70, 33.7),
    _WITHOUT_VOLUME: (88.54, 71.99, 28.8),
    _WITHOUT_TIME: (90.65, 73.46, 37.6),
    _WITHOUT_HISTORY: (90.23, 73.51, 38.9),
    _OURS: (90.96, 73.70, 36.8),
}
# Row of Table 4 -> (name of its folder, its flags).
_FOLDERS = ("random", "no_volume", "no_time", "no_history", "denav")
_FORMULAS = {
    row: (folder, tuple(f"--hparam={name}={str(value).lower()}" for name, value in options.items()))
    for folder, (row, options) in zip(_FOLDERS, navigator.FORMULAS.items(), strict=True)
}
# Table 5: row -> (value of `aggregation`, CIFAR-10 and CIFAR-100 in percent).
_TABLE5 = {
    "With average weights": ("average", (90.64, 73.79)),
    "With only data volume weights": ("volume", (91.08, 73.72)),
    "Staleness-aware aggregation": ("staleness", (91.46, 74.49)),
}


def _cell(
    name: str, scale: str, dataset: str | None, rounds: int, *flags: str, baseline: bool = False
) -> Cell:
    """A pretraining, and its fine-tuning on each downstream data set.

    With `baseline`, the same network is also trained from scratch.
    """
    baselines = f"--baselines={'random_encoder' if baseline else ''}"
    return Cell(
        name,
        "pretrain",
        (
            f"--flagfile=launch/presets/denav/{scale}/denav.flags",
            *((f"--dataset={dataset}",) if dataset else ()),
            f"--rounds={rounds}",
            f"--eval_every={max(1, rounds // _MONITORED)}",
            *flags,
        ),
        tuple(
            (
                "--protocol=finetune", f"--dataset={downstream}", f"--depth={_DEPTH}",
                f"--labels={_LABELS[scale]}", "--label_draws=1", *_FINETUNE[scale], baselines,
            )
            for downstream in _DOWNSTREAM[scale].values()
        ),
    )  # fmt: skip


def _denav(
    name: str, scale: str, dataset: str | None, steps: int, rounds: int | None, *flags: str,
    baseline: bool = False,
) -> Cell:  # fmt: skip
    """A `_cell` of DeNAV.

    The selection limit Z is 1.5 S / M, the paper's ratio to the number of steps per client
    (Table 6: Z = 3 for S = 200 and M = 100).
    """
    steps = rounds or steps
    limit = navigator.papers_limit(steps, _CLIENTS)
    return _cell(
        name, scale, dataset, steps, "--algorithm=denav", f"--hparam=selection_limit={limit}",
        *flags, baseline=baseline,
    )  # fmt: skip


def _accuracy_tables(
    title: str, scale: str, rows: dict[str, str], published: Mapping[str, Sequence[float | None]]
) -> tuple[Table, ...]:
    """A table of accuracies for each downstream data set.

    Args:
      title: Start of the tables' titles.
      scale: `cpu` or `paper`.
      rows: Row -> name of its cell.
      published: Row -> the paper's figures, in the order of the data sets.
    """
    return tuple(
        Table(
            f"{title}: fine-tuned on {name}",
            Selector("finetune", dataset=downstream),
            ("accuracy",),
            {row: (cell,) for row, cell in rows.items()},
            {row: (figures[i],) for row, figures in published.items()},
        )
        for i, (name, downstream) in enumerate(_DOWNSTREAM[scale].items())
    )


def _counts(
    title: str, metric: str, rows: dict[str, str], published: Mapping[str, Sequence[float | None]]
) -> Table:
    """A table of counts, which pretraining writes beside its linear probe."""
    return Table(
        title, Selector("linear", metric=metric), (metric.replace("_", " "),),
        {row: (cell,) for row, cell in rows.items()}, published, percent=False,
    )  # fmt: skip


def _scratch(scale: str, cell: str) -> Table:
    """The table of the same network without pretraining; `cell` has this baseline."""
    downstream = next(iter(_DOWNSTREAM[scale].values()))
    return Table(
        "Without pretraining",
        Selector("finetune", baseline="random_encoder", dataset=downstream),
        ("accuracy",),
        {"From scratch": (cell,)},
        {},
    )


def _above(better: str, worse: str, column: str = "accuracy"):
    return lambda v: v(better, column) > v(worse, column)


_NOTE = (
    "Published: Mini-ImageNet at 224x224 on 100 clients, connectivity 0.15, fine-tuned for 100 "
    "epochs with a backbone of 5 blocks. At CPU scale: 8000 of CIFAR-100's images on as many "
    "clients in the same networks, a block of width 128, 5000 labels of CIFAR-10."
)


def table3(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 3: DeNAV against gossip learning at equal epochs, accuracy and communications.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set for pretraining; None for the preset's.
      rounds: Number of rounds (DeNAV: steps) of each run; None for those that follow from epochs.
    """
    cells: list[Cell] = []
    rows: dict[str, str] = {}
    published: dict[str, tuple] = {}
    claims: list[Claim] = []
    for epochs in _EPOCHS[scale]:
        methods = _table3_methods(scale, dataset, rounds, epochs)
        names = {method: f"{method}, {epochs} epochs" for method in methods}
        cells += methods.values()
        rows |= {names[method]: cell.name for method, cell in methods.items()}
        # The CPU scale's epochs are shown beside the paper's fewest.
        paper_epochs = epochs if scale == "paper" else min(_EPOCHS["paper"])
        for method in methods:
            if (method, paper_epochs) in _TABLE3:
                published[f"{method}, {paper_epochs} epochs"] = _TABLE3[method, paper_epochs]
        claims += _table3_claims(scale, names, epochs)
    counts = {row: (figures[2],) for row, figures in published.items()}
    travelling = {
        row: cell for row, cell in rows.items() if row.partition(",")[0] in (DENAV, RANDOM)
    }
    return Experiment(
        "denav_table3", f"DeNAV, Table 3, at {scale} scale", tuple(cells),
        (
            *_accuracy_tables("Table 3", scale, rows, published),
            _counts("Communications", "communications", rows, counts),
            _counts("Communications as the paper counts", "communications_as_published",
                    {row: cell for row, cell in rows.items() if not row.startswith(ALL_REDUCE)},
                    counts),
            _counts("Bytes sent", "communication_bytes", rows, {}),
            _counts("Clients that trained the model", "visited_clients", travelling, {}),
            _counts("Steps after which the model stayed", "moves_to_same_client", travelling, {}),
            _scratch(scale, cells[0].name),
        ),
        tuple(claims),
        (
            _NOTE,
            "The paper has no figures of a random route and of all-reduce here. It counts a "
            "communication for each step, and for gossip the expected number of directed links for "
            "each round; the models really sent are counted too.",
        ),
        {"clients": cells[0].name},
        tuple(("Communications", f"Table 3: fine-tuned on {name}") for name in _DOWNSTREAM[scale]),
        costs=_COSTS,
    )  # fmt: skip


def _table3_methods(
    scale: str, dataset: str | None, rounds: int | None, epochs: int
) -> dict[str, Cell]:
    """Method -> its training for as many local epochs of all clients together."""
    steps = epochs // _LOCAL_EPOCHS
    # In a round of gossip and of all-reduce, all clients train.
    shared_rounds = rounds or steps // _CLIENTS
    is_first = epochs == _EPOCHS[scale][0]
    return {
        DENAV: _denav(f"denav_{epochs}", scale, dataset, steps, rounds, baseline=is_first),
        RANDOM: _denav(f"random_{epochs}", scale, dataset, steps, rounds, "--hparam=route=random"),
        GOSSIP: _cell(f"gossip_{epochs}", scale, dataset, shared_rounds, "--algorithm=gossip"),
        ALL_REDUCE: _cell(
            f"all_reduce_{epochs}", scale, dataset, shared_rounds, "--algorithm=all_reduce"
        ),
    }


def _table3_claims(scale: str, names: Mapping[str, str], epochs: int) -> list[Claim]:
    """The paper's statements at a number of epochs; `names` are the rows of the methods."""
    claims = [
        Claim(
            f"DeNAV is above {other.lower()} on {name} after {epochs} epochs",
            f"Table 3: fine-tuned on {name}",
            _above(names[DENAV], names[other]),
        )
        for other in (GOSSIP, RANDOM)
        for name in _DOWNSTREAM[scale]
    ]

    def fewer(v: Lookup) -> bool:
        column = "communications"
        return v(names[DENAV], column) * 10 < v(names[GOSSIP], column)

    claims.append(
        Claim(f"DeNAV needs less than a tenth of gossip's communications, {epochs} epochs",
              "Communications", fewer)
    )  # fmt: skip
    return claims


def table4(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 4: the navigator's formula without each of its terms, and a random route.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set for pretraining; None for the preset's.
      rounds: Number of steps of each run; None for the experiment's.
    """
    cells = [
        _denav(name, scale, dataset, _STEPS[scale], rounds, *flags, baseline=row == _OURS)
        for row, (name, flags) in _FORMULAS.items()
    ]
    rows = {row: name for row, (name, _) in _FORMULAS.items()}
    tables = _accuracy_tables("Table 4", scale, rows, _TABLE4)
    times = _counts(
        "Simulated time of pretraining (published: minutes)", "simulated_time", rows,
        {row: (figures[2],) for row, figures in _TABLE4.items()},
    )  # fmt: skip
    time = "simulated time"
    claims = [
        Claim(f"The formula is above {row[0].lower()}{row[1:]}", table.title, _above(_OURS, row))
        for table in tables
        for row in rows
        if row != _OURS
    ]
    claims += [
        Claim("Computing resources in the formula save time", times.title,
              _above(_WITHOUT_TIME, _OURS, time)),
        Claim("Data volume in the formula costs time", times.title,
              _above(_OURS, _WITHOUT_VOLUME, time)),
    ]  # fmt: skip
    return Experiment(
        "denav_table4", f"DeNAV, Table 4, at {scale} scale", tuple(cells),
        (*tables, times, _scratch(scale, "denav")), tuple(claims),
        (
            _NOTE,
            "Simulated time is examples times epochs, divided by the factor of the client's "
            "computing rank: it does not depend on the machine.",
        ),
        {"clients": "denav"},
        costs=_COSTS,
    )  # fmt: skip


def table5(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 5: aggregation of models that train in parallel; arguments as for `table4`."""
    cells = [
        _denav(name, scale, dataset, _PARALLEL_STEPS[scale], rounds,
               f"--hparam=models={_MODELS}", f"--hparam=aggregation={name}",
               baseline=name == "staleness")
        for name, _ in _TABLE5.values()
    ]  # fmt: skip
    cells.append(
        _denav("none", scale, dataset, _PARALLEL_STEPS[scale], rounds,
               f"--hparam=models={_MODELS}", "--hparam=aggregation=none")
    )  # fmt: skip
    rows = {row: name for row, (name, _) in _TABLE5.items()} | {"No aggregation": "none"}
    tables = _accuracy_tables(
        "Table 5", scale, rows, {row: figures for row, (_, figures) in _TABLE5.items()}
    )
    best = "Staleness-aware aggregation"
    claims = tuple(
        Claim(f"{best} is above {row[0].lower()}{row[1:]}", table.title, _above(best, row))
        for table in tables
        for row in rows
        if row != best
    )
    return Experiment(
        "denav_table5", f"DeNAV, Table 5, at {scale} scale", tuple(cells),
        (*tables, _scratch(scale, "staleness")), claims,
        (_NOTE, f"{_MODELS} models in parallel. The paper has no figures without aggregation."),
        {"clients": "staleness"},
        costs=_COSTS,
    )  # fmt: skip


EXPERIMENTS = {
    "denav_table3": (table3, "DeNAV against gossip learning: accuracy and communications"),
    "denav_table4": (table4, "DeNAV's navigator without each term, and a random route"),
    "denav_table5": (table5, "DeNAV's parallel training: how models are aggregated"),
}
