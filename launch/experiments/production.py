"""The cost of privacy and of compression: accuracy against epsilon, and against bytes sent."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping

from tff_ssl.aggregation.differential_privacy import Accountant, default_delta
from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Lookup, Table
from tff_ssl.reporting.measured import Selector

_PAPER = "launch/presets/dcco_table1/paper/dcco.flags"
_COLUMN = "test accuracy"
_SENT = "Bytes that a client sends in a round"
_NOTHING_PUBLISHED = "Nothing of this is published; the claims are expectations."

# Flags of the clients at the paper's scale.
_ON_CIFAR = ("--alpha=0", "--samples_per_client=1", "--clients_per_round=512")

# Clipping norms. The server's Adam does not depend on the size of a delta. The norm of statistics
# is near the number of projections (14 to 16 on training images of the digits, before training).
_CLIPS = {
    "cpu": ("--dp_clip=1", "--dp_statistics_clip=15"),
    "paper": ("--dp_clip=1", "--dp_statistics_clip=1000"),
}
_EPSILONS = ("1", "2", "4", "8", "16")
# Noise multipliers of the rows with less noise. With a few hundred clients, the noise of an
# acceptable epsilon hides the signal. The effect of noise on a mean depends on the noise multiplier
# divided by the number of clients in a round, so that these rows show the effect of such an epsilon
# where clients are many times as many.
_NOISES = (0.3, 0.1, 0.03)
_CLIENT_FACTORS = (1, 10, 100)
# Where each client is aggregated by itself: at the paper's scale, the updates of 512 clients with a
# ResNet-18 are 23 GB, of which there would be several copies in memory.
_SLICES = {"cpu": (), "paper": ("--slices=32",)}
# Clients, expected number of clients in a round, and rounds at each scale.
_CLIENTS = {"cpu": (364, 96, 40), "paper": (50_000, 512, 100_000)}
_CLIPPED, _WITHOUT = "epsilon inf", "no privacy"
_UNTRAINED = "untrained encoder"

# Row -> (name of its folder, its flags).
_AGGREGATORS = {
    "mean, 32 bits": ("mean", ()),
    "quantized, 8 bits": ("quantized_8", ("--aggregator=quantized", "--quantization_bits=8")),
    "quantized, 4 bits": ("quantized_4", ("--aggregator=quantized", "--quantization_bits=4")),
    "rotated, 8 bits": ("rotated_8", ("--aggregator=rotated", "--quantization_bits=8")),
    "rotated, 4 bits": ("rotated_4", ("--aggregator=rotated", "--quantization_bits=4")),
    "rotated, 2 bits": ("rotated_2", ("--aggregator=rotated", "--quantization_bits=2")),
    "half of <F G^T>": ("half", ("--symmetric_statistics",)),
    "rotated, 4 bits, half of <F G^T>": (
        "rotated_4_half",
        ("--aggregator=rotated", "--quantization_bits=4", "--symmetric_statistics"),
    ),
}
# Rows whose clients are folded into groups.
_FOLDED = ("mean, 32 bits", "half of <F G^T>")


def privacy(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """DCCO with differential privacy: on the digits (`cpu`), or on CIFAR-100 (`paper`).

    Args:
      scale: `cpu` or `paper`.
      dataset: Name of the data set; None for the preset's.
      rounds: Number of rounds of each run; None for the preset's.
    """
    common = [*_common("digits/private_dcco", scale, dataset, rounds), "--sampling=poisson"]
    common += ["--hparam=client_weighting=uniform", *_SLICES[scale]]
    clips = _CLIPS[scale]
    settings: dict[str, tuple[str, tuple[str, ...]]] = {
        f"epsilon {e}": (f"epsilon_{e}", (f"--dp_epsilon={e}", *clips)) for e in _EPSILONS
    }
    for z in _NOISES:
        settings[f"noise {z}"] = (f"noise_{z}", (f"--dp_noise_multiplier={z}", *clips))
    settings[_CLIPPED] = ("epsilon_inf", ("--dp_epsilon=inf", *clips))
    by_privacy = list(settings)
    settings[_WITHOUT] = ("without", ())

    def rises(v: Lookup) -> bool:
        accuracies = [v(row, _COLUMN) for row in by_privacy]
        return all(more >= less - 0.02 for less, more in itertools.pairwise(accuracies))

    experiment = _experiment(
        "dcco_privacy",
        f"DCCO's accuracy against epsilon, at {scale} scale",
        common,
        settings,
        _counts(scale),
        {
            "Accuracy does not fall with epsilon (by more than 2 points)": rises,
            "Clipping without noise costs at most 5 points": lambda v: (
                v(_CLIPPED, _COLUMN) >= v(_WITHOUT, _COLUMN) - 0.05
            ),
            "Noise of 0.1 costs at most 5 points": lambda v: (
                v("noise 0.1", _COLUMN) >= v(_CLIPPED, _COLUMN) - 0.05
            ),
        },
        (
            "Epsilon is that of all rounds together, for a client with all of its images; delta "
            "is the number of clients to the power of -1.1. Infinite: clipped as the others are, "
            "without noise. Noise is not seeded, so that no figure can be repeated to the bit.",
            *([] if dataset or rounds else [_more_clients(scale)]),
            _NOTHING_PUBLISHED,
        ),
    )
    return dataclasses.replace(
        experiment, tables=tuple(_with_untrained(table) for table in experiment.tables)
    )


def _more_clients(scale: str) -> str:
    """A note with the epsilon of each row of little noise at larger numbers of clients."""
    clients, per_round, rounds = _CLIENTS[scale]
    rows = []
    for noise in _NOISES:
        epsilons = []
        for factor in _CLIENT_FACTORS:
            epsilon = Accountant(
                per_round / clients, (factor * noise,) * 2, default_delta(factor * clients)
            ).epsilon(rounds)
            digits = ",.0f" if epsilon >= 10 else ".2g"
            epsilons.append(f"{epsilon:{digits}} with {factor * clients:,}")
        rows.append(f"noise {noise}: epsilon {', '.join(epsilons)}")
    return (
        "What noise does depends on the noise multiplier over the clients of a round. So a row of "
        f"{clients:,} clients with little noise is one of more clients with a smaller epsilon, the "
        f"same part of them in each round. {'; '.join(rows)}."
    )


def _with_untrained(table: Table) -> Table:
    """The table with a row of the untrained encoder, which is the same in all cells."""
    (cell,) = table.rows[_WITHOUT]
    untrained = table.selector._replace(baseline="random_encoder")
    return dataclasses.replace(
        table,
        rows={**table.rows, _UNTRAINED: (cell,)},
        selectors={**table.selectors, _UNTRAINED: untrained},
    )


def communication(scale: str, dataset: str | None, rounds: int | None) -> Experiment:
    """DCCO with fewer bytes from clients; arguments as for `privacy`."""
    common = _common("digits/dcco", scale, dataset, rounds)
    if scale == "cpu":
        # Clients cannot be folded, so that only a small encoder and few rounds take little time.
        common += ["--encoder=tiny", "--eval_every=0"] + ([] if rounds else ["--rounds=100"])
    uncompressed = "mean, 32 bits"
    settings = {
        row: (folder, own if row in _FOLDED else (*own, *_SLICES[scale]))
        for row, (folder, own) in _AGGREGATORS.items()
    }

    def near(row: str) -> Callable[[Lookup], bool]:
        return lambda v: v(row, _COLUMN) >= v(uncompressed, _COLUMN) - 0.02

    experiment = _experiment(
        "dcco_communication",
        f"DCCO's accuracy against the bytes that clients send, at {scale} scale",
        common,
        settings,
        _counts(scale),
        {
            "8 bits cost at most 2 points": near("quantized, 8 bits"),
            "4 bits after a rotation cost at most 2 points": near("rotated, 4 bits"),
            "Half of <F G^T> costs at most 2 points": near("half of <F G^T>"),
        },
        ("Bytes are counted from the types of what is sent.", _NOTHING_PUBLISHED),
    )
    accuracy = experiment.tables[-1]
    sent = accuracy.selector._replace(metric="bytes_up_per_client_and_round")
    bytes_sent = Table(_SENT, sent, ("bytes",), accuracy.rows, {}, percent=False)
    return dataclasses.replace(
        experiment,
        tables=(*experiment.tables, bytes_sent),
        against=((bytes_sent.title, accuracy.title),),
    )


def _common(preset: str, scale: str, dataset: str | None, rounds: int | None) -> list[str]:
    """Flags of all cells; `preset` is that of the CPU's scale."""
    common = [f"--flagfile=launch/presets/{preset}.flags"]
    if scale == "paper":
        common = [f"--flagfile={_PAPER}", *_ON_CIFAR]
    common += [f"--dataset={dataset}"] if dataset else []
    common += [f"--rounds={rounds}"] if rounds else []
    return common


def _counts(scale: str) -> tuple[int, ...]:
    """Numbers of labels of the linear probes."""
    return (10, 50) if scale == "cpu" else (500, 5000)


def _experiment(
    name: str,
    title: str,
    common: list[str],
    settings: Mapping[str, tuple[str, tuple[str, ...]]],
    counts: tuple[int, ...],
    claims: Mapping[str, Callable[[Lookup], bool]],
    notes: tuple[str, ...],
) -> Experiment:
    """An experiment with a run for each setting and a linear probe for each number of labels.

    Args:
      name: Name of the experiment.
      title: Its title.
      common: Flags of all cells.
      settings: Row -> (name of its folder, its flags).
      counts: Numbers of labels; the claims are about the last.
      claims: Text -> function that checks it.
      notes: The experiment's notes.
    """
    cells = tuple(Cell(cell, "pretrain", (*common, *flags)) for cell, flags in settings.values())
    rows = {row: (cell,) for row, (cell, _) in settings.items()}
    tables = tuple(
        Table(f"Linear probe, {labels} labels", Selector("linear", labels), (_COLUMN,), rows, {})
        for labels in counts
    )
    claim_table = tables[-1].title
    return Experiment(
        name,
        title,
        cells,
        tables,
        tuple(Claim(text, claim_table, holds) for text, holds in claims.items()),
        notes,
    )


EXPERIMENTS = {
    "dcco_privacy": (privacy, "DCCO's accuracy against epsilon, from 1 to infinity"),
    "dcco_communication": (communication, "DCCO's accuracy against the bytes that clients send"),
}
