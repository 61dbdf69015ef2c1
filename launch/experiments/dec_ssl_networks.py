"""Figure 12 of the Dec-SSL paper: networks without a server."""

from collections.abc import Callable

from launch.experiments.dec_ssl_sweeps import (
    LOCAL_EPOCHS,
    accuracies,
    keeps_most,
    training_flags,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup

_ALPHAS = {"paper": ("5", "1", "0.5", "0.1", "0.01"), "cpu": ("5", "0.01")}
_LOCAL_EPOCHS = {**LOCAL_EPOCHS, "paper": 50}
_SERVER = "Star with a server"
# Row -> (name of its folders, number of clients, flags). The paper's star has a server in its
# centre.
_NETWORKS = {
    _SERVER: ("star_server", 10, ()),
    "Star": ("star", 10, ("--algorithm=dfedavg", "--topology=star")),
    "Cycle": ("cycle", 10, ("--algorithm=dfedavg", "--topology=cycle")),
    "Binary tree": ("tree", 20, ("--algorithm=dfedavg", "--topology=tree")),
    "Random graph": (
        "random", 20, ("--algorithm=dfedavg", "--topology=erdos_renyi", "--connectivity=0.7"),
    ),
}  # fmt: skip
# Images of the smallest client. With 20 clients and 10 classes at alpha = 0.01, the partition may
# leave a client a single image, and NT-Xent needs two. The paper does not give its smallest client.
_SMALLEST = 10
# Largest distance from the server's accuracy that counts as the paper's "a similar behaviour".
_SIMILAR = 0.05


def figure12(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figure 12: Dec-SSL on networks without a server, against non-IIDness.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    columns = {f"alpha {alpha}": alpha for alpha in _ALPHAS[scale]}
    cells, rows = [], {}
    for row, (name, clients, flags) in _NETWORKS.items():
        names = []
        for alpha in columns.values():
            names.append(f"{name}_alpha{alpha}")
            server = ("--algorithm=fedbn", f"--clients_per_round={clients}")
            cells.append(
                Cell(names[-1], "pretrain", (
                    *training_flags(
                        scale, dataset, rounds, _LOCAL_EPOCHS[scale], preset="networks"
                    ),
                    "--partition=dirichlet_per_class", f"--alpha={alpha}",
                    f"--num_clients={clients}", f"--min_client_size={_SMALLEST}",
                    "--objective=nt_xent", *(flags or server),
                ))
            )  # fmt: skip
        rows[row] = tuple(names)
    title = "Topologies"
    table = accuracies(title, scale, tuple(columns), rows)
    best, *_, worst = columns

    def near_the_server(row: str) -> Callable[[Lookup], bool]:
        return lambda v: v(_SERVER, worst) - v(row, worst) < _SIMILAR

    claims = [keeps_most(table, row, best, worst) for row in rows]
    claims += [
        Claim(f"{row}: less than 5 points below the server at {worst}", title, near_the_server(row))
        for row in rows
        if row != _SERVER
    ]
    return Experiment(
        "dec_ssl_figure12", f"Dec-SSL, Figure 12, on {dataset} at {scale} scale", tuple(cells),
        (table,), tuple(claims),
        ("Published as curves without numbers: on every topology Dec-SSL is stable to "
         "non-IIDness. 10 clients on star and cycle, 20 on tree and random graph (connectivity "
         "0.7), all take part, E = 50. The model evaluated is the mean of the clients' models. "
         f"Clients with fewer than {_SMALLEST} images are filled up from the largest client.",),
    )  # fmt: skip


EXPERIMENTS = {"dec_ssl_figure12": (figure12, "Dec-SSL on networks without a server")}
