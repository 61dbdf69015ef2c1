"""Table 2 of the DeNAV paper: DeNAV against federated self-supervised methods."""

import dataclasses

from launch.studies import denav
from launch.studies.engine.claims import Trial, claim
from launch.studies.engine.statements import ON_CLIENTS, each_above
from launch.studies.engine.study import UNTRAINED, At, cell, study, table
from launch.studies.fedu import AVERAGED
from tff_ssl.reporting.experiment import Cell, Experiment
from tff_ssl.reporting.measured import Selector

_DENAV = "DeNAV"
_SPLITS = {"IID": ("iid", "--partition=iid"), "non-IID": ("noniid", "")}  # Presets are non-IID.
# At the CPU's scale, a target network follows in fewer steps, and weights of one method alone are
# those of its preset for the digits.
_TARGET = "--hparam=target_momentum=0.98"
# Row -> start of its cells' names, its flags, those at the CPU's scale and those at the paper's.
_METHODS = {
    "Fed-SimSiam": ("simsiam", f"{AVERAGED} --objective=simsiam", "", ""),
    "Fed-SimCLR": ("simclr", f"{AVERAGED} --objective=nt_xent", "--hparam=temperature=0.2", ""),
    "FedU": ("fedu", "--algorithm=fedu", f"{_TARGET} --hparam=mu=1.15",
             "--hparam=mu=0.4 --hparam=divergence=mean_layer_l2"),
    "FedEMA": ("fedema", "--algorithm=fedema", f"{_TARGET} --hparam=tau=0.3", "--hparam=tau=0.7"),
    "Orchestra": ("orchestra", "--algorithm=orchestra",
                  f"{_TARGET} --hparam=temperature=0.3 --hparam=global_clusters=64", ""),
    _DENAV: ("denav", "", "", ""),
}  # fmt: skip
_FEDERATED = [row for row in _METHODS if row != _DENAV]
# In percent: CIFAR-10 IID and non-IID, and CIFAR-100 likewise.
_TABLE2 = {
    "Fed-SimSiam": (89.91, 89.58, 68.52, 71.46),
    "Fed-SimCLR": (89.54, 90.39, 67.20, 71.24),
    "FedU": (77.43, 72.02, 40.40, 38.44),
    "FedEMA": (70.73, 71.00, 40.78, 41.13),
    "Orchestra": (88.87, 90.66, 72.11, 72.27),
    _DENAV: (91.12, 91.00, 74.50, 73.89),
}
# The rate of each method at the CPU's scale, as chosen by `denav_table2_rates`; the accuracies are
# in `measured/denav_table2_rates-cpu`. At the paper's scale it is the presets' own.
_CHOSEN = {
    _DENAV: "0.0005", "Fed-SimSiam": "0.0015", "Fed-SimCLR": "0.0045", "FedU": "0.0015",
    "FedEMA": "0.0005", "Orchestra": "0.0005",
}  # fmt: skip
_NOTES = (
    denav.NOTE,
    "Published: 10 local epochs, 200 steps of DeNAV, 200 rounds of 5 clients of the baselines, "
    "which have ResNets. ImageNet and Mini-INAT, which the paper has too, are left out.",
    "At CPU scale: 20 local epochs, 60 steps of DeNAV and 12 rounds of 5 clients, equally many "
    "epochs in all. All methods have the encoder of DeNAV, so that methods are compared and not a "
    "ResNet with a transformer. Hyperparameters that belong to one method alone are those of its "
    "preset for the digits.",
    "At GPU scale: non-IID clients, and 40 rounds of the baselines, so that all methods have "
    "equally many epochs.",
)


def _rates(at: At, row: str) -> tuple[str, ...]:
    """The rates of a method that are tried, in factors of about 3."""
    papers = ("0.00005", "0.00015", "0.00045") if row == _DENAV else ("0.01", "0.032", "0.1")
    return at(("0.0005", "0.0015", "0.0045"), papers)


def _run(at: At, row: str, split: str, rate: str, name: str = "") -> Cell:
    """A method on clients of a split, at a rate."""
    start, flags, *of_scale = _METHODS[row]
    end, partition = _SPLITS[split]
    # Batch norm needs several images in the smallest client of all methods.
    own = (
        f"{partition} --min_client_size=8 --hparam=local_epochs={2 * at(*denav.LOCAL_EPOCHS)} "
        f"--hparam=client_learning_rate={rate}"
    )
    name = name or f"{start}_{end}"
    if row == _DENAV:
        return denav.denav(
            at, name, at(*denav.STEPS), own, scratch=True, probed=False, baselines="random_encoder"
        )
    # The paper's baselines train five clients in each of 200 rounds: five times the local epochs of
    # DeNAV's 200 steps. At the other scales all methods have equally many.
    own = f"{denav.training(at, 'federated', at(12, 200, 40))} {flags} {at(*of_scale)} {own}"
    depth = at(f"--depth={denav.DEPTH}", "")  # A ResNet has no blocks to stack.
    return cell(name, own, evaluations=denav.finetunings(at, False, depth))


@study("DeNAV, Table 2, at {scale} scale")
def denav_table2(at: At) -> Experiment:
    """DeNAV against federated SimSiam, SimCLR, FedU, FedEMA, Orchestra."""
    rates = {row: at(_CHOSEN[row], _rates(at, row)[1]) for row in _METHODS}
    splits = at(tuple(_SPLITS), tuple(_SPLITS), ("non-IID",))
    cells = {row: [_run(at, row, split, rate) for split in splits] for row, rate in rates.items()}
    rows = {row: tuple(one.name for one in of_row) for row, of_row in cells.items()}
    tables = {
        data: table(
            f"Table 2: fine-tuned on {name}", Selector("finetune", dataset=data), splits, rows,
            {row: figures[2 * i : 2 * i + 2][-len(splits) :] for row, figures in _TABLE2.items()},
            untrained={denav.SCRATCH: _DENAV},
        )
        for i, (name, data) in enumerate(denav.downstream(at).items())
    } | denav.frozen_table(at, "Table 2", splits, rows, _DENAV)  # fmt: skip
    statements = each_above(tables.values(), "above", _DENAV, _FEDERATED, ON_CLIENTS)
    notes = [*_NOTES, "Rates of the CPU's scale: `denav_table2_rates`."]
    partitions = zip(splits, rows[_DENAV], strict=True)
    return at.build(cells.values(), tables, statements, partitions, notes)


@study("Rates of DeNAV, Table 2, at {scale} scale")
def denav_table2_rates(at: At) -> Experiment:
    """The learning rates of denav_table2, three for each method."""
    choices = {row: [f"{_METHODS[row][0]}_{rate}" for rate in _rates(at, row)] for row in _METHODS}
    cells = [
        dataclasses.replace(_run(at, row, "non-IID", rate, name), evaluations=())
        for row, names in choices.items()
        for name, rate in zip(names, _rates(at, row), strict=True)
    ]
    title, rows = "Linear probe on the data of pretraining", {row: row for row in choices}
    shown = table(title, Selector("linear"), ["at the chosen rate"], rows)
    note = "Run this with `--seeds=1`. What counts are the choices on training images."
    return at.build(cells, shown, [], notes=[*_NOTES, note], choices=choices)


CLAIMS = (
    claim("N2", "Table 2", "DeNAV is above Fed-SimSiam, Fed-SimCLR, FedU, FedEMA and Orchestra; "
          "CIFAR-10, non-IID: 91.00, the best of them 90.66.", f"{denav.SMALL} IID and non-IID, 60 "
          "steps of 20 epochs, or 12 rounds of 5 clients; the best of three rates for each "
          "method.", "denav_table2-cpu", "cifar10.above", (_DENAV, *_FEDERATED, denav.SCRATCH),
          _SPLITS, "DeNAV is above all but Fed-SimCLR. Only these two are above the network "
          "from scratch. All methods have as many local epochs; in the paper the others have five "
          "times as many as DeNAV.",
          Trial(f"The same. {denav.FROZEN} on CIFAR-100, the data of pretraining.",
                "denav_table2-cpu", "frozen.above", (_DENAV, *_FEDERATED, UNTRAINED),
                tuple(_SPLITS))),
)  # fmt: skip
