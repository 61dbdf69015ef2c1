"""Every algorithm with a server on the same clients: accuracy, rank, bytes and seconds."""

from typing import NamedTuple

from launch.options import presets
from launch.studies.engine.statements import above, say
from launch.studies.engine.study import PIXELS, UNTRAINED, At, cell, study, table
from tff_ssl.algorithms import registry
from tff_ssl.reporting.experiment import Cell, Experiment, Table
from tff_ssl.reporting.measured import TRAINING, Selector

# Clients train for some epochs, and models are averaged as they are.
_LOCAL = (
    "--hparam=local_epochs=2 --hparam=client_optimizer=adam --hparam=client_weight_decay=0 "
    "--hparam=learning_rate_schedule=constant"
)
_AVERAGED = (
    f"{_LOCAL} --hparam=server_optimizer=sgd --hparam=server_learning_rate=1 "
    "--hparam=server_schedule=constant"
)
_CONTRASTIVE = "--objective=nt_xent --hparam=temperature=0.2"
# A target network learns in as many steps as it has here. Without batch norm on the projector's
# output, encodings collapse.
_TARGET = "--projector_output_batch_norm --hparam=target_momentum=0.95"
FEDU, FEDEMA = f"{_TARGET} --hparam=mu=1.15", f"{_TARGET} --hparam=tau=0.3"
_FEDU, _FEDEMA = f"{_LOCAL} {FEDU}", f"{_LOCAL} {FEDEMA}"
_ORCHESTRA = f"{_LOCAL} {_TARGET} --hparam=temperature=0.3 --hparam=global_clusters=64"
_RATES = ("0.0015", "0.0045", "0.0135", "0.04")


class _Method(NamedTuple):
    name: str  # Start of its cells' names: that of the algorithm, or its start.
    #: The best rate on five clients, by a probe of held-out training images.
    rate: str
    #: Where a paper's weights are for another length of training or batch size, those of the
    #: algorithm's preset for the digits are taken.
    flags: str
    rates: tuple[str, ...] = _RATES  # That were tried.

    @property
    def algorithm(self) -> str:
        return self.name.removesuffix("_batch_norm")


_METHODS = {
    "DCCO": _Method("dcco", "0.0135", "--hparam=lambda=4"),
    "DCCO, one communication": _Method("dcco_one_stage", "0.0045", "--hparam=lambda=4"),
    "FedAvg": _Method("fedavg", "0.0045", f"{_AVERAGED} {_CONTRASTIVE}"),
    "FedProx": _Method("fedprox", "0.0045", f"{_AVERAGED} {_CONTRASTIVE}"),
    "FedDecorr": _Method("feddecorr", "0.0045", f"{_AVERAGED} {_CONTRASTIVE}"),
    "SCAFFOLD": _Method(
        "scaffold", "0.3",
        f"{_LOCAL} --hparam=client_optimizer=sgd --hparam=client_momentum=0 {_CONTRASTIVE}",
        ("0.1", "0.3", "1", "3"),  # Its control variates are defined for SGD.
    ),
    "L-DAWA": _Method("l_dawa", "0.0045", f"{_LOCAL} {_CONTRASTIVE}"),
    "FedBN": _Method("fedbn", "0.0045", f"{_LOCAL} --norm=batch {_CONTRASTIVE}"),
    "FeatARC": _Method("featarc", "0.0045", f"{_LOCAL} {_CONTRASTIVE}"),
    "FedX": _Method(
        "fedx", "0.0045",
        f"{_LOCAL} {_CONTRASTIVE} --hparam=temperature_local=0.2 --hparam=temperature_global=0.2 "
        "--hparam=global_weight=0.1 --hparam=relational_weight=0.01",
    ),
    "FedSC": _Method(
        "fedsc", "0.0045", f"{_LOCAL} --hparam=squared_radius=10 --hparam=statistics_passes=1",
    ),
    "FedCA": _Method(
        "fedca", "0.0015", f"{_LOCAL} --hparam=temperature=0.2 --hparam=alignment_weight=0",
        ("0.0005", *_RATES[:3]),  # Of the others' rates the smallest one was the best.
    ),
    "FedU": _Method("fedu", "0.0045", _FEDU),
    "FedU, batch norm": _Method("fedu_batch_norm", "0.0045", f"{_FEDU} --norm=batch"),
    "FedEMA": _Method("fedema", "0.0045", _FEDEMA),
    "FedEMA, batch norm": _Method("fedema_batch_norm", "0.0045", f"{_FEDEMA} --norm=batch"),
    "Orchestra": _Method("orchestra", "0.0045", _ORCHESTRA),
    "Orchestra, batch norm": _Method(
        "orchestra_batch_norm", "0.0045", f"{_ORCHESTRA} --norm=batch"
    ),
    "Hetero-SSFL": _Method(
        "hetero_ssfl", "0.0045",
        f"{_LOCAL} {_CONTRASTIVE} --encoders=tiny --rad_size=500 --hparam=rad_batch_size=100 "
        "--personalized_clients=5",
    ),
}  # fmt: skip
_OF_5, _OF_100 = "5 clients of two classes", "100 clients, Dirichlet 0.1"
_CLIENTS = {
    _OF_5: "--partition=skew --beta=0 --num_clients=5 --clients_per_round=5",
    _OF_100: "--partition=dirichlet --alpha=0.1 --num_clients=100 --clients_per_round=10",
}
_UNTRAINED_BATCH_NORM = "(untrained encoder with batch norm)"
# Row -> its start, where that is not the encoder with group norm.
_STARTS = {
    row: _UNTRAINED_BATCH_NORM for row, of_row in _METHODS.items() if "=batch" in of_row.flags
}
_LINEAR, _TITLE = Selector("linear", 5000), "Linear probe, 5000 labels"
# Its clients have models of their own, and there is no global one.
_CLIENTS_OWN = {"Hetero-SSFL": Selector("linear_personalized", 5000)}
_HELD_OUT = "--protocol=held_out --labels=5000 --label_draws=5 --baselines="


def _run(at: At, method: _Method, column: str, rate: str, name: str) -> Cell:
    """The run of a method on the clients of a column, at a rate."""
    of_5 = column == _OF_5
    images = at("--data_fraction=0.0512", "") if of_5 else f"--samples_per_client={at(64, 450)}"
    if method.algorithm in ("dcco", "dcco_one_stage"):  # A round is one step of all batches.
        batch, side = "examples_per_round", "server"
        size, rounds = at((64, 320), (100, 10_000)) if of_5 else at((32, 320), (50, 9000))
    else:  # As many images, in rounds of two epochs.
        batch, side = "batch_size", "client"
        size, rounds = at((64, 20), (100, 50)) if of_5 else at((64, 80), (90, 500))
    last = at.rounds or rounds
    half = max(1, last // 2)  # Shows whether the second half of the rounds is of use.
    return cell(
        name, at.training("all_methods/clients", rounds), f"--algorithm={method.algorithm}",
        _CLIENTS[column], images, method.flags,
        f"--hparam={side}_learning_rate={rate} --hparam={batch}={size}",
        f"--eval_every={half} --checkpoint_every={last}",
        evaluations=[_HELD_OUT] if of_5 else [],
    )  # fmt: skip


@study("All algorithms with a server on the same clients, at {scale} scale")
def all_methods(at: At) -> Experiment:
    """Every algorithm with a server on the same clients, for the same images.

    All methods see the same images as often, with one encoder, the same views and four trials of
    the learning rate on five clients, of which a linear probe of held-out training images has
    chosen one. The run with a hundred clients has the same rate. Hyperparameters that belong to
    one method alone were not tuned here: they are its preset's for the digits, or its own defaults.

    The encoder has group norm, and batch norm in FedBN and where a row says so. Hetero-SSFL has one
    architecture here, and 500 further images for its server. Its linear probe is the mean over five
    of its clients, and its other rows are of the client that takes part most often.

    Seconds are those of two runs at once, a core each, beside other work: compare them roughly.

    Nothing of this is published; the claims are what every method has to do.
    """
    cells, rows, choices = [], {}, {}
    for row, method in _METHODS.items():
        choices[row] = [f"{method.name}_{rate}" for rate in method.rates]
        for rate, name in zip(method.rates, choices[row], strict=True):
            cells.append(_run(at, method, _OF_5, rate, name))
        of_100 = f"{method.name}_100"
        cells.append(_run(at, method, _OF_100, method.rate, of_100))
        rows[row] = (row, of_100)

    def counted(title: str, selector: Selector) -> Table:
        return table(title, selector, _CLIENTS, rows, percent=False)

    probed = table(
        _TITLE, _LINEAR, _CLIENTS, rows,
        untrained={UNTRAINED: "FedAvg", _UNTRAINED_BATCH_NORM: "FedBN"}, selectors=_CLIENTS_OWN,
        starts=_STARTS,
    )  # fmt: skip
    title = "Megabytes that server and clients send in all rounds"
    rank = _LINEAR._replace(metric="effective_rank")
    tables = {
        "probed": probed,
        "rank": counted("Effective rank of the encodings", rank),
        "sent": counted(title, Selector(TRAINING, metric="megabytes")),
        "seconds": counted("Seconds of all rounds", Selector(TRAINING, metric="training_seconds")),
        "gained": table(
            "Nearest neighbours on training images: gain of the second half of the rounds",
            Selector(TRAINING, metric="knn_gained"),
            _CLIENTS,
            rows,
        ),
    }
    statements = [
        say(probed, "learns", f"{row} is above its untrained encoder ({column})",
            above(row, _STARTS.get(row, UNTRAINED), column))
        for row in _METHODS for column in _CLIENTS
    ]  # fmt: skip
    partitions = {_OF_5: "fedavg_0.0045", _OF_100: "fedavg_100"}
    return at.build(
        cells, tables, statements, partitions, against=((title, probed.title),), choices=choices,
        chosen_by=Selector("held_out", 5000),
    )  # fmt: skip


@study("The default run of every algorithm, at {scale} scale")
def digits_defaults(at: At) -> Experiment:
    """The default run of every algorithm, on the digits.

    A default is what a user gets who names the algorithm and nothing else. Clients, encoders and
    rounds differ between kinds of algorithms, so that the table does not compare algorithms with
    each other. Each stands beside its own untrained encoder.

    Nothing of this is published; the claims are what a default has to do.
    """
    column, names, cells = "test accuracy", list(registry.ALGORITHMS), []
    data = f"--dataset={at.data}" if at.data else ""
    for name in names:
        path = presets.of_algorithm(name)
        assert path is not None, name  # Every kind of algorithm has a preset.
        preset = f"--flagfile={presets.shown(path)}"
        cells.append(cell(name, preset, f"--algorithm={name}", data, at.length()))
    rows, tables, statements = {"raw pixels": "dcco"}, {}, []
    for name in names:
        rows[name] = rows[f"{name}, untrained"] = name
    # With five labels a class, a default is above its untrained encoder by some points.
    five = ("five labels", 50, 0.05, " by more than 5 points")
    for words, labels, margin, end in (("one label", 10, 0.0, ""), five):
        probe = Selector("linear", labels)
        untrained = probe._replace(baseline="random_encoder")
        shown = tables[words] = table(
            f"Linear probe, {words} a class", probe, [column], rows,
            selectors={**{f"{name}, untrained": untrained for name in names},
                       "raw pixels": probe._replace(baseline="raw_pixels")},
        )  # fmt: skip
        statements += [
            say(shown, "learns", f"{name} is above its untrained encoder{end}",
                above(name, f"{name}, untrained", column, margin))
            for name in names
        ]  # fmt: skip
    return at.build(cells, tables, statements)


# Column -> its preset in launch/presets/cifar10/clients and clients_of_a_network.
_DIVIDED = {
    "clients of two classes": "two_classes",
    "Dirichlet 0.1": "dirichlet",
    "clients of four images": "four_images",
}
# Rounds of algorithms whose rounds are single steps, or the training of a single client.
_STEPS = {"dirichlet": 160, "four_images": 160}
_OTHER_ROUNDS = {
    "dcco": _STEPS,
    "dcco_one_stage": _STEPS,
    "denav": {"dirichlet": 200, "four_images": 400},
}
# With two local steps on four images, FedEMA's encoder hardly moves at the rate of its preset.
_OTHER_RATES = {("fedema", "four_images"): "--hparam=client_learning_rate=0.0135"}


@study("The presets of every algorithm on CIFAR-10, at {scale} scale")
def cifar10_presets(at: At) -> Experiment:
    """The presets of every algorithm on CIFAR-10, with each of three divisions of the images.

    The hyperparameters were chosen for five clients of two classes. The other clients have them,
    too, but for FedEMA's rate with four images, so that the table does not compare algorithms at
    their best.

    Where there is no figure, the preset has the settings of `all_methods`, which has measured them.
    The figures of Hetero-SSFL are of the client that takes part most often.

    Nothing of this is published; the claims are what a preset has to do.
    """
    data, cells = f"--dataset={at.data}" if at.data else "", []
    rows: dict[str, list[str | None]] = {}
    for name in registry.ALGORITHMS:
        without_server = registry.ALGORITHMS[name].kind.kind == "decentralized"
        folder = "clients_of_a_network" if without_server else "clients"
        preset = f"--flagfile=launch/presets/cifar10/{name}.flags {data}"
        compared = () if without_server or name == "hetero_ssfl" else ("two_classes", "dirichlet")
        other_rounds = _OTHER_ROUNDS.get(name, {})
        rows[name] = []
        for clients in _DIVIDED.values():
            if clients in compared and clients not in other_rounds:
                rows[name].append(None)
                continue
            others = f"--flagfile=launch/presets/cifar10/{folder}/{clients}.flags"
            divided = "" if clients == "two_classes" else others  # The preset has the former.
            # Clients' presets have rounds of two epochs of all that take part.
            rounds = at.length(other_rounds.get(clients))
            rate = _OTHER_RATES.get((name, clients), "")
            cells.append(cell(f"{name}_{clients}", preset, divided, rounds, rate))
            rows[name].append(cells[-1].name)
    hetero = "(untrained encoder of hetero_ssfl)"
    untrained = {
        UNTRAINED: "gossip", _UNTRAINED_BATCH_NORM: "fedbn", hetero: "hetero_ssfl",
        PIXELS: "gossip",
    }  # fmt: skip
    starts = {"fedbn": _UNTRAINED_BATCH_NORM, "hetero_ssfl": hetero}
    shown = table(_TITLE, _LINEAR, _DIVIDED, rows, untrained=untrained, starts=starts)
    statements = [
        say(shown, "learns", f"{name} is above its untrained encoder ({column})",
            above(name, starts.get(name, UNTRAINED), column))
        for name, of_row in rows.items()
        for column, of_cell in zip(_DIVIDED, of_row, strict=True) if of_cell
    ]  # fmt: skip
    return at.build(cells, shown, statements)
