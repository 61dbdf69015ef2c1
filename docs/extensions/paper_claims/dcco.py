"""The claims of DCCO's paper, and the runs that try them."""

from paper_claims.records import PaperClaim, Proof, Trial, grid

_CIFAR100 = "CIFAR-100, tiny ResNet at 16x16, 1200 rounds of 256 images; 3 seeds."
_CIFAR10 = (
    "CIFAR-10, small ResNet at 16x16, 2000 rounds of 256 images, non-IID clients of 1 and 4 alone; "
    "3 seeds."
)
_HAM = "HAM10000, a client a case, tiny ResNet at 32x32, 400 rounds; 3 seeds."
_DCCO, _CONTRASTIVE, _CCO = "Proposed DCCO", "Contrastive + FedAvg", "CCO + FedAvg"
_CENTRAL, _SCRATCH = "Centralized CCO", "Supervised from scratch"
_PAPERS_TABLES = ("Linear probe", "Full fine-tuning")
_NON_IID, _IID = ("non-IID, 4", "non-IID, 16"), ("IID, 4", "IID, 16")
_SIZES = ("non-IID, 1", *_NON_IID)
_COLUMNS_CIFAR10 = ("non-IID, 1", "non-IID, 4")
_COHORTS = ("64 clients a round", "128 clients a round", "256 clients a round")


def _table1(
    statements: tuple[str, ...],
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    room: tuple[tuple[str, str], tuple[str, str]],
    runs: tuple[str, ...] = ("dcco_table1-cpu", "dcco_table1-cpu-cifar10"),
    note: str = "",
) -> tuple[Trial, ...]:
    """Trials of a claim of DCCO's Table 1 on CIFAR-100, and on the columns of CIFAR-10."""
    settings = {"dcco_table1-cpu": _CIFAR100, "dcco_table1-cpu-cifar10": _CIFAR10}
    shown = {
        "dcco_table1-cpu": columns,
        "dcco_table1-cpu-cifar10": tuple(c for c in columns if c in _COLUMNS_CIFAR10),
    }
    return tuple(
        Trial(settings[run], run, statements, grid(rows, shown[run]), room, _PAPERS_TABLES, note)
        for run in runs
    )


_FEW_LABELS = (
    "Fine-tuned on 100 and on 300 labelled cases, pretrained networks are not above the one from "
    "scratch either."
)


def _table2(
    statement: str, rows: tuple[str, ...], lower: str = _CONTRASTIVE, frozen: bool = True
) -> tuple[Trial, ...]:
    """Trials of a claim of DCCO's Table 2: fine-tuned, and frozen, which is not the paper's."""
    figures = grid(rows, _COHORTS)
    ends = ((_CENTRAL, _COHORTS[1]), (lower, _COHORTS[1]))
    trials = (
        Trial(
            f"{_HAM} Fine-tuned on 1524, 3057 and 4592 cases.",
            "dcco_table2-cpu", (statement,), figures, ends, ("cases, accuracy",),
        ),
        Trial(
            f"{_HAM} Frozen, which is not the paper's protocol; balanced accuracy.",
            "dcco_table2-cpu", (statement,), figures, ends, ("Linear probe",),
        ),
    )  # fmt: skip
    few = Trial(
        "HAM10000, 100 labelled cases, tiny ResNet at 24x24, 128 clients a round, 150 rounds; 3 "
        f"seeds. {'Frozen' if frozen else 'Fine-tuned'}; balanced accuracy.",
        "dcco_table2_few_labels-cpu", (statement,), grid(rows, _COHORTS[1:2]),
        ((_CENTRAL, _COHORTS[1]), (lower, _COHORTS[1])),
        (f"{'Linear probe' if frozen else 'Full fine-tuning'}, 100 labelled cases, balanced",),
        note=_FEW_LABELS,
    )  # fmt: skip
    return (*(trials if frozen else trials[:1]), few)


_DIGITS = (
    "Digits, 1280 images on clients that come often, tiny ResNet, 250 rounds of 128 images, the "
    "better of two rates; probes with 50 and with 10 labels; 3 seeds."
)
_OVERFITTING = (
    "CCO within clients loses 7 points after its best round on non-IID clients of 4. Elsewhere, "
    "both FedAvg variants lose about a point at most, and DCCO 0.4 at most."
)
_LITTLE_ROOM = (
    "On the CIFARs, centralized CCO is one to four points above contrastive FedAvg here, so that "
    "there is little to see; on the digits, below, there is."
)
_IID_NOTE = (
    "On IID clients of CIFAR-100 contrastive FedAvg is as good as centralized CCO here. On the "
    "digits with 50 labels DCCO is above both FedAvg variants by the means, on clients of 4 by "
    "more than the deviation and on clients of 16 within it."
)
_SCRATCH_NOTE = (
    "Training from scratch on 5000 labels is above the linear probes here. It is below the "
    "fine-tuned encoders and, with 500 labels, below the probes."
)
_LOST = "Nearest neighbours on training images: the last round below the best one"


def _revisited(
    statements: tuple[str, ...],
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    room: tuple[tuple[str, str], tuple[str, str]],
    tables: tuple[str, ...] = ("Linear probe",),
    note: str = "",
) -> tuple[Trial, ...]:
    """The trial of a claim of DCCO's Table 1 on the digits, whose clients come often."""
    run = "dcco_table1_revisited-cpu-digits"
    return (Trial(_DIGITS, run, statements, grid(rows, columns), room, tables, note),)


_BARELY_CHANGES = (
    "DCCO barely changes from clients of one sample to larger IID ones (within 2 points)"
)
_GROUP_NORM = (
    "With group norm both are within the deviation of the untrained encoder, so that it is not "
    "shown that they learn nothing."
)
_CENTRAL_OVER_CONTRASTIVE = ((_CENTRAL, "non-IID, 4"), (_CONTRASTIVE, "non-IID, 4"))
CLAIMS = (
    PaperClaim(
        "D1", "dcco", "Table 1",
        "On non-IID clients DCCO is above both FedAvg variants, by 11 to 18 points in linear "
        "probes and 6 to 10 fine-tuned: clients of 4, 49.6 against 31.1.",
        _table1(
            ("DCCO is above the best FedAvg variant on every non-IID split",),
            (_DCCO, _CONTRASTIVE, _CCO), _NON_IID, _CENTRAL_OVER_CONTRASTIVE, note=_LITTLE_ROOM,
        )
        + _table1(
            ("DCCO is at least 4 points above the best FedAvg variant on every non-IID split",),
            (_DCCO, _CONTRASTIVE), _NON_IID, _CENTRAL_OVER_CONTRASTIVE,
            note="The same with a margin of 4 points, which has room only where centralized CCO "
            "is 6 points above.",
        )
        + _revisited(
            ("DCCO is above the best FedAvg variant on every non-IID split",),
            (_DCCO, _CONTRASTIVE, _CCO), _NON_IID, _CENTRAL_OVER_CONTRASTIVE,
        )
        + _revisited(
            ("DCCO is at least 4 points above the best FedAvg variant on every non-IID split",),
            (_DCCO, _CONTRASTIVE), _NON_IID, _CENTRAL_OVER_CONTRASTIVE,
            note="The same with a margin of 4 points.",
        ),
    ),
    PaperClaim(
        "D2", "dcco", "Table 1",
        "On IID clients DCCO is above both FedAvg variants, by 4 to 10 points in linear probes and "
        "4 to 6 fine-tuned: clients of 4, 51.4 against 41.1.",
        _table1(
            ("DCCO is above the best FedAvg variant on every IID split",),
            (_DCCO, _CONTRASTIVE, _CCO), _IID,
            ((_CENTRAL, "IID, 4"), (_CONTRASTIVE, "IID, 4")), ("dcco_table1-cpu",), _IID_NOTE,
        )
        + _revisited(
            ("DCCO is above the best FedAvg variant on every IID split",),
            (_DCCO, _CONTRASTIVE, _CCO), _IID,
            ((_CENTRAL, "IID, 4"), (_CONTRASTIVE, "IID, 4")),
        ),
    ),
    PaperClaim(
        "D3", "dcco", "Table 1",
        "DCCO is above supervised training from scratch by 10 to 20 points: with 500 labels, 33.3 "
        "against 13.1.",
        _table1(
            ("DCCO is above supervised training from scratch on every split",),
            (_DCCO, _SCRATCH), ("non-IID, 1",),
            ((_CENTRAL, "non-IID, 1"), (_SCRATCH, "non-IID, 1")), note=_SCRATCH_NOTE,
        )
        + _revisited(
            ("DCCO is above supervised training from scratch on every split",),
            (_DCCO, _SCRATCH), ("non-IID, 1",),
            ((_CENTRAL, "non-IID, 1"), (_SCRATCH, "non-IID, 1")),
        ),
    ),
    PaperClaim(
        "D4", "dcco", "Table 1",
        "On non-IID clients DCCO rises as samples a client fall, up to centralized CCO: 45.9 with "
        "16 samples, 49.6 with 4, 51.7 with one, centralized 52.6.",
        _table1(
            ("DCCO falls with the samples per client on non-IID clients (1 against 16)",
             "DCCO with one sample a client is within 2 points of centralized CCO"),
            (_DCCO,), _SIZES, ((_DCCO, "non-IID, 1"), (_DCCO, "non-IID, 16")),
            ("dcco_table1-cpu",),
        )
        + _table1(
            ("DCCO falls with the samples per client on non-IID clients (1 against 4)",
             "DCCO with one sample a client is within 2 points of centralized CCO"),
            (_DCCO,), _SIZES, ((_DCCO, "non-IID, 1"), (_DCCO, "non-IID, 4")),
            ("dcco_table1-cpu-cifar10",),
        )
        + _revisited(
            ("DCCO falls with the samples per client on non-IID clients (1 against 16)",
             "DCCO with one sample a client is within 2 points of centralized CCO"),
            (_DCCO,), _SIZES, ((_DCCO, "non-IID, 1"), (_DCCO, "non-IID, 16")),
        ),
    ),
    PaperClaim(
        "D5", "dcco", "Table 1",
        "On IID clients the number of samples a client does not matter: 51.4, 52.0, 51.9.",
        _table1(
            (_BARELY_CHANGES,),
            (_DCCO,), ("non-IID, 1", *_IID),
            ((_DCCO, "non-IID, 1"), ("(untrained encoder)", "non-IID, 1")), ("dcco_table1-cpu",),
        )
        + _revisited(
            (_BARELY_CHANGES,),
            (_DCCO,), ("non-IID, 1", *_IID),
            ((_DCCO, "non-IID, 1"), ("(untrained encoder)", "non-IID, 1")),
        ),
    ),
    PaperClaim(
        "D6", "dcco", "Table 1",
        "CCO within clients is unstable on clients of 4, and below contrastive FedAvg on larger "
        "ones: 30.7 against 31.8 on non-IID clients of 16.",
        _table1(
            ("Contrastive + FedAvg is above CCO + FedAvg on every split",),
            (_CONTRASTIVE, _CCO), (*_NON_IID, *_IID),
            ((_CONTRASTIVE, "non-IID, 4"), (_CCO, "non-IID, 4")), ("dcco_table1-cpu",),
        )
        + _revisited(
            ("Contrastive + FedAvg is above CCO + FedAvg on every split",),
            (_CONTRASTIVE, _CCO), (*_NON_IID, *_IID),
            ((_CONTRASTIVE, "non-IID, 4"), (_CCO, "non-IID, 4")),
        ),
    ),
    PaperClaim(
        "D7", "dcco", "section 4.3",
        "Both FedAvg variants overfit in 100,000 rounds, so that the best checkpoint is reported; "
        "DCCO does not.",
        _revisited(
            ("Contrastive + FedAvg overfits: its last round is more than 1 point below its best",
             "CCO + FedAvg overfits: its last round is more than 1 point below its best",
             "DCCO does not overfit: its last round is at most 1 point below its best",
             "DCCO loses less after its best round than either FedAvg variant"),
            (_CONTRASTIVE, _CCO, _DCCO), _NON_IID,
            ((_CONTRASTIVE, "non-IID, 4"), (_DCCO, "non-IID, 4")), (_LOST,),
            note=_OVERFITTING,
        ),
    ),
    PaperClaim(
        "D8", "dcco", "Table 2",
        "On DERM DCCO is above contrastive FedAvg: 46.3 against 41.8 with 1524 cases and 128 "
        "clients.",
        _table2("DCCO is above contrastive + FedAvg at every cohort size", (_DCCO, _CONTRASTIVE)),
    ),
    PaperClaim(
        "D9", "dcco", "Table 2",
        "On DERM DCCO is close to centralized CCO: 47.8 with 256 clients, 48.0.",
        _table2("Centralized CCO is at least as good as DCCO (within 1 point)", (_DCCO, _CENTRAL)),
    ),
    PaperClaim(
        "D10", "dcco", "Table 2",
        "On DERM DCCO is 13 to 17 points above training from scratch: 47.8 against 30.6.",
        _table2(
            "DCCO is above supervised training from scratch", (_DCCO, _SCRATCH), _SCRATCH, False
        ),
    ),
    PaperClaim(
        "D11", "dcco", "Appendix C",
        "BYOL learns with batch norm (41.0) and not with group norm (3.0), and so does SimSiam "
        "(Figure 3b, without figures).",
        (
            Trial(
                "CIFAR-10, tiny ResNet at 16x16, 500 steps of 128 images; 3 seeds.",
                "dcco_appendix_c-cpu",
                tuple(f"{o} is better with batch norm" for o in ("BYOL", "SimSiam"))
                + tuple(
                    f"{o} with group norm learns nothing: no better than an untrained encoder"
                    for o in ("BYOL", "SimSiam")
                ),
                grid(("BYOL", "SimSiam", "(untrained encoder)"), ("batch norm", "group norm")),
                (("BYOL", "batch norm"), ("(untrained encoder)", "batch norm")),
                note=_GROUP_NORM,
            ),
        ),
    ),
    PaperClaim(
        "D12", "dcco", "Appendix A",
        "A round with one local step is one centralized step on the union of the samples.",
        (),
        (
            Proof(
                "The update of a round against that of a centralized step, random splits over "
                "clients, with views.",
                "equal within the rounding of float32", "holds",
                "pytest tests/algorithms/dcco/test_two_stage.py",
            ),
        ),
    ),
)  # fmt: skip
