"""Table 3 of the FedU paper: encoders that are fine-tuned on another data set."""

from launch.studies.engine.claims import Trial, apart, claim
from launch.studies.engine.statements import ON_CLIENTS, above, each_above, say
from launch.studies.engine.study import At, grid, study, table
from launch.studies.fedu_table1 import (
    CENTRAL,
    SINGLE,
    SPLITS,
    TINY,
    UNTRAINED,
    central,
    method,
    training,
)
from tff_ssl.reporting.experiment import Experiment
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
_CPU_NOTE = (
    "At this scale the encoders are pretrained on five clients with 160 images of CIFAR-100 each, "
    "because Mini-ImageNet is not here, and fine-tuned on 5000 labels."
)


# Mini-ImageNet has to be prepared by the user, so that the CPU's scale goes from one CIFAR to the
# other.
@study("FedU, Table 3, from {data} at {scale} scale", cpu="cifar100", paper="mini_imagenet")
def fedu_table3(at: At) -> Experiment:
    """FedU and its baselines, fine-tuned on another data set."""
    targets = at(("cifar10",), ("cifar10", "cifar100"))
    targets = tuple(target for target in targets if target != at.data) or ("cifar100",)
    labels, draws = at((5000, 5), (50_000, 1))  # All labels can be drawn in one way only.
    # Section 4.4: 100 epochs of fine-tuning. The paper gives neither optimizer nor rate.
    steps = at("", "--finetune_batch_size=128 --finetune_steps=39000")
    evaluations = [
        evaluation
        for target in targets
        for evaluation in (
            f"--protocol=finetune --dataset={target} --labels={labels} --label_draws=1 {steps}",
            f"--protocol=transfer --dataset={target} --labels={labels} --label_draws={draws}",
        )
    ]
    own = at("", "--encoder=resnet50 --image_size=84")
    cells, rows = grid(
        {row: method(row, at, *evaluations) for row in _ROWS}, SPLITS, training(at), own
    )
    tables = []
    for target in targets:
        tuned = Selector("finetune", labels, dataset=target)
        tables += [
            table(
                f"Table 3: fine-tuned on {target}", tuned, SPLITS,
                {RANDOM: rows["FedU"], **rows, CENTRAL: ("central", None)}, _TABLE3[target],
                selectors={RANDOM: tuned._replace(baseline="random_encoder")},
            ),
            table(
                f"Linear probe on {target}", tuned._replace(protocol="transfer"), SPLITS,
                {**rows, CENTRAL: ("central", None)}, untrained={UNTRAINED: "FedU"},
            ),
        ]  # fmt: skip
    statements = [
        [
            *each_above(shown, name, "FedU", _ROWS[:-1], ON_CLIENTS),
            *say(shown, f"{name}.central", "Centralized BYOL is above FedU on IID clients",
                 above(CENTRAL, "FedU", "IID")),
        ]
        for name, shown in zip(("tuned", "probed") * len(targets), tables, strict=True)
    ]  # fmt: skip
    notes = [
        "Published: ResNet-50, pretrained on Mini-ImageNet. Single client training: the first "
        "client's model. The linear probe is not in the paper's table.",
        at(_CPU_NOTE, ""),
    ]
    partitions = dict(zip(SPLITS, rows["FedU"], strict=True))
    cells.append(central(at, own, *evaluations))
    return at.build(cells, tables, statements, notes, partitions)


STUDIES = (fedu_table3,)
CLAIMS = (
    claim(
        "U4", "Table 3", "Transferred from Mini-ImageNet to CIFAR-100 FedU is best: 75.60 on "
        "non-IID clients, single clients 75.14, FedSimCLR 70.91.",
        Trial(
            f"{TINY}, from CIFAR-100 to CIFAR-10, because Mini-ImageNet is not here; fine-tuned on "
            "5000 labels; 3 seeds.", "fedu_table3-cpu",
            "tuned.single_client_training tuned.fedsimclr tuned.fedca",
            ("FedU", SINGLE, "FedSimCLR", "FedCA", RANDOM), tuple(SPLITS),
            apart("FedSimCLR", RANDOM, "non-IID"),
            "FedSimCLR has the highest mean on both kinds of clients; on IID ones FedU is within "
            "the deviation of it. FedU is above single clients within the deviation only.",
        ),
    ),
)  # fmt: skip
