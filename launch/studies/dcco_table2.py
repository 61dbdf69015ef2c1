"""Table 2 of the DCCO paper, whose clients hold the images of one case each; and fewer labels.

The paper's DERM is private; HAM10000 stands in for it (or any case folder, by --data_dir). With few
labelled cases, the start of a fine-tuning matters.
"""

from launch.studies.dcco import CCO, CENTRALIZED, CONTRASTIVE, DCCO, METHODS, SCRATCH
from launch.studies.engine.claims import PaperClaim, Trial, apart
from launch.studies.engine.statements import above, falls, not_below, say
from launch.studies.engine.study import UNTRAINED, At, cell, study, table
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

# Accuracies in percent, by number of labelled cases. A single figure holds for all columns.
_TABLE2: dict[int, dict[str, tuple]] = {
    1524: {CCO: ("failed",) * 3, CONTRASTIVE: (38.9, 41.8, 43.9), DCCO: (42.4, 46.3, 47.8),
           CENTRALIZED: (48.0,), SCRATCH: (30.6,)},
    3057: {CCO: ("failed",) * 3, CONTRASTIVE: (45.3, 46.7, 47.8), DCCO: (46.7, 50.3, 51.1),
           CENTRALIZED: (52.0,), SCRATCH: (35.9,)},
    4592: {CCO: ("failed",) * 3, CONTRASTIVE: (47.7, 49.1, 51.5), DCCO: (48.3, 52.8, 52.5),
           CENTRALIZED: (53.6,), SCRATCH: (39.2,)},
}  # fmt: skip
# The paper's initial learning rates of LARS, by clients per round (Appendix B). It gives none for
# CCO + FedAvg, which takes DCCO's.
_RATES = {
    CCO: {64: 0.15, 128: 0.9, 256: 1.8},
    CONTRASTIVE: {64: 0.15, 128: 0.3, 256: 0.6},
    DCCO: {64: 0.15, 128: 0.9, 256: 1.8},
}


def _finetuning(at: At) -> str:
    """Flags of fine-tuning; the paper's are of Appendix B, at the image size of section 4.2."""
    return "--finetune_batch_size=128 " + at(
        "--finetune_learning_rate=0.005",
        "--image_size=448 --views=skin --finetune_learning_rate=0.0003,0.0001",
    )


def _training(at: At, row: str, clients: int) -> str:
    """Flags of a method with a number of clients in a round."""
    rate = at("", f"--hparam=server_learning_rate={_RATES[row][clients]}")
    return (
        f"{at.preset(f'dcco_table2/{METHODS[row]}')} --clients_per_round={clients} {rate} "
        f"{at.length()}"
    )


def _central(at: At, flags: str, *evaluations: str) -> Cell:
    """Centralized CCO. Training from scratch needs only the network and data of this run."""
    preset = at.preset("dcco_table2/centralized")
    return cell(
        "centralized", preset, flags, at.length(), evaluations=evaluations, script="centralized"
    )


def _finetuned(labels: int, metric: str, columns: list[str], rows: dict) -> Table:
    """A table of fine-tuned encoders, with the paper's figures of their accuracy."""
    return table(
        f"Full fine-tuning, {labels} labelled cases, {metric.replace('_', ' ')}",
        Selector("finetune", labels, metric), columns, {**rows, SCRATCH: ("centralized",)},
        _TABLE2.get(labels, {}) if metric == "accuracy" else {},
        selectors={SCRATCH: Selector("scratch", labels, metric)},
    )  # fmt: skip


def _frozen(title: str, selector: Selector, columns: list[str], rows: dict) -> Table:
    return table(
        title, selector, columns, rows, untrained={UNTRAINED: CENTRALIZED}, pixels=CENTRALIZED
    )


def _statements(shown: Table, start: str) -> list[Claim]:
    """The paper's statements about a table, as far as it has their rows and columns."""
    columns = first, *_, last = shown.columns if len(shown.columns) > 1 else shown.columns * 2
    found = {
        "contrastive": ("DCCO is above contrastive + FedAvg at every cohort size",
                        above(DCCO, CONTRASTIVE, columns)),
        "central": ("Centralized CCO is at least as good as DCCO (within 1 point)",
                    not_below(CENTRALIZED, DCCO, columns, -0.01)),
        "cohort": ("DCCO gains from a larger cohort", falls(DCCO, last, first)),
        "cco": ("Contrastive + FedAvg is above CCO + FedAvg at every cohort size",
                above(CONTRASTIVE, CCO, columns)),
        "scratch": ("DCCO is above supervised training from scratch",
                    above(DCCO, SCRATCH, columns)),
    }  # fmt: skip
    absent = {
        "cohort": first == last, "cco": CCO not in shown.rows, "scratch": SCRATCH not in shown.rows,
    }  # fmt: skip
    return [
        statement
        for name, (text, condition) in found.items() if not absent.get(name)
        for statement in say(shown, f"{start}.{name}", text, condition)
    ]  # fmt: skip


_NOTES = (
    "Published: DERM, which is private (27 conditions, 59,770 clients), ResNet-50, 75,000 rounds. "
    "Measured: another data set, so that only the order of the methods compares.",
    "FedAvg leaves out the clients of one image, which DCCO has: of HAM10000's, 4,411 of 5,976 "
    "clients and of 8,008 images. The paper gives no rates for CCO + FedAvg; DCCO's are taken.",
    "Fine-tuning, and training from scratch, choose steps (and, at the paper's scale, the rate) on "
    "validation cases, or on 1,190 labelled training cases that were not drawn where there is no "
    "such split.",
)
_CPU_NOTE = (
    "The tables of frozen encoders, linear probe and nearest neighbours, are not the paper's. They "
    "were added after most of seed 0 had been seen, whose fine-tuned encoders hardly differed."
)


@study("DCCO, Table 2, on cases of images at {scale} scale")
def dcco_table2(at: At) -> Experiment:
    """Cases of skin images as clients: DCCO against FedAvg variants."""
    # The paper gives only the largest number of steps.
    steps = at("200,600", "10000,30000,100000")
    labels = ",".join(map(str, _TABLE2))
    tuning = (
        f"--labels={labels} --label_draws=1 --baselines= --finetune_steps={steps} "
        f"{_finetuning(at)}"
    )  # fmt: skip
    # Frozen encoders, which differ more than the fine-tuned ones at the CPU's scale.
    linear = "--protocol=linear --labels=1524 --label_draws=5"
    frozen = at((linear, "--protocol=knn"), ())
    evaluations = [f"--protocol=finetune {tuning}", *(f"{probe} --baselines=" for probe in frozen)]
    cells, rows = [], {}
    for row, by_clients in _RATES.items():
        names = {n: f"{METHODS[row]}_{n}" for n in by_clients}
        cells += [
            cell(name, _training(at, row, n), evaluations=evaluations) for n, name in names.items()
        ]
        rows[row] = tuple(names.values())
    scratch = f"--protocol=scratch {tuning}"
    cells.append(_central(at, "", evaluations[0], scratch, *frozen))
    rows[CENTRALIZED] = ("centralized",)
    columns = [f"{n} clients a round" for n in _RATES[DCCO]]
    tables = {
        (start, n): _finetuned(n, metric, columns, rows)
        for n in _TABLE2
        for start, metric in (("tuned", "accuracy"), ("tuned_balanced", "balanced_accuracy"))
    }
    of_frozen = {
        "frozen": (
            "Linear probe, 1524 labelled cases", Selector("linear", 1524, "balanced_accuracy"),
        ),
        "knn": ("Nearest neighbours, all labels", Selector("knn", None, "balanced_accuracy")),
    }  # fmt: skip
    for start, (title, selector) in at(of_frozen, {}).items():
        tables[start, 0] = _frozen(f"{title}, balanced accuracy", selector, columns, rows)
    return at.build(
        cells, list(tables.values()),
        [_statements(shown, start) for (start, _), shown in tables.items()],
        [*_NOTES, at(_CPU_NOTE, "")], {"one client a case": rows[DCCO][0]},
    )  # fmt: skip


_FEW_NOTES = (
    "Nothing of this is published: Table 2 has 1,524 labelled cases and more, of which a small "
    "network learns as much from any start. The statements are those of Table 2.",
    "Means of 3 draws of the labels in each run. FedAvg leaves out the clients of one image, which "
    "DCCO has. The frozen encoders are not the paper's protocol.",
)


@study("DCCO, Table 2 with fewer labels, on cases of images at {scale} scale")
def dcco_table2_few_labels(at: At) -> Experiment:
    """Table 2 with 100 and 300 labelled cases."""
    clients, labels = 128, "--labels=100,300 --label_draws=3"
    training = at("--image_size=24 --rounds=150 --checkpoint_every=150 --eval_every=25", "")
    steps = at("--finetune_steps=100 --finetune_batch_size=64", "--finetune_steps=1000,10000")
    finetune, scratch = (
        f"--protocol={protocol} {labels} --baselines= {_finetuning(at)} {steps}"
        for protocol in ("finetune", "scratch")
    )
    rows = {row: (METHODS[row],) for row in (CONTRASTIVE, DCCO)}
    cells = [
        # The probe of the presets' trainings is replaced: both numbers of labels in one evaluation.
        cell(name, training, labels, _training(at, row, clients), evaluations=[finetune])
        for row, (name,) in rows.items()
    ]
    cells.append(_central(at, f"{training} {labels}", finetune, scratch))
    rows[CENTRALIZED] = ("centralized",)
    columns = [f"{clients} clients a round"]
    tables = {}
    for n in (100, 300):
        for end, metric in (("", "accuracy"), ("_balanced", "balanced_accuracy")):
            tables[f"tuned{end}_{n}"] = _finetuned(n, metric, columns, rows)
            tables[f"frozen{end}_{n}"] = _frozen(
                f"Linear probe, {n} labelled cases, {metric.replace('_', ' ')}",
                Selector("linear", n, metric), columns, rows,
            )  # fmt: skip
    statements = [_statements(shown, start) for start, shown in tables.items()]
    return at.build(
        cells, list(tables.values()), statements, _FEW_NOTES, {"one client a case": METHODS[DCCO]}
    )


_HAM = "HAM10000, a client a case, tiny ResNet at 32x32, 400 rounds; 3 seeds."
_COHORTS = ("64 clients a round", "128 clients a round", "256 clients a round")


def _claim(
    name: str, text: str, statement: str, rows: tuple[str, str], lower: str, frozen: bool = True
) -> PaperClaim:
    """A claim of Table 2: fine-tuned, and frozen, which is not the paper's, if that is told."""
    ends = apart(CENTRALIZED, lower, _COHORTS[1])
    first = Trial(
        f"{_HAM} Fine-tuned on 1524, 3057 and 4592 cases.", "dcco_table2-cpu",
        f"tuned.{statement}", rows, _COHORTS, ends,
    )  # fmt: skip
    second = Trial(
        f"{_HAM} Frozen, which is not the paper's protocol; balanced accuracy.", "dcco_table2-cpu",
        f"frozen.{statement}", rows, _COHORTS, ends,
    )  # fmt: skip
    few = Trial(
        "HAM10000, 100 labelled cases, tiny ResNet at 24x24, 128 clients a round, 150 rounds; 3 "
        f"seeds. {'Frozen' if frozen else 'Fine-tuned'}; balanced accuracy.",
        "dcco_table2_few_labels-cpu",
        f"{'frozen' if frozen else 'tuned'}_balanced_100.{statement}", rows, _COHORTS[1:2], ends,
        "Fine-tuned on 100 and on 300 labelled cases, pretrained networks are not above the one "
        "from scratch either.",
    )  # fmt: skip
    return PaperClaim(name, "Table 2", text, (first, *([second] if frozen else []), few))


CLAIMS = (
    _claim(
        "D8", "On DERM DCCO is above contrastive FedAvg: 46.3 against 41.8 with 1524 cases and 128 "
        "clients.", "contrastive", (DCCO, CONTRASTIVE), CONTRASTIVE,
    ),
    _claim(
        "D9", "On DERM DCCO is close to centralized CCO: 47.8 with 256 clients, 48.0.", "central",
        (DCCO, CENTRALIZED), CONTRASTIVE,
    ),
    _claim(
        "D10", "On DERM DCCO is 13 to 17 points above training from scratch: 47.8 against 30.6.",
        "scratch", (DCCO, SCRATCH), SCRATCH, frozen=False,
    ),
)  # fmt: skip
