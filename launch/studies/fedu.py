"""Tables 1, 2 and 3 of the FedU paper, with its two encoders side by side."""

from launch.studies.engine.claims import Number, PaperClaim, Proof, Trial, claim
from launch.studies.engine.statements import ON_CLIENTS, above, each_above, say
from launch.studies.engine.study import At, cell, grid, study, table
from tff_ssl.reporting.experiment import Cell, Contrast, Experiment
from tff_ssl.reporting.measured import Selector

SINGLE, SUPERVISED = "Single client training", "FedAvg (supervised)"
CENTRAL, UNTRAINED = "BYOL (centralized)", "untrained encoder"
# Split -> end of its cells' names, and flags of the partition.
SPLITS = {"IID": ("iid", "--partition=iid"), "non-IID": ("noniid", "--partition=skew --beta=0")}
AVERAGED = "--algorithm=fedbn --hparam=batch_norm=averaged"
FEDBYOL = ("fedbyol", "--algorithm=fedu --hparam=update=both --hparam=predictor_update=global")
# Row -> start of its cells' names, and its flags.
_METHODS = {
    SINGLE: ("single", "--algorithm=fedbn --objective=byol --hparam=averaging=none "
             "--personalized_clients=5"),
    "FedSimCLR": ("fedsimclr", f"{AVERAGED} --objective=nt_xent"),
    # The alignment needs an encoder of public images, which are not here.
    "FedCA": ("fedca", "--algorithm=fedca --hparam=alignment_weight=0"),
    # SimSiam's own projector has batch norm on its output (Chen and He 2021, section 4).
    "FedSimSiam": ("fedsimsiam", f"{AVERAGED} --objective=simsiam --projector_output_batch_norm"),
    "FedBYOL": FEDBYOL,
    "FedU": ("fedu", "--algorithm=fedu"),
}  # fmt: skip
# In percent: CIFAR-10 IID and non-IID, CIFAR-100 IID and non-IID; with ResNet-18 if the paper has
# it, otherwise with ResNet-50.
_TABLE1 = {
    SINGLE: (81.24, 71.98, 51.33, 49.69),
    "FedSimCLR": (68.10, 64.06, 39.75, 38.70),
    "FedCA": (71.25, 68.01, 43.30, 42.34),
    "FedSimSiam": (79.64, 76.70, 46.28, 48.80),
    "FedBYOL": (None, None, None, None),
    "FedU": (85.21, 78.71, 56.52, 57.08),
    SUPERVISED: (91.51, 67.74, 65.77, 64.38),
    CENTRAL: (91.85, None, 66.51, None),
}
_FEDU_RESNET50 = (86.48, 83.25, 59.51, 61.94)
# The same with 1 % and with 10 % of the labels.
_TABLE2 = {
    SINGLE: ((74.76, 60.25, 26.32, 21.95), (78.08, 70.60, 43.05, 37.70)),
    SUPERVISED: ((26.68, 17.72, 8.09, 14.47), (40.44, 21.69, 5.37, 13.98)),
    "FedSimCLR": ((50.00, 26.03, 23.01, 14.02), (60.67, 33.83, 31.56, 20.01)),
    "FedCA": ((50.67, 28.50, 23.32, 16.48), (61.02, 36.28, 32.09, 22.46)),
    "FedU": ((79.40, 68.28, 31.31, 30.36), (82.61, 78.52, 47.64, 48.80)),
    CENTRAL: ((89.07, None, 41.49, None), (89.66, None, 60.23, None)),
}
# The same of encoders that were pretrained on Mini-ImageNet.
RANDOM = "Random Init."
_TABLE3 = {
    RANDOM: (93.79, None, 70.52, None),
    SINGLE: (94.67, 94.33, 75.25, 75.14),
    "FedSimCLR": (94.87, 93.97, 71.85, 70.91),
    "FedCA": (94.94, 94.16, 71.98, 71.32),
    "FedU": (95.00, 94.83, 75.57, 75.60),
    CENTRAL: (95.37, None, 77.02, None),
}
# Share of the labels -> rounds of supervised clients at the CPU's scale. They have the images of
# the probe, a tenth of all, in as many steps as the others, which have less than 2 %.
_SUPERVISED_ROUNDS = {"1": 333, "10": 32}


def training(at: At, rounds: int | None = None) -> str:
    """Flags of all federated cells."""
    return at.training(at("fedu/fedu", "fedu/clients"), rounds)


def threshold(at: At) -> str:
    """Flags of DAPU: the paper's mu for the data set (section 4.1), or the CPU scale's own.

    The paper's mu belongs to the divergence of the authors' code. At the CPU's scale the divergence
    (Eq. 3) falls from 2.8 in the first round to 2.4 from the fifth round on; with a cosine schedule
    it passes 2.6 in the middle of the run.
    """
    mu = {"cifar100": 0.6, "mini_imagenet": 0.6}.get(at.data, 0.4)
    return at("--hparam=mu=2.6", f"--hparam=mu={mu} --hparam=divergence=mean_layer_l2")


def _method(row: str, at: At, *evaluations: str) -> tuple[str, ...]:
    """A row of `grid`: FedU's threshold is added to the algorithms that have it."""
    start, flags = _METHODS[row]
    mu = threshold(at) if "--algorithm=fedu" in flags.split() else ""
    return start, f"{flags} {mu}", *evaluations


def _central(at: At, flags: str, *evaluations: str) -> Cell:
    """Centralized BYOL on the images of all clients.

    At the CPU's scale it is one client with the images of all, whose 25 steps a round replace 54 %
    of its target network.
    """
    preset, script = at.training("fedu/centralized"), "centralized"
    if at.scale == "cpu":
        one_client = "--partition=iid --num_clients=1 --clients_per_round=1"
        script = "pretrain"
        preset = f"{training(at)} --algorithm=fedu {one_client} --hparam=target_momentum=0.97"
    return cell("central", preset, flags, evaluations=evaluations, script=script)


def _of_data(data: str, figures: dict[str, tuple]) -> dict[str, tuple]:
    first = 2 if data == "cifar100" else 0
    return {row: of_row[first : first + 2] for row, of_row in figures.items()}


@study("FedU, Tables 1 and 2, on {data} at {scale} scale", "cifar10")
def fedu_table1(at: At) -> Experiment:
    """FedU against single clients, FedSimCLR, FedCA, FedSimSiam, FedBYOL.

    Published: 5 clients, 100 rounds of 5 epochs, ResNet-18 for single client training and FedU,
    ResNet-50 for the others. Single client training: in Table 1 the mean over the clients' own
    models, in Table 2 the first client's.

    cpu: At this scale: clients with 160 images each, a ResNet of three blocks at 12x12, 200 rounds
    of one epoch. Supervised clients have all images whose labels the probe or the fine-tuning has,
    in as many steps; in Table 1 these are 5000. BYOL (centralized) is one client with 800 images.
    FedCA has no alignment, because it needs an encoder of public images.

    gpu, paper: FedCA has no alignment, because it needs an encoder of public images.
    """
    # 100 epochs of a tenth of the labels (section 4.3, without optimizer and rate).
    steps = at("", "--finetune_batch_size=128 --finetune_steps=3900")
    few = f"--protocol=semi_supervised --label_draws=1 {steps}"
    methods = {row: _method(row, at, few if row in _TABLE2 else "") for row in _METHODS}
    cells, rows = grid(methods, SPLITS, training(at))
    # With few labels, supervised clients have only the images of these labels.
    labels = at({}, {"": ("", "")})
    for share, rounds in _SUPERVISED_ROUNDS.items():
        fewer = f"--data_fraction={int(share) / 100} {at(at.length(rounds), '')}"
        labels[share] = (f"{share}_percent", fewer)
    of_split = {f"supervised_{end}": (f"supervised_{end}", flags) for end, flags in SPLITS.values()}
    supervised, _ = grid(of_split, labels, training(at), AVERAGED, "--objective=supervised")
    rows[SUPERVISED] = tuple(f"{name}{at('_10_percent', '')}" for name in of_split)
    rows[CENTRAL] = ("central", None)
    selectors = {SUPERVISED: Selector("supervised"), SINGLE: Selector("linear_personalized")}
    probed = table(
        "Table 1: linear probe", Selector("linear"), SPLITS, rows, _of_data(at.data, _TABLE1),
        untrained={UNTRAINED: "FedU"}, selectors=selectors,
    )  # fmt: skip
    tables = {"probed": probed}
    for i, share in enumerate(_SUPERVISED_ROUNDS):
        of_share = {row: rows[row] for row in _TABLE2}
        of_share[SUPERVISED] = tuple(f"{name}_{share}_percent" for name in of_split)
        published = _of_data(at.data, {row: figures[i] for row, figures in _TABLE2.items()})
        tables[f"tuned.{share}%"] = table(
            f"Table 2: fine-tuning with {share}% of the labels",
            Selector("semi_supervised", 500 * int(share)), SPLITS, of_share, published,
            untrained={UNTRAINED: "FedU"}, selectors={SUPERVISED: selectors[SUPERVISED]},
        )  # fmt: skip
    _, *tuned = tables.values()
    rivals = (SINGLE, "FedSimCLR", "FedCA")
    single = "FedU is more than {} points above single client training on {} clients"
    others = "FedU is more than 14 points above other methods on non-IID clients"
    statements = [
        each_above(probed, "above", "FedU", (*rivals, "FedSimSiam"), ON_CLIENTS),
        each_above(tuned, "above", "FedU", (*rivals, SUPERVISED), ON_CLIENTS),
        # The abstract. Its 14 points are those of FedU's ResNet-50, not of this row.
        say(tables.values(), "size", single.format(5, "non-IID"),
            above("FedU", SINGLE, "non-IID", 0.05)),
        say(probed, "others", others, above("FedU", ("FedSimCLR", "FedSimSiam"), "non-IID", 0.14)),
        say(tuned, "others", others, above("FedU", "FedSimCLR", "non-IID", 0.14)),
        # "Around 3 % regardless of the settings" (section 4.3).
        say(tuned, "size", single.format(2, "IID"), above("FedU", SINGLE, "IID", 0.02)),
        say(probed, "supervised", "On non-IID clients FedU is above supervised FedAvg's own "
            "classifier", above("FedU", SUPERVISED, "non-IID")),
        say(tables.values(), "central", f"{CENTRAL} is above FedU on IID clients",
            above(CENTRAL, "FedU", "IID")),
    ]  # fmt: skip
    partitions = zip(SPLITS, rows["FedU"], strict=True)
    return at.build([cells, supervised, _central(at, "", few)], tables, statements, partitions)


@study("FedU with two encoders, on {data} at {scale} scale", "cifar10")
def fedu_encoders(at: At) -> Experiment:
    """FedU with a smaller and with a larger encoder.

    cpu: At this scale the larger encoder has twice the channels of the smaller one, and as many
    layers. 75 rounds. The threshold of DAPU is one of the mean over the parameters.

    paper: Published in Table 1.
    """
    names = at(("tiny", "small"), ("resnet18", "resnet50"))
    # The mean over the parameters hardly depends on the encoder.
    dapu = at("--hparam=mu=2.75e-5 --hparam=divergence=mean_squared", threshold(at))
    encoders = {f"FedU, {name}": (name, f"--encoder={name}") for name in names}
    cells, rows = grid(encoders, SPLITS, training(at, at(75, None)), "--algorithm=fedu", dapu)
    smaller, larger = rows
    starts = {row: f"{UNTRAINED}, {name}" for row, (name, _) in encoders.items()}
    published = _of_data(at.data, {smaller: _TABLE1["FedU"], larger: _FEDU_RESNET50})
    shown = table(
        "Table 1: FedU by encoder", Selector("linear"), SPLITS, rows, published,
        untrained={start: row for row, start in starts.items()}, starts=starts,
    )  # fmt: skip
    text = "The larger encoder is better on {column} clients"
    statements = [each_above(shown, "larger", larger, smaller, text)]
    for split in SPLITS:
        text = f"Training gains more with the larger encoder on {split} clients"
        gains = {(larger, split): 1, (starts[larger], split): -1, (smaller, split): -1,
                 (starts[smaller], split): 1}  # fmt: skip
        statements.append(say(shown, "gain", text, (Contrast(gains),)))
    return at.build(cells, shown, statements, zip(SPLITS, rows[smaller], strict=True))


# Mini-ImageNet has to be prepared by the user: the CPU's scale goes from one CIFAR to the other.
@study("FedU, Table 3, from {data} at {scale} scale", cpu="cifar100", paper="mini_imagenet")
def fedu_table3(at: At) -> Experiment:
    """FedU and its baselines, fine-tuned on another data set.

    Published: ResNet-50, pretrained on Mini-ImageNet. Single client training: the first client's
    model. The linear probe on another data set is not in the paper's table. That on the data set of
    the pretraining is of Table 1, where single client training is the mean over the clients' own
    models.

    cpu: At this scale the encoders are pretrained on five clients with 160 images of CIFAR-100
    each, because Mini-ImageNet is not here, and fine-tuned on 5000 labels.
    """
    targets = at(("cifar10",), ("cifar10", "cifar100"))
    targets = tuple(target for target in targets if target != at.data) or ("cifar100",)
    labels, draws = at((5000, 5), (50_000, 1))  # All labels can be drawn in one way only.
    # 100 epochs of fine-tuning (section 4.4, without optimizer and rate).
    tuning = f"--label_draws=1 {at('', '--finetune_batch_size=128 --finetune_steps=39000')}"
    evaluations = [
        f"--protocol={protocol} --dataset={target} --labels={labels} {flags}"
        for target in targets
        for protocol, flags in (("finetune", tuning), ("transfer", f"--label_draws={draws}"))
    ]
    own = at("", "--encoder=resnet50 --image_size=84")
    rivals, ours = (SINGLE, "FedSimCLR", "FedCA"), "FedU"
    methods = {row: _method(row, at, *evaluations) for row in (*rivals, ours)}
    cells, rows = grid(methods, SPLITS, training(at), own)
    rows[CENTRAL] = ("central", None)
    tables = {}
    for target in targets:
        tuned = Selector("finetune", labels, dataset=target)
        tables[f"tuned.{target}"] = table(
            f"Table 3: fine-tuned on {target}", tuned, SPLITS, {RANDOM: rows[ours], **rows},
            _of_data(target, _TABLE3), untrained={RANDOM: ours},
        )  # fmt: skip
        tables[f"probed.{target}"] = table(
            f"Linear probe on {target}", tuned._replace(protocol="transfer"), SPLITS, rows,
            untrained={UNTRAINED: ours},
        )  # fmt: skip
    # Labels are those of the preset.
    tables["home"] = table(
        f"Table 1: linear probe on {at.data}", Selector("linear"), SPLITS, rows,
        _of_data(at.data, {row: _TABLE1[row] for row in rows}) if at.data == "cifar100" else None,
        untrained={UNTRAINED: ours}, selectors={SINGLE: Selector("linear_personalized")},
    )  # fmt: skip
    text = "Centralized BYOL is above FedU on IID clients"
    statements = [
        each_above(shown, "above", ours, rivals, ON_CLIENTS)
        + say(shown, "central", text, above(CENTRAL, ours, "IID"))
        for shown in tables.values()
    ]
    partitions = zip(SPLITS, rows[ours], strict=True)
    return at.build([cells, _central(at, own, *evaluations)], tables, statements, partitions)


TINY = "Tiny ResNet at 12x12, 200 rounds, momentum 0.856, 5 clients of 160 images"
_OLD = "CIFAR-10, 5 clients of 400 images of two classes, small ResNet at 16x16, 40 rounds."
_NON_IID_RIVALS = "{0}.above.single_client_training.noniid {0}.above.fedsimclr.noniid"
_SINGLE_ALONE = "Of the baselines, single clients alone were run."
_BOTH = tuple(SPLITS)
_ENCODERS = (
    f"{TINY} of CIFAR-10, 75 rounds; the larger encoder is the small ResNet, which has twice the "
    "channels and as many layers"
)
_OF_ENCODERS = ("FedU, small", "FedU, tiny", f"{UNTRAINED}, small", f"{UNTRAINED}, tiny")
CLAIMS = (
    claim("U1", "Table 1", "In linear probes FedU is above single clients, FedSimCLR, FedSimSiam "
          "and FedCA; non-IID CIFAR-10: 78.7 against 72.0 of single clients (ResNet-18).",
          f"{TINY} of CIFAR-10.", "fedu_table1-cpu", "probed.above",
          ("FedU", SINGLE, "FedSimCLR", "FedCA", "FedSimSiam", "FedBYOL", UNTRAINED), _BOTH,
          "FedSimCLR is 2.9 to 3.8 points above FedU. FedSimSiam and FedBYOL have higher means, "
          "too. FedCA is near its untrained encoder on IID clients and below it on the others: a "
          "comparison with it says little.",
          Trial(_OLD, "fedu_table1, not kept",
                f"{_NON_IID_RIVALS.format('probed')} probed.above.fedsimsiam.noniid",
                ("FedU", SINGLE), ("non-IID",), _SINGLE_ALONE)),
    claim("U2", "Table 1",
          "On non-IID CIFAR-10 FedU is above supervised FedAvg: 83.25 against 67.74.",
          f"{TINY} of CIFAR-10; supervised clients have 5000 images in all, in as many steps.",
          "fedu_table1-cpu", "probed.supervised", ("FedU", SUPERVISED, UNTRAINED), _BOTH,
          "On IID clients supervised FedAvg is above FedU, as in the paper. On non-IID ones its "
          "classifier is below a probe of the untrained encoder, which would beat it, too."),
    claim("U3", "Table 2", "Fine-tuned with 1 % and 10 % of the labels FedU is above all but "
          "centralized BYOL; non-IID CIFAR-10: 68.3 and 78.5, single clients 60.3 and 70.6.",
          f"{TINY} of CIFAR-10; supervised clients have the labelled images alone, in as many "
          "steps as the pretraining.", "fedu_table1-cpu", "tuned.*.above",
          ("FedU", SINGLE, "FedSimCLR", "FedCA", SUPERVISED, UNTRAINED), _BOTH,
          "FedSimCLR is above FedU on both kinds of clients, which is shown on non-IID ones with "
          "1 % of the labels, and supervised FedAvg is above it on IID ones. With 10 % of the "
          "labels FedU is only 1.1 to 1.2 points above the untrained encoder.",
          Trial(_OLD, "fedu_table1, not kept", _NON_IID_RIVALS.format("tuned.*"),
                ("FedU", SINGLE), ("non-IID",), _SINGLE_ALONE)),
    claim("U10", "Table 1",
          "A deeper encoder is better: ResNet-50 86.48, ResNet-18 85.21 (IID CIFAR-10).",
          f"{_ENCODERS}.", "fedu_encoders-cpu", "larger", _OF_ENCODERS, _BOTH,
          "Untrained, the larger encoder is 3.7 points better already.",
          Trial(f"{_ENCODERS}: what training adds.", "fedu_encoders-cpu", "gain", _OF_ENCODERS,
                _BOTH, "By the means, training adds less to the larger encoder.")),
    claim("U4", "Table 3", "Transferred from Mini-ImageNet to CIFAR-10 FedU is above its "
          "baselines: 94.83 on non-IID clients, single clients 94.33, FedCA 94.16, FedSimCLR "
          "93.97.", f"{TINY}, from CIFAR-100, because Mini-ImageNet is not here; fine-tuned on "
          "5000 labels.",
          "fedu_table3-cpu", "tuned.*.above",
          ("FedU", SINGLE, "FedSimCLR", "FedCA", RANDOM), _BOTH,
          "FedSimCLR has the highest mean on both kinds of clients."),
    claim("U11", "Table 1", "In linear probes FedU is above its baselines on CIFAR-100, too: 56.5 "
          "(IID) and 57.1 (non-IID), single clients 51.3 and 49.7, FedSimCLR 39.8 and 38.7, FedCA "
          "43.3 and 42.3.",
          f"{TINY} of CIFAR-100; linear probes on 5000 labels.", "fedu_table3-cpu",
          "home.above", ("FedU", SINGLE, "FedSimCLR", "FedCA", UNTRAINED), _BOTH,
          "FedU is above single clients on both kinds of clients, and two points below FedSimCLR. "
          "Of all methods only FedSimCLR is above raw pixels. FedSimSiam was not run on "
          "CIFAR-100.",
          Trial(f"{TINY} of CIFAR-100.", "fedu_table3-cpu",
                "home.above.single_client_training", ("FedU", SINGLE, UNTRAINED), _BOTH,
                "Single clients alone.")),
    claim("U12", "abstract, section 4.3", "On non-IID clients FedU is above single clients by more "
          "than 5 points, in linear probes and with few labels; with few labels by around 3 on all "
          "clients.",
          f"{TINY} of CIFAR-10.", "fedu_table1-cpu", "probed.size tuned.*.size",
          ("FedU", SINGLE, UNTRAINED), _BOTH,
          "FedU is one point above single clients."),
    PaperClaim("U13", "section 5.2", "The divergence of clients' encoders from the global one "
               "falls as training proceeds.",
               (Proof("FedU's default run on the digits: squared divergence (Eq. 3), mean over "
                      "clients, in the first and in the last three of 24 rounds; 5 seeds", "3.99 "
                      "and 3.22: it falls by 0.77 (95 % interval 0.67 to 0.88)",
                      (Number(0.67, 0.88, least=0.0, p_value=4e-5),),
                      "python -m launch.pretrain --algorithm=fedu --seeds=0,1,2,3,4",
                      is_trained=True),)),
    PaperClaim("U14", "Table 2", "Fine-tuned with few labels, FedU is above its baselines on "
               "CIFAR-100, too: with 1 % of them 30.80 on non-IID clients, single clients 23.18, "
               "FedCA 16.48.",
               untried="Fine-tuning on CIFAR-100 takes two hours of a core more than the budget "
               "had. Its linear probes have been run (U11)."),
    PaperClaim("U15", "sections 4.2 and 4.3", "FedU is above FedCA by at least 14 points in linear "
               "probes; on CIFAR-10 with few labels by more than 22 % (IID) and 40 % (non-IID).",
               untried="FedCA has no alignment here, because there are no public images."),
    PaperClaim("U16", "Figure 5a", "On CIFAR-100, too, DAPU is about 5 points above both static "
               "rules.",
               untried="The rules hardly differ on CIFAR-10, where they were tried first (U6)."),
    claim("U17", "abstract", "On non-IID clients FedU is above other methods by more than 14 "
          "points, in linear probes and with few labels.", f"{TINY} of CIFAR-10.",
          "fedu_table1-cpu", "*.others", ("FedU", "FedSimCLR", "FedSimSiam", UNTRAINED),
          ("non-IID",), "In the paper's own Table 1 FedSimSiam is 6.6 points below FedU (76.70 and "
          "83.25). FedCA, the other method, has a card of its own (U15)."),
    claim("U18", "Tables 1 to 3", "Centralized BYOL is an upper bound: on IID clients it is above "
          "FedU; 91.85 and 85.21 in linear probes, 89.07 and 79.40 with 1 % of the labels.",
          f"{TINY} of CIFAR-10; centralized BYOL is one client with their images.",
          "fedu_table1-cpu", "*.central", (CENTRAL, "FedU", UNTRAINED), ("IID",), "",
          Trial(f"{TINY}, from CIFAR-100 to CIFAR-10; fine-tuned on 5000 labels.",
                "fedu_table3-cpu", "tuned.*.central", (CENTRAL, "FedU", RANDOM), ("IID",),
                "In transfer centralized BYOL is two points below FedU.")),
    PaperClaim("U19", "Table 3", "Transferred from Mini-ImageNet to CIFAR-100 FedU is above its "
               "baselines, and the closest to centralized BYOL: 75.60 on non-IID clients, single "
               "clients 75.14, FedSimCLR 70.91, BYOL 77.02.",
               untried="Mini-ImageNet is not here. CIFAR-100 is the data set of the pretraining "
               "instead (U4)."),
)  # fmt: skip
