"""Figure 7 of the Dec-SSL paper: a masked autoencoder in place of contrastive learning."""

from launch.experiments.dec_ssl_sweeps import (
    accuracies,
    evaluations,
    keeps_most,
    loses_less,
    training_flags,
)
from tff_ssl.reporting.experiment import Cell, Experiment

_MAE, _SLREP = "Dec-SSL with MAE", "Dec-SLRep with the same transformer"
_OBJECTIVES = {_MAE: "mae", _SLREP: "supervised"}
_PRESETS = {"paper": "mae", "cpu": "mae"}
_TOTAL_EPOCHS = {"paper": 1000, "cpu": 40}
_ALPHAS = {"paper": ("5", "1", "0.5", "0.1", "0.01"), "cpu": ("5", "0.02")}
_EPOCHS = {"paper": (1, 5, 10, 50, 100), "cpu": (2, 20)}
_FIGURE7A_EPOCHS = {"paper": 5, "cpu": 2}
_FIGURE7B_ALPHA = "0.02"


def figure7(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Figure 7: a masked autoencoder against non-IIDness (a) and local epochs (b).

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for those that follow from the epochs.
    """
    dataset = dataset or "cifar10"
    cells: dict[str, Cell] = {}

    def name_of(objective: str, alpha: str, epochs: int) -> str:
        """Adds the cell if it is new, and returns its name."""
        name = f"{objective}_alpha{alpha}_epochs{epochs}"
        cells[name] = Cell(
            name, "pretrain",
            (
                *training_flags(
                    scale, dataset, rounds, epochs, _TOTAL_EPOCHS[scale], preset=_PRESETS[scale]
                ),
                f"--alpha={alpha}", f"--objective={objective}",
            ),
            evaluations(objective, scale),
        )  # fmt: skip
        return name

    alphas, numbers = _ALPHAS[scale], _EPOCHS[scale]
    non_iidness = accuracies(
        f"Figure 7 (a): non-IIDness, E = {_FIGURE7A_EPOCHS[scale]}", scale,
        tuple(f"alpha {alpha}" for alpha in alphas),
        {
            row: tuple(name_of(objective, alpha, _FIGURE7A_EPOCHS[scale]) for alpha in alphas)
            for row, objective in _OBJECTIVES.items()
        },
    )  # fmt: skip
    epochs = accuracies(
        f"Figure 7 (b): local epochs, alpha = {_FIGURE7B_ALPHA}", scale,
        tuple(f"E = {number}" for number in numbers),
        {
            row: tuple(name_of(objective, _FIGURE7B_ALPHA, number) for number in numbers)
            for row, objective in _OBJECTIVES.items()
        },
    )  # fmt: skip
    claims = []
    for table in (non_iidness, epochs):
        first, *_, last = table.columns
        claims += [
            keeps_most(table, _MAE, first, last),
            loses_less(table, _MAE, _SLREP, first, last),
        ]
    return Experiment(
        "dec_ssl_figure7", f"Dec-SSL, Figure 7, on {dataset} at {scale} scale",
        tuple(cells.values()), (non_iidness, epochs), tuple(claims),
        ("Published as curves without numbers: with a masked autoencoder, too, Dec-SSL hardly "
         "falls with non-IIDness and local epochs.",),
    )  # fmt: skip


EXPERIMENTS = {
    "dec_ssl_figure7": (figure7, "Dec-SSL with a masked autoencoder"),
}
