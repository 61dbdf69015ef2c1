"""The claims of Hetero-SSFL's paper, and the runs that try them."""

from paper_claims.records import PaperClaim, Trial, grid

_SMALL_GAIN = (
    "Collaboration gains 0.4 and 0.6 points, which is within the deviation. After 80 rounds of one "
    "epoch, in a pilot of one seed, it gains 1.1 and 0.1."
)
_POPULATIONS = ("5 (5)", "20 (5)", "100 (10)")
_NO_CLIENT_LEARNS = (
    "With 20 and 100 clients no method is above its untrained encoder after ten rounds, of which "
    "an evaluated client takes part in 2.3 and 1.7 on average. With five, FedU and FedEMA are "
    "above Hetero-SSFL."
)
_DATA = "CIFAR-10, clients of 510 images, tiny and small ResNets at 16x16."
_NO_INFLUENCE = (
    "mu = 0.5 has the highest mean, 0.5 points above clients alone, and a RAD of 100 images is "
    "0.6 above one of 1000: both are within the deviation."
)
_IID = (
    "It is two points below FedBYOL, FedSimSiam and FedU, whose clients all have the larger "
    "network, and 0.6 below FedEMA. It gains 3.6 points over its own untrained networks, FedU 3.5."
)
_NON_IID = (
    "It is two points below FedSimSiam and FedU, whose clients all have the larger network, and "
    "one below FedBYOL and FedEMA, which is within the deviation. It gains 3.5 points over its own "
    "untrained networks, and clients alone gain 2.8."
)
_FEW_LABELS = (
    "The methods differ by 1.5 points at most, which is within the deviation. With 10 % of the "
    "labels none is above the untrained encoder by more than the deviation."
)
_TABLE1 = (
    "CIFAR-10, 5 clients of 510 images of two classes, tiny and small ResNets at 16x16, 10 rounds "
    "of 4 epochs; 3 seeds."
)
_LOCAL_EPOCHS = (
    "Hetero-SSFL is stable. FedBYOL and FedU fall by 0.5 and 0.7 points, within the deviation, and "
    "stay above it, so that there is no room."
)
_FEDERATED = ("FedBYOL", "FedSimSiam", "FedU", "FedEMA")
CLAIMS = (
    PaperClaim(
        "H1", "hetero_ssfl", "Table 1",
        "On non-IID clients Hetero-SSFL is above FedBYOL, FedSimSiam, FedU and FedEMA; CIFAR-10: "
        "90.29, the best of them 81.2.",
        (
            Trial(
                _TABLE1, "hetero_table1-cpu",
                tuple(f"Hetero-SSFL is above {other}" for other in _FEDERATED),
                grid(("Hetero-SSFL", *_FEDERATED), ("accuracy",)),
                (("Hetero-SSFL", "accuracy"), ("untrained, clients' own", "accuracy")),
                ("Table 1",), _NON_IID,
            ),
        ),
    ),
    PaperClaim(
        "H2", "hetero_ssfl", "Table 1",
        "It is somewhat below centralized BYOL (94.3) and above supervised FedAvg (68.5).",
        (
            Trial(
                _TABLE1, "hetero_table1-cpu",
                ("Central-BYOL is above Hetero-SSFL", "Hetero-SSFL is above Supervised FedAvg"),
                grid(("Central-BYOL", "Hetero-SSFL", "Supervised FedAvg"), ("accuracy",)),
                (("Central-BYOL", "accuracy"), ("Supervised FedAvg", "accuracy")), ("Table 1",),
                "Supervised FedAvg is scored by its own classifier, and has ten rounds, too.",
            ),
        ),
    ),
    PaperClaim(
        "H3", "hetero_ssfl", "Table 2",
        "On IID clients it is above them, too; CIFAR-10: 88.5, the best of them 85.9.",
        (
            Trial(
                "CIFAR-10, 5 clients of 510 images of all classes, tiny and small ResNets "
                "at 16x16, 10 rounds of 4 epochs; 3 seeds.",
                "hetero_table2-cpu",
                tuple(f"Hetero-SSFL is above {other}" for other in _FEDERATED),
                grid(("Hetero-SSFL", *_FEDERATED), ("accuracy",)),
                (("Hetero-SSFL", "accuracy"), ("untrained, clients' own", "accuracy")),
                note=_IID,
            ),
        ),
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
                grid(("Hetero-SSFL", "FedU", "FedEMA"), _POPULATIONS),
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
                grid(
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
        (
            Trial(
                _TABLE1, "hetero_table1-cpu",
                tuple(f"Hetero-SSFL is above {other}" for other in ("FedU", "FedEMA")),
                grid(("Hetero-SSFL", "FedU", "FedEMA", "untrained, the larger"), ("accuracy",)),
                (("FedEMA", "accuracy"), ("untrained, the larger", "accuracy")), ("Table 6",),
                _FEW_LABELS,
            ),
        ),
    ),
    PaperClaim(
        "H7", "hetero_ssfl", "section 5.1",
        "It is stable with more local epochs, and methods that average models are not.",
        (
            Trial(
                f"{_DATA} 64 epochs in rounds of 1, 4 and 16; 3 seeds.", "hetero_local_epochs-cpu",
                ("Hetero-SSFL is stable: it falls by less than 2 points from E = 1 to E = 16",
                 *(f"{other} falls by more than Hetero-SSFL from E = 1 to E = 16"
                   for other in ("FedBYOL", "FedU"))),
                grid(("Hetero-SSFL", "FedBYOL", "FedU"), ("E = 1", "E = 4", "E = 16")),
                (("FedBYOL", "E = 1"), ("FedBYOL", "E = 16")), note=_LOCAL_EPOCHS,
            ),
        ),
    ),
    PaperClaim(
        "H8", "hetero_ssfl", "section 5.1", "A larger RAD is better.",
        (
            Trial(
                f"{_DATA} 10 rounds of 4 epochs; 3 seeds.", "hetero_influence-cpu",
                ("A RAD of 1000 images is better than one of 100",),
                grid(("Hetero-SSFL", "untrained, clients' own"), ("100 images", "1000 images")),
                (("Hetero-SSFL", "1000 images"), ("untrained, clients' own", "1000 images")),
                note=_NO_INFLUENCE,
            ),
        ),
    ),
    PaperClaim(
        "H9", "hetero_ssfl", "section 5.1", "A weight mu of 0.5 is best on the CIFARs.",
        (
            Trial(
                f"{_DATA} 10 rounds of 4 epochs; with mu = 0 clients train alone; 3 seeds.",
                "hetero_influence-cpu",
                tuple(f"mu = 0.5 is better than mu = {mu}" for mu in (0, 1, 2)),
                grid(("Hetero-SSFL",), tuple(f"mu = {mu}" for mu in (0, 0.5, 1, 2))),
                (("Hetero-SSFL", "mu = 0.5"), ("Hetero-SSFL", "mu = 0")), note=_NO_INFLUENCE,
            ),
        ),
    ),
)  # fmt: skip
