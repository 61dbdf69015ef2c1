"""What Hetero-SSFL's section 5.1 says of mu, of the size of the RAD and of local epochs."""

from launch.experiments.hetero_ssfl import (
    PERSONALIZED,
    SSFL,
    STARTS,
    UNSEEN,
    UNTRAINED,
    UNTRAINED_CLIENTS,
    UNTRAINED_LARGER,
    baseline_flags,
    preset_flags,
)
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

_BEST_MU = "0.5"  # For the CIFARs (section 5.1).
_MUS = ("0", _BEST_MU, "1", "2")
# Sizes of the RAD, of which the last is that of the presets.
_RAD_SIZES = {"cpu": (100, 1000), "paper": (1000, 5000)}
# Local epochs of a round, and the epochs of all rounds.
_LOCAL_EPOCHS = {"cpu": (1, 4, 16), "paper": (1, 5, 20)}
_EPOCHS = {"cpu": 64, "paper": 1000}
_AVERAGED = ("FedBYOL", "FedU")  # Methods that average models, by FedAvg.
_STABLE = 0.02  # Largest difference that counts as stable.


def influence(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """The weight mu of the distance, and the number of images of the RAD.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of rounds of each run; None for the presets'.
    """
    dataset = dataset or "cifar10"
    flags = preset_flags(scale, dataset, rounds, "hetero_ssfl")
    *fewer, full = _RAD_SIZES[scale]
    mus = {f"mu = {mu}": f"mu_{mu}" for mu in _MUS}
    rads = {f"{size} images": f"rad_{size}" for size in fewer} | {
        f"{full} images": f"mu_{_BEST_MU}"
    }
    cells = [
        *(Cell(f"mu_{mu}", "pretrain", (*flags, f"--hparam=mu={mu}")) for mu in _MUS),
        *(Cell(f"rad_{size}", "pretrain", (*flags, f"--rad_size={size}")) for size in fewer),
    ]
    unseen = "classes that a client has never seen"
    of_mu, of_rad = f"Weight mu, linear probe on {dataset}", f"RAD, linear probe on {dataset}"
    tables = (
        _table(of_mu, PERSONALIZED, mus),
        _table(f"Weight mu, {unseen}", UNSEEN, mus),
        _table(of_rad, PERSONALIZED, rads),
        _table(f"RAD, {unseen}", UNSEEN, rads),
    )
    best = f"mu = {_BEST_MU}"

    def above(column: str, other: str):
        return lambda v: v(SSFL, column) > v(SSFL, other)

    claims = [
        *(Claim(f"{best} is better than {other}", of_mu, above(best, other))
          for other in mus if other != best),
        *(Claim(f"A RAD of {full} images is better than one of {size}", of_rad,
                above(f"{full} images", f"{size} images")) for size in fewer),
    ]  # fmt: skip
    return Experiment(
        "hetero_influence", f"Hetero-SSFL, mu and RAD, on {dataset} at {scale} scale",
        tuple(cells), tables, tuple(claims),
        (
            "The paper has no table of these: section 5.1 says that mu = 0.5 is best for the "
            "CIFARs, without the other values, and that a larger RAD is better. With mu = 0, "
            "clients train alone.",
            f"Mean over the clients' own models. The tables of {unseen} score the same probes on "
            "the test images of these classes.",
        ),
        {"non-IID": f"mu_{_BEST_MU}"},
    )  # fmt: skip


def _table(title: str, selector: Selector, cells: dict[str, str]) -> Table:
    """A table of Hetero-SSFL, with a cell in each column, and of the untrained encoders."""
    names = tuple(cells.values())
    untrained = selector._replace(baseline="random_encoder")
    return Table(
        title, selector, tuple(cells), {SSFL: names, UNTRAINED_CLIENTS: names}, {},
        {UNTRAINED_CLIENTS: untrained},
    )  # fmt: skip


def local_epochs(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """More local epochs in fewer rounds.

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for cifar10.
      rounds: Number of epochs of all rounds; None for that of the scale.
    """
    dataset, epochs = dataset or "cifar10", rounds or _EPOCHS[scale]
    cells, rows = [], {}
    for row in (SSFL, *_AVERAGED):
        names = []
        for local in _LOCAL_EPOCHS[scale]:
            count = max(1, epochs // local)
            if row == SSFL:
                flags = preset_flags(scale, dataset, count, "hetero_ssfl")
            else:
                flags = baseline_flags(scale, dataset, count, row)
            names.append(f"{row.lower().replace('-', '_')}_{local}")
            cells.append(Cell(names[-1], "pretrain", (*flags, f"--hparam=local_epochs={local}")))
        rows[row] = tuple(names)
    columns = tuple(f"E = {local}" for local in _LOCAL_EPOCHS[scale])
    title = f"Local epochs, linear probe on {dataset}"
    table = Table(
        title, Selector("linear"), columns,
        {**rows, UNTRAINED_CLIENTS: rows[SSFL], UNTRAINED_LARGER: rows["FedU"]}, {},
        {SSFL: PERSONALIZED, **UNTRAINED}, starts=STARTS,
    )  # fmt: skip

    def fall(v: Lookup, row: str) -> float:
        return v(row, columns[0]) - v(row, columns[-1])

    def falls_more(row: str):
        return lambda v: fall(v, row) > fall(v, SSFL)

    claims = [
        Claim(f"{SSFL} is stable: it falls by less than 2 points from {columns[0]} to "
              f"{columns[-1]}", title, lambda v: fall(v, SSFL) < _STABLE),
        *(Claim(f"{row} falls by more than {SSFL} from {columns[0]} to {columns[-1]}", title,
                falls_more(row)) for row in _AVERAGED),
    ]  # fmt: skip
    return Experiment(
        "hetero_local_epochs", f"Hetero-SSFL, local epochs, on {dataset} at {scale} scale",
        tuple(cells), (table,), tuple(claims),
        (
            "The paper has no table of it: section 5.1 says that unlike algorithms based on FedAvg "
            f"the method is stable with more local epochs. All runs have {epochs} epochs in all.",
            f"{SSFL}: mean over the clients' own models.",
        ),
        {"non-IID": str(rows[SSFL][0])},
    )  # fmt: skip


EXPERIMENTS = {
    "hetero_influence": (influence, "Hetero-SSFL: the weight mu and the size of the RAD"),
    "hetero_local_epochs": (local_epochs, "Hetero-SSFL, FedBYOL and FedU: more local epochs"),
}
