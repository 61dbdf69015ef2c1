"""Figures 6 (c), 7 and 8 (a, b) of the Dec-SSL paper: local epochs E, and other SSL methods."""

from launch.studies.dec_ssl_sweeps import (
    BY_LABELS,
    CURVES,
    METHODS,
    SL,
    SLREP,
    SSL,
    SWEEPS,
    accuracies,
    keeps,
    loses,
    probe,
    robust,
    sweep,
    training,
)
from launch.studies.engine.claims import Trial, apart, claim
from launch.studies.engine.study import UNTRAINED, At, cell, grid, study
from tff_ssl.reporting.experiment import Cell, Experiment

_ALPHA = "0.02"  # Table 3.
_CLIENTS = f"{BY_LABELS} --alpha={_ALPHA} --hparam=learning_rate_schedule=constant"
_FIGURE6_NOTE = (
    f"{CURVES}Dec-SSL hardly falls with E, supervised learning does; so it is with BYOL and "
    "SimSiam. The number of epochs in all is the same in each column, and the learning rate "
    "constant: steps between rounds would come at other epochs in each."
)


@study("Dec-SSL, Figures 6 (c) and 8, on {data} at {scale} scale", "cifar10")
def dec_ssl_figure6(at: At) -> Experiment:
    """Dec-SSL with SimCLR, BYOL and SimSiam, Dec-SLRep and Dec-SL against local epochs."""
    # Epochs in all -> numbers of local epochs. The paper has one budget.
    budgets = at({10: (1, 2, 5), 20: (1, 10)}, {500: (1, 5, 10, 50, 100, 250)})
    first = next(iter(budgets))
    cells, tables = [], []
    for total, numbers in budgets.items():
        end = "" if total == first else f"_of{total}"
        columns = {f"E = {e}": (f"epochs{e}{end}", training(at, e, total)) for e in numbers}
        title = f"Local epochs, alpha = {_ALPHA}, {total} epochs in all"
        of_budget, shown = sweep(at, title, columns, _CLIENTS)
        cells, tables = cells + of_budget, [*tables, shown]
    # Without batch norm on the projector's output, the small networks' encodings collapse. The
    # target network has to follow in fewer steps than the paper's.
    methods = {
        "BYOL": ("byol", f"--objective=byol {at('--hparam=target_momentum=0.95', '')}"),
        "SimSiam": ("simsiam", "--objective=simsiam"),
    }
    ends = {
        f"E = {e}": (f"epochs{e}", training(at, e, preset=at("", "byol")))
        for e in (budgets[first][0], budgets[first][-1])
    }
    own = at("--projector_output_batch_norm", "")
    others, rows = grid(methods, ends, own, _CLIENTS)
    by_method = {row: (names[0], names[-1]) for row, names in tables[0].rows.items()}
    rows |= {row: by_method[row] for row in METHODS}
    figure8 = accuracies(at, "Figure 8: other SSL methods", ends, rows)
    statements = [
        robust(shown, f"of_{total}.") for total, shown in zip(budgets, tables, strict=True)
    ] + [
        [*keeps(figure8, "others.keeps", row), *loses(figure8, "others.less", row, [SLREP])]
        for row in methods
    ]
    partitions = {f"alpha {_ALPHA}": cells[0].name}
    return at.build([*cells, *others], [*tables, figure8], statements, [_FIGURE6_NOTE], partitions)


_MAE, _MAE_SLREP = "Dec-SSL with MAE", "Dec-SLRep with the same transformer"


@study("Dec-SSL, Figure 7, on {data} at {scale} scale", "cifar10")
def dec_ssl_figure7(at: At) -> Experiment:
    """Dec-SSL with a masked autoencoder."""
    cells: dict[str, Cell] = {}
    methods = {_MAE: ("mae", ""), _MAE_SLREP: ("supervised", probe(at))}

    def run(objective: str, evaluation: str, alpha: str, epochs: int) -> str:
        """Adds a cell if it is new, and returns its name."""
        name = f"{objective}_alpha{alpha}_epochs{epochs}"
        cells[name] = cell(
            name, training(at, epochs, at(40, 1000), preset="mae"),
            f"--alpha={alpha} --objective={objective}", evaluations=[evaluation],
        )  # fmt: skip
        return name

    few = at(2, 5)
    alphas = at(("5", "0.02"), ("5", "1", "0.5", "0.1", "0.01"))
    numbers = at((2, 20), (1, 5, 10, 50, 100))
    tables = {
        "alpha": accuracies(
            at, f"Figure 7 (a): non-IIDness, E = {few}", [f"alpha {alpha}" for alpha in alphas],
            {row: [run(*method, alpha, few) for alpha in alphas]
             for row, method in methods.items()},
        ),
        "epochs": accuracies(
            at, f"Figure 7 (b): local epochs, alpha = {_ALPHA}", [f"E = {e}" for e in numbers],
            {row: [run(*method, _ALPHA, e) for e in numbers] for row, method in methods.items()},
        ),
    }  # fmt: skip
    return at.build(
        cells.values(),
        list(tables.values()),
        [
            keeps(shown, f"{name}.keeps", _MAE) + loses(shown, f"{name}.less", _MAE, [_MAE_SLREP])
            for name, shown in tables.items()
        ],
        [
            f"{CURVES}with a masked autoencoder, too, Dec-SSL hardly falls with non-IIDness and "
            "local epochs."
        ],
    )  # fmt: skip


STUDIES = (dec_ssl_figure6, dec_ssl_figure7)

CLAIMS = (
    claim(
        "S7", "Figures 4 left, 5 and 6c",
        "As local epochs E rise, Dec-SSL loses less than Dec-SLRep and Dec-SL.",
        *(
            Trial(
                f"CIFAR-10, 5000 images of 5 clients, alpha {_ALPHA}, tiny ResNet at 16x16, "
                f"{total} epochs in all; 3 seeds.", "dec_ssl_figure6-cpu", f"of_{total}", METHODS,
                ("E = 1", last), apart(SSL, SL, last), "No method loses more than its deviation "
                "from more local epochs, so that there is no loss to compare, and Dec-SLRep gains. "
                "Dec-SSL has the highest mean throughout.",
            )
            for total, last in ((10, "E = 5"), (20, "E = 10"))
        ),
    ),
    claim(
        "S14", "Figure 7", "Dec-SSL with a masked autoencoder is robust to non-IID labels and to "
        "local epochs, too.",
        Trial(
            "CIFAR-10, 5 clients of 1000 images, `vit_micro` at 16x16, 40 epochs in all; 3 seeds.",
            "dec_ssl_figure7-cpu", "alpha epochs", (_MAE, _MAE_SLREP), ("alpha 5", "alpha 0.02"),
            apart(_MAE, UNTRAINED, "alpha 5"), "With non-IID labels it holds. With more local "
            "epochs neither method loses by more than the deviation.",
        ),
    ),
    claim(
        "S15", "Figure 8", "So it is with BYOL and SimSiam, and on CIFAR-100 and Tiny-ImageNet.",
        Trial(
            f"{SWEEPS} Alpha {_ALPHA}; 3 seeds.", "dec_ssl_figure6-cpu", "others",
            ("BYOL", "SimSiam", SLREP), ("E = 1", "E = 5"), apart("BYOL", UNTRAINED, "E = 1"),
            "No method loses more than its deviation from more local epochs here.",
        ),
        Trial(
            f"{SWEEPS} CIFAR-100 in place of CIFAR-10, beta 0.1; Dec-SSL itself; 3 seeds.",
            "dec_ssl_transfer-cpu", "epochs", METHODS, ("E = 2", "E = 5"), apart(SSL, SL, "E = 5"),
            "Dec-SSL is above both others, but from E = 2 to E = 5 Dec-SLRep gains.",
        ),
    ),
)  # fmt: skip
