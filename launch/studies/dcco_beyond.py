"""DCCO beyond its paper: extensions that it names as open work, privacy and compression.

Nothing of this is published, and the statements are expectations.
"""

import itertools
from collections.abc import Mapping, Sequence

from launch.studies.engine.statements import above, say
from launch.studies.engine.study import UNTRAINED, At, Rows, grid, study, table
from tff_ssl.aggregation.differential_privacy import Accountant, default_delta
from tff_ssl.reporting.experiment import Experiment, Table
from tff_ssl.reporting.measured import ROUND, TRAINING, Selector

_COLUMN = "test accuracy"


def _common(at: At, cpu_preset: str, papers_clients: str) -> str:
    """Flags of all cells: DCCO on the CPU scale's preset, or on CIFAR-100 as in its Table 1."""
    # Tables show the untrained encoder, which the preset of Table 1 leaves out.
    paper = f"{at.preset('dcco_table1/dcco')} --baselines=random_encoder {papers_clients}"
    preset = at(f"--flagfile=launch/presets/{cpu_preset}.flags", paper)
    return f"{preset} {f'--dataset={at.data}' if at.data else ''} {at.length()}"


def _probes(
    labels: Sequence[int], rows: Rows, untrained: Mapping[str, str],
    starts: Mapping[str, str] | None = None,
) -> dict[str, Table]:  # fmt: skip
    """The tables of linear probes on each number of labels."""
    return {
        f"of_{n}": table(f"Linear probe, {n} labels", Selector("linear", n), [_COLUMN], rows,
                         untrained=untrained, starts=starts)
        for n in labels
    }  # fmt: skip


def _sent(title: str, labels: int, direction: str, rows: Rows) -> Table:
    """The bytes that a client receives or sends."""
    metric = f"bytes_{direction}_per_client_and_round"
    return table(title, Selector("linear", labels, metric), ["bytes"], rows, percent=False)


# With held means, the gradient does not vanish where all encodings move alike, but moves them
# further: four local steps diverge at a rate of 1e-4, and with one communication DCCO's server rate
# gives less than an untrained encoder. Their rates were chosen by kNN on training images, on
# another seed; the paper's scale keeps the ratio to DCCO's. Variants whose means follow the model
# run at DCCO's server rate; there, 1e-3 is finite, and 1e-4 (chosen likewise) learns as much in a
# round as one step.
_DCCO, _ONE_STAGE = "--algorithm=dcco", "--algorithm=dcco_one_stage --hparam=variant"
_MOMENTUM = "--hparam=statistics_momentum"
_OF_16, _STEPS = f"{_DCCO} --alpha=1000 --samples_per_client=16", "--hparam=local_steps"
_RATE = "--hparam=client_learning_rate"
_HELD = f"{_RATE}=3e-5 --hparam=means_follow=false"
_STALE = "one communication, stale statistics"
_EXTENSIONS = {
    "DCCO": ("dcco", _DCCO),
    "DCCO with VICReg": ("vicreg", f"{_DCCO} --objective=vicreg"),
    "two encoders, a view each": ("towers_views", f"{_DCCO} --towers=views"),
    "two encoders, a half each": ("towers_halves", f"{_DCCO} --towers=halves --view_size=32"),
    "one communication, paired moments":
        ("one_stage_paired_moments", f"{_ONE_STAGE}=paired_moments {_MOMENTUM}=0.9"),
    "one communication, paired mean":
        ("one_stage_paired_mean", f"{_ONE_STAGE}=paired_mean {_MOMENTUM}=0.5"),
    "one communication, delayed gradient":
        ("one_stage_delayed_gradient", f"{_ONE_STAGE}=delayed_gradient {_MOMENTUM}=0"),
    _STALE: ("one_stage_0", f"{_ONE_STAGE}=stale_statistics {_MOMENTUM}=0"),
    f"{_STALE}, momentum 0.5": ("one_stage_0.5", f"{_ONE_STAGE}=stale_statistics {_MOMENTUM}=0.5"),
    f"{_STALE}, momentum 0.9": ("one_stage_0.9", f"{_ONE_STAGE}=stale_statistics {_MOMENTUM}=0.9"),
    "clients of 16, one local step": ("steps_1", _OF_16),
    "clients of 16, four local steps": ("steps_4_following", f"{_OF_16} {_STEPS}=4 {_RATE}=1e-4"),
    "clients of 16, four local steps at a larger rate":
        ("steps_4_following_1e-3", f"{_OF_16} {_STEPS}=4 {_RATE}=1e-3"),
    "clients of 16, two local steps, held means": ("steps_2", f"{_OF_16} {_STEPS}=2 {_HELD}"),
    "clients of 16, four local steps, held means": ("steps_4", f"{_OF_16} {_STEPS}=4 {_HELD}"),
    "clients of 16, four local steps of 8 images, held means":
        ("steps_4_of_8", f"{_OF_16} {_STEPS}=4 --hparam=batch_size=8 {_HELD}"),
}  # fmt: skip
# Cells that are run on CIFAR-10 at the CPU's scale: communications and local steps.
_ON_CIFAR10 = (
    "dcco", "one_stage_paired_moments", "one_stage_paired_mean", "one_stage_delayed_gradient",
    "steps_1", "steps_4_following",
)  # fmt: skip


@study("DCCO beyond its paper, {on_data}at {scale} scale")
def dcco_extensions(at: At) -> Experiment:
    """VICReg, two encoders, local steps, one communication a round.

    Bytes: in a stack that runs DCCO's two stages as two computations, whose clients keep nothing in
    between, a client gets the model twice. With one communication and stale statistics it gets the
    model once; the other variants send the models of two rounds.

    Nothing of this is published: section 6 of the paper names it as open work. The claims are
    expectations.
    """
    on_cifar10 = at(at.data == "cifar10", False)
    preset = f"dcco_extensions/cpu/{'cifar10' if on_cifar10 else 'dcco'}"
    common = _common(at, preset, "--alpha=0 --samples_per_client=4")
    of_4, of_16 = at((32, 8), (128, 32))  # A round has 128 images, or the paper's 512.
    rate = f"--hparam=server_learning_rate={at(2e-4, 5e-4)}"
    planes = ("towers_colour_planes", f"{_DCCO} --towers=colour_planes")
    settings = {}
    of_paper = at({}, {"two encoders, red and blue": planes})  # The digits have one colour plane.
    for row, (name, flags) in {**_EXTENSIONS, **of_paper}.items():
        if not on_cifar10 or name in _ON_CIFAR10:
            clients = f"--clients_per_round={of_16 if _OF_16 in flags else of_4}"
            settings[row] = (name, f"{flags} {clients} {rate if row.startswith(_STALE) else ''}")
    cells, rows = grid(settings, {}, common)
    labels = (5000,) if on_cifar10 else at((10, 50), (500, 5000))
    # The paper's scale evaluates no untrained encoder.
    # Two encoders have more features than one, also before training.
    starts = {row: f"untrained {row}" for row in rows if row.startswith("two encoders")}
    untrained = {UNTRAINED: "DCCO", **{start: row for row, start in starts.items()}}
    tables = _probes(labels, rows, at(untrained, {}), at(starts, {}))
    *_, last = tables.values()
    expected = (
        ("DCCO with VICReg", "VICReg's statistics do as well as CCO's (within 2 points)", "DCCO"),
        ("two encoders, a view each", "Two encoders do as well as one (within 2 points)", "DCCO"),
        ("one communication, paired moments", "One communication a round costs at most 2 points",
         "DCCO"),
        ("clients of 16, four local steps", "Several local steps whose means follow cost at most 2 "
         "points", "clients of 16, one local step"),
    )  # fmt: skip
    statements = [
        say(shown, "costs", text, above(row, other, _COLUMN, -0.02))
        for shown in tables.values()
        for row, text, other in expected
        if row in rows
    ]
    for direction, verb in (("down", "receives"), ("up", "sends")):
        title = f"Bytes that a client {verb} in a round"
        tables[direction] = _sent(title, labels[0], direction, rows)
    title = "Megabytes that server and clients send in all rounds"
    selector = Selector(TRAINING, metric="megabytes")
    tables["megabytes"] = table(title, selector, ["megabytes"], rows, percent=False)
    partitions = {"clients of 4, one class": "dcco", "clients of 16": "steps_1"}
    against = ((title, last.title),)
    costs = {"rounds": ROUND, "bytes that server and clients send": "bytes"}
    return at.build(cells, tables, statements, partitions, against=against, costs=costs)


# For aggregators of single clients: at the paper's scale, the updates of 512 clients with a
# ResNet-18 are 23 GB, of which there would be several copies in memory.
_SLICES = "--slices=32"
_PAPERS_CLIENTS = "--alpha=0 --samples_per_client=1 --clients_per_round=512"
# Noise multipliers of the rows with less noise. With a few hundred clients, the noise of an
# acceptable epsilon hides the signal. What noise does to a mean depends on the multiplier over the
# clients of a round, so that these rows show such an epsilon with many times as many clients.
_NOISES, _FACTORS = (0.3, 0.1, 0.03), (1, 10, 100)
_CLIPPED, _WITHOUT = "epsilon inf", "no privacy"
# By scale: clients, expected number of clients in a round, and rounds.
PARTICIPATION = ((364, 96, 40), (50_000, 512, 100_000))


@study("DCCO's accuracy against epsilon, at {scale} scale")
def dcco_privacy(at: At) -> Experiment:
    """DCCO's accuracy against epsilon, from 1 to infinity.

    Epsilon is that of all rounds together, for a client with all of its images; delta is the number
    of clients to the power of -1.1. Infinite: clipped as the others are, without noise. Noise is
    not seeded, so that no figure can be repeated to the bit.
    """
    # The server's Adam does not depend on the size of a delta. The norm of statistics is near the
    # number of projections: 14 to 16 on training images of the digits, before training.
    clips = f"--dp_clip=1 --dp_statistics_clip={at(15, 1000)}"
    by_privacy = {
        **{f"epsilon {e}": (f"epsilon_{e}", f"--dp_epsilon={e} {clips}") for e in (1, 2, 4, 8, 16)},
        **{f"noise {z}": (f"noise_{z}", f"--dp_noise_multiplier={z} {clips}") for z in _NOISES},
        _CLIPPED: ("epsilon_inf", f"--dp_epsilon=inf {clips}"),
    }
    common = _common(at, "digits/private_dcco", _PAPERS_CLIENTS)
    uniform = f"--sampling=poisson --hparam=client_weighting=uniform {at('', _SLICES)}"
    cells, rows = grid({**by_privacy, _WITHOUT: ("without", "")}, {}, common, uniform)
    tables = _probes(at((10, 50), (500, 5000)), rows, {"untrained encoder": _WITHOUT})

    rises = tuple(
        contrast
        for less, more in itertools.pairwise(by_privacy)
        for contrast in above(more, less, _COLUMN, -0.02)
    )
    _, shown = tables.values()
    statements = [
        say(shown, "rises", "Accuracy does not fall with epsilon (by more than 2 points)", rises),
        say(shown, "clipping", "Clipping without noise costs at most 5 points",
            above(_CLIPPED, _WITHOUT, _COLUMN, -0.05)),
        say(shown, "noise", "Noise of 0.1 costs at most 5 points",
            above("noise 0.1", _CLIPPED, _COLUMN, -0.05)),
    ]  # fmt: skip
    notes = [] if at.data or at.rounds else [_more_clients(at)]
    notes.append("Nothing of this is published; the claims are expectations.")
    return at.build(cells, tables, statements, notes=notes)


def _more_clients(at: At) -> str:
    """A note with the epsilon of each row of little noise at larger numbers of clients."""
    clients, per_round, rounds = at(*PARTICIPATION)

    def epsilon(noise: float, factor: int) -> str:
        delta = default_delta(factor * clients)
        spent = Accountant(per_round / clients, (factor * noise,) * 2, delta).epsilon(rounds)
        return f"{spent:{',.0f' if spent >= 10 else '.2g'}} with {factor * clients:,}"

    rows = [f"noise {z}: epsilon {', '.join(epsilon(z, f) for f in _FACTORS)}" for z in _NOISES]
    return (
        "What noise does depends on the noise multiplier over the clients of a round. So a row of "
        f"{clients:,} clients with little noise is one of more clients with a smaller epsilon, the "
        f"same part of them in each round. {'; '.join(rows)}."
    )


# Row -> (name of its cell, its flags). Clients of the first and of `half` are folded into groups.
_AGGREGATORS = {
    "mean, 32 bits": ("mean", ""),
    "quantized, 8 bits": ("quantized_8", "--aggregator=quantized --quantization_bits=8"),
    "quantized, 4 bits": ("quantized_4", "--aggregator=quantized --quantization_bits=4"),
    "rotated, 8 bits": ("rotated_8", "--aggregator=rotated --quantization_bits=8"),
    "rotated, 4 bits": ("rotated_4", "--aggregator=rotated --quantization_bits=4"),
    "rotated, 2 bits": ("rotated_2", "--aggregator=rotated --quantization_bits=2"),
    "half of <F G^T>": ("half", "--symmetric_statistics"),
    "rotated, 4 bits, half of <F G^T>": (
        "rotated_4_half", "--aggregator=rotated --quantization_bits=4 --symmetric_statistics",
    ),
}  # fmt: skip


@study("DCCO's accuracy against the bytes that clients send, at {scale} scale")
def dcco_communication(at: At) -> Experiment:
    """DCCO's accuracy against the bytes that clients send.

    Bytes are counted from the types of what is sent.

    Nothing of this is published; the claims are expectations.
    """
    # Clients cannot be folded: only a small encoder and few rounds take little time.
    short = at(f"--encoder=tiny --eval_every=0 {at.length(100)}", "")
    settings = {
        row: (name, f"{flags} {at('', _SLICES) if '--aggregator' in flags else ''}")
        for row, (name, flags) in _AGGREGATORS.items()
    }
    cells, rows = grid(settings, {}, _common(at, "digits/dcco", _PAPERS_CLIENTS), short)
    labels = at((10, 50), (500, 5000))
    tables = _probes(labels, rows, {UNTRAINED: "mean, 32 bits"})
    _, shown = tables.values()
    statements = [
        say(shown, "costs", text, above(row, "mean, 32 bits", _COLUMN, -0.02))
        for text, row in (
            ("8 bits cost at most 2 points", "quantized, 8 bits"),
            ("4 bits after a rotation cost at most 2 points", "rotated, 4 bits"),
            ("Half of <F G^T> costs at most 2 points", "half of <F G^T>"),
        )
    ]
    title = "Bytes that a client sends in a round"
    tables["sent"] = _sent(title, labels[1], "up", rows)
    return at.build(cells, tables, statements, against=((title, shown.title),))
