"""Figures 6 (d), 12, 13 and 15 of the Dec-SSL paper: other clients, and networks of them."""

from launch.studies.dec_ssl_sweeps import (
    BY_LABELS,
    CURVES,
    METHODS,
    PAPERS_ALPHAS,
    SL,
    SSL,
    SWEEPS,
    accuracies,
    by_alpha,
    keeps,
    robust,
    skewed,
    sweep,
    training,
)
from launch.studies.engine.claims import Trial, apart, claim
from launch.studies.engine.statements import less_below, say, slug
from launch.studies.engine.study import UNTRAINED, At, grid, study
from tff_ssl.reporting.experiment import Experiment

# Images of the smallest client. With 20 clients and 10 classes, the partition may leave a client a
# single image, and NT-Xent needs two. The paper does not give its smallest client.
_SMALLEST = 10
_CLIENTS_NOTE = (
    f"{CURVES}Dec-SSL is robust to few participants, to clients of one class, and to 100 clients. "
    "With fewer participants there are more rounds, so that all runs see as many images. The 100 "
    "clients are of equal size (`--partition=dirichlet`): portions of each class, as in the other "
    "figures, would leave most of them without images at alpha 0.01."
)


@study("Dec-SSL, Figures 6 (d), 13 and 15, on {data} at {scale} scale", "cifar10")
def dec_ssl_clients(at: At) -> Experiment:
    """Dec-SSL, Dec-SLRep and Dec-SL with few participants, one class a client, 100 clients."""
    of_20 = {  # Alpha 0.02 (Table 3).
        f"{number} of 20": (
            f"{number}of20",
            f"{training(at, share=number / 20)} --num_clients=20 {BY_LABELS} --alpha=0.02 "
            f"--min_client_size={_SMALLEST} --clients_per_round={number}",
        )
        for number in at((20, 5, 1), (20, 10, 4, 1))
    }
    few, participation = sweep(at, "Figure 6 (d): participation of 20 clients, alpha = 0.02", of_20)
    ten_clients = {
        column: (f"10_beta{beta}", skewed(beta))
        for column, beta in {"IID": 1, "one class a client": 0}.items()
    }
    ten, one_class = sweep(
        at, "Figure 13: 10 clients", ten_clients,
        training(at, at(2, 50)), "--num_clients=10 --clients_per_round=10",
    )  # fmt: skip
    hundred, many = sweep(
        at, "Figure 15: 20 of 100 clients in a round",
        by_alpha(at(("5", "0.01"), PAPERS_ALPHAS), "100_", "--partition=dirichlet"),
        training(at, at(4, 50), share=0.2), "--num_clients=100 --clients_per_round=20",
        # 64 images a client in batches of 32, and as many epochs in all as elsewhere.
        at("--samples_per_client=64 --data_fraction=1 --hparam=batch_size=32", ""),
    )  # fmt: skip
    named = {"of_20": participation, "ten": one_class, "hundred": many}
    return at.build(
        [*few, *ten, *hundred],
        tuple(named.values()),
        [
            [*robust(shown, f"{name}."), *keeps(shown, f"{name}.keeps")]
            for name, shown in named.items()
        ],
        [_CLIENTS_NOTE],
        {"one class a client": "nt_xent_10_beta0", "100 clients": hundred[-1].name},
    )


_SERVER = "Star with a server"
_SERVERLESS = "--algorithm=dfedavg --topology"
# Row -> start of its cells' names, and its flags. The paper's star has a server in its centre.
_NETWORKS = {
    _SERVER: ("star_server", "--num_clients=10 --algorithm=fedbn --clients_per_round=10"),
    "Star": ("star", f"--num_clients=10 {_SERVERLESS}=star"),
    "Cycle": ("cycle", f"--num_clients=10 {_SERVERLESS}=cycle"),
    "Binary tree": ("tree", f"--num_clients=20 {_SERVERLESS}=tree"),
    "Random graph": (
        "random", f"--num_clients=20 {_SERVERLESS}=erdos_renyi --connectivity=0.7",
    ),
}  # fmt: skip
_NETWORKS_NOTE = (
    f"{CURVES}on every topology Dec-SSL is stable to non-IIDness. 10 clients on star and cycle, 20 "
    "on tree and random graph (connectivity 0.7), all take part, E = 50. The model evaluated is "
    f"the mean of the clients' models. Clients with fewer than {_SMALLEST} images are filled up "
    "from the largest client."
)


@study("Dec-SSL, Figure 12, on {data} at {scale} scale", "cifar10")
def dec_ssl_figure12(at: At) -> Experiment:
    """Dec-SSL on networks without a server."""
    columns = by_alpha(at(("5", "0.01"), PAPERS_ALPHAS), "", BY_LABELS)
    cells, rows = grid(
        _NETWORKS, columns, training(at, at(2, 50), preset="networks"),
        f"--min_client_size={_SMALLEST} --objective=nt_xent",
    )  # fmt: skip
    shown = accuracies(at, "Topologies", columns, rows)
    worst = shown.columns[-1]
    # Less than 5 points counts as the paper's "a similar behaviour".
    statements = [keeps(shown, f"keeps.{slug(row)}", row) for row in rows] + [
        say(
            shown, f"near.{slug(row)}", f"{row}: less than 5 points below the server at {worst}",
            less_below(row, _SERVER, worst, 0.05),
        )
        for row in rows
        if row != _SERVER
    ]  # fmt: skip
    return at.build(cells, [shown], statements, [_NETWORKS_NOTE])


STUDIES = (dec_ssl_clients, dec_ssl_figure12)

_GAIN_WITHIN = (
    "Dec-SSL loses less than both others and is above them. That it keeps more than half of its "
    "gain over the untrained encoder, {} points by the means, is within the deviation."
)
_ALPHAS = ("alpha 5", "alpha 0.01")
CLAIMS = (
    claim(
        "S8", "Figures 4 right and 6d",
        "As fewer of 20 clients take part, Dec-SSL loses less than Dec-SLRep and Dec-SL.",
        Trial(
            f"{SWEEPS} Alpha 0.02; 20, 5 or 1 of 20 clients in a round; 3 seeds.",
            "dec_ssl_clients-cpu", "of_20.less of_20.above", METHODS, ("20 of 20", "1 of 20"),
            apart(SSL, SL, "1 of 20"),
        ),
    ),
    claim(
        "S18", "Figure 12", "On star, cycle, tree and random graph Dec-SSL is as stable to non-IID "
        "labels as with a server.",
        Trial(
            f"{SWEEPS} 10 clients, and 20 on the tree and the random graph; 3 seeds.",
            "dec_ssl_figure12-cpu", "keeps near", tuple(_NETWORKS), _ALPHAS,
            apart(_SERVER, UNTRAINED, "alpha 5"),
            "Every network loses 1.1 to 1.5 points from non-IID labels, as the server does. By the "
            "means each keeps about two thirds of its gain of four points with 10 clients. With "
            "20, the tree and the random graph keep 36 and 46 percent of two points. The gains are "
            "too small to show whether more than half is kept.",
        ),
    ),
    claim(
        "S19", "Figure 13", "Dec-SSL is robust where each of 10 clients has one class.",
        Trial(
            f"{SWEEPS} 10 clients, IID or of one class; 3 seeds.", "dec_ssl_clients-cpu", "ten",
            METHODS, ("IID", "one class a client"), apart(SSL, SL, "one class a client"),
            _GAIN_WITHIN.format("2.6 of 4.5"),
        ),
    ),
    claim(
        "S21", "Figure 15",
        "With 100 clients, a fifth of them in a round, Dec-SSL is still robust.",
        Trial(
            "CIFAR-10, 100 clients of 64 images of whom 20 take part in a round, tiny ResNet at "
            "16x16, 12 rounds of 4 epochs; 3 seeds.", "dec_ssl_clients-cpu", "hundred", METHODS,
            _ALPHAS, apart(SSL, SL, "alpha 0.01"), _GAIN_WITHIN.format("2.1 of 3.6"),
        ),
    ),
)  # fmt: skip
