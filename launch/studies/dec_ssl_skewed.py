"""Figures 6 (b), 8 (e), 14, 16 and Tables 2 (bottom) and 4 of the Dec-SSL paper: skewed clients."""

from collections.abc import Mapping

from launch.studies import dec_ssl
from launch.studies.dec_ssl import METHODS, SKEWED, SL, SLREP, SSL, SWEEPS
from launch.studies.dec_ssl_featarc import PRINTED
from launch.studies.engine.claims import claim
from launch.studies.engine.statements import above, each_above, falls, say, slug
from launch.studies.engine.study import UNTRAINED, At, cell, study, table
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

_CENTRALIZED, _FEDPROX = "Centralized SSL", "Dec-SSL with FedProx"
_PROXIMAL = "--hparam=mu=0.01"  # The paper does not give the weight of the proximal term.
_IID, _NON_IID, _LESS = "IID", "non-IID", "non-IID, less communication"
_ON_CLIENTS = "On {column} clients, {row} is above {other}"
# Transfer in percent: share of the labels -> row -> figures of IID and of non-IID clients, and in
# Table 4 of non-IID ones with less communication.
_TABLE4 = {
    "100%": {SSL: (65, 60, 33), SLREP: (65, 31, None), UNTRAINED: 25},
    "10%": {SSL: (61, 54, 28), SLREP: (60, 30, None), UNTRAINED: 24},
    "1%": {SSL: (48, 36, 17), SLREP: (47, 25, None), UNTRAINED: 13},
}
_TABLE2 = {
    "100%": {SSL: (71, 70), SLREP: (65, 43), UNTRAINED: 31},
    "10%": {SSL: (67, 66), SLREP: (60, 35), UNTRAINED: 27},
    "1%": {SSL: (57, 57), SLREP: (47, 32), UNTRAINED: 25},
}


def _transfer(target: str, labels: Mapping[str, int]) -> str:
    """The evaluation on another data set."""
    return f"--protocol=transfer --dataset={target} --labels={','.join(map(str, labels.values()))}"


def _transferred(
    number: int, published: Mapping[str, Mapping], labels: Mapping[str, int], columns, rows
) -> dict[str, Table]:
    """The tables of transfer with each share of the labels, by key."""
    title = f"Table {number}: transfer with {{}} of the labels"
    return {
        f"transfer_{share}": table(title.format(share), Selector("transfer", n), columns, rows,
                                   published[share], untrained={UNTRAINED: SSL})
        for share, n in labels.items()
    }  # fmt: skip


@study(
    "Dec-SSL, Figures 6 (b), 14 and 16 (left) and Table 4, on {data} at {scale} scale", "cifar10"
)
def dec_ssl_robustness(at: At) -> Experiment:
    """Dec-SSL on skewed clients: transfer, centralized training, fewer images, FedProx.

    Figures are published as curves without numbers. Centralized training is that of one client with
    all images. With fewer images, the number of epochs stays, as in the paper. The published
    transfer is to STL-10; at CPU scale the other data set is one of the CIFARs, and "less
    communication" the largest number of local epochs.
    """
    # Numbers of labels of the other data set, by the paper's share of its labels.
    labels = at({"100%": 5000, "10%": 500}, {"100%": 5000, "10%": 500, "1%": 50})
    transfer = _transfer(at("cifar10" if at.data == "cifar100" else "cifar100", "stl10"), labels)
    columns = {
        f"beta {beta}": (f"beta{beta}", f"{SKEWED}{beta}", transfer if beta in ("0", "1") else "")
        for beta in at(("1", "0.3", "0"), ("1", "0.7", "0.5", "0.3", "0"))
    }
    cells, skewed = dec_ssl.sweep(at, "Figure 6 (b): skewness", columns, dec_ssl.training(at))
    ssl, less = f"{dec_ssl.training(at)} --objective=nt_xent", dec_ssl.training(at, at(5, 50))
    shares, all_images = at(((0.1, 0.3), 0.1), ((0.1, 0.25, 0.5), 1.0))
    cells += [
        cell("nt_xent_beta0_less", less, f"{SKEWED}0 --objective=nt_xent", evaluations=[transfer]),
        cell("centralized", ssl, "--partition=iid --num_clients=1 --clients_per_round=1"),
        *(cell(f"fedprox_beta{beta}", ssl, f"{SKEWED}{beta}", _PROXIMAL) for beta in (1, 0)),
        *(cell(f"nt_xent_{share:g}", ssl, f"{SKEWED}1 --data_fraction={share * all_images:g}")
          for share in shares),
    ]  # fmt: skip
    ends = (skewed.columns[0], skewed.columns[-1])
    by_method = {row: (skewed.rows[row][0], skewed.rows[row][-1]) for row in METHODS}
    central = {SSL: by_method[SSL], _CENTRALIZED: "centralized"}
    on_fewer = {SSL: (*(f"nt_xent_{share:g}" for share in shares), by_method[SSL][0])}
    proximal = {_FEDPROX: ("fedprox_beta1", "fedprox_beta0"), **by_method}
    rows = {SSL: (*by_method[SSL], "nt_xent_beta0_less"), SLREP: (*by_method[SLREP], None)}
    percents = [f"{share:.0%} of the images" for share in (*shares, 1)]
    tables = {
        "skewed": skewed,
        "central": dec_ssl.accuracies(at, "Section 3.1: centralized training", ends, central),
        **_transferred(4, _TABLE4, labels, (_IID, _NON_IID, _LESS), rows),
        "images": dec_ssl.accuracies(at, "Figure 14: amounts of data", percents, on_fewer),
        "fedprox": dec_ssl.accuracies(at, "Figure 16 (left): FedProx", ends, proximal),
    }
    partitions = {column: f"nt_xent_{end}" for column, (end, *_) in columns.items()}
    return at.build(cells, tables, _robustness_statements(tables), partitions)


def _robustness_statements(tables: Mapping[str, Table]) -> list[list[Claim]]:
    skewed, central, *transferred, images, fedprox = tables.values()
    tenth, *_, all_images = images.columns
    return [
        dec_ssl.robust(skewed),
        dec_ssl.slrep_above(skewed),
        *(say(central, slug(column), f"At {column}, Dec-SSL is less than 2 points below "
              "centralized SSL", above(SSL, _CENTRALIZED, column, -0.02))
          for column in central.columns),
        say(images, "falls", "Dec-SSL falls with the images of a client",
            falls(SSL, all_images, tenth)),
        say(images, "learns", "Dec-SSL on a tenth of the images is above the untrained encoder",
            above(SSL, UNTRAINED, tenth)),
        dec_ssl.stable(fedprox, _FEDPROX),
        *(dec_ssl.stable(shown, columns=(_IID, _NON_IID))
          + each_above(shown, "above", SSL, SLREP, _ON_CLIENTS, _NON_IID)
          + say(shown, "costs", "Less communication costs Dec-SSL transfer",
                falls(SSL, _NON_IID, _LESS))
          for shown in transferred),
    ]  # fmt: skip


@study(
    "Dec-SSL, Table 2 (bottom), Figures 8 (e) and 16 (right), on {data} at {scale} scale",
    "cifar100",
)
def dec_ssl_transfer(at: At) -> Experiment:
    """Dec-SSL and Dec-SLRep from CIFAR-100 to CIFAR-10, and FedProx and FeatARC on CIFAR-100.

    Non-IID clients have beta = 0.1; the paper does not give the one of Table 2. Its figures are
    published as curves without numbers. FeatARC is the printed algorithm.
    """
    labels = at({"10%": 5000, "1%": 500}, {"100%": 50_000, "10%": 5000, "1%": 500})
    transfer = _transfer("cifar100" if at.data == "cifar10" else "cifar10", labels)
    usual, compared = at(*dec_ssl.EPOCHS), at(*dec_ssl.MANY_EPOCHS)  # Figure 16 has the latter.
    numbers = at((2, 5), (1, 5, 10, 50, 100))

    def run(row: str, beta: str, epochs: int, extra: str = "", name: str = "") -> Cell:
        start, flags, *probe = dec_ssl.methods(at)[row]
        is_compared = (row, beta, epochs) == (SSL, "0.1", compared)
        flags += f" {SKEWED}{beta} {'--personalized_clients=5' if is_compared else ''} {extra}"
        return cell(
            name or f"{start}_beta{beta}_epochs{epochs}", dec_ssl.training(at, epochs), flags,
            evaluations=[*probe, transfer if epochs == usual and not extra else ""],
        )  # fmt: skip

    cells = {row: [run(row, "0.1", e) for e in numbers] for row in (SSL, SLREP)}
    iid = {row: run(row, "1", usual) for row in (SSL, SLREP)}
    names = {row: [one.name for one in of_row] for row, of_row in cells.items()}
    ends = {row: (iid[row].name, names[row][numbers.index(usual)]) for row in names}
    tables = _transferred(2, _TABLE2, labels, (_IID, _NON_IID), ends)
    title, by_epochs = "Figure 8 (e): local epochs on CIFAR-100", [f"E = {e}" for e in numbers]
    epochs = dec_ssl.accuracies(at, title, by_epochs, {**names, SL: names[SLREP]})
    fedavg = names[SSL][numbers.index(compared)]
    own = table(
        "Figure 16 (right): clients' models, mean over clients", Selector("linear_personalized"),
        ["accuracy"], {"FedAvg": fedavg, "FedProx": "fedprox", "FeatARC": "featarc"},
        untrained={UNTRAINED: "FedAvg"},
        selectors={UNTRAINED: Selector("linear", at(*dec_ssl.LABELS))},
    )  # fmt: skip
    statements = [
        *(dec_ssl.stable(shown) + each_above(shown, "above", SSL, SLREP, _ON_CLIENTS)
          for shown in tables.values()),
        dec_ssl.robust(epochs),
        each_above(own, "above", "FeatARC", ("FedProx", "FedAvg")),
    ]  # fmt: skip
    all_cells = [
        *([iid[row], *cells[row]] for row in cells),
        run(SSL, "0.1", compared, _PROXIMAL, "fedprox"),
        run(SSL, "0.1", compared, PRINTED, "featarc"),
    ]
    tables |= {"epochs": epochs, "own": own}
    return at.build(all_cells, tables, statements, {"non-IID": ends[SSL][1]})


_SKEWED = ("beta 1", "beta 0")
_FEATARC = (
    "5000 images of CIFAR-100, beta 0.1, tiny ResNet at 16x16, 10 epochs in all; clients' models, "
    "the printed FeatARC."
)
_SHARES = ("10% of the images", "30% of the images", "100% of the images")
CLAIMS = (
    claim("S3", "Figure 2, section 3.1", "Dec-SSL is comparable with centralized SSL.",
          f"{SWEEPS} Clients with beta 1 and 0, and one client with all images.",
          "dec_ssl_robustness-cpu", "central", (SSL, _CENTRALIZED, UNTRAINED), _SKEWED,
          "Centralized SSL is 5 points above Dec-SSL after ten epochs."),
    claim("S13", "Table 4", "From CIFAR-10 to STL-10, Dec-SSL on non-IID clients has 60 (IID 65), "
          "Dec-SLRep 31 (65), and Dec-SSL with less communication 33.",
          f"{SWEEPS} Probes on CIFAR-100, because STL-10 is not here, with 5000 and 500 labels; "
          "less communication is E = 5.", "dec_ssl_robustness-cpu", "transfer*",
          (SSL, SLREP), (_IID, _NON_IID),
          "Dec-SSL keeps its transfer and Dec-SLRep does not, but E = 5 in place of 2 costs "
          "Dec-SSL half a point only."),
    claim("S20", "Figure 14",
          "Dec-SSL falls with the images of a client, and keeps 50 with a tenth of them.",
          f"{SWEEPS} A tenth and three tenths of the images.", "dec_ssl_robustness-cpu",
          "images", (SSL, UNTRAINED), _SHARES,
          "With 500 images in all Dec-SSL is as good as the untrained encoder."),
    claim("S22", "Figure 16, left", "Dec-SSL with FedProx is robust, too.",
          f"{SWEEPS} Skewness beta 1 and 0.", "dec_ssl_robustness-cpu",
          "fedprox.keeps", (_FEDPROX, SSL, SLREP, UNTRAINED), _SKEWED),
    claim("S12", "Table 2, bottom", "From CIFAR-100 to CIFAR-10, Dec-SSL on non-IID clients keeps "
          "its transfer (70 against 71 on IID ones), Dec-SLRep does not (43 against 65).",
          "5000 images of CIFAR-100, tiny ResNet at 16x16, 10 epochs in all; non-IID is beta 0.1; "
          "probes on CIFAR-10 with 5000 and 500 labels.", "dec_ssl_transfer-cpu",
          "transfer*.keeps transfer*.less transfer*.above.decslrep.noniid",
          (SSL, SLREP, UNTRAINED), (_IID, _NON_IID)),
    claim("S23", "Figure 16, right", "On CIFAR-100 FeatARC is above FedProx.", _FEATARC,
          "dec_ssl_transfer-cpu", "own.above.fedprox",
          ("FeatARC", "FedProx", "FedAvg", UNTRAINED), ("accuracy",), "FedProx and FedAvg gain 4 "
          "points over the untrained encoder, and FeatARC is a third of a point below them."),
    claim("S24", "section 6.3", "FeatARC is above FedBN, which is the paper's FedAvg.", _FEATARC,
          "dec_ssl_transfer-cpu", "own.above.fedavg", ("FeatARC", "FedAvg", UNTRAINED),
          ("accuracy",), "FeatARC is a third of a point below it by the means."),
)  # fmt: skip
