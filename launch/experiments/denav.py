"""Tables 3, 4 and 5 of the DeNAV paper."""

from collections.abc import Mapping, Sequence

from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

_CLIENTS, _LOCAL_EPOCHS = 100, 5
# Local epochs of all clients together; DeNAV's steps and gossip's rounds follow from them.
_EPOCHS = {"paper": (5000, 15000, 25000), "cpu": (1500,)}
# Steps of Tables 4 and 5 (Table 6), and models that train at the same time in Table 5.
_STEPS = {"paper": 200, "cpu": 300}
_MODELS = 5
_PARALLEL_STEPS = {"paper": 200, "cpu": 60}
# What the pretrained block is fine-tuned on.
_DOWNSTREAM = {"paper": {"CIFAR10": "cifar10", "CIFAR100": "cifar100"},
               "cpu": {"CIFAR10": "cifar10"}}  # fmt: skip
_LABELS = {"paper": 50_000, "cpu": 5000}
_FINETUNE = {
    # 100 epochs of all 50,000 images, at the size of the pretraining images.
    "paper": ("--image_size=224", "--finetune_steps=19532", "--finetune_batch_size=256",
              "--finetune_learning_rate=0.001"),
    "cpu": ("--finetune_steps=150", "--finetune_batch_size=128", "--finetune_learning_rate=0.001"),
}  # fmt: skip
_DEPTH = 5  # Blocks of the downstream model (Table 6).

DENAV, RANDOM, GOSSIP, ALL_REDUCE = "DeNAV", "Random route", "Gossip learning", "All-reduce"
# Table 3: CIFAR-10, CIFAR-100, communications.
_TABLE3 = {
    (DENAV, 5000): (92.80, 75.62, 1000),
    (GOSSIP, 5000): (90.52, 72.34, 14850),
    (DENAV, 15000): (93.44, 77.30, 3000),
    (GOSSIP, 15000): (90.30, 72.52, 44550),
    (DENAV, 25000): (93.88, 77.94, 5000),
    (GOSSIP, 25000): (92.91, 75.71, 74250),
}
# Table 4: CIFAR-10, CIFAR-100, minutes.
_WITHOUT_VOLUME, _WITHOUT_TIME = "Formula w/o data volume", "Formula w/o computing resources"
_WITHOUT_HISTORY, _OURS = "Formula w/o selection history", "Our formula"
_TABLE4 = {
    "Random selection": (90.28, 71.70, 33.7),
    _WITHOUT_VOLUME: (88.54, 71.99, 28.8),
    _WITHOUT_TIME: (90.65, 73.46, 37.6),
    _WITHOUT_HISTORY: (90.23, 73.51, 38.9),
    _OURS: (90.96, 73.70, 36.8),
}
_FORMULAS = {
    "Random selection": ("random", ("--hparam=route=random",)),
    _WITHOUT_VOLUME: ("no_volume", ("--hparam=use_volume=false",)),
    _WITHOUT_TIME: ("no_time", ("--hparam=use_time=false",)),
    _WITHOUT_HISTORY: ("no_history", ("--hparam=use_history=false",)),
    _OURS: ("denav", ()),
}
# Table 5: CIFAR-10, CIFAR-100.
_TABLE5 = {
    "With average weights": ("average", (90.64, 73.79)),
    "With only data volume weights": ("volume", (91.08, 73.72)),
    "Staleness-aware aggregation": ("staleness", (91.46, 74.49)),
}


def _cell(
    name: str, scale: str, dataset: str | None, rounds: int, *flags: str, baseline: bool = False
) -> Cell:
    """A pretraining, and its fine-tuning on each downstream data set."""
    baselines = f"--baselines={'random_encoder' if baseline else ''}"
    return Cell(
        name,
        "pretrain",
        (
            f"--flagfile=launch/presets/denav/{scale}/denav.flags",
            *((f"--dataset={dataset}",) if dataset else ()),
            f"--rounds={rounds}",
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
    """Z is 3 (Table 6), or S / M where that is more, which Eq. 6 asks for."""
    steps = rounds or steps
    limit = max(3, -(-steps // _CLIENTS))
    return _cell(
        name, scale, dataset, steps, "--algorithm=denav", f"--hparam=selection_limit={limit}",
        *flags, baseline=baseline,
    )  # fmt: skip


def _accuracy_tables(
    title: str, scale: str, rows: dict[str, str], published: Mapping[str, Sequence[float | None]]
) -> tuple[Table, ...]:
    """A table for each downstream data set, where results differ in the data set only."""
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
    return Table(
        title, Selector("linear", metric=metric), (metric.replace("_", " "),),
        {row: (cell,) for row, cell in rows.items()}, published, percent=False,
    )  # fmt: skip


def _scratch(scale: str, cell: str) -> Table:
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
    """Table 3: DeNAV against gossip learning at equal epochs, accuracy and communications."""
    cells: list[Cell] = []
    rows: dict[str, str] = {}
    figures: dict[str, tuple] = {}
    claims = []
    title = "Table 3"
    downstream = tuple(_DOWNSTREAM[scale])
    for epochs in _EPOCHS[scale]:
        steps = epochs // _LOCAL_EPOCHS
        shared = steps // _CLIENTS  # Rounds in which all clients train.
        methods = {
            DENAV: _denav(f"denav_{epochs}", scale, dataset, steps, rounds,
                          baseline=epochs == _EPOCHS[scale][0]),
            RANDOM: _denav(f"random_{epochs}", scale, dataset, steps, rounds,
                           "--hparam=route=random"),
            GOSSIP: _cell(f"gossip_{epochs}", scale, dataset, rounds or shared,
                          "--algorithm=gossip"),
            ALL_REDUCE: _cell(f"all_reduce_{epochs}", scale, dataset, rounds or shared,
                              "--algorithm=all_reduce"),
        }  # fmt: skip
        names = {method: f"{method}, {epochs} epochs" for method in methods}
        for method, cell in methods.items():
            cells.append(cell)
            rows[names[method]] = cell.name
            # Beside the CPU's epochs stand the paper's fewest.
            paper_epochs = epochs if scale == "paper" else min(_EPOCHS["paper"])
            published = _TABLE3.get((method, paper_epochs))
            if published:
                figures[f"{method}, {paper_epochs} epochs"] = published
        for other in (GOSSIP, RANDOM):
            claims += [
                Claim(
                    f"DeNAV is above {other.lower()} on {name} after {epochs} epochs",
                    f"{title}: fine-tuned on {name}",
                    _above(names[DENAV], names[other]),
                )
                for name in downstream
            ]

        def fewer(v: Lookup, names=names) -> bool:
            column = "communications"
            return v(names[DENAV], column) * 10 < v(names[GOSSIP], column)

        claims.append(
            Claim(f"DeNAV needs less than a tenth of gossip's communications, {epochs} epochs",
                  "Communications", fewer)
        )  # fmt: skip
    counts = {row: (published[2],) for row, published in figures.items()}
    return Experiment(
        "denav_table3", f"DeNAV, Table 3, at {scale} scale", tuple(cells),
        (
            *_accuracy_tables(title, scale, rows, figures),
            _counts("Communications", "communications", rows, counts),
            _counts("Communications as the paper counts", "communications_as_published",
                    {row: cell for row, cell in rows.items() if not row.startswith(ALL_REDUCE)},
                    counts),
            _counts("Bytes sent", "communication_bytes", rows, {}),
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
        tuple(("Communications", f"{title}: fine-tuned on {name}") for name in downstream),
    )  # fmt: skip


def table4(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 4: the navigator's formula without each of its terms, and a random route."""
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
    )  # fmt: skip


def table5(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 5: how parallel models are aggregated."""
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
    )  # fmt: skip


EXPERIMENTS = {
    "denav_table3": (table3, "DeNAV against gossip learning: accuracy and communications"),
    "denav_table4": (table4, "DeNAV's navigator without each term, and a random route"),
    "denav_table5": (table5, "DeNAV's parallel training: how models are aggregated"),
}
