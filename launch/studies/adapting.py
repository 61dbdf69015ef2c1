"""Does training on devices improve a pretrained encoder?

EfficientNet-Lite0 with the weights of ImageNet, on HAM10000 (`--data_dir=HAM10000`, whose cases are
the clients), and on photographs in an `.npz` (`--dataset=npz`), 16 of a client. NT-Xent leaves out
HAM10000's cases of one image, three quarters of them, since it needs two images for a loss.
"""

from typing import NamedTuple

from launch.studies.engine.statements import above, say
from launch.studies.engine.study import PIXELS, UNTRAINED, At, cell, study, table
from tff_ssl.reporting.experiment import Cell, Experiment
from tff_ssl.reporting.measured import Selector

AS_IT_IS, SCRATCH, PRESET = "(pretrained, as it is)", "DCCO from scratch", "DCCO, its preset"
_LOCAL = (
    "--objective=nt_xent --hparam=temperature=0.2 --hparam=local_epochs=1 --hparam=batch_size=16 "
    "--hparam=client_optimizer=adam --hparam=client_weight_decay=0 "
    "--hparam=learning_rate_schedule=constant --skip_small_clients"
)
# Row -> algorithm, its rate's hyperparameter, the rates to choose from, and flags.
_METHODS = {
    "DCCO": ("dcco", "server", ("0.0001", "0.0004", "0.0016"), "--hparam=lambda=10"),
    "FedAvg": (
        "fedavg", "client", ("0.0001", "0.0004", "0.0016"),
        f"{_LOCAL} --hparam=server_optimizer=sgd --hparam=server_learning_rate=1",
    ),
    "FedBN": ("fedbn", "client", ("0.00003", "0.0001", "0.0004"), f"{_LOCAL} --norm=batch"),
}  # fmt: skip


class _Data(NamedTuple):
    clients: str  # How they divide the images.
    classes: int
    views: str  # Chosen on training images (docs/decisions/settings.md).
    rounds: int
    rates: tuple[str, ...]  # Of `_METHODS`, chosen by `adapting_rates`.


_DATA = {
    "case_folder": _Data(
        "--image_size=96 --clients_per_round=96", 7, "crop_flip", 20, ("0.0004", "0.0016", "0.0004")
    ),
    "npz": _Data(
        "--partition=dirichlet --alpha=0.1 --samples_per_client=16 --clients_per_round=8",
        10, "byol_no_blur", 40, ("0.0001", "0.0001", "0.00003"),
    ),
}  # fmt: skip
_PROBE = "--labels_per_class=5 --label_draws=20"
# A network with random weights needs norms, which the statistics of ImageNet are no longer.
_UNTRAINED = f"{_PROBE} --baselines=random_encoder --norm=group"


def _run(at: At, row: str, name: str, rate: str, with_baselines: bool = False) -> Cell:
    (algorithm, side, _, flags), of_data = _METHODS[row], _DATA[at.data]
    return cell(
        name, f"--dataset={at.data} {of_data.clients} --algorithm={algorithm} {flags}",
        f"--hparam={side}_learning_rate={rate} --init_from=efficientnet_lite0 --projector=64",
        f"--views={of_data.views} {at.length(at(of_data.rounds, 500))}",
        f"{_PROBE} --baselines={'raw_pixels' if with_baselines else ''} --personalized_clients=0",
        evaluations=[_UNTRAINED] if with_baselines else [],
    )  # fmt: skip


@study("Pretrained weights on devices, {on_data}at {scale} scale", cpu="case_folder")
def adapting(at: At) -> Experiment:
    """Whether federated training improves EfficientNet-Lite0's weights of ImageNet.

    Nothing of this is published. Rates were chosen by `adapting_rates`. Views are 96 pixels wide.
    FedBN's clients keep their batch norms; the others have the moving averages of ImageNet as a
    part of scales and offsets. The untrained encoder is the same network with random weights and
    group norm. From scratch, DCCO trains its default encoder with its default
    preset on the same clients.
    """
    of_data = _DATA[at.data]
    cells = [
        _run(at, row, row.lower(), rate, with_baselines=row == "DCCO")
        for row, rate in zip(_METHODS, of_data.rates, strict=True)
    ]
    cells.append(cell(
        "scratch", "--flagfile=launch/presets/case_folder/dcco.flags", f"--dataset={at.data}",
        of_data.clients.replace("--image_size=96", ""), at.length(),
        f"{_PROBE} --baselines=",
    ))  # fmt: skip
    rows = {AS_IT_IS: "dcco", **{row: row.lower() for row in _METHODS}, SCRATCH: "scratch"}
    helping = [*_METHODS]
    if at.data == "case_folder":  # What a user of a folder gets without further flags.
        cells.append(cell(
            "preset", "--flagfile=launch/presets/case_folder/pretrained_dcco.flags",
            f"--init_from=efficientnet_lite0 {at.length()}",
            f"{_PROBE} --baselines= --personalized_clients=0",
        ))  # fmt: skip
        rows[PRESET] = "preset"
        helping.append(PRESET)
    tables, statements = {}, []
    for column in ("accuracy", "balanced accuracy"):
        selector = Selector("linear", 5 * of_data.classes, column.replace(" ", "_"))
        shown = tables[column.split()[0]] = table(
            f"Linear probe, five labels a class, {column}", selector, [column], rows,
            untrained={UNTRAINED: "DCCO", PIXELS: "DCCO"},
            selectors={AS_IT_IS: selector._replace(baseline="pretrained_encoder")},
        )  # fmt: skip
        statements += [
            say(shown, "helps", f"{row} improves the pretrained encoder ({column})",
                above(row, AS_IT_IS, column))
            for row in helping
        ]  # fmt: skip
    return at.build(cells, tables, statements)


@study("Rates for pretrained weights, {on_data}at {scale} scale", cpu="case_folder")
def adapting_rates(at: At) -> Experiment:
    """The learning rates of adapting, three for each algorithm.

    Run this with `--seeds=1`. What counts are the choices on training images, which
    `launch/studies/adapting.py` takes over.
    """
    cells, choices = [], {}
    for row, (_, _, rates, _) in _METHODS.items():
        choices[row] = [f"{row.lower()}_{rate}" for rate in rates]
        cells += [_run(at, row, name, rate) for name, rate in zip(choices[row], rates, strict=True)]
    selector = Selector("linear", 5 * _DATA[at.data].classes, "balanced_accuracy")
    rows = {row: row for row in choices}
    shown = table("Linear probe, balanced accuracy", selector, ["at the chosen rate"], rows)
    return at.build(cells, shown, [], choices=choices)
