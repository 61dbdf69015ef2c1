"""Table 2 of the DCCO paper with fewer labelled cases, where the start of a fine-tuning matters."""

from launch.experiments.dcco import (
    CENTRALIZED,
    CONTRASTIVE,
    DCCO,
    METHODS,
    PIXELS,
    SCRATCH,
    UNTRAINED,
    without_pretraining,
)
from launch.experiments.dcco_table2 import COHORTS, FINETUNING, RATES, table2_claims
from tff_ssl.reporting.experiment import Cell, Experiment, Table
from tff_ssl.reporting.measured import Selector

_CLIENTS = 128
_LABELS = (100, 300)  # Numbers of labelled cases, one for each table.
_DRAWS = 3
_COLUMN = f"{_CLIENTS} clients a round"
# Flags of the trainings after those of Table 2's presets, and of fine-tuning.
_TRAINING = {
    "cpu": ("--image_size=24", "--rounds=150", "--checkpoint_every=150", "--eval_every=25"),
    "paper": (),
}
_STEPS = {"cpu": ("--finetune_steps=100",), "paper": ("--finetune_steps=1000,10000",)}


def few_cases(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 2 with 100 and 300 labelled cases, 128 clients a round; fine-tuned and frozen.

    Args:
      scale: `cpu` or `paper`.
      dataset: Not used; the data set is a case folder.
      rounds: Number of rounds of each run; None for the experiment's.
    """
    del dataset
    rows = {row: (METHODS[row].name,) for row in (CONTRASTIVE, DCCO)}
    tables = _tables({**rows, CENTRALIZED: ("centralized",)})
    return Experiment(
        "dcco_table2_few_labels",
        f"DCCO, Table 2 with fewer labels, on cases of images at {scale} scale",
        _cells(scale, rounds),
        tables,
        tuple(claim for table in tables for claim in table2_claims(table)),
        (
            "Nothing of this is published: Table 2 has 1,524 labelled cases and more, of which a "
            "small network learns as much from any start. The statements are those of Table 2.",
            f"Means of {_DRAWS} draws of the labels in each run. FedAvg leaves out the clients of "
            "one image, which DCCO has. The frozen encoders are not the paper's protocol.",
        ),
        {"one client a case": METHODS[DCCO].name},
    )


def _cells(scale: str, rounds: int | None) -> tuple[Cell, ...]:
    """The trainings with their evaluations."""
    presets = f"--flagfile=launch/presets/dcco_table2/{scale}"
    # The probe of the presets' trainings is replaced: both numbers of labels in one evaluation.
    labels = (f"--labels={','.join(map(str, _LABELS))}", f"--label_draws={_DRAWS}")
    length = (*_TRAINING[scale], *((f"--rounds={rounds}",) if rounds else ()), *labels)
    finetuning = (*labels, "--baselines=", *FINETUNING[scale], *_STEPS[scale])
    if scale == "cpu":
        finetuning = (*finetuning, "--finetune_batch_size=64")
    finetune, scratch = (
        (f"--protocol={protocol}", *finetuning) for protocol in ("finetune", "scratch")
    )
    cells = []
    for row in (CONTRASTIVE, DCCO):
        method = METHODS[row]
        rate = RATES[row][COHORTS.index(_CLIENTS)]
        flags = (
            f"{presets}/{method.name}.flags",
            f"--clients_per_round={_CLIENTS}",
            *length,
            *((f"--hparam=server_learning_rate={rate}",) if scale == "paper" else ()),
        )
        cells.append(Cell(method.name, "pretrain", flags, (finetune,)))
    # Training from scratch needs no pretraining, only the network and data of this run.
    flags = (f"{presets}/centralized.flags", *length)
    return (*cells, Cell("centralized", "centralized", flags, (finetune, scratch)))


def _tables(rows: dict[str, tuple[str, ...]]) -> tuple[Table, ...]:
    """Fine-tuned and frozen encoders on each number of labels, and balanced accuracies."""
    tables = []
    for labels in _LABELS:
        for metric in ("accuracy", "balanced_accuracy"):
            words = f"{labels} labelled cases, {metric.replace('_', ' ')}"
            tables.append(
                Table(
                    f"Full fine-tuning, {words}", Selector("finetune", labels, metric), (_COLUMN,),
                    {**rows, SCRATCH: ("centralized",)}, {},
                    {SCRATCH: Selector("scratch", labels, metric)},
                )
            )  # fmt: skip
            probe = Selector("linear", labels, metric)
            untrained = {UNTRAINED: ("centralized",), PIXELS: ("centralized",)}
            tables.append(
                Table(
                    f"Linear probe, {words}", probe, (_COLUMN,), {**rows, **untrained}, {},
                    without_pretraining(probe),
                )
            )  # fmt: skip
    return tuple(tables)


EXPERIMENTS = {
    "dcco_table2_few_labels": (few_cases, "Table 2 with 100 and 300 labelled cases"),
}
