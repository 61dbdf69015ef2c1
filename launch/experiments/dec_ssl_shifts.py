"""Figure 5 and Table 2 (top) of the Dec-SSL paper where clients are of two kinds.

FeatARC divides the clients into two clusters. In `dec_ssl_figure5` clients differ by their classes,
and no clusters are right. Here every second client has images of another kind, and each client is
scored on test images of its own kind.
"""

from collections.abc import Mapping

from launch.experiments.dec_ssl import OTHER_METHODS, PRINTED
from launch.experiments.dec_ssl_sweeps import UNTRAINED, above
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

_OURS = "FeatARC"
_FEATARC = "--algorithm=featarc"
# Row -> (name of its folders, its flags). The printed algorithm deals the clients to clusters in
# turn, as they are dealt to kinds here, so that its clusters are right from the start.
_METHODS = {
    "FedAvg": ("fedavg", ("--algorithm=fedbn",)),
    "align only": ("align", (_FEATARC, "--hparam=clusters=1")),
    "cluster only": ("cluster", (_FEATARC, "--hparam=lambda_align=0")),
    _OURS: ("featarc", (_FEATARC,)),
    "FeatARC, printed": ("printed", (_FEATARC, *PRINTED)),
    "FeatARC, printed, dealt at random": (
        "printed_random", (_FEATARC, *PRINTED, "--hparam=first_cluster=random"),
    ),
    **OTHER_METHODS,
}  # fmt: skip
_RIVALS = ("FedAvg", "align only", "cluster only", *OTHER_METHODS)
_WITH_CLUSTERS = ("cluster only", *(row for row in _METHODS if row.startswith(_OURS)))
# Scale -> data set and number of rounds.
_SETTINGS = {"cpu": ("digits", 10), "paper": ("cifar10", 100)}
# Scale -> words for the labels of the probes -> their number.
_LABELS = {
    "cpu": {"five labels a class": 50, "one label a class": 10},
    "paper": {"all labels": 50_000},
}
_PRESETS = "launch/presets/dec_ssl"
# Chosen at the CPU's scale alone; see docs/decisions/settings.md.
_CPU_FLAGS = {"FedU": ("--hparam=mu=12",), "FedEMA": ("--hparam=tau=0.3",)}
# At the paper's scale, FedU and FedEMA have the presets of FedU's experiments, as in `figure5`.
_PAPER_PRESETS = {
    "FedU": "launch/presets/fedu/paper/fedu.flags",
    "FedEMA": "launch/presets/fedu/paper/clients.flags",
}
_PAPER_CLIENTS = (
    "--hparam=local_epochs=5", "--partition=iid", "--num_clients=8", "--clients_per_round=8",
    "--shift=rotation", "--shifts=2", "--hparam=learning_rate_schedule=constant",
    "--baselines=random_encoder", "--personalized_clients=8",
)  # fmt: skip
# Table 2 (top), in percent: non-IID clients.
_PUBLISHED = {"FedEMA": (83.34,), "FedU": (80.52,), _OURS: (84.63,)}
_ACCURACY, _PURITY = "accuracy", "purity"


def _common_flags(row: str, scale: str) -> tuple[str, ...]:
    """Preset and clients of a row of `_METHODS`."""
    if scale == "paper":
        preset = _PAPER_PRESETS.get(row, f"{_PRESETS}/paper/server.flags")
        return (f"--flagfile={preset}", *_PAPER_CLIENTS)
    preset = "shifts_byol" if row in OTHER_METHODS else "shifts"
    return (f"--flagfile={_PRESETS}/cpu/{preset}.flags", *_CPU_FLAGS.get(row, ()))


def _accuracies(title: str, labels: int, rows: Mapping[str, tuple[str, ...]]) -> Table:
    """The accuracies of the clients' models, and of the untrained encoder."""
    probe = Selector("linear_personalized", labels)
    return Table(
        title, probe, (_ACCURACY,), {**rows, UNTRAINED: rows["FedAvg"]}, _PUBLISHED,
        {UNTRAINED: probe._replace(baseline="random_encoder")},
    )  # fmt: skip


def shifts(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """FeatARC, its parts and other methods on clients of two kinds.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for digits, or cifar10 at the paper's scale.
      rounds: Number of rounds of each run; None for the experiment's own.
    """
    own_dataset, own_rounds = _SETTINGS[scale]
    dataset, rounds = dataset or own_dataset, rounds or own_rounds
    cells = {
        row: Cell(
            name, "pretrain",
            (
                *_common_flags(row, scale), f"--dataset={dataset}", f"--rounds={rounds}", *flags,
            ),
        )
        for row, (name, flags) in _METHODS.items()
    }  # fmt: skip
    rows = {row: (cell.name,) for row, cell in cells.items()}
    tables = [
        _accuracies(f"Clients' models on images of their kind, {words}", labels, rows)
        for words, labels in _LABELS[scale].items()
    ]
    purity = Table(
        "Clients that are of the kind of their cluster",
        tables[0].selector._replace(metric="cluster_purity"), (_PURITY,),
        {row: rows[row] for row in _WITH_CLUSTERS}, {},
    )  # fmt: skip
    return Experiment(
        "dec_ssl_shifts",
        f"Dec-SSL, Figure 5 and Table 2, clients of two kinds, on {dataset} at {scale} scale",
        tuple(cells.values()), (*tables, purity),
        tuple(
            Claim(f"FeatARC is above {other}", table.title, above(_OURS, other, _ACCURACY))
            for table in tables
            for other in _RIVALS
        ),
        (
            "Eight clients with images of all classes. Every second client sees its images turned "
            "by 180 degrees. Published figures are those of five clients that differ by their "
            "classes.",
            "`FeatARC`, `cluster only` and `align only` compare a client with clusters without the "
            "client itself, and start with a warm-up. `FeatARC, printed` deals the clients to "
            "clusters in turn, which are the right ones here; dealt at random, clients can only "
            "find them by the printed comparison.",
        ),
        {"two kinds": cells["FedAvg"].name},
    )  # fmt: skip


EXPERIMENTS = {
    "dec_ssl_shifts": (shifts, "FeatARC, its parts, FedU and FedEMA on clients of two kinds"),
}
