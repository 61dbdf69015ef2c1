"""Tables 3, 4 and 5 of the DeNAV paper."""

from collections.abc import Mapping

from launch.experiments.denav_cells import (
    CLIENTS,
    COSTS,
    DOWNSTREAM,
    LOCAL_EPOCHS,
    MODELS,
    NOTE,
    PROBED,
    STEPS,
    above,
    accuracy_tables,
    cell,
    counts,
    denav,
)
from tff_ssl.algorithms.denav import navigator
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup

# Numbers of local epochs of all clients together, which give DeNAV's steps and gossip's rounds. The
# fewest are ten rounds of gossip at both scales.
_EPOCHS = {"paper": (5000, 15000, 25000), "cpu": (3000,)}
# Table 4: steps, and flags of all cells. One step for each client at the CPU's scale leaves the
# navigator the most choice, and so do its many local epochs, after which a small client has less.
_TABLE4_STEPS = {"paper": STEPS["paper"], "cpu": STEPS["cpu"] // 2}
_TABLE4_FLAGS: dict[str, tuple[str, ...]] = {
    "paper": (),
    "cpu": (f"--hparam=local_epochs={4 * LOCAL_EPOCHS['cpu']}",),
}
DENAV, RANDOM, GOSSIP, ALL_REDUCE = "DeNAV", "Random route", "Gossip learning", "All-reduce"
# Table 3: (method, epochs) -> CIFAR-10 and CIFAR-100 in percent, communications.
_TABLE3 = {
    (DENAV, 5000): (92.80, 75.62, 1000),
    (GOSSIP, 5000): (90.52, 72.34, 14850),
    (DENAV, 15000): (93.44, 77.30, 3000),
    (GOSSIP, 15000): (90.30, 72.52, 44550),
    (DENAV, 25000): (93.88, 77.94, 5000),
    (GOSSIP, 25000): (92.91, 75.71, 74250),
}
# Table 4: CIFAR-10 and CIFAR-100 in percent, minutes.
_WITHOUT_VOLUME, _WITHOUT_TIME = "Formula w/o data volume", "Formula w/o computing resources"
_WITHOUT_HISTORY, _OURS = "Formula w/o selection history", navigator.OURS
_TABLE4 = {
    "Random selection": (90.28, 71.70, 33.7),
    _WITHOUT_VOLUME: (88.54, 71.99, 28.8),
    _WITHOUT_TIME: (90.65, 73.46, 37.6),
    _WITHOUT_HISTORY: (90.23, 73.51, 38.9),
    _OURS: (90.96, 73.70, 36.8),
}
# Row of Table 4 -> (name of its folder, its flags).
_FOLDERS = ("random", "no_volume", "no_time", "no_history", "denav")
_FORMULAS = {
    row: (folder, tuple(f"--hparam={name}={str(value).lower()}" for name, value in options.items()))
    for folder, (row, options) in zip(_FOLDERS, navigator.FORMULAS.items(), strict=True)
}
# Table 5: row -> (value of `aggregation`, CIFAR-10 and CIFAR-100 in percent).
_TABLE5 = {
    "With average weights": ("average", (90.64, 73.79)),
    "With only data volume weights": ("volume", (91.08, 73.72)),
    "Staleness-aware aggregation": ("staleness", (91.46, 74.49)),
}


def table3(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 3: DeNAV against gossip learning at equal epochs, accuracy and communications.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set for pretraining; None for the preset's.
      rounds: Number of rounds (DeNAV: steps) of each run; None for those that follow from epochs.
    """
    cells: list[Cell] = []
    rows: dict[str, str] = {}
    published: dict[str, tuple] = {}
    claims: list[Claim] = []
    for epochs in _EPOCHS[scale]:
        methods = _table3_methods(scale, dataset, rounds, epochs)
        names = {method: f"{method}, {epochs} epochs" for method in methods}
        cells += methods.values()
        rows |= {names[method]: cell.name for method, cell in methods.items()}
        # The CPU scale's epochs are shown beside the paper's fewest.
        paper_epochs = epochs if scale == "paper" else min(_EPOCHS["paper"])
        for method in methods:
            if (method, paper_epochs) in _TABLE3:
                published[f"{method}, {paper_epochs} epochs"] = _TABLE3[method, paper_epochs]
        claims += _table3_claims(scale, names, epochs)
    sent = {row: (figures[2],) for row, figures in published.items()}
    travelling = {
        row: cell for row, cell in rows.items() if row.partition(",")[0] in (DENAV, RANDOM)
    }
    return Experiment(
        "denav_table3", f"DeNAV, Table 3, at {scale} scale", tuple(cells),
        (
            *accuracy_tables("Table 3", scale, rows, published, cells[0].name),
            counts("Communications", "communications", rows, sent),
            counts("Communications as the paper counts", "communications_as_published",
                   {row: cell for row, cell in rows.items() if not row.startswith(ALL_REDUCE)},
                   sent),
            counts("Bytes sent", "communication_bytes", rows, {}),
            counts("Clients that trained the model", "visited_clients", travelling, {}),
            counts("Steps after which the model stayed", "moves_to_same_client", travelling, {}),
        ),
        tuple(claims),
        (
            NOTE,
            "The paper has no figures of a random route and of all-reduce here. It counts a "
            "communication for each step, and for gossip the expected number of directed links for "
            "each round; the models really sent are counted too.",
        ),
        {"clients": cells[0].name},
        tuple(("Communications", f"Table 3: fine-tuned on {name}") for name in DOWNSTREAM[scale]),
        costs=COSTS,
    )  # fmt: skip


def _table3_methods(
    scale: str, dataset: str | None, rounds: int | None, epochs: int
) -> dict[str, Cell]:
    """Method -> its training for as many local epochs of all clients together."""
    steps = epochs // LOCAL_EPOCHS[scale]
    # In a round of gossip and of all-reduce, all clients train.
    shared_rounds = rounds or steps // CLIENTS[scale]
    is_first = epochs == _EPOCHS[scale][0]
    return {
        DENAV: denav(f"denav_{epochs}", scale, dataset, rounds or steps, baseline=is_first),
        RANDOM: denav(f"random_{epochs}", scale, dataset, rounds or steps, "--hparam=route=random"),
        GOSSIP: cell(f"gossip_{epochs}", scale, dataset, shared_rounds, "--algorithm=gossip"),
        ALL_REDUCE: cell(
            f"all_reduce_{epochs}", scale, dataset, shared_rounds, "--algorithm=all_reduce"
        ),
    }


def _table3_claims(scale: str, names: Mapping[str, str], epochs: int) -> list[Claim]:
    """The paper's statements at a number of epochs; `names` are the rows of the methods."""
    claims = [
        Claim(
            f"DeNAV is above {other.lower()} on {name} after {epochs} epochs",
            f"Table 3: fine-tuned on {name}",
            above(names[DENAV], names[other]),
        )
        for other in (GOSSIP, RANDOM)
        for name in DOWNSTREAM[scale]
    ]

    def fewer(v: Lookup) -> bool:
        column = "communications"
        return v(names[DENAV], column) * 10 < v(names[GOSSIP], column)

    claims.append(
        Claim(f"DeNAV needs less than a tenth of gossip's communications, {epochs} epochs",
              "Communications", fewer)
    )  # fmt: skip
    return claims


def table4(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 4: the navigator's formula without each of its terms, and a random route.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set for pretraining; None for the preset's.
      rounds: Number of steps of each run; None for the experiment's.
    """
    cells = [
        denav(
            name,
            scale,
            dataset,
            rounds or _TABLE4_STEPS[scale],
            *_TABLE4_FLAGS[scale],
            *flags,
            baseline=row == _OURS,
            probed=scale in PROBED,
        )
        for row, (name, flags) in _FORMULAS.items()
    ]
    rows = {row: name for row, (name, _) in _FORMULAS.items()}
    tables = accuracy_tables("Table 4", scale, rows, _TABLE4, "denav", scale in PROBED)
    times = counts(
        "Simulated time of pretraining (published: minutes)", "simulated_time", rows,
        {row: (figures[2],) for row, figures in _TABLE4.items()},
    )  # fmt: skip
    time = "simulated time"
    claims = [
        Claim(f"The formula is above {row[0].lower()}{row[1:]}", table.title, above(_OURS, row))
        for table in tables
        for row in rows
        if row != _OURS
    ]
    claims += [
        Claim("Computing resources in the formula save time", times.title,
              above(_WITHOUT_TIME, _OURS, time)),
        Claim("Data volume in the formula costs time", times.title,
              above(_OURS, _WITHOUT_VOLUME, time)),
    ]  # fmt: skip
    return Experiment(
        "denav_table4", f"DeNAV, Table 4, at {scale} scale", tuple(cells),
        (*tables, times), tuple(claims),
        (
            NOTE,
            "Simulated time is examples times epochs, divided by the factor of the client's "
            "computing rank: it does not depend on the machine.",
        ),
        {"clients": "denav"},
        costs=COSTS,
    )  # fmt: skip


def table5(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """Table 5: aggregation of models that train in parallel; arguments as for `table4`."""
    cells = [
        denav(name, scale, dataset, rounds or STEPS[scale],
              f"--hparam=models={MODELS}", f"--hparam=aggregation={name}",
              baseline=name == "staleness", probed=scale in PROBED)
        for name, _ in _TABLE5.values()
    ]  # fmt: skip
    cells.append(
        denav("none", scale, dataset, rounds or STEPS[scale],
              f"--hparam=models={MODELS}", "--hparam=aggregation=none", probed=scale in PROBED)
    )  # fmt: skip
    rows = {row: name for row, (name, _) in _TABLE5.items()} | {"No aggregation": "none"}
    tables = accuracy_tables(
        "Table 5", scale, rows, {row: figures for row, (_, figures) in _TABLE5.items()},
        "staleness", scale in PROBED,
    )  # fmt: skip
    best = "Staleness-aware aggregation"
    claims = tuple(
        Claim(f"{best} is above {row[0].lower()}{row[1:]}", table.title, above(best, row))
        for table in tables
        for row in rows
        if row != best
    )
    return Experiment(
        "denav_table5", f"DeNAV, Table 5, at {scale} scale", tuple(cells),
        tables, claims,
        (NOTE, f"{MODELS} models in parallel. The paper has no figures without aggregation."),
        {"clients": "staleness"},
        costs=COSTS,
    )  # fmt: skip


EXPERIMENTS = {
    "denav_table3": (table3, "DeNAV against gossip learning: accuracy and communications"),
    "denav_table4": (table4, "DeNAV's navigator without each term, and a random route"),
    "denav_table5": (table5, "DeNAV's parallel training: how models are aggregated"),
}
