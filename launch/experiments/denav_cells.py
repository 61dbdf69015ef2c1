"""Cells and tables that the experiments of the DeNAV paper share."""

from collections.abc import Callable, Mapping, Sequence

from tff_ssl.algorithms.denav import navigator
from tff_ssl.reporting.experiment import Cell, Lookup, Table
from tff_ssl.reporting.measured import Selector

CLIENTS = {"paper": 100, "cpu": 30}
# Steps by default (Table 6), which are two for each client, and local epochs of a step.
STEPS = {"paper": 200, "cpu": 60}
LOCAL_EPOCHS = {"paper": 5, "cpu": 10}
MODELS = 5  # Models of parallel training (Table 6).
# Data sets on which the pretrained block is fine-tuned, by name in the tables.
DOWNSTREAM = {"paper": {"CIFAR10": "cifar10", "CIFAR100": "cifar100"},
              "cpu": {"CIFAR10": "cifar10"}}  # fmt: skip
DEPTH = 5  # Blocks of the downstream model (Table 6).
_LABELS = {"paper": 50_000, "cpu": 5000}
_FINETUNE = {
    # At the paper's scale, 100 epochs of all 50,000 images, at the size of the pretraining images.
    "paper": ("--image_size=224", "--finetune_steps=19532", "--finetune_batch_size=256",
              "--finetune_learning_rate=0.001"),
    "cpu": ("--finetune_steps=100", "--finetune_batch_size=128", "--finetune_learning_rate=0.002"),
}  # fmt: skip
PROBED = ("cpu",)  # Scales at which linear probes follow, which show more than fine-tuning there.
_MONITORED = 5  # Number of times that a training is monitored, if it has as many rounds.
# Axes of the learning curves. A round of DeNAV is the training of one client, and one of gossip
# learning that of all clients, so that rounds cannot be compared.
COSTS = {
    "simulated time (examples x epochs of a slow client)": "simulated_time",
    "samples (images of the clients that train x epochs)": "examples_trained",
}
SCRATCH, UNTRAINED = "From scratch", "(untrained encoder)"
NOTE = (
    "Published: Mini-ImageNet at 224x224 on 100 clients, connectivity 0.15, fine-tuned for 100 "
    "epochs with a backbone of 5 blocks. At CPU scale: 3000 of CIFAR-100's images on 30 clients, "
    "connectivity 0.3, a block of width 64 at 16x16, 10 local epochs in place of 5, fine-tuned on "
    "5000 labels of CIFAR-10."
)


def cell(
    name: str,
    scale: str,
    dataset: str | None,
    rounds: int,
    *flags: str,
    baseline: bool = False,
    probed: bool = False,
) -> Cell:
    """A pretraining with the preset, and its fine-tuning on each downstream data set.

    Args:
      name: Name of the cell.
      scale: `cpu` or `paper`.
      dataset: Name of the data set for pretraining; None for the preset's.
      rounds: Number of rounds (DeNAV: steps).
      *flags: Further flags of the pretraining.
      baseline: Whether the same network is also trained from scratch.
      probed: Whether a linear probe on the frozen encoder follows, which is not the paper's.
    """
    evaluations = finetunings(scale, baseline, f"--depth={DEPTH}")
    if probed:
        evaluations += tuple(
            ("--protocol=transfer", f"--dataset={downstream}", f"--labels={_LABELS[scale]}",
             "--label_draws=1", _baselines(baseline))
            for downstream in DOWNSTREAM[scale].values()
        )  # fmt: skip
    return Cell(
        name,
        "pretrain",
        (
            f"--flagfile=launch/presets/denav/{scale}/denav.flags",
            *((f"--dataset={dataset}",) if dataset else ()),
            *length(rounds),
            *flags,
        ),
        evaluations,
    )


def length(rounds: int) -> tuple[str, str]:
    """Flags of the number of rounds and of the monitor."""
    return f"--rounds={rounds}", f"--eval_every={max(1, rounds // _MONITORED)}"


def finetunings(scale: str, baseline: bool, *flags: str) -> tuple[tuple[str, ...], ...]:
    """The flags of fine-tuning on each downstream data set; `baseline` as for `cell`."""
    return tuple(
        (
            "--protocol=finetune", f"--dataset={downstream}", f"--labels={_LABELS[scale]}",
            "--label_draws=1", *_FINETUNE[scale], *flags,
            _baselines(baseline),
        )
        for downstream in DOWNSTREAM[scale].values()
    )  # fmt: skip


def _baselines(baseline: bool) -> str:
    return f"--baselines={'random_encoder' if baseline else ''}"


def denav(
    name: str,
    scale: str,
    dataset: str | None,
    steps: int,
    *flags: str,
    baseline: bool = False,
    probed: bool = False,
) -> Cell:
    """A `cell` of DeNAV with a number of steps; `flags` may have another selection limit Z.

    By default, Z is 1.5 S / M, the paper's ratio to the number of steps per client (Table 6: Z = 3
    for S = 200 and M = 100).
    """
    limit = navigator.papers_limit(steps, CLIENTS[scale])
    return cell(
        name, scale, dataset, steps, "--algorithm=denav", f"--hparam=selection_limit={limit}",
        *flags, baseline=baseline, probed=probed,
    )  # fmt: skip


def accuracy_tables(
    title: str,
    scale: str,
    rows: Mapping[str, str],
    published: Mapping[str, Sequence[float | None]],
    scratch: str,
    probed: bool = False,
) -> tuple[Table, ...]:
    """A table of fine-tuned accuracies for each downstream data set, and one of linear probes.

    Args:
      title: Start of the tables' titles.
      scale: `cpu` or `paper`.
      rows: Row -> name of its cell.
      published: Row -> the paper's figures, in the order of the data sets; others may follow.
      scratch: Name of a cell with the baseline, which the last row shows.
      probed: Whether the cells have linear probes.
    """
    of_cells = {row: (cell,) for row, cell in rows.items()}
    tables = tuple(
        Table(
            f"{title}: fine-tuned on {name}",
            Selector("finetune", dataset=downstream),
            ("accuracy",),
            {**of_cells, SCRATCH: (scratch,)},
            {row: (figures[i],) for row, figures in published.items()},
            {SCRATCH: Selector("finetune", baseline="random_encoder", dataset=downstream)},
        )
        for i, (name, downstream) in enumerate(DOWNSTREAM[scale].items())
    )
    if not probed:
        return tables
    return tables + tuple(
        Table(
            f"{title}: linear probe on {name}, which is not the paper's",
            Selector("transfer", dataset=downstream),
            ("accuracy",),
            {**of_cells, UNTRAINED: (scratch,)},
            {},
            {UNTRAINED: Selector("transfer", baseline="random_encoder", dataset=downstream)},
        )
        for name, downstream in DOWNSTREAM[scale].items()
    )


def counts(
    title: str,
    metric: str,
    rows: Mapping[str, str],
    published: Mapping[str, Sequence[float | None]],
) -> Table:
    """A table of counts, which pretraining writes beside its linear probe."""
    return Table(
        title, Selector("linear", metric=metric), (metric.replace("_", " "),),
        {row: (cell,) for row, cell in rows.items()}, published, percent=False,
    )  # fmt: skip


def above(better: str, worse: str, column: str = "accuracy") -> Callable[[Lookup], bool]:
    """The condition of a claim that one row is above another."""
    return lambda v: v(better, column) > v(worse, column)
