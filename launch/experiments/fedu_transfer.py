"""Table 3 of the FedU paper: encoders that are fine-tuned on another data set."""

from launch.experiments.fedu import (
    CENTRAL,
    METHODS,
    SINGLE,
    SPLITS,
    UNTRAINED,
    above,
    central_cell,
    common,
    method_flags,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

RANDOM = "Random Init."
# Target -> row -> figures in percent of IID and of non-IID clients, pretrained on Mini-ImageNet.
_TABLE3 = {
    "cifar10": {
        RANDOM: (93.79, None),
        SINGLE: (94.67, 94.33),
        "FedSimCLR": (94.87, 93.97),
        "FedCA": (94.94, 94.16),
        "FedU": (95.00, 94.83),
        CENTRAL: (95.37, None),
    },
    "cifar100": {
        RANDOM: (70.52, None),
        SINGLE: (75.25, 75.14),
        "FedSimCLR": (71.85, 70.91),
        "FedCA": (71.98, 71.32),
        "FedU": (75.57, 75.60),
        CENTRAL: (77.02, None),
    },
}
_ROWS = (SINGLE, "FedSimCLR", "FedCA", "FedU")
# Data set of the pretraining, and those of the fine-tuning. Mini-ImageNet has to be prepared by the
# user, so that the CPU's scale goes from one CIFAR to the other.
_SOURCES = {"paper": "mini_imagenet", "cpu": "cifar100"}
_TARGETS = {"paper": ("cifar10", "cifar100"), "cpu": ("cifar10",)}
_LABELS = {"paper": 50_000, "cpu": 5000}
# Section 4.4: 100 epochs of fine-tuning. The paper gives neither optimizer nor rate.
_STEPS = {"paper": ("--finetune_batch_size=128", "--finetune_steps=39000"), "cpu": ()}
_PAPER_FLAGS = ("--encoder=resnet50", "--image_size=84")
_NOTES = {
    "paper": (),
    "cpu": (
        "At this scale the encoders are pretrained on five clients with 160 images of CIFAR-100 "
        "each, because Mini-ImageNet is not here, and fine-tuned on 5000 labels.",
    ),
}


def table3(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 3: transfer to the CIFARs.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set of the pretraining; None for mini_imagenet, or at the CPU's
        scale cifar100.
      rounds: Number of rounds of each run; None for the presets'.
    """
    dataset = dataset or _SOURCES[scale]
    targets = [target for target in _TARGETS[scale] if target != dataset] or ["cifar100"]
    own = _PAPER_FLAGS if scale == "paper" else ()
    evaluations = tuple(
        evaluation for target in targets for evaluation in _evaluations(scale, target)
    )
    cells, rows = [], {}
    for row in _ROWS:
        names = []
        for split, partition in SPLITS.items():
            names.append(f"{METHODS[row][0]}_{split.lower().replace('-', '')}")
            flags = (
                *common(scale, dataset, rounds), *partition, *own,
                *method_flags(row, scale, dataset),
            )  # fmt: skip
            cells.append(Cell(names[-1], "pretrain", flags, evaluations))
        rows[row] = tuple(names)
    central = central_cell(scale, dataset, rounds, evaluations)
    cells.append(Cell(central.name, central.script, (*central.flags, *own), evaluations))
    all_rows = {RANDOM: rows["FedU"], **rows, CENTRAL: (central.name, None)}
    tables, claims = [], []
    for target in targets:
        tuned = Selector("finetune", _LABELS[scale], dataset=target)
        probed = Selector("transfer", _LABELS[scale], dataset=target)
        tables += [
            Table(
                f"Table 3: fine-tuned on {target}", tuned, tuple(SPLITS), all_rows,
                _TABLE3[target], {RANDOM: tuned._replace(baseline="random_encoder")},
            ),
            Table(
                f"Linear probe on {target}", probed, tuple(SPLITS),
                {**rows, CENTRAL: all_rows[CENTRAL], UNTRAINED: rows["FedU"]}, {},
                {UNTRAINED: probed._replace(baseline="random_encoder")},
            ),
        ]  # fmt: skip
    for table in tables:
        claims += [
            Claim(f"FedU is above {other} on {column} clients", table.title,
                  above("FedU", other, column))
            for other in (SINGLE, "FedSimCLR", "FedCA")
            for column in SPLITS
        ]  # fmt: skip
        claims.append(
            Claim("Centralized BYOL is above FedU on IID clients", table.title,
                  above(CENTRAL, "FedU", "IID"))
        )  # fmt: skip
    return Experiment(
        "fedu_table3", f"FedU, Table 3, from {dataset} at {scale} scale", tuple(cells),
        tuple(tables), tuple(claims),
        (
            "Published: ResNet-50, pretrained on Mini-ImageNet. Single client training: the first "
            "client's model. The linear probe is not in the paper's table.",
            *_NOTES[scale],
        ),
        {split: str(name) for split, name in zip(SPLITS, rows["FedU"], strict=True)},
    )  # fmt: skip


def _evaluations(scale: str, target: str) -> tuple[tuple[str, ...], ...]:
    """Fine-tuning and a linear probe on another data set."""
    labels = f"--labels={_LABELS[scale]}"
    draws = {"paper": 1, "cpu": 5}[scale]  # All labels can be drawn in one way only.
    return (
        ("--protocol=finetune", f"--dataset={target}", labels, "--label_draws=1", *_STEPS[scale]),
        ("--protocol=transfer", f"--dataset={target}", labels, f"--label_draws={draws}"),
    )


EXPERIMENTS = {
    "fedu_table3": (table3, "FedU and its baselines, fine-tuned on another data set"),
}
