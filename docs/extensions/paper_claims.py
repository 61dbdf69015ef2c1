"""The claims of the five papers, the runs that try them, and the plan of the runs to come.

A claim is a comparison that the text of a paper draws from a table, a figure or a proof. Figures of
papers are in percent. What was measured is not here: it is read from `measured/`, except for the
figures of `NOTED`, whose results are not kept; BUILD_NOTES.md has them, and a test compares them.
"""

from collections.abc import Mapping
from typing import NamedTuple

PAPERS = {
    "dcco": "DCCO",
    "fedu": "FedU",
    "dec_ssl": "Dec-SSL and FeatARC",
    "hetero_ssfl": "Hetero-SSFL",
    "denav": "DeNAV",
}


class Trial(NamedTuple):
    """A run of an experiment that tries a claim.

    Attributes:
      setting: Data, network, clients and rounds.
      run: Folder in `measured/`, or a key of `NOTED`.
      statements: Texts of the experiment's claims that make up the paper's claim.
      figures: (row, column) of the figures that are shown, of the first table.
      room: The two ends of the comparison, upper and lower, as (row, column) of the same table;
        None where the run has not both ends.
      tables: Parts of titles of the tables that count; all tables if empty.
      note: What the reader has to know of the setting.
    """

    setting: str
    run: str
    statements: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    room: tuple[tuple[str, str], tuple[str, str]] | None
    tables: tuple[str, ...] = ()
    note: str = ""


class Proof(NamedTuple):
    """A claim that is computed, and has no deviation over seeds.

    Attributes:
      setting: What is computed.
      figures: The figures, which stand in BUILD_NOTES.md.
      verdict: The verdict.
      command: Command that computes it.
    """

    setting: str
    figures: str
    verdict: str
    command: str


class PaperClaim(NamedTuple):
    """A claim of a paper.

    Attributes:
      name: Short name, a letter and a number.
      paper: Key of `PAPERS`.
      place: Table, figure or section.
      text: The comparison with the paper's figures.
      trials: Its trials, of which the first decides the verdict.
      proofs: Its proofs.
    """

    name: str
    paper: str
    place: str
    text: str
    trials: tuple[Trial, ...] = ()
    proofs: tuple[Proof, ...] = ()


class Noted(NamedTuple):
    """Measured figures whose results are not kept.

    Attributes:
      experiment: Name of the experiment.
      command: Command of the runs.
      seeds: Number of seeds.
      figures: Title of a table -> (row, column) -> figure as in BUILD_NOTES.md.
    """

    experiment: str
    command: str
    seeds: int
    figures: Mapping[str, Mapping[tuple[str, str], str]]


class Plan(NamedTuple):
    """Runs to come.

    Attributes:
      claims: Names of the claims.
      setting: Setting that leaves room.
      experiment: Experiment that has the runs, with its changes; None if there is none.
      cells: Number of cells.
      seeds: Number of seeds.
      minutes: Minutes of one core a run.
      basis: Measured run from which the minutes are taken.
    """

    claims: tuple[str, ...]
    setting: str
    experiment: str | None
    cells: int
    seeds: int
    minutes: float
    basis: str


# Rows of tables -> shorter names.
SHORT = {
    "Proposed DCCO": "DCCO",
    "Contrastive + FedAvg": "contrastive",
    "Centralized CCO": "centralized",
    "Supervised from scratch": "from scratch",
    "(untrained encoder)": "untrained",
    "Single client training": "single clients",
    "tiny (in place of ResNet-18)": "tiny",
    "small (in place of ResNet-34)": "small",
    "DeNAV, 3000 epochs": "DeNAV",
    "Random route, 3000 epochs": "random route",
    "Gossip learning, 3000 epochs": "gossip",
    "All-reduce, 3000 epochs": "all-reduce",
    "From scratch": "from scratch",
}

_T1, _LINEAR = "global predictor", "Table 1: linear probe"
_REPRODUCE = "python -m launch.reproduce --scale=cpu --data_dir=DATA"

NOTED = {
    "fedu_table1, not kept": Noted(
        "fedu_table1",
        f"{_REPRODUCE} --experiment=fedu_table1 --only=single_noniid,fedu_noniid",
        3,
        {
            _LINEAR: {
                ("Single client training", "non-IID"): "0.382 ± 0.007",
                ("FedU", "non-IID"): "0.401 ± 0.003",
                # The untrained encoder of Table 4, which is the same network.
                ("untrained encoder", "non-IID"): "0.357 ± 0.008",
            },
            "Table 2: fine-tuning with 1% of the labels": {
                ("Single client training", "non-IID"): "0.338 ± 0.011",
                ("FedU", "non-IID"): "0.346 ± 0.011",
            },
            "Table 2: fine-tuning with 10% of the labels": {
                ("Single client training", "non-IID"): "0.440 ± 0.012",
                ("FedU", "non-IID"): "0.462 ± 0.003",
            },
        },
    ),
}

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


def _grid(rows: tuple[str, ...], columns: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((row, column) for column in columns for row in rows)


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
        Trial(settings[run], run, statements, _grid(rows, shown[run]), room, _PAPERS_TABLES, note)
        for run in runs
    )


def _table2(
    statement: str, rows: tuple[str, ...], lower: str = _CONTRASTIVE, frozen: bool = True
) -> tuple[Trial, ...]:
    """Trials of a claim of DCCO's Table 2: fine-tuned, and frozen, which is not the paper's."""
    figures = _grid(rows, _COHORTS)
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
    return trials if frozen else trials[:1]


_BARELY_CHANGES = (
    "DCCO barely changes from clients of one sample to larger IID ones (within 2 points)"
)
_GROUP_NORM = (
    "With group norm both are within the deviation of the untrained encoder, so that it is not "
    "shown that they learn nothing. Not planned again."
)
_CENTRAL_OVER_CONTRASTIVE = ((_CENTRAL, "non-IID, 4"), (_CONTRASTIVE, "non-IID, 4"))
_DCCO_CLAIMS = (
    PaperClaim(
        "D1", "dcco", "Table 1",
        "On non-IID clients DCCO is above both FedAvg variants, by 11 to 18 points in linear "
        "probes and 6 to 10 fine-tuned: clients of 4, 49.6 against 31.1.",
        _table1(
            ("DCCO is above the best FedAvg variant on every non-IID split",),
            (_DCCO, _CONTRASTIVE, _CCO), _NON_IID, _CENTRAL_OVER_CONTRASTIVE,
        )
        + _table1(
            ("DCCO is at least 4 points above the best FedAvg variant on every non-IID split",),
            (_DCCO, _CONTRASTIVE), _NON_IID, _CENTRAL_OVER_CONTRASTIVE,
            note="The same with a margin of 4 points, which has room only where centralized CCO "
            "is 6 points above.",
        ),
    ),
    PaperClaim(
        "D2", "dcco", "Table 1",
        "On IID clients DCCO is above both FedAvg variants, by 4 to 10 points in linear probes and "
        "4 to 6 fine-tuned: clients of 4, 51.4 against 41.1.",
        _table1(
            ("DCCO is above the best FedAvg variant on every IID split",),
            (_DCCO, _CONTRASTIVE, _CCO), _IID,
            ((_CENTRAL, "IID, 4"), (_CONTRASTIVE, "IID, 4")), ("dcco_table1-cpu",),
        ),
    ),
    PaperClaim(
        "D3", "dcco", "Table 1",
        "DCCO is above supervised training from scratch by 10 to 20 points: with 500 labels, 33.3 "
        "against 13.1.",
        _table1(
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
        ),
    ),
    PaperClaim(
        "D5", "dcco", "Table 1",
        "On IID clients the number of samples a client does not matter: 51.4, 52.0, 51.9.",
        _table1(
            (_BARELY_CHANGES,),
            (_DCCO,), ("non-IID, 1", *_IID),
            ((_DCCO, "non-IID, 1"), ("(untrained encoder)", "non-IID, 1")), ("dcco_table1-cpu",),
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
        ),
    ),
    PaperClaim(
        "D7", "dcco", "section 4.3",
        "Both FedAvg variants overfit in 100,000 rounds, so that the best checkpoint is reported; "
        "DCCO does not.",
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
                _grid(("BYOL", "SimSiam", "(untrained encoder)"), ("batch norm", "group norm")),
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

_FEDU_CPU = (
    "CIFAR-10, 5 clients of 400 images of two classes, small ResNet at 16x16, 40 rounds; 3 seeds."
)
_FEDU_TINY = "Tiny ResNet at 12x12, 200 rounds, momentum 0.856, 5 clients of 160 images"
_NO_RULE = (
    "The rules for the predictor do not differ by more than the deviation, so that there is no "
    "room. Not planned again."
)
_NOT_BEST = (
    "Updating both encoders is as good as updating the online one. Updating the target alone costs "
    "accuracy and rank, but stays above the untrained encoder. Not planned again."
)
_FEDU_ABOVE = tuple(
    f"FedU is above {other} on non-IID clients" for other in ("Single client training", "FedSimCLR")
)
_FEDU_CLAIMS = (
    PaperClaim(
        "U1", "fedu", "Table 1",
        "In linear probes FedU is above single clients, FedSimCLR, FedSimSiam and FedCA; non-IID "
        "CIFAR-10: 78.7 against 72.0 of single clients (ResNet-18).",
        (
            Trial(
                _FEDU_CPU, "fedu_table1, not kept",
                (*_FEDU_ABOVE, "FedU is above FedSimSiam on non-IID clients"),
                _grid(("FedU", "Single client training"), ("non-IID",)), None, ("Table 1",),
                "Of the baselines, single clients alone were run.",
            ),
        ),
    ),
    PaperClaim(
        "U2", "fedu", "Table 1",
        "On non-IID CIFAR-10 FedU is above supervised FedAvg: 83.25 against 67.74.",
    ),
    PaperClaim(
        "U3", "fedu", "Table 2",
        "Fine-tuned with 1 % and 10 % of the labels FedU is above all but centralized BYOL; "
        "non-IID CIFAR-10: 68.3 and 78.5, single clients 60.3 and 70.6.",
        (
            Trial(
                _FEDU_CPU, "fedu_table1, not kept",
                _FEDU_ABOVE,
                _grid(("FedU", "Single client training"), ("non-IID",)), None, ("Table 2",),
                "Of the baselines, single clients alone were run.",
            ),
        ),
    ),
    PaperClaim(
        "U4", "fedu", "Table 3",
        "Transferred from Mini-ImageNet to CIFAR-100 FedU is best: 75.60 on non-IID clients, "
        "single clients 75.14, FedSimCLR 70.91.",
    ),
    PaperClaim(
        "U5", "fedu", "Table 4, Figure 4",
        "To aggregate and update the online encoder is best (84.07); to update the target alone "
        "collapses (9.99).",
        (
            Trial(
                f"{_FEDU_TINY} of CIFAR-10; 3 seeds.", "fedu_table4-cpu",
                ("Aggregating and updating the online encoder is best",
                 "Updating only the target encoder collapses: no better than an untrained one"),
                _grid(
                    ("online, online", "online, both", "online, target", "target, online",
                     "untrained encoder"),
                    (_T1,),
                ),
                (("online, online", _T1), ("online, target", _T1)), ("Table 4",), _NOT_BEST,
            ),
            Trial(
                "The same: the effective rank of the encodings.", "fedu_table4-cpu",
                ("Updating only the target encoder has a lower effective rank than updating the "
                 "online one, for either predictor",),
                _grid(("online, online", "online, target"), (_T1, "local predictor")),
                (("online, online", _T1), ("online, target", _T1)), ("Effective rank",),
                "The paper does not measure it.",
            ),
        ),
    ),
    PaperClaim(
        "U6", "fedu", "Figure 5a, Figure 4",
        "DAPU is about 5 points above both static rules.",
        (
            Trial(
                f"{_FEDU_TINY} of CIFAR-10; 3 seeds.", "fedu_table4-cpu",
                ("DAPU is better than either static rule",),
                _grid(("dapu", "global", "local", "untrained encoder"), ("accuracy",)),
                (("global", "accuracy"), ("local", "accuracy")), ("Figure 5a",), _NO_RULE,
            ),
        ),
    ),
    PaperClaim(
        "U7", "fedu", "Figure 5b", "A threshold mu of 0.2 is better than smaller and larger ones.",
        (
            Trial(
                f"{_FEDU_TINY} of CIFAR-10; 3 seeds.", "fedu_table4-cpu",
                ("A threshold in between is better than the smallest and the largest one",),
                _grid(
                    ("0 (local)", "1", "2.6", "4.5", "infinite (global)", "untrained encoder"),
                    ("accuracy",),
                ),
                (("infinite (global)", "accuracy"), ("0 (local)", "accuracy")), ("Figure 5b",),
                _NO_RULE,
            ),
        ),
    ),
    PaperClaim(
        "U8", "fedu", "Figure 6a",
        "With 500 epochs in all, accuracy falls as the local epochs E of a round rise.",
    ),
    PaperClaim(
        "U9", "fedu", "Figure 6b", "More rounds of one epoch, from 100 to 800, are better.",
    ),
    PaperClaim(
        "U10", "fedu", "Table 1",
        "A deeper encoder is better: ResNet-50 86.48, ResNet-18 85.21 (IID CIFAR-10).",
    ),
)  # fmt: skip

_DEC_SSL_CPU = (
    "CIFAR-10, 5 clients of 400 images, small ResNet at 16x16, 12 rounds of 4 epochs; 3 seeds."
)
_ENDS = ("alpha 5", "alpha 0.01")
_DEC_SSL_CLAIMS = (
    PaperClaim(
        "S1", "dec_ssl", "Figure 2, labels",
        "With non-IID labels Dec-SSL hardly falls, and Dec-SL does.",
        (
            Trial(
                _DEC_SSL_CPU, "dec_ssl_figure2-cpu",
                ("From alpha 5 to alpha 0.01, Dec-SSL loses less than Dec-SL",
                 "At alpha 0.01, Dec-SSL is above Dec-SL"),
                _grid(("Dec-SSL", "Dec-SL"), _ENDS),
                (("Dec-SSL", _ENDS[1]), ("Dec-SL", _ENDS[1])),
            ),
        ),
    ),
    PaperClaim(
        "S2", "dec_ssl", "Figure 2, features, and 18",
        "With clusters of features on clients Dec-SSL hardly falls, and Dec-SL does.",
    ),
    PaperClaim(
        "S3", "dec_ssl", "Figure 2, section 3.1",
        "Dec-SSL is comparable with centralized SSL.",
    ),
    PaperClaim(
        "S4", "dec_ssl", "Table 1, left",
        "For detection on COCO Dec-SSL (22.1) is close to centralized SSL (23.2), and above "
        "Dec-SLRep (19.8) and no pretraining (20.5).",
    ),
    PaperClaim(
        "S5", "dec_ssl", "Table 1, right",
        "For segmentation of packages Dec-SSL (61.2) is close to centralized SSL (61.6), and above "
        "no pretraining (60.8).",
    ),
    PaperClaim(
        "S6", "dec_ssl", "Theorem 3.2, Proposition 4.1, Figure 3",
        "A local Dec-SSL model represents all directions of the data, a local Dec-SLRep model its "
        "own alone.",
        (),
        (
            Proof(
                "Linear networks, d = 1024, worst of 3 sources and 3 draws",
                "Dec-SSL: 0.989 of the other directions; Dec-SLRep: 0.872 of its own, 0.048 of the "
                "others. The rate of the theorem, an exponent of -0.80, is not reached by then: "
                "-0.78, -0.74",
                "holds", "python -m launch.linear_theory",
            ),
        ),
    ),
    PaperClaim(
        "S7", "dec_ssl", "Figures 4 left, 5 and 6c",
        "As local epochs E rise, Dec-SSL loses less than Dec-SLRep and Dec-SL.",
    ),
    PaperClaim(
        "S8", "dec_ssl", "Figures 4 right and 6d",
        "As fewer of 20 clients take part, Dec-SSL loses less than Dec-SLRep and Dec-SL.",
    ),
    PaperClaim(
        "S9", "dec_ssl", "Figure 6a and b",
        "Dec-SSL is more robust to non-IID labels than Dec-SLRep, which is above Dec-SL.",
        (
            Trial(
                _DEC_SSL_CPU, "dec_ssl_figure2-cpu",
                ("From alpha 5 to alpha 0.01, Dec-SSL loses less than Dec-SLRep",
                 "At alpha 0.01, Dec-SSL is above Dec-SLRep"),
                _grid(("Dec-SSL", "Dec-SLRep"), _ENDS),
                (("Dec-SLRep", _ENDS[0]), ("Dec-SLRep", _ENDS[1])), (),
                "Skewness beta is not tried.",
            ),
        ),
    ),
    PaperClaim(
        "S10", "dec_ssl", "Figure 5",
        "FeatARC is above FedAvg, alignment alone and clusters alone (curves without figures).",
        (
            Trial(
                f"{_DEC_SSL_CPU} Alpha 0.02.", "dec_ssl_figure5-cpu",
                tuple(f"FeatARC is above {o}" for o in ("FedAvg", "align only", "cluster only")),
                _grid(("FeatARC", "FedAvg", "align only", "cluster only"), ("non-IID",)), None, (),
                "The printed algorithm, whose clusters have no kinds of clients to find.",
            ),
            Trial(
                "The same, 48 rounds; one seed.", "dec_ssl_figure5-48",
                ("FeatARC is above FedAvg", "FeatARC is above align only"),
                _grid(("FeatARC", "FedAvg", "align only"), ("non-IID",)), None,
            ),
        ),
    ),
    PaperClaim(
        "S11", "dec_ssl", "Table 2, top",
        "FeatARC is above FedEMA and FedU: 84.63, 83.34, 80.52 on non-IID clients.",
    ),
    PaperClaim(
        "S12", "dec_ssl", "Table 2, bottom",
        "From CIFAR-100 to CIFAR-10, Dec-SSL on non-IID clients keeps its transfer (70 against 71 "
        "on IID ones), Dec-SLRep does not (43 against 65).",
    ),
    PaperClaim(
        "S13", "dec_ssl", "Table 4",
        "From CIFAR-10 to STL-10, Dec-SSL on non-IID clients has 60 (IID 65), Dec-SLRep 31 (65), "
        "and Dec-SSL with less communication 33.",
    ),
    PaperClaim(
        "S14", "dec_ssl", "Figure 7",
        "Dec-SSL with a masked autoencoder is robust to non-IID labels and to local epochs, too.",
    ),
    PaperClaim(
        "S15", "dec_ssl", "Figure 8",
        "So it is with BYOL and SimSiam, and on CIFAR-100 and Tiny-ImageNet.",
    ),
    PaperClaim(
        "S16", "dec_ssl", "Figure 9, section B.3",
        "Local models of Dec-SSL are closer to the global one than those of Dec-SLRep: distances "
        "17.16 and 178.92.",
        (
            Trial(
                "CIFAR-10, 5000 images on 5 clients, alpha 0.1, tiny ResNet at 16x16; mean over "
                "three clients; 3 seeds.",
                "dec_ssl_figure9-cpu",
                ("Local models from the global one: Dec-SSL's are closer than Dec-SLRep's",),
                _grid(("Dec-SSL", "Dec-SLRep"), ("d_w",)),
                (("Dec-SLRep", "d_w"), ("Dec-SSL", "d_w")),
            ),
        ),
    ),
    PaperClaim(
        "S17", "dec_ssl", "Figure 11", "Dec-SSL is robust to clients of rotated and styled images.",
    ),
    PaperClaim(
        "S18", "dec_ssl", "Figure 12",
        "On star, cycle, tree and random graph Dec-SSL is as stable to non-IID labels as with a "
        "server.",
    ),
    PaperClaim(
        "S19", "dec_ssl", "Figure 13", "Dec-SSL is robust where each of 10 clients has one class.",
    ),
    PaperClaim(
        "S20", "dec_ssl", "Figure 14",
        "Dec-SSL falls with the images of a client, and keeps 50 with a tenth of them.",
    ),
    PaperClaim(
        "S21", "dec_ssl", "Figure 15",
        "With 100 clients, a fifth of them in a round, Dec-SSL is still robust.",
    ),
    PaperClaim(
        "S22", "dec_ssl", "Figure 16",
        "Dec-SSL with FedProx is robust, too, and FeatARC is above it on CIFAR-100.",
    ),
)  # fmt: skip

_SMALL_GAIN = (
    "Collaboration gains 0.4 and 0.6 points, which is within the deviation. Not planned again."
)
_POPULATIONS = ("5 (5)", "20 (5)", "100 (10)")
_NO_CLIENT_LEARNS = (
    "With 20 and 100 clients no method is above its untrained encoder after ten rounds, of which a "
    "client takes part in two or three. With five, FedU and FedEMA are above Hetero-SSFL."
)
_HETERO_CLAIMS = (
    PaperClaim(
        "H1", "hetero_ssfl", "Table 1",
        "On non-IID clients Hetero-SSFL is above FedBYOL, FedSimSiam, FedU and FedEMA; CIFAR-10: "
        "90.29, the best of them 81.2.",
    ),
    PaperClaim(
        "H2", "hetero_ssfl", "Table 1",
        "It is somewhat below centralized BYOL (94.3) and above supervised FedAvg (68.5).",
    ),
    PaperClaim(
        "H3", "hetero_ssfl", "Table 2",
        "On IID clients it is above them, too; CIFAR-10: 88.5, the best of them 85.9.",
    ),
    PaperClaim(
        "H4", "hetero_ssfl", "Table 3",
        "With 5, 20 and 100 clients it is above FedU and FedEMA; CIFAR-100: 67.7, 57.5, 43.3; "
        "FedEMA 61.8, 52.5, 42.0.",
        (
            Trial(
                "CIFAR-10, 1280 images in a round on 5, 20 and 100 clients of two classes, 10 "
                "rounds of 4 epochs at 16x16; 3 seeds.",
                "hetero_table3-cpu",
                tuple(
                    f"Hetero-SSFL is above {other} with {column} clients"
                    for column in _POPULATIONS for other in ("FedU", "FedEMA")
                ),
                _grid(("Hetero-SSFL", "FedU", "FedEMA"), _POPULATIONS),
                None, ("Table 3",), _NO_CLIENT_LEARNS,
            ),
        ),
    ),
    PaperClaim(
        "H5", "hetero_ssfl", "Table 4",
        "Collaboration helps small and large clients: ResNet-18 71.9 to 85.4, ResNet-34 77.8 to "
        "93.7.",
        (
            Trial(
                "CIFAR-10, 5 clients of 510 images of two classes, 10 rounds of 4 epochs at 16x16; "
                "3 seeds.",
                "hetero_table4-cpu",
                ("Collaboration helps tiny (in place of ResNet-18)",
                 "Collaboration helps small (in place of ResNet-34)"),
                _grid(
                    ("tiny (in place of ResNet-18)", "small (in place of ResNet-34)"),
                    ("Local SSL", "Hetero-SSFL"),
                ),
                None, note=_SMALL_GAIN,
            ),
        ),
    ),
    PaperClaim(
        "H6", "hetero_ssfl", "Tables 5 and 6",
        "Fine-tuned with 1 % and 10 % of the labels it is above FedU and FedEMA; CIFAR-10: 79.3 "
        "and 88.7, FedEMA 75.8 and 87.4.",
    ),
    PaperClaim(
        "H7", "hetero_ssfl", "section 5.1",
        "It is stable with more local epochs, and methods that average models are not.",
    ),
    PaperClaim("H8", "hetero_ssfl", "section 5.1", "A larger RAD is better."),
    PaperClaim(
        "H9", "hetero_ssfl", "section 5.1", "A weight mu of 0.5 is best on the CIFARs.",
    ),
)  # fmt: skip

_DENAV_SMALL = "3000 images of CIFAR-100 on 30 clients, fine-tuned on 5000 labels of CIFAR-10."
_DENAV3_NOTE = (
    "Fine-tuned, every method is within 2.2 points of the network from scratch, so that there is "
    "no room. Not planned again."
)
_DENAV3_ENDS = (("DeNAV, 3000 epochs", "accuracy"), ("From scratch", "accuracy"))
_DENAV_CLAIMS = (
    PaperClaim(
        "N1", "denav", "Table 1",
        "Pretraining costs less than in the baselines: 11.62 M parameters and 1.23 GFLOPs, theirs "
        "11.70 to 38.47 M and 3.65 to 7.40 GFLOPs.",
        (),
        (
            Proof(
                "Parameters and multiply-adds of the one-block masked autoencoder",
                "11.62 M parameters, 1.23 G multiply-adds with 49 of 196 patches", "holds",
                "pytest tests/models/test_vit.py",
            ),
        ),
    ),
    PaperClaim(
        "N2", "denav", "Table 2",
        "DeNAV is above Fed-SimSiam, Fed-SimCLR, FedU, FedEMA and Orchestra; CIFAR-10, non-IID: "
        "91.00, the best of them 90.66.",
    ),
    PaperClaim(
        "N3", "denav", "Table 3",
        "At equal epochs DeNAV is above gossip learning: 92.80 against 90.52 on CIFAR-10.",
        (
            Trial(
                f"{_DENAV_SMALL} 300 steps of 10 epochs; 3 seeds.", "denav_table3-cpu",
                ("DeNAV is above gossip learning on CIFAR10 after 3000 epochs",),
                _grid(
                    ("DeNAV, 3000 epochs", "Random route, 3000 epochs",
                     "Gossip learning, 3000 epochs", "All-reduce, 3000 epochs", "From scratch"),
                    ("accuracy",),
                ),
                _DENAV3_ENDS, note=_DENAV3_NOTE,
            ),
        ),
    ),
    PaperClaim(
        "N4", "denav", "Table 3",
        "It needs less than a tenth of the communications: 1000 against 14850.",
        (
            Trial(
                f"{_DENAV_SMALL} 300 steps of 10 epochs; 3 seeds.", "denav_table3-cpu",
                ("DeNAV needs less than a tenth of gossip's communications, 3000 epochs",),
                _grid(
                    ("DeNAV, 3000 epochs", "Gossip learning, 3000 epochs"), ("communications",)
                ),
                (("Gossip learning, 3000 epochs", "communications"),
                 ("DeNAV, 3000 epochs", "communications")),
                note="Models that were sent. The bound is within the deviation: 30 clients have "
                "fewer links than the paper's 100. Not planned again.",
            ),
        ),
    ),
    PaperClaim(
        "N5", "denav", "Table 4",
        "The navigator's formula is above a random route and above itself without each term; "
        "CIFAR-10: 90.96, random 90.28, without volume 88.54.",
    ),
    PaperClaim(
        "N6", "denav", "Table 4",
        "Volume in the formula costs time, and computing resources save it: 36.8 minutes, without "
        "volume 28.8, without resources 37.6.",
        (),
        (
            Proof(
                "Routes of 200 steps on 1000 networks of 100 clients, without training; time "
                "beside that of the whole formula on the same network, 95 percent interval",
                "without volume -29.5 % (-29.7 to -29.4), without resources +1.4 % (1.3 to 1.4)",
                "holds", "python -m launch.routes",
            ),
        ),
    ),
    PaperClaim(
        "N7", "denav", "Table 5",
        "For parallel models, weights by staleness are better than equal ones and than weights by "
        "volume; CIFAR-10: 91.46, 90.64, 91.08.",
    ),
    PaperClaim(
        "N8", "denav", "Table 8", "More steps S are better: 90.64 with 200, 92.47 with 1000.",
    ),
    PaperClaim(
        "N9", "denav", "Table 9",
        "More local epochs K are better, up to 10 to 15: 88.31, 90.64, 91.41, 91.74 with 1, 5, 10, "
        "15.",
    ),
    PaperClaim(
        "N10", "denav", "Table 10",
        "More parallel models C are better, for little time: 90.90 with one, 91.88 with 15.",
    ),
    PaperClaim(
        "N11", "denav", "Table 11",
        "A denser network is better: 89.17, 90.64, 91.16 at connectivity 0.03, 0.15, 0.75.",
    ),
    PaperClaim(
        "N12", "denav", "Table 12",
        "A larger limit Z is better, and must be at least S / M: 89.51, 90.64, 92.15 with 1, 3, 7.",
    ),
    PaperClaim(
        "N13", "denav", "Table 13",
        "A staleness bound of 5 is best: 91.46, with 1 91.39, with 200 90.43.",
    ),
)  # fmt: skip

CLAIMS = (*_DCCO_CLAIMS, *_FEDU_CLAIMS, *_DEC_SSL_CLAIMS, *_HETERO_CLAIMS, *_DENAV_CLAIMS)

_AS_FEDU = "pilots, BUILD_NOTES.md"
_AS_DENAV = "to be timed; one to two minutes are meant"
_HETERO = "CIFAR-10, clients of 510 images, tiny and small ResNets at 16x16."
_AS_HETERO = "a run of `hetero_table4`, other work beside it (4 to 5)"
_SWEEPS = "CIFAR-10, 5000 images, tiny ResNet at 16x16, 10 epochs in all."
_PILOTS = "pilots of one seed"
PLAN = (
    Plan(("D8", "D9", "D10"), "100 and 300 labelled cases, where pretraining can matter; 128 "
         "clients, tiny ResNet at 24x24, 150 rounds. Room in the pilot, balanced accuracy of "
         "nearest neighbours among training images: DCCO 22.1, contrastive 17.9.",
         "dcco_table2_few_labels", 3, 3, 2.3, "pilots of seed 0"),
    Plan(("D1", "D2", "D3", "D4", "D5", "D6", "D7"),
         "Clients that come often, of 1, 4 and 16 non-IID and 4 and 16 IID, better of two "
         "rates, best and last round. CIFAR-10: 2000 images, 300 rounds of 256, tiny ResNet at "
         "16x16; with `--dataset=digits`: 1280 images, 250 rounds of 128. Room in the pilots, "
         "nearest neighbours among training images, centralized over contrastive on clients of "
         "4 of a class: CIFAR-10 37.3 over 33.5, digits 98.3 over 92.1 (best round 93.3). On "
         "CIFAR-10, three settings of at most 4 minutes a run gave 0, 4 and 4 points, so that "
         "the margin of 4 points has no room there.",
         "dcco_table1_revisited", 58, 3, 1.3,
         "pilots of seed 0 (digits 0.8, CIFAR-10 1.8)"),
    Plan(("U8", "U9"), f"{_FEDU_TINY} of CIFAR-10: E = 1, 5 and 20 at 200 epochs in all; 25, 50, "
         "100 and 200 rounds of one epoch.", "fedu_figure6", 6, 3, 1.5, _AS_FEDU),
    Plan(("U1", "U2", "U3"), f"{_FEDU_TINY} of CIFAR-10, IID and non-IID clients: single clients, "
         "FedSimCLR, FedCA, FedSimSiam, FedBYOL, FedU, supervised, centralized BYOL.",
         "fedu_table1", 17, 3, 1.5, _AS_FEDU),
    Plan(("U4",), f"{_FEDU_TINY}, from CIFAR-100 to CIFAR-10, because Mini-ImageNet is not here: "
         "single clients, FedSimCLR, FedCA, FedU, centralized BYOL, IID and non-IID.",
         "fedu_table3", 9, 3, 1.5, _AS_FEDU),
    Plan(("U10",), f"{_FEDU_TINY} of CIFAR-10: the tiny ResNet, and the small one, which has twice "
         "the channels; 75 rounds, IID and non-IID.", "fedu_encoders", 4, 3, 1.5, _AS_FEDU),
    Plan(("S3", "S9", "S13", "S20"), f"{_SWEEPS} Skewness beta 1, 0.3, 0; one client with all "
         "images; a tenth and three tenths of the images; FedProx; probes on CIFAR-100, because "
         "STL-10 is not here.", "dec_ssl_robustness", 12, 3, 1.4, _PILOTS),
    Plan(("S7", "S15"), f"{_SWEEPS} E = 1, 2, 5 of 10 epochs in all, 1 and 10 of 20; BYOL and "
         "SimSiam at E = 1 and 5. CIFAR-100 is in `dec_ssl_transfer`.", "dec_ssl_figure6", 14, 3,
         1.3, _PILOTS),
    Plan(("S8", "S19", "S21"), f"{_SWEEPS} 1, 5 or 20 of 20 clients; 10 clients, IID and of one "
         "class; 20 of 100 clients, alpha 5 and 0.01.", "dec_ssl_clients", 14, 3, 1.2, _PILOTS),
    Plan(("S12", "S22"), "The same with 5000 images of CIFAR-100, and probes on CIFAR-10: beta 1 "
         "and 0.1, E = 2 and 5; FedProx and FeatARC.", "dec_ssl_transfer", 8, 3, 1.6, _PILOTS),
    Plan(("S14",), "`vit_micro` at 16x16, 40 epochs of 5000 images; alpha 5 and 0.02, E = 2 and "
         "20; Dec-SLRep beside it.", "dec_ssl_figure7", 6, 3, 1.2, _PILOTS),
    Plan(("S18",), f"{_SWEEPS} 10 and 20 clients.", "dec_ssl_figure12", 10, 3, 1.1, _PILOTS),
    Plan(("S2",), "Five clusters of the features of a supervised encoder, tiny ResNet at 16x16; "
         "Dec-SSL and Dec-SL, alpha 5 and 0.01.", "dec_ssl_features", 5, 3, 1.3, "a pilot"),
    Plan(("S10", "S11"), "8 clients with digits, half of them turned by 180 degrees, constant "
         "rate, 10 rounds of 16 epochs, each client scored on images with its own shift: printed "
         "and corrected clusters, alignment, clusters, FedAvg, FedU, FedEMA.", "dec_ssl_shifts", 8,
         3, 1.7, "a pilot"),
    Plan(("S17",), "Five rotations and five styles; Dec-SSL and Dec-SL, alpha 5 and 0.01, tiny "
         "ResNet at 16x16.", "dec_ssl_figure11", 8, 3, 1.2, "a pilot"),
    Plan(("H1", "H2", "H6"), f"{_HETERO} 10 rounds of 4 epochs: Hetero-SSFL, local, four federated "
         "methods, supervised, centralized; fine-tuned with 500 and 5000 labels.", "hetero_table1",
         8, 3, 5, _AS_HETERO),
    Plan(("H3",), f"{_HETERO} IID clients: Hetero-SSFL and the four federated methods.",
         "hetero_table2", 5, 3, 4, _AS_HETERO),
    Plan(("H7",), f"{_HETERO} 64 epochs in rounds of 1, 4 and 16: Hetero-SSFL, FedBYOL, FedU.",
         "hetero_local_epochs", 9, 3, 4, _AS_HETERO),
    Plan(("H8", "H9"), f"{_HETERO} mu of 0, 0.5, 1 and 2, a RAD of 100 and 1000 images; classes "
         "that a client has never seen are scored by themselves.", "hetero_influence", 5, 3, 4,
         _AS_HETERO),
    Plan(("N2",), f"{_DENAV_SMALL} IID and non-IID: DeNAV and five federated methods. Rates come "
         "from `denav_table2_rates` (18 runs of seed 0).", "denav_table2", 12, 3, 2, _AS_DENAV),
    Plan(("N5",), f"{_DENAV_SMALL} 30 steps of 40 local epochs: the formula without each term.",
         "denav_table4", 5, 5, 2, _AS_DENAV),
    Plan(("N7",), f"{_DENAV_SMALL} Five models, 60 steps.", "denav_table5", 4, 5, 2, _AS_DENAV),
    Plan(("N8", "N9", "N10", "N11", "N12", "N13"), f"{_DENAV_SMALL} Two values beside the default "
         "of S, K, C, connectivity, Z and the staleness bound.", "denav_influence", 15, 3, 2,
         _AS_DENAV),
)  # fmt: skip

# Claims that the plan leaves out, and what stands in their rows.
NOT_PLANNED = {
    ("U5",): _NOT_BEST,
    ("U6", "U7"): _NO_RULE,
    ("D11",): _GROUP_NORM,
    ("H4",): f"{_NO_CLIENT_LEARNS} Not planned again.",
    ("H5",): _SMALL_GAIN,
    ("N3", "N4"): _DENAV3_NOTE,
    ("S4",): "Not planned: ImageNet-100 and COCO are not here. `launch.detect` has the protocol.",
    ("S5",): "Not possible: the images of packages are private.",
}
