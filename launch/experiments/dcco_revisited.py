"""Table 1 of the DCCO paper on few images, whose clients come often, as the paper's do.

In the paper, a client is visited about 1000 times, and the FedAvg variants overfit. At the CPU's
scale of `dcco_table1`, a client is visited some ten times at most.
"""

from collections.abc import Mapping
from typing import NamedTuple

from launch.experiments.dcco import (
    CCO,
    CENTRALIZED,
    CONTRASTIVE,
    DCCO,
    Setting,
    central_cells,
    federated_cells,
    table1_claims,
    table1_tables,
)
from tff_ssl.reporting.experiment import Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import TRAINING, Selector

# The preset's rate at the paper's scale is the paper's other one.
_RATES: dict[str, tuple[float | None, ...]] = {"cpu": (0.005, 0.002), "paper": (None, 0.001)}
_SIZES: dict[str, Mapping[str, tuple[int, ...]]] = {
    "cpu": {"non-IID": (1, 4, 16), "IID": (4, 16)},
    "paper": {"non-IID": (1, 4, 8, 16), "IID": (4, 8, 16)},
}


class _Images(NamedTuple):
    """The images of the CPU's scale.

    Attributes:
      number: Number of training images of the clients.
      of_round: Number of images of a round.
      labels: Numbers of labels of the probes.
      flags: Flags of all trainings, after those of Table 1's presets.
      pretraining_flags: Further flags of pretraining.
      cco_flags: Further flags of the methods with CCO's loss.
    """

    number: int
    of_round: int
    labels: tuple[int, int]
    flags: tuple[str, ...]
    pretraining_flags: tuple[str, ...]
    cco_flags: tuple[str, ...]


_CPU = {
    "cifar10": _Images(
        2000, 256, (5000, 500), (),
        ("--rounds=300", "--checkpoint_every=300", "--eval_every=30", "--noalso_logistic"), (),
    ),
    "digits": _Images(
        1280, 128, (50, 10), ("--views=affine",),
        ("--projector=64", "--rounds=250", "--checkpoint_every=250", "--eval_every=25",
         "--labels=50,10", "--probe=logistic", "--noalso_logistic"),
        ("--hparam=lambda=2",),
    ),
}  # fmt: skip
# Centralized CCO goes through batches of random images of as many clients.
_CENTRAL = (
    "--batches=cohorts", "--partition=dirichlet", "--alpha=1000", "--samples_per_client=4",
)  # fmt: skip
_LOST = "Nearest neighbours on training images: the last round below the best one"
_LAST = "Nearest neighbours on training images, last round"
_SMALL_LOSS = 0.01  # What the noise of the monitor may take from the best of ten rounds.


def table1_revisited(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 1 on few images; best and last round, the better of two rates.

    Args:
      scale: `cpu` or `paper`; the latter has all images, and differs from `dcco_table1` by its data
        set and by the tables of nearest neighbours.
      dataset: Name of the data set; None for cifar10. The CPU's scale has a setting of its own for
        digits.
      rounds: Number of rounds of each run; None for the experiment's.
    """
    dataset = dataset or "cifar10"
    setting = Setting(
        scale=scale,
        sizes=_SIZES[scale],
        round_samples=512,
        rates=_RATES[scale],
        flags=(f"--dataset={dataset}",),
        evaluations=(),
        rounds=rounds,
        fedavg_flags=("--encoder_round=best",),
    )
    if scale == "cpu":
        setting = _on_few_images(setting, _CPU.get(dataset, _CPU["cifar10"]))
    cells, rows, choices = federated_cells(setting)
    cells += central_cells(setting)
    rows[CENTRALIZED] = ("centralized",)
    tables = table1_tables(setting, rows)
    ends = tuple(
        Table(title, Selector(TRAINING, metric=metric), setting.columns(), rows, {})
        for title, metric in ((_LAST, "knn_last"), (_LOST, "knn_lost"))
    )
    return Experiment(
        "dcco_table1_revisited",
        f"DCCO, Table 1 with clients that come often, on {dataset} at {scale} scale",
        tuple(cells),
        (*tables, *ends),
        (*(claim for table in tables for claim in table1_claims(table)), *_overfitting(ends[-1])),
        (
            "Published: CIFAR-100, ResNet-14, 512 samples a round, 100,000 rounds, each client "
            "visited about 1000 times.",
            "Each method and split was run at two rates as in the paper, of which the one with the "
            "better kNN accuracy on training images is shown: for the FedAvg variants of the best "
            "of the monitored rounds, whose encoder is probed, for DCCO of the last one.",
            *([_few_images(setting.images)] if setting.images else []),
        ),
        setting.partitions(),
        choices=choices,
    )


def _on_few_images(setting: Setting, images: _Images) -> Setting:
    """The setting on the images of the CPU's scale."""
    return setting._replace(
        flags=(*setting.flags, *images.flags),
        labels=images.labels,
        round_samples=images.of_round,
        images=images.number,
        pretraining_flags=images.pretraining_flags,
        cco_flags=images.cco_flags,
        central_flags=(
            *_CENTRAL, f"--num_clients={images.number // 4}",
            f"--clients_per_round={images.of_round // 4}",
        ),
    )  # fmt: skip


def _few_images(images: int) -> str:
    """A note on the population of the CPU's scale."""
    return (
        f"Clients have {images:,} images together. Probes draw their labels from all training "
        "images. Full fine-tuning, the paper's second table, was left out; it takes longer than "
        "the training."
    )


def _overfitting(table: Table) -> list[Claim]:
    """The statements of section 4.3 on the rounds after the best one."""
    shared = [column for column in table.columns if not column.endswith(", 1")]

    def overfits(row: str):
        return lambda v: all(v(row, column) > _SMALL_LOSS for column in shared)

    def loses_less(v: Lookup) -> bool:
        return all(
            v(DCCO, column) < min(v(CONTRASTIVE, column), v(CCO, column)) for column in shared
        )

    return [
        Claim(text, table.title, holds)
        for text, holds in (
            ("Contrastive + FedAvg overfits: its last round is more than 1 point below its best",
             overfits(CONTRASTIVE)),
            ("CCO + FedAvg overfits: its last round is more than 1 point below its best",
             overfits(CCO)),
            ("DCCO does not overfit: its last round is at most 1 point below its best",
             lambda v: all(v(DCCO, column) <= _SMALL_LOSS for column in table.columns)),
            ("DCCO loses less after its best round than either FedAvg variant", loses_less),
        )
    ]  # fmt: skip


EXPERIMENTS = {
    "dcco_table1_revisited": (table1_revisited, "Table 1 on few images, whose clients come often"),
}
