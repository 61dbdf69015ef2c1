"""Table 2 of the DCCO paper, whose clients hold the images of one case each."""

from launch.experiments.dcco import (
    CCO,
    CENTRALIZED,
    CONTRASTIVE,
    DCCO,
    METHODS,
    PIXELS,
    SCRATCH,
    UNTRAINED,
    without_pretraining,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

COHORTS = (64, 128, 256)  # Numbers of clients in a round, one for each column.
_LABELS = (1524, 3057, 4592)  # Numbers of labelled cases, one for each table.
# The paper's accuracies in percent, by number of labels. A single figure holds for all columns.
_PUBLISHED = {
    1524: {CONTRASTIVE: (38.9, 41.8, 43.9), DCCO: (42.4, 46.3, 47.8), CENTRALIZED: (48.0,),
           SCRATCH: (30.6,)},
    3057: {CONTRASTIVE: (45.3, 46.7, 47.8), DCCO: (46.7, 50.3, 51.1), CENTRALIZED: (52.0,),
           SCRATCH: (35.9,)},
    4592: {CONTRASTIVE: (47.7, 49.1, 51.5), DCCO: (48.3, 52.8, 52.5), CENTRALIZED: (53.6,),
           SCRATCH: (39.2,)},
}  # fmt: skip
# Flags of fine-tuning: at the paper's scale those of Appendix B, at the image size of section 4.2.
FINETUNING = {
    "paper": ("--image_size=448", "--views=skin", "--finetune_batch_size=128",
              "--finetune_learning_rate=0.0003,0.0001"),
    "cpu": ("--finetune_batch_size=128", "--finetune_learning_rate=0.005"),
}  # fmt: skip
# Numbers of steps of fine-tuning, of which the paper gives only the largest.
_STEPS = {"paper": "10000,30000,100000", "cpu": "200,600"}
# Evaluations of the frozen encoders at the CPU's scale, which differ more than the fine-tuned ones.
_FROZEN = (("--protocol=linear", "--labels=1524", "--label_draws=5"), ("--protocol=knn",))
# Title -> selector of the tables of frozen encoders.
_FROZEN_TABLES = {
    "Linear probe, 1524 labelled cases, balanced accuracy": Selector(
        "linear", 1524, "balanced_accuracy"
    ),
    "Nearest neighbours, all labels, balanced accuracy": Selector("knn", None, "balanced_accuracy"),
}
_CPU_NOTES = (
    "The tables of frozen encoders, linear probe and nearest neighbours, are not the paper's. They "
    "were added after most of seed 0 had been seen, whose fine-tuned encoders hardly differed.",
)
# The paper's initial learning rates of LARS, by clients per round (Appendix B). It gives none for
# CCO + FedAvg, which takes DCCO's.
RATES = {DCCO: (0.15, 0.9, 1.8), CONTRASTIVE: (0.15, 0.3, 0.6), CCO: (0.15, 0.9, 1.8)}


def table2(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 2: cases as clients, by clients per round; full fine-tuning, accuracy per case.

    The paper's DERM is private; HAM10000 stands in for it (or any case folder, by --data_dir).

    Args:
      scale: `cpu` or `paper`.
      dataset: Not used; the data set is a case folder.
      rounds: Number of rounds of each run; None for the presets'.
    """
    del dataset
    cells, rows = _cells(scale, rounds)
    tables = _tables(scale, rows)
    return Experiment(
        "dcco_table2",
        f"DCCO, Table 2, on cases of images at {scale} scale",
        cells,
        tables,
        tuple(claim for table in tables for claim in table2_claims(table)),
        (
            "Published: DERM, which is private (27 conditions, 59,770 clients), ResNet-50, 75,000 "
            "rounds. Measured: another data set, so that only the order of the methods compares.",
            "FedAvg leaves out the clients of one image, which DCCO has: of HAM10000's, 4,411 of "
            "5,976 clients and of 8,008 images. The paper gives no rates for CCO + FedAvg; DCCO's "
            "are taken.",
            "Fine-tuning, and training from scratch, choose steps (and, at the paper's scale, the "
            "rate) on validation cases, or "
            "on 1,190 labelled training cases that were not drawn where there is no such split.",
            *(_CPU_NOTES if scale == "cpu" else ()),
        ),
        {"one client a case": rows[DCCO][0]},
    )


def _cells(scale: str, rounds: int | None) -> tuple[tuple[Cell, ...], dict[str, tuple[str, ...]]]:
    """The trainings with their evaluations, and the rows of the methods."""
    presets = f"--flagfile=launch/presets/dcco_table2/{scale}"
    length = (f"--rounds={rounds}",) if rounds else ()
    training = (
        "--labels=" + ",".join(map(str, _LABELS)), "--label_draws=1", "--baselines=",
        f"--finetune_steps={_STEPS[scale]}", *FINETUNING[scale],
    )  # fmt: skip
    finetuning = ("--protocol=finetune", *training)
    frozen = _FROZEN if scale == "cpu" else ()
    evaluations = (finetuning, *((*probe, "--baselines=") for probe in frozen))
    cells, rows = [], {}
    for row in (CCO, CONTRASTIVE, DCCO):
        method, names = METHODS[row], []
        for clients, rate in zip(COHORTS, RATES[row], strict=True):
            names.append(f"{method.name}_{clients}")
            flags = (
                f"{presets}/{method.name}.flags",
                f"--clients_per_round={clients}",
                *length,
                *((f"--hparam=server_learning_rate={rate}",) if scale == "paper" else ()),
            )
            cells.append(Cell(names[-1], "pretrain", flags, evaluations))
        rows[row] = tuple(names)
    # Training from scratch needs no pretraining, only the network and data of this run.
    scratch = ("--protocol=scratch", *training)
    flags = (f"{presets}/centralized.flags", *length)
    cells.append(Cell("centralized", "centralized", flags, (finetuning, scratch, *frozen)))
    rows[CENTRALIZED] = ("centralized",)
    return tuple(cells), rows


def _tables(scale: str, rows: dict[str, tuple[str, ...]]) -> tuple[Table, ...]:
    """Fine-tuning on each number of labels and, at the CPU's scale, the frozen encoders."""
    columns = tuple(f"{n} clients a round" for n in COHORTS)
    tables = []
    for labels in _LABELS:
        for metric in ("accuracy", "balanced_accuracy"):
            published: dict[str, tuple] = {CCO: ("failed",) * 3} | _PUBLISHED[labels]
            tables.append(
                Table(
                    f"Full fine-tuning, {labels} labelled cases, {metric.replace('_', ' ')}",
                    Selector("finetune", labels, metric),
                    columns,
                    rows | {SCRATCH: ("centralized",)},
                    published if metric == "accuracy" else {},
                    {SCRATCH: Selector("scratch", labels, metric)},
                )
            )
    if scale == "cpu":
        all_rows = rows | {UNTRAINED: ("centralized",), PIXELS: ("centralized",)}
        for title, probe in _FROZEN_TABLES.items():
            tables.append(Table(title, probe, columns, all_rows, {}, without_pretraining(probe)))
    return tuple(tables)


def table2_claims(table: Table) -> list[Claim]:
    """The paper's statements about one of the tables, as far as it has their rows and columns."""
    first, last = table.columns[0], table.columns[-1]
    claims = [
        ("DCCO is above contrastive + FedAvg at every cohort size",
         lambda v: all(v(DCCO, c) > v(CONTRASTIVE, c) for c in table.columns)),
        ("Centralized CCO is at least as good as DCCO (within 1 point)",
         lambda v: all(v(CENTRALIZED, c) >= v(DCCO, c) - 0.01 for c in table.columns)),
    ]  # fmt: skip
    if first != last:
        claims.append(("DCCO gains from a larger cohort", lambda v: v(DCCO, last) > v(DCCO, first)))
    if CCO in table.rows:
        claims.append(
            ("Contrastive + FedAvg is above CCO + FedAvg at every cohort size",
             lambda v: all(v(CONTRASTIVE, c) > v(CCO, c) for c in table.columns))
        )  # fmt: skip
    if SCRATCH in table.rows:
        claims.append(
            ("DCCO is above supervised training from scratch",
             lambda v: all(v(DCCO, c) > v(SCRATCH, c) for c in table.columns))
        )  # fmt: skip
    return [Claim(text, table.title, holds) for text, holds in claims]


EXPERIMENTS = {
    "dcco_table2": (table2, "cases of skin images as clients: DCCO against FedAvg variants"),
}
