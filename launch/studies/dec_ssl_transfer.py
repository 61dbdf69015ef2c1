"""Table 2 (bottom) and Figures 8 (e) and 16 (right) of the Dec-SSL paper: CIFAR-100."""

from launch.studies.dec_ssl_featarc import PRINTED
from launch.studies.dec_ssl_robustness import FEDPROX_FLAGS
from launch.studies.dec_ssl_sweeps import (
    SL,
    SLREP,
    SSL,
    accuracies,
    local_epochs,
    loses,
    probe,
    robust,
    skewed,
    training,
)
from launch.studies.engine.claims import Trial, apart, claim
from launch.studies.engine.statements import each_above
from launch.studies.engine.study import UNTRAINED, At, cell, study, table
from tff_ssl.reporting.experiment import Cell, Experiment
from tff_ssl.reporting.measured import Selector

_BETA = 0.1  # Table 3, for Figure 8 (e).
_COLUMNS = ("IID", "non-IID")
# Table 2 (bottom) in percent, by the share of the labels.
_TABLE2 = {
    "100%": {SSL: (71, 70), SLREP: (65, 43), UNTRAINED: (31,)},
    "10%": {SSL: (67, 66), SLREP: (60, 35), UNTRAINED: (27,)},
    "1%": {SSL: (57, 57), SLREP: (47, 32), UNTRAINED: (25,)},
}


@study(
    "Dec-SSL, Table 2 (bottom), Figures 8 (e) and 16 (right), on {data} at {scale} scale",
    "cifar100",
)
def dec_ssl_transfer(at: At) -> Experiment:
    """Dec-SSL and Dec-SLRep from CIFAR-100 to CIFAR-10, and FedProx and FeatARC on CIFAR-100."""
    shares = at({"10%": 5000, "1%": 500}, {"100%": 50_000, "10%": 5000, "1%": 500})
    target = "cifar100" if at.data == "cifar10" else "cifar10"
    labels = ",".join(map(str, shares.values()))
    transfer = f"--protocol=transfer --dataset={target} --labels={labels}"
    usual, compared = local_epochs(at), at(2, 50)  # Figure 16 has the latter.
    numbers = at((2, 5), (1, 5, 10, 50, 100))

    def run(objective: str, beta: float, epochs: int, extra: str = "", name: str = "") -> Cell:
        probed = probe(at) if objective == "supervised" else ""
        transferred = transfer if epochs == usual and not extra else ""
        is_compared = (objective, beta, epochs) == ("nt_xent", _BETA, compared)
        return cell(
            name or f"{objective}_beta{beta:g}_epochs{epochs}", training(at, epochs),
            skewed(beta), f"--objective={objective}",
            "--personalized_clients=5" if is_compared else "", extra,
            evaluations=[probed, transferred],
        )  # fmt: skip

    objectives = {SSL: "nt_xent", SLREP: "supervised"}
    cells = [
        run(objective, beta, epochs)
        for objective in objectives.values()
        for beta, epochs in ((1, usual), *((_BETA, epochs) for epochs in numbers))
    ]
    names = {
        row: [f"{objective}_beta{_BETA:g}_epochs{epochs}" for epochs in numbers]
        for row, objective in objectives.items()
    }
    by_epochs = accuracies(
        at, "Figure 8 (e): local epochs on CIFAR-100", [f"E = {epochs}" for epochs in numbers],
        {**names, SL: names[SLREP]},
    )  # fmt: skip
    personal = table(
        "Figure 16 (right): clients' models, mean over clients", Selector("linear_personalized"),
        ["accuracy"],
        {"FedAvg": (f"nt_xent_beta{_BETA:g}_epochs{compared}",), "FedProx": ("fedprox",),
         "FeatARC": ("featarc",)},
    )  # fmt: skip
    ends = (f"beta1_epochs{usual}", f"beta{_BETA:g}_epochs{usual}")
    tables = [
        table(
            f"Table 2: transfer with {share} of the labels", Selector("transfer", number), _COLUMNS,
            {row: [f"{start}_{end}" for end in ends] for row, start in objectives.items()},
            _TABLE2[share], untrained={UNTRAINED: SSL},
        )
        for share, number in shares.items()
    ]  # fmt: skip
    on_clients = "On {column} clients, {row} is above {other}"
    return at.build(
        [*cells, run("nt_xent", _BETA, compared, FEDPROX_FLAGS, "fedprox"),
         run("nt_xent", _BETA, compared, PRINTED, "featarc")],
        [*tables, by_epochs, personal],
        [
            *(
                [*loses(shown, "transfer.less", SSL, [SLREP]),
                 *each_above(shown, "transfer.above", SSL, SLREP, on_clients)]
                for shown in tables
            ),
            robust(by_epochs, "epochs."),
            each_above(personal, "personal", "FeatARC", ("FedProx", "FedAvg")),
        ],
        [
            f"Non-IID clients have beta = {_BETA}; the paper does not give the one of Table 2. Its "
            "figures are published as curves without numbers. FeatARC is the printed algorithm.",
        ],
        {"non-IID": f"nt_xent_{ends[1]}"},
    )  # fmt: skip


STUDIES = (dec_ssl_transfer,)

CLAIMS = (
    claim(
        "S12", "Table 2, bottom", "From CIFAR-100 to CIFAR-10, Dec-SSL on non-IID clients keeps "
        "its transfer (70 against 71 on IID ones), Dec-SLRep does not (43 against 65).",
        Trial(
            "5000 images of CIFAR-100, tiny ResNet at 16x16, 10 epochs in all; non-IID is beta "
            "0.1; probes on CIFAR-10 with 5000 and 500 labels; 3 seeds.", "dec_ssl_transfer-cpu",
            "transfer.less transfer.above.decslrep.noniid", (SSL, SLREP), _COLUMNS,
            apart(SSL, UNTRAINED, "non-IID"),
        ),
    ),
    claim(
        "S23", "Figure 16, right", "On CIFAR-100 FeatARC is above FedProx.",
        Trial(
            "5000 images of CIFAR-100, beta 0.1, tiny ResNet at 16x16, 10 epochs in all; clients' "
            "models, the printed FeatARC; 3 seeds.", "dec_ssl_transfer-cpu", "personal.fedprox",
            ("FeatARC", "FedProx", "FedAvg"), ("accuracy",), None, "FedProx and FedAvg gain 4 "
            "points over the untrained encoder, and FeatARC is half a point below them, within the "
            "deviation.",
        ),
    ),
)  # fmt: skip
