"""The claims of FedU's paper, and the runs that try them."""

from paper_claims.records import PaperClaim, Trial, grid

_T1 = "global predictor"

_CPU = (
    "CIFAR-10, 5 clients of 400 images of two classes, small ResNet at 16x16, 40 rounds; 3 seeds."
)
_TINY = "Tiny ResNet at 12x12, 200 rounds, momentum 0.856, 5 clients of 160 images"
_PARTITIONS = ("IID", "non-IID")
_NO_RULE = (
    "The rules for the predictor do not differ by more than the deviation, so that there is no "
    "room."
)
_NOT_BEST = (
    "Updating both encoders is as good as updating the online one. Updating the target alone costs "
    "accuracy and rank, but stays above the untrained encoder."
)
_NO_FALL = "With 20 local epochs a round FedU is as good as with one, on clients of 160 images."
_SIMCLR_BEST = (
    "FedSimCLR has the highest mean on both kinds of clients; on IID ones FedU is within the "
    "deviation of it. FedU is above single clients within the deviation only."
)
_SIMCLR_ABOVE = (
    "FedSimCLR is 2.6 to 3.6 points above FedU. FedSimSiam and FedBYOL have higher means, within "
    "the deviation. FedCA is near its untrained encoder on IID clients and below it on the others, "
    "so that a comparison with it says little."
)
_FINE_TUNED = (
    "FedSimCLR is above FedU on both kinds of clients, and on IID ones so is supervised FedAvg. "
    "With 10 % of the labels FedU is 1.1 to 1.5 points above the untrained encoder, which is "
    "within the deviation."
)
_ROWS = (
    "FedU",
    "Single client training",
    "FedSimCLR",
    "FedCA",
    "FedSimSiam",
    "FedBYOL",
    "untrained encoder",
)
_TRANSFER_ROWS = ("FedU", "Single client training", "FedSimCLR", "FedCA", "Random Init.")
_ABOVE = tuple(
    f"FedU is above {other} on non-IID clients" for other in ("Single client training", "FedSimCLR")
)
CLAIMS = (
    PaperClaim(
        "U1", "fedu", "Table 1",
        "In linear probes FedU is above single clients, FedSimCLR, FedSimSiam and FedCA; non-IID "
        "CIFAR-10: 78.7 against 72.0 of single clients (ResNet-18).",
        (
            Trial(
                f"{_TINY} of CIFAR-10; 3 seeds.", "fedu_table1-cpu",
                tuple(f"FedU is above {other} on {partition} clients"
                      for other in _ROWS[1:5] for partition in _PARTITIONS),
                grid(_ROWS, _PARTITIONS),
                (("FedU", "non-IID"), ("untrained encoder", "non-IID")), ("Table 1",),
                _SIMCLR_ABOVE,
            ),
            Trial(
                _CPU, "fedu_table1, not kept",
                (*_ABOVE, "FedU is above FedSimSiam on non-IID clients"),
                grid(("FedU", "Single client training"), ("non-IID",)), None, ("Table 1",),
                "Of the baselines, single clients alone were run.",
            ),
        ),
    ),
    PaperClaim(
        "U2", "fedu", "Table 1",
        "On non-IID CIFAR-10 FedU is above supervised FedAvg: 83.25 against 67.74.",
        (
            Trial(
                f"{_TINY} of CIFAR-10; supervised clients have 5000 images in all, in as many "
                "steps; 3 seeds.", "fedu_table1-cpu",
                ("On non-IID clients FedU is above supervised FedAvg's own classifier",),
                grid(("FedU", "FedAvg (supervised)", "untrained encoder"), _PARTITIONS),
                (("FedU", "non-IID"), ("FedAvg (supervised)", "non-IID")), ("Table 1",),
                "On IID clients supervised FedAvg is above FedU, as in the paper.",
            ),
        ),
    ),
    PaperClaim(
        "U3", "fedu", "Table 2",
        "Fine-tuned with 1 % and 10 % of the labels FedU is above all but centralized BYOL; "
        "non-IID CIFAR-10: 68.3 and 78.5, single clients 60.3 and 70.6.",
        (
            Trial(
                f"{_TINY} of CIFAR-10; 3 seeds.", "fedu_table1-cpu",
                tuple(f"FedU is above {other} on {partition} clients"
                      for other in ("Single client training", "FedAvg (supervised)", "FedSimCLR",
                                    "FedCA")
                      for partition in _PARTITIONS),
                grid(("FedU", "Single client training", "FedSimCLR", "FedCA",
                      "FedAvg (supervised)", "untrained encoder"), _PARTITIONS),
                (("FedU", "non-IID"), ("untrained encoder", "non-IID")), ("Table 2",),
                _FINE_TUNED,
            ),
            Trial(
                _CPU, "fedu_table1, not kept",
                _ABOVE,
                grid(("FedU", "Single client training"), ("non-IID",)), None, ("Table 2",),
                "Of the baselines, single clients alone were run.",
            ),
        ),
    ),
    PaperClaim(
        "U4", "fedu", "Table 3",
        "Transferred from Mini-ImageNet to CIFAR-100 FedU is best: 75.60 on non-IID clients, "
        "single clients 75.14, FedSimCLR 70.91.",
        (
            Trial(
                f"{_TINY}, from CIFAR-100 to CIFAR-10, because Mini-ImageNet is not here; "
                "fine-tuned on 5000 labels; 3 seeds.", "fedu_table3-cpu",
                tuple(f"FedU is above {other} on {partition} clients"
                      for other in _TRANSFER_ROWS[1:4] for partition in _PARTITIONS),
                grid(_TRANSFER_ROWS, _PARTITIONS),
                (("FedSimCLR", "non-IID"), ("Random Init.", "non-IID")), ("Table 3",),
                _SIMCLR_BEST,
            ),
        ),
    ),
    PaperClaim(
        "U5", "fedu", "Table 4, Figure 4",
        "To aggregate and update the online encoder is best (84.07); to update the target alone "
        "collapses (9.99).",
        (
            Trial(
                f"{_TINY} of CIFAR-10; 3 seeds.", "fedu_table4-cpu",
                ("Aggregating and updating the online encoder is best",
                 "Updating only the target encoder collapses: no better than an untrained one"),
                grid(
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
                grid(("online, online", "online, target"), (_T1, "local predictor")),
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
                f"{_TINY} of CIFAR-10; 3 seeds.", "fedu_table4-cpu",
                ("DAPU is better than either static rule",),
                grid(("dapu", "global", "local", "untrained encoder"), ("accuracy",)),
                (("global", "accuracy"), ("local", "accuracy")), ("Figure 5a",), _NO_RULE,
            ),
        ),
    ),
    PaperClaim(
        "U7", "fedu", "Figure 5b", "A threshold mu of 0.2 is better than smaller and larger ones.",
        (
            Trial(
                f"{_TINY} of CIFAR-10; 3 seeds.", "fedu_table4-cpu",
                ("A threshold in between is better than the smallest and the largest one",),
                grid(
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
        (
            Trial(
                f"{_TINY} of CIFAR-10, 200 epochs in all; 3 seeds.", "fedu_figure6-cpu",
                ("Accuracy falls from E = 1 to E = 20",),
                grid(("FedU",), ("E = 1", "E = 5", "E = 20")),
                (("FedU", "E = 1"), ("untrained encoder", "E = 1")), ("Figure 6a",), _NO_FALL,
            ),
        ),
    ),
    PaperClaim(
        "U9", "fedu", "Figure 6b", "More rounds of one epoch, from 100 to 800, are better.",
        (
            Trial(
                f"{_TINY} of CIFAR-10, non-IID clients; 3 seeds.", "fedu_figure6-cpu",
                ("Accuracy rises from R = 25 to R = 200",),
                grid(("FedU",), ("R = 25", "R = 50", "R = 100", "R = 200")),
                (("FedU", "R = 200"), ("FedU", "R = 25")), ("Figure 6b",),
            ),
        ),
    ),
    PaperClaim(
        "U10", "fedu", "Table 1",
        "A deeper encoder is better: ResNet-50 86.48, ResNet-18 85.21 (IID CIFAR-10).",
        (
            Trial(
                f"{_TINY} of CIFAR-10, 75 rounds; the larger encoder is the small ResNet, which "
                "has twice the channels; 3 seeds.", "fedu_encoders-cpu",
                tuple(f"The larger encoder is better on {c} clients" for c in _PARTITIONS),
                grid(("FedU, small", "FedU, tiny", "untrained encoder, small",
                      "untrained encoder, tiny"), _PARTITIONS),
                (("FedU, small", "non-IID"), ("FedU, tiny", "non-IID")),
                note="Untrained, the larger encoder is 3.7 points better already.",
            ),
        ),
    ),
)  # fmt: skip
