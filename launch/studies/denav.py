"""Tables 3, 4 and 5 of the DeNAV paper, and what all of its experiments share."""

from collections.abc import Mapping, Sequence
from typing import Any

from launch.studies.engine.claims import Number, PaperClaim, Proof, Trial, claim
from launch.studies.engine.statements import above, below, say, slug
from launch.studies.engine.study import UNTRAINED, At, Figures, Rows, cell, study, table
from tff_ssl.algorithms.denav import navigator
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

# By scale: clients; steps, two for each client; and local epochs of a step (Table 6).
CLIENTS, STEPS, LOCAL_EPOCHS = (30, 100), (60, 200), (10, 5)
MODELS, DEPTH = 5, 5  # Models of parallel training, and blocks of the downstream model (Table 6).
SCRATCH, ACCURACY = "From scratch", ("accuracy",)
_LABELS = 5000  # Of linear probes, also in the presets.
_FEW_LABELS = f"--labels={_LABELS} --label_draws=1"
NOTE = (
    "Published: Mini-ImageNet at 224x224 on 100 clients, connectivity 0.15, fine-tuned for 100 "
    "epochs with a backbone of 5 blocks. At CPU scale: 3000 of CIFAR-100's images on 30 clients, "
    "connectivity 0.3, a block of width 64 at 16x16, 10 local epochs in place of 5, fine-tuned on "
    "5000 labels of CIFAR-10. At GPU scale: the paper's, fine-tuned on CIFAR-10 for 5 epochs."
)
# Axes of the learning curves. Rounds cannot be compared: in one of DeNAV a single client trains, in
# one of gossip learning all clients.
COSTS = {
    "simulated time (examples x epochs of a slow client)": "simulated_time",
    "samples (images of the clients that train x epochs)": "examples_trained",
}


def downstream(at: At) -> dict[str, str]:
    """Data sets on which the pretrained block is fine-tuned, by name in the tables."""
    of_cpu, of_paper = {"CIFAR10": "cifar10"}, {"CIFAR10": "cifar10", "CIFAR100": "cifar100"}
    return at(of_cpu, of_paper, of_cpu)


def training(at: At, preset: str, rounds: int) -> str:
    """Flags of a preset and of the number of rounds, monitored five times if there are so many."""
    monitor = f"--eval_every={max(1, (at.rounds or rounds) // 5)}"
    return f"{at.training(f'denav/{preset}', rounds)} {monitor}"


def finetunings(at: At, scratch: bool, flags: str = f"--depth={DEPTH}") -> list[str]:
    """Fine-tuning on each downstream data set; `scratch` adds the network without pretraining.

    At the CPU's scale, 5 epochs, after which accuracies are above those of a linear probe; each
    network has the better of two learning rates on validation images. At the paper's scale, 100
    epochs of all 50,000 images, at the size of the pretraining images; at the GPU's, 5, because an
    evaluation that is stopped starts again.
    """
    own = at(
        "--labels=5000 --finetune_steps=800 --finetune_batch_size=32 "
        "--finetune_learning_rate=0.001,0.002",
        f"--labels=50000 --image_size=224 --finetune_steps={at(0, 19532, 977)} "
        "--finetune_batch_size=256 --finetune_learning_rate=0.001",
    )
    more = f"--label_draws=1 --baselines={'random_encoder' if scratch else ''} {own} {flags}"
    return [f"--protocol=finetune --dataset={data} {more}" for data in downstream(at).values()]


def run(
    at: At, name: str, rounds: int, *flags: str, scratch: bool = False, probed: bool = True,
    baselines: str = "",
) -> Cell:  # fmt: skip
    """A pretraining with a number of rounds (DeNAV: steps) by default, and its fine-tuning.

    `scratch` also trains the same network from scratch. `probed` adds a linear probe at the CPU's
    scale, where it shows more than fine-tuning; it is not the paper's. `baselines` are probed on
    the data of pretraining (see `frozen_table`).
    """
    evaluations = finetunings(at, scratch)
    if baselines:
        frozen = f"--protocol=linear {_FEW_LABELS} --baselines={baselines}"
        evaluations.append(at(frozen, "", frozen))
    if at(probed, False):
        start = "random_encoder" if scratch else ""
        evaluations.append(
            f"--protocol=transfer --dataset=cifar10 {_FEW_LABELS} --baselines={start}"
        )
    return cell(name, training(at, "denav", rounds), *flags, evaluations=evaluations)


def denav(at: At, name: str, rounds: int, *flags: str, **options: Any) -> Cell:
    """A `run` of DeNAV with a number of steps S; `flags` may have another selection limit Z.

    By default, Z is 1.5 S / M, the paper's ratio to the steps per client (Table 6: Z = 3 for S =
    200 and M = 100).
    """
    limit = navigator.papers_limit(at.rounds or rounds, at(*CLIENTS))
    own = f"--algorithm=denav --hparam=selection_limit={limit}"
    return run(at, name, rounds, own, *flags, **options)


def accuracy_tables(
    at: At, title: str, rows: Rows, published: Mapping[str, Sequence], scratch: str,
    probed: bool = True,
) -> dict[str, Table]:  # fmt: skip
    """A table of fine-tuned accuracies for each downstream data set, and one of linear probes.

    Published figures are in the order of the data sets; others may follow. The last rows show the
    baselines of the cell `scratch`. If `probed`, cells have linear probes at the CPU's scale.
    """
    tables = {}
    for i, (name, data) in enumerate(downstream(at).items()):
        tables[f"tuned.{data}"] = table(
            f"{title}: fine-tuned on {name}", Selector("finetune", dataset=data), ACCURACY, rows,
            {row: of_row[i : i + 1] for row, of_row in published.items()},
            untrained={SCRATCH: scratch},
        )  # fmt: skip
    if at(probed, False):
        tables["probed"] = table(
            f"{title}: linear probe on CIFAR10, which is not the paper's",
            Selector("transfer", dataset="cifar10"), ACCURACY, rows,
            untrained={UNTRAINED: scratch},
        )  # fmt: skip
    return tables


def frozen_table(
    at: At, title: str, columns: Sequence[str], rows: Rows, scratch: str
) -> dict[str, Table]:
    """A table of probes of the frozen encoders on the data of pretraining; none at the paper's.

    `scratch` is the row or cell whose runs have the untrained encoder among their baselines.
    """
    title = f"{title}: linear probe on the data of pretraining, which is not the paper's"
    untrained = {UNTRAINED: scratch}
    selector = Selector("linear", _LABELS)
    frozen = {"frozen": table(title, selector, columns, rows, untrained=untrained)}
    return at(frozen, {}, frozen)


def counts(title: str, metric: str, rows: Rows, published: Figures | None = None) -> Table:
    """A table of counts, which pretraining writes beside its linear probe."""
    columns, selector = [metric.replace("_", " ")], Selector("linear", metric=metric)
    return table(title, selector, columns, rows, published, percent=False)


_NO_VOLUME, _NO_TIME = "Formula w/o data volume", "Formula w/o computing resources"
_NO_HISTORY, _OURS = "Formula w/o selection history", navigator.OURS
# Row -> name of its cell, and CIFAR-10 and CIFAR-100 in percent, minutes.
_TABLE4 = {
    "Random selection": ("random", (90.28, 71.70, 33.7)),
    _NO_VOLUME: ("no_volume", (88.54, 71.99, 28.8)),
    _NO_TIME: ("no_time", (90.65, 73.46, 37.6)),
    _NO_HISTORY: ("no_history", (90.23, 73.51, 38.9)),
    _OURS: ("denav", (90.96, 73.70, 36.8)),
}


def _above_others(shown: Table, row: str, name: str) -> list[list[Claim]]:
    """A statement for each other cell of a table: that `row`, which is called `name`, is above."""
    return [
        say(shown, f"above.{slug(other)}", f"{name} is above {other[0].lower()}{other[1:]}",
            above(row, other, ACCURACY))
        for other in shown.rows if other not in (row, *shown.selectors)
    ]  # fmt: skip


@study("DeNAV, Table 4, at {scale} scale")
def denav_table4(at: At) -> Experiment:
    """DeNAV's navigator without each term, and a random route."""
    # At the CPU's scale, one step for each client leaves the navigator the most choice, and so do
    # many local epochs, after which a small client has less.
    steps, many = at((30, "--hparam=local_epochs=40"), (200, ""))
    cells = []
    for row, (name, _) in _TABLE4.items():
        terms = navigator.FORMULAS[row].items()
        flags = [f"--hparam={term}={str(value).lower()}" for term, value in terms]
        cells.append(denav(at, name, steps, many, *flags, scratch=row == _OURS))
    rows = {row: name for row, (name, _) in _TABLE4.items()}
    published = {row: figures for row, (_, figures) in _TABLE4.items()}
    tables = accuracy_tables(at, "Table 4", rows, published, "denav")
    statements: list[Any] = [
        *(_above_others(shown, _OURS, "The formula") for shown in tables.values()),
        say(tables.values(), "terms", "The formula loses most without data volume, and least "
            "without selection history",
            below(_NO_VOLUME, (_NO_TIME, _NO_HISTORY), ACCURACY)
            + above(_NO_HISTORY, _NO_TIME, ACCURACY)),
    ]  # fmt: skip
    minutes = {row: figures[2] for row, figures in published.items()}
    title = "Simulated time of pretraining (published: minutes)"
    times = tables["time"] = counts(title, "simulated_time", rows, minutes)
    statements.append([
        say(times, "saved", "Computing resources and history in the formula save time",
            above(_NO_TIME, _OURS, times.columns) + above(_NO_HISTORY, _OURS, times.columns)),
        say(times, "spent", "The formula takes more time than one without data volume, and than "
            "a random route", above(_OURS, (_NO_VOLUME, "Random selection"), times.columns)),
    ])  # fmt: skip
    notes = [
        NOTE,
        "Simulated time is examples times epochs, divided by the factor of the client's computing "
        "rank: it does not depend on the machine.",
    ]
    return at.build(cells, tables, statements, {"clients": "denav"}, notes, costs=COSTS)


_STALENESS = "Staleness-aware aggregation"
# Row -> value of `aggregation`, and CIFAR-10 and CIFAR-100 in percent.
_TABLE5: dict[str, tuple[str, tuple[float, ...]]] = {
    "With average weights": ("average", (90.64, 73.79)),
    "With only data volume weights": ("volume", (91.08, 73.72)),
    _STALENESS: ("staleness", (91.46, 74.49)),
    "No aggregation": ("none", ()),
}


@study("DeNAV, Table 5, at {scale} scale")
def denav_table5(at: At) -> Experiment:
    """DeNAV's parallel training: how models are aggregated."""
    flags = f"--hparam=models={MODELS} --hparam=aggregation="
    cells = [
        denav(at, name, at(*STEPS), f"{flags}{name}", scratch=row == _STALENESS)
        for row, (name, _) in _TABLE5.items()
    ]
    rows = {row: name for row, (name, _) in _TABLE5.items()}
    published = {row: figures for row, (_, figures) in _TABLE5.items() if figures}
    tables = accuracy_tables(at, "Table 5", rows, published, "staleness")
    statements = [_above_others(shown, _STALENESS, _STALENESS) for shown in tables.values()]
    models = f"{MODELS} models in parallel. The paper has no figures without aggregation."
    partitions = {"clients": "staleness"}
    return at.build(cells, tables, statements, partitions, [NOTE, models], costs=COSTS)


FROZEN = "Linear probes of the frozen encoders"
SMALL = "3000 images of CIFAR-100 on 30 clients, fine-tuned on 5000 labels of CIFAR-10."
_FORMULAS = (_OURS, *(row for row in _TABLE4 if row != _OURS))
_AGGREGATIONS = (_STALENESS, *(row for row in _TABLE5 if row != _STALENESS))
CLAIMS = (
    PaperClaim("N1", "Table 1", "Pretraining takes less computing than in the baselines: 1.23 "
               "GFLOPs, theirs 3.65 to 7.40. (Its 11.62 M parameters are as many as theirs, 11.70 "
               "to 38.47 M.)",
               (Proof("Multiply-adds of an image at 224x224: the one-block masked autoencoder; "
                      "ResNet-18 without heads, which the paper does not describe, on two views "
                      "(Fed-SimSiam and Fed-SimCLR), on three (Orchestra here; its authors' code "
                      "has a fourth, whose result it does not use) and on four (FedU and FedEMA: "
                      "two views by the online and by the target network)",
                      "1.23 G with 49 of 196 patches, beside 3.63 G, 5.44 G and 7.25 G. 11.62 M "
                      "parameters, beside 11.18 M of a ResNet-18 without heads",
                      tuple(Number(1.23, 1.23, most=theirs) for theirs in (3.63, 5.44, 7.25)),
                      "pytest tests/models/test_vit.py tests/models/test_resnet.py"),)),
    claim("N5", "Table 4", "The navigator's formula is above a random route and above itself "
          "without each term; CIFAR-10: 90.96, random 90.28, without volume 88.54.",
          f"{SMALL} 30 steps of 40 epochs.", "denav_table4-cpu", "tuned.*.above",
          (*_FORMULAS, SCRATCH), ACCURACY,
          "Data volume matters most. Without selection history the mean is 0.2 points higher; that "
          "this is a difference is not shown.",
          Trial(f"The same. {FROZEN} on CIFAR-10.", "denav_table4-cpu", "probed.above",
                (*_FORMULAS, UNTRAINED), ACCURACY,
                "It is above itself without volume. That it is above a random route is not shown "
                "after the correction for four comparisons. Computing resources and history make "
                "no difference that is shown.")),
    PaperClaim("N6", "Table 4", "The formula takes 36.8 minutes: more than without data volume "
               "(28.8) and a random route (33.7), less than without computing resources (37.6) and "
               "without history (38.9).",
               (Proof("Simulated time of routes of 200 steps on 1000 networks with the paper's "
                      "numbers of clients and links, without training, which does not change it; "
                      "beside that of the whole formula on the same network, 95 percent interval; "
                      "in the paper -8 %, -22 %, +2 % and +6 %",
                      "random route -21.0 % (-21.3 to -20.7), without volume -29.5 % (-29.7 to "
                      "-29.4), without resources +1.4 % (1.3 to 1.4), without history -12.6 % "
                      "(-12.8 to -12.3): the model then stays on a fast client for several steps",
                      (Number(-21.3, -20.7, most=0), Number(-29.7, -29.4, most=0),
                       Number(1.3, 1.4, least=0), Number(-12.8, -12.3, least=0)),
                      "python -m launch.studies.routes"),
                Trial(f"{SMALL} 30 steps of 40 epochs.", "denav_table4-cpu", "time", _FORMULAS,
                      ("simulated time",), "Simulated time. Of the four, the paper's text names "
                      "computing resources alone."))),
    claim("N18", "section 6.4", "Of the formula's terms, data volume drives the accuracy most, and "
          "selection history least.", f"{SMALL} 30 steps of 40 epochs.", "denav_table4-cpu",
          "tuned.*.terms", (*_FORMULAS, SCRATCH), ACCURACY, "In the paper's own Table 4, "
          "computing resources matter less than history on CIFAR-10 (0.31 and 0.73 points).",
          Trial(f"The same. {FROZEN} on CIFAR-10.", "denav_table4-cpu", "probed.terms",
                (*_FORMULAS, UNTRAINED), ACCURACY)),
    claim("N7", "Table 5", "For parallel models, weights by staleness are better than equal ones "
          "and than weights by volume; CIFAR-10: 91.46, 90.64, 91.08.",
          f"{SMALL} Five models, 60 steps of 10 epochs.", "denav_table5-cpu",
          "tuned.*.above.with*", (*_AGGREGATIONS, SCRATCH), ACCURACY,
          "Any aggregation is above none, by 1.6 points or more. The weights differ by 0.3.",
          Trial(f"The same. {FROZEN} on CIFAR-10.", "denav_table5-cpu", "probed.above.with*",
                (*_AGGREGATIONS, UNTRAINED), ACCURACY)),
    PaperClaim("N14", "Theorem 1", "With linear encoder and decoder, the model that minimizes the "
               "loss of a step is X X~^T (X~ X~^T)^-1, where X has a column for each client.",
               (Proof("Five clients of 20 to 200 images of 16 pixels, half of them masked, 100 "
                      "draws: the formula beside gradient descent", "relative distance 1.7e-15 at "
                      "most, with an image a column. The paper's matrices have a client a column, "
                      "and then the inverse exists in 0 of 100 draws: it cannot where a client has "
                      "more images than there are clients",
                      (Number(1.7e-15, 1.7e-15, most=1e-9), Number(0, 0, least=100)),
                      "python -m launch.studies.theorems"),)),
    PaperClaim("N15", "Corollary 1", "The performance of a step depends mainly on the amount of "
               "data in the selected clients, \"rather than the class distribution\" (section 1).",
               (Proof("Linear masked autoencoders with a constant and a ridge of the digits of one "
                      "step's clients; squared error in variances of the pixels on test images of "
                      "all classes; 20 draws. The mean image of one client's 20 images of all "
                      "classes has 1.05, of 80 of two classes 1.18; of five clients 1.01 and 1.00",
                      "With one client, 20 images of all classes (0.92) are better than 80 of two "
                      "(1.04), by 0.11 (95 % interval 0.08 to 0.15). With five clients, whose "
                      "pairs of classes are all ten together, 80 of two (0.74) are better than 20 "
                      "of all (0.78), by 0.04 (0.04 to 0.05). So it depends on the number of "
                      "clients in a step, and the corollary says of none how much \"mainly\" is",
                      (Number(0.08, 0.15, most=0.0), Number(0.04, 0.05, least=0.0)),
                      "python -m launch.studies.theorems", contradicts=False),)),
    PaperClaim("N16", "Table 2, section 6.2", "The gain is largest on large data sets: about 12 "
               "points on ImageNet (IID 77.5, the best of the others 65.5) and 5 on Mini-INAT.",
               untried="ImageNet and iNaturalist are not here, and fine-tuning on them takes more "
               "than the machines that are."),
    PaperClaim("N19", "Tables 2 to 5 and 8 to 13", "All of this is so after fine-tuning on "
               "CIFAR-100, too.",
               untried="CIFAR-100 is the data set of the pretraining here. Fine-tuning on it would "
               "double the hours."),
    PaperClaim("N21", "section 3", "Contrastive learning is unsuitable without a server, because "
               "nothing mitigates clients of different classes.",
               untried="No experiment compares the two losses. On the digits, DeNAV's default run "
               "learns with the contrastive loss."),
    PaperClaim("N22", "Proposition 1", "An encoder and a decoder of transformer blocks have "
               "equivalent linear maps, on which Theorem 1 rests.",
               untried="The proof leaves out all but the first order around an image of zeros, "
               "without a bound. There is no number to check."),
)  # fmt: skip
