"""Every algorithm with a server on the same clients: accuracy, rank, bytes and seconds.

The rates of all methods come from `all_methods_rates`: three of a factor 3 for each method, one run
each with seed 0 on five clients, judged by kNN on training images.
"""

import dataclasses
from typing import NamedTuple

from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import TRAINING, Selector

_ADAM = ("0.0005", "0.0015", "0.0045")
_SGD = ("0.03", "0.1", "0.3")  # SCAFFOLD's control variates are defined for it.
# The chosen rate of each method; `measured/all_methods_rates-cpu.jsonl` has the accuracies.
_CHOSEN = {
    "DCCO": "0.0045", "DCCO, one communication": "0.0045", "FedAvg": "0.0015",
    "FedProx": "0.0015", "SCAFFOLD": "0.3", "L-DAWA": "0.0045", "FedBN": "0.0015",
    "FeatARC": "0.0045", "FedX": "0.0045", "FedSC": "0.0045", "FedCA": "0.0045",
    "FedU": "0.0015", "FedEMA": "0.0045", "Orchestra": "0.0045", "Hetero-SSFL": "0.0015",
}  # fmt: skip

# Flags of algorithms whose clients train for some epochs. Models are averaged as they are.
_LOCAL = (
    "--hparam=local_epochs=2", "--hparam=client_optimizer=adam", "--hparam=client_weight_decay=0",
    "--hparam=learning_rate_schedule=constant",
)  # fmt: skip
_AVERAGED = (
    "--hparam=server_optimizer=sgd", "--hparam=server_learning_rate=1",
    "--hparam=server_schedule=constant",
)  # fmt: skip
_CONTRASTIVE = ("--objective=nt_xent", "--hparam=temperature=0.2")
# A target network learns in as many steps as it has here. Without batch norm on the projector's
# output, encodings collapse.
_BYOL = ("--projector_output_batch_norm", "--hparam=target_momentum=0.95")
# Row -> (algorithm, its flags). Where a paper's weights are for another length of training or size
# of batches, they are those of the algorithm's preset for the digits.
_METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "DCCO": ("dcco", ("--hparam=lambda=4",)),
    "DCCO, one communication": ("dcco_one_stage", ("--hparam=lambda=4",)),
    "FedAvg": ("fedavg", (*_LOCAL, *_AVERAGED, *_CONTRASTIVE)),
    "FedProx": ("fedprox", (*_LOCAL, *_AVERAGED, *_CONTRASTIVE)),
    "SCAFFOLD": (
        "scaffold",
        (*_LOCAL, "--hparam=client_optimizer=sgd", "--hparam=client_momentum=0", *_CONTRASTIVE),
    ),
    "L-DAWA": ("l_dawa", (*_LOCAL, *_CONTRASTIVE)),
    "FedBN": ("fedbn", (*_LOCAL, "--norm=batch", *_CONTRASTIVE)),
    "FeatARC": ("featarc", (*_LOCAL, *_CONTRASTIVE)),
    "FedX": (
        "fedx",
        (*_LOCAL, *_CONTRASTIVE, "--hparam=temperature_local=0.2",
         "--hparam=temperature_global=0.2", "--hparam=global_weight=0.1",
         "--hparam=relational_weight=0.01"),
    ),
    "FedSC": (
        "fedsc",
        (*_LOCAL, "--hparam=squared_radius=10", "--hparam=statistics_passes=1"),
    ),
    "FedCA": ("fedca", (*_LOCAL, "--hparam=temperature=0.2", "--hparam=alignment_weight=0")),
    "FedU": ("fedu", (*_LOCAL, *_BYOL, "--hparam=mu=1.15")),
    "FedEMA": ("fedema", (*_LOCAL, *_BYOL, "--hparam=tau=0.3")),
    "Orchestra": (
        "orchestra",
        (*_LOCAL, *_BYOL, "--hparam=temperature=0.3", "--hparam=global_clusters=64"),
    ),
    "Hetero-SSFL": (
        "hetero_ssfl",
        (*_LOCAL, *_CONTRASTIVE, "--encoders=tiny", "--rad_size=500",
         "--hparam=rad_batch_size=100", "--personalized_clients=5"),
    ),
}  # fmt: skip
_ONE_BATCH = ("dcco", "dcco_one_stage")  # A round is one step of all clients' batches.

# Column -> name of the clients in folders.
_COLUMNS = {"5 clients of two classes": "5", "100 clients, Dirichlet 0.1": "100"}


class _Clients(NamedTuple):
    """Clients of the comparison, and two kinds of rounds on them, which see as many images.

    Attributes:
      flags: Flags of the clients.
      epochs: Batch size and number of rounds where clients train for two epochs a round.
      steps: The same where a round is one step of all clients' batches.
    """

    flags: tuple[str, ...]
    epochs: tuple[int, int]
    steps: tuple[int, int]


# Scale -> name of the clients in folders -> the clients.
_CLIENTS = {
    "cpu": {
        "5": _Clients(("--partition=skew", "--beta=0", "--num_clients=5", "--clients_per_round=5",
               "--data_fraction=0.0512"), (64, 10), (64, 160)),
        "100": _Clients(("--partition=dirichlet", "--alpha=0.1", "--num_clients=100",
                 "--samples_per_client=64", "--clients_per_round=10"), (64, 40), (32, 160)),
    },
    "paper": {
        "5": _Clients(("--partition=skew", "--beta=0", "--num_clients=5", "--clients_per_round=5"),
              (100, 50), (100, 10_000)),
        "100": _Clients(("--partition=dirichlet", "--alpha=0.1", "--num_clients=100",
                 "--samples_per_client=450", "--clients_per_round=10"), (90, 500), (50, 9000)),
    },
}  # fmt: skip
_UNTRAINED, _UNTRAINED_FEDBN = "(untrained encoder)", "(untrained encoder of FedBN)"
_STARTS = {"FedBN": _UNTRAINED_FEDBN}  # The others start with the encoder of group norm.
_LINEAR = "Linear probe, 5000 labels"
# Its clients have models of their own, and there is no global one.
_CLIENTS_OWN = {"Hetero-SSFL": Selector("linear_personalized", 5000)}
_TRAFFIC = "Megabytes that server and clients send in all rounds"
_SAME = (
    "All methods see the same images as often, with one encoder, the same views and three trials "
    "of the learning rate. Hyperparameters that belong to one method alone were not tuned here: "
    "they are its preset's for the digits, or its own defaults.",
    "FedBN's encoder has batch norm, the others group norm. Hetero-SSFL has one architecture here, "
    "and 500 further images for its server. Its linear probe is the mean over five of its clients, "
    "and its other rows are of the client that takes part most often.",
)


def all_methods(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Every algorithm with a server on the same clients, at the rates that `rates` has chosen.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for as many images for all.
    """
    cells, rows = [], {}
    for row, (algorithm, _) in _METHODS.items():
        names = {clients: f"{algorithm}_{clients}" for clients in _COLUMNS.values()}
        for clients, name in names.items():
            cell = _cell(row, clients, _CHOSEN[row], name, scale, dataset, rounds)
            cells.append(dataclasses.replace(cell, evaluations=(("--protocol=knn",),)))
        rows[row] = tuple(names.values())
    columns, linear = tuple(_COLUMNS), Selector("linear", 5000)
    untrained = linear._replace(baseline="random_encoder")
    tables = (
        Table(
            _LINEAR, linear, columns,
            {**rows, _UNTRAINED: rows["FedAvg"], _UNTRAINED_FEDBN: rows["FedBN"]}, {},
            {_UNTRAINED: untrained, _UNTRAINED_FEDBN: untrained, **_CLIENTS_OWN},
            starts=_STARTS,
        ),
        Table("Nearest neighbours, all labels", Selector("knn"), columns, rows, {}),
        Table(
            "Effective rank of the encodings", linear._replace(metric="effective_rank"), columns,
            rows, {}, percent=False,
        ),
        Table(_TRAFFIC, Selector(TRAINING, metric="megabytes"), columns, rows, {}, percent=False),
        Table(
            "Seconds of all rounds", Selector(TRAINING, metric="training_seconds"), columns, rows,
            {}, percent=False,
        ),
    )  # fmt: skip
    return Experiment(
        "all_methods",
        f"All algorithms with a server on the same clients, at {scale} scale",
        tuple(cells),
        tables,
        tuple(_claim(row, column) for row in _METHODS for column in columns),
        (
            *_SAME,
            "Rates were chosen by `all_methods_rates`. Seconds are those of two runs at once, a "
            "core each, beside other work: compare them roughly.",
            "Nothing of this is published; the claims are what every method has to do.",
        ),
        partitions={column: f"fedavg_{clients}" for column, clients in _COLUMNS.items()},
        against=((_TRAFFIC, _LINEAR),),
    )


def rates(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Three rates of each algorithm on five clients, to be run with one seed; as `all_methods`."""
    cells, rows, choices = [], {}, {}
    for row, (algorithm, _) in _METHODS.items():
        names = [f"{algorithm}_{rate}" for rate in _rates(row)]
        for name, rate in zip(names, _rates(row), strict=True):
            cells.append(_cell(row, "5", rate, name, scale, dataset, rounds))
        rows[row], choices[row] = (row,), names
    return Experiment(
        "all_methods_rates",
        f"Rates of all algorithms with a server, at {scale} scale",
        tuple(cells),
        (
            Table(
                _LINEAR, Selector("linear", 5000), ("at the chosen rate",), rows, {}, _CLIENTS_OWN
            ),
        ),
        (),
        (
            *_SAME,
            "Run this with `--seeds=1`. What counts are the choices on training images, which "
            "`launch/experiments/all_methods.py` takes over.",
        ),
        choices=choices,
    )


def _rates(row: str) -> tuple[str, str, str]:
    return _SGD if row == "SCAFFOLD" else _ADAM


def _cell(
    row: str,
    clients: str,
    rate: str,
    name: str,
    scale: str,
    dataset: str | None,
    rounds: int | None,
) -> Cell:
    """The run of a method of `_METHODS` on some clients, at a rate."""
    algorithm, flags = _METHODS[row]
    setting = _CLIENTS[scale][clients]
    one_batch = algorithm in _ONE_BATCH
    batch_size, own_rounds = setting.steps if one_batch else setting.epochs
    rounds = rounds or own_rounds
    batch, side = ("examples_per_round", "server") if one_batch else ("batch_size", "client")
    all_flags = [
        f"--flagfile=launch/presets/all_methods/{scale}/clients.flags",
        f"--algorithm={algorithm}", *setting.flags, *flags,
        f"--hparam={side}_learning_rate={rate}",
        f"--hparam={batch}={batch_size}", f"--rounds={rounds}", f"--eval_every={rounds}",
        f"--checkpoint_every={rounds}", *([f"--dataset={dataset}"] if dataset else []),
    ]  # fmt: skip
    return Cell(name, "pretrain", tuple(all_flags))


def _claim(row: str, column: str) -> Claim:
    """The claim that a method is above its untrained encoder."""

    def holds(value: Lookup) -> bool:
        return value(row, column) > value(_STARTS.get(row, _UNTRAINED), column)

    return Claim(f"{row} is above its untrained encoder ({column})", _LINEAR, holds)


EXPERIMENTS = {
    "all_methods": (
        all_methods,
        "every algorithm with a server on the same clients, for the same images",
    ),
    "all_methods_rates": (rates, "the learning rates of all_methods, three for each algorithm"),
}
