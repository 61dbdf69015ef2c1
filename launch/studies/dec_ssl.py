"""Figures 2, 9, 11 and 18 of the Dec-SSL paper, and what all of its experiments share.

At the CPU's scale, all but Figures 2 and 5 have the setting of `presets/dec_ssl/cpu/sweeps.flags`,
in which a run takes about a minute.
"""

from collections.abc import Iterable, Mapping

from launch.studies.engine.claims import Number, PaperClaim, Proof, Trial, claim
from launch.studies.engine.statements import above, each_above, loses_less, say, slug, times_below
from launch.studies.engine.study import UNTRAINED, At, Rows, cell, grid, study, table
from tff_ssl.reporting.experiment import Cell, Claim, Contrast, Experiment, Table
from tff_ssl.reporting.measured import Selector

SSL, SLREP, SL = METHODS = ("Dec-SSL", "Dec-SLRep", "Dec-SL")
BY_LABELS, SKEWED = "--partition=dirichlet_per_class", "--partition=skew --beta="
PAPERS_ALPHAS = ("5", "1", "0.5", "0.1", "0.01")  # Of the Dirichlet partition.
# By scale: labels of the probes; local epochs E where they do not vary, for which the paper has 5
# or 50; and epochs in all over all clients' images.
LABELS, EPOCHS, MANY_EPOCHS, TOTAL = (5000, 50_000), (2, 5), (2, 50), (10, 500)
SWEEPS = "CIFAR-10, 5000 images, tiny ResNet at 16x16, 10 epochs in all."  # Setting of claims.


def training(at: At, epochs: int = 0, total: int = 0, share: float = 1.0, preset: str = "") -> str:
    """Flags of preset, data set, local epochs (or `EPOCHS`) and rounds.

    The rounds follow from the `total` epochs over all clients' images (or `TOTAL`), and from the
    share of the clients that take part in a round. The preset is of this paper if it has no folder.
    """
    epochs, preset = epochs or at(*EPOCHS), preset or at("sweeps", "server")
    rounds = max(1, round((total or at(*TOTAL)) / epochs / share))
    path = preset if "/" in preset else f"dec_ssl/{preset}"
    return f"{at.training(path, rounds)} --hparam=local_epochs={epochs}"


def by_alpha(alphas: Iterable[str], start: str, flags: str) -> dict[str, tuple[str, str]]:
    """Columns of `grid` for degrees of non-IIDness."""
    return {f"alpha {a}": (f"{start}alpha{a}", f"{flags} --alpha={a}") for a in alphas}


def methods(at: At) -> dict[str, tuple[str, ...]]:
    """Rows of `grid`. A supervised run ends with its classifier: its encoder is probed, too."""
    draws = at(5, 1)  # All labels can be drawn in one way only.
    probe = f"--protocol=linear --labels={at(*LABELS)} --label_draws={draws}"
    return {
        SSL: ("nt_xent", "--objective=nt_xent"),
        SLREP: ("supervised", "--objective=supervised", probe),
    }


def sweep(
    at: At, title: str, columns: Mapping[str, tuple[str, ...]], flags: str, needs: str | None = None
) -> tuple[list[Cell], Table]:
    """The cells and the table of a figure: a row for each learning method (see `grid`).

    Dec-SL is the classifier of the supervised run and Dec-SLRep a probe of its encoder: both take
    one training.
    """
    cells, names = grid(methods(at), columns, flags, needs=needs)
    return cells, accuracies(at, title, columns, {**names, SL: names[SLREP]})


def accuracies(at: At, title: str, columns: Iterable[str], rows: Rows) -> Table:
    """A table of linear probes and Dec-SL's classifier; the first row is also shown untrained."""
    selectors = {SL: Selector("supervised")} if SL in rows else {}
    untrained, selector = {UNTRAINED: next(iter(rows))}, Selector("linear", at(*LABELS))
    return table(title, selector, columns, rows, untrained=untrained, selectors=selectors)


def robust(shown: Table) -> list[Claim]:
    """Statements that Dec-SSL suffers less than supervised methods from first to last column."""
    text, last = "At {column}, {row} is above {other}", shown.columns[-1]
    others = (SLREP, SL)
    return loses(shown, SSL, others) + each_above(shown, "above", SSL, others, text, last)


def slrep_above(shown: Table) -> list[Claim]:
    """Statements that Dec-SLRep is above Dec-SL, in each column."""
    return each_above(shown, "slrep", SLREP, SL, "At {column}, {row} is above {other}")


def loses(
    shown: Table, row: str, others: Iterable[str], columns: Iterable[str] = ()
) -> list[Claim]:
    """A statement for each of others: `row` loses less from the first to the last column."""
    first, *_, last = columns or shown.columns
    return [
        Claim(f"From {first} to {last}, {other} falls, and {row} loses less", shown.title,
              loses_less(row, other, first, last), f"less.{slug(row)}.{slug(other)}")
        for other in others
    ]  # fmt: skip


def keeps(shown: Table, row: str = SSL, columns: Iterable[str] = ()) -> list[Claim]:
    """The statement that `row` is stable from the first to the last column, and has a gain.

    The paper shows curves and gives no bound of what is stable; this is the bound here.
    """
    first, *_, last = columns or shown.columns
    text = f"{row} keeps more than half of its gain over the untrained encoder"
    gains = above(row, UNTRAINED, (first, last))  # Without a gain there is no half of it.
    half = {(row, last): 1, (UNTRAINED, last): -1, (row, first): -0.5, (UNTRAINED, first): 0.5}
    condition = *gains, Contrast(half)
    return say(shown, f"keeps.{slug(row)}", f"From {first} to {last}, {text}", condition)


def stable(
    shown: Table, row: str = SSL, other: str = SLREP, columns: Iterable[str] = ()
) -> list[Claim]:
    """The statements of `keeps`, and of `loses` for another row."""
    return keeps(shown, row, columns) + loses(shown, row, [other], columns)


@study("Dec-SSL, Figure 2, on {data} at {scale} scale", "cifar10")
def dec_ssl_figure2(at: At) -> Experiment:
    """Dec-SSL, Dec-SLRep and Dec-SL against non-IIDness.

    Published as curves without numbers: Dec-SSL hardly falls with non-IIDness, supervised learning
    does. 5 clients, ResNet-18, 500 epochs in all.

    gpu: Alpha 5 and 0.01 alone, and E = 10 in place of 50: a round of 50 epochs of all images
    takes longer than ten minutes, in which a run could not be stopped.
    """
    epochs = at(4, 50, 10)
    alphas = at(("5", "0.1", "0.01"), PAPERS_ALPHAS, ("5", "0.01"))
    columns = by_alpha(alphas, "labels_", BY_LABELS)
    flags = training(at, epochs, at(48, 500), preset="server")
    cells, shown = sweep(at, f"Non-IIDness of labels, E = {epochs}", columns, flags)
    partitions = zip(columns, shown.rows[SSL], strict=True)
    return at.build(cells, shown, [keeps(shown), robust(shown), slrep_above(shown)], partitions)


@study("Dec-SSL, Figures 2 (features) and 18, on {data} at {scale} scale", "cifar10")
def dec_ssl_features(at: At) -> Experiment:
    """Dec-SSL and Dec-SL on clients with clusters of features.

    Published as curves without numbers: Dec-SSL hardly falls where clients have clusters of
    features of their own, supervised learning does. The clusters are those of the features of an
    encoder that was trained on the labels (`features`), in the paper a ResNet-50.
    """
    flags = f"{at.preset('dec_ssl/features')} --dataset={at.data}"
    encoder = cell("features", flags, script="centralized")
    clusters = (
        "--partition=feature_clusters --clusters=5 --cluster_partition=dirichlet_per_class "
        "--cluster_encoder={needed}"
    )
    columns = by_alpha(at(("5", "0.01"), PAPERS_ALPHAS), "", clusters)
    own = training(at, at(*MANY_EPOCHS))
    cells, shown = sweep(at, "Non-IIDness of features", columns, own, encoder.name)
    partitions = zip(columns, shown.rows[SSL], strict=True)
    return at.build([encoder, cells], shown, [keeps(shown), robust(shown)], partitions)


@study("Dec-SSL, Figure 11, on {data} at {scale} scale", "cifar10")
def dec_ssl_figure11(at: At) -> Experiment:
    """Dec-SSL and Dec-SL on rotated and styled clients.

    Published as curves without numbers: Dec-SSL is as robust to non-IID labels where, in addition,
    each of five clients sees its images turned by an angle of its own, or in a style of its own.
    Evaluated on images that are neither turned nor styled.
    """
    cells, tables, partitions = [], {}, {}
    for shift, title in (("rotation", "Rotated clients"), ("style", "Styled clients")):
        flags, alphas = f"{BY_LABELS} --shift={shift}", at(("5", "0.01"), PAPERS_ALPHAS)
        columns = by_alpha(alphas, f"{shift}_", flags)
        of_shift, tables[shift] = sweep(at, title, columns, training(at, at(*MANY_EPOCHS)))
        cells += of_shift
        for column, name in zip(columns, tables[shift].rows[SSL], strict=True):
            partitions[f"{shift}, {column}"] = name
    statements = [keeps(shown) + robust(shown) for shown in tables.values()]
    return at.build(cells, tables, statements, partitions)


_D_W, _CKA = "d_w", "CKA"


@study("Dec-SSL, Figure 9 and appendix B.3, on {data} at {scale} scale", "cifar10")
def dec_ssl_figure9(at: At) -> Experiment:
    """Distances of local models from the global one.

    The distance d_w of two encoders is the sum over their layers of the l2 norm of the difference.
    Published: of the first client's model from the global one, and from the third client's, after
    the last round. Measured: means over the first three clients.

    The paper compares features by eye, in a picture of those of the three clients' images. Their
    linear CKA, which is 1 for features that differ by a rotation and a scale, is not the paper's.
    """
    flags = f"{training(at, at(5, 50))} {BY_LABELS} --alpha=0.1"
    cells, rows = grid(methods(at), {}, flags, "--hparam=keep_local=true --personalized_clients=3")
    tables, statements = {}, []
    for key, words, published in (
        ("to_global", "the global one", {SSL: 17.16, SLREP: 178.92}),
        ("between", "each other", {SSL: 20.27, SLREP: 202.69}),
    ):
        title, metric = f"Local models from {words}", f"local_distance_{key}"
        tables[key] = table(
            title, Selector("linear", at(*LABELS), metric), [_D_W], rows, published, percent=False,
            selectors={SLREP: Selector("supervised", metric=metric)},
        )  # fmt: skip
        for name, end, factor in (("closer", "", 1), ("order", " by an order of magnitude", 9)):
            text = f"{title}: Dec-SSL's are closer than Dec-SLRep's{end}"
            condition = times_below(factor, SSL, SLREP, _D_W)
            statements.append(say(tables[key], name, text, condition))
        title, metric = f"CKA of the features of local models and {words}", f"local_cka_{key}"
        shown = tables[f"features.{key}"] = table(
            title, Selector("linear", at(*LABELS), metric), [_CKA], rows,
            selectors={SLREP: Selector("supervised", metric=metric)},
        )  # fmt: skip
        statements.append(say(shown, "aligned", f"{title}: Dec-SSL's are more alike than "
                              "Dec-SLRep's", above(SSL, SLREP, _CKA)))  # fmt: skip
    tables["accuracy"] = accuracies(at, "Accuracy", ["accuracy"], {**rows, SL: rows[SLREP]})
    return at.build(cells, tables, statements, {"alpha 0.1": "nt_xent"})


_CPU = "CIFAR-10, 5 clients of 400 images, small ResNet at 16x16, 12 rounds of 4 epochs."
_ENDS = ("alpha 5", "alpha 0.01")
_FIGURE9 = (
    "CIFAR-10, 5000 images on 5 clients, alpha 0.1, tiny ResNet at 16x16; mean over three clients."
)
CLAIMS = (
    claim("S1", "Figure 2, labels", "With non-IID labels Dec-SSL hardly falls, and Dec-SL does.",
          _CPU, "dec_ssl_figure2-cpu", "keeps less.*.decsl", (SSL, SL, UNTRAINED), _ENDS),
    claim("S2", "Figure 2, features, and 18",
          "With clusters of features on clients Dec-SSL hardly falls, and Dec-SL does.",
          "CIFAR-10, 5 clients with clusters of the features of a supervised encoder, 5000 images, "
          "tiny ResNet at 16x16, 5 rounds of 2 epochs.", "dec_ssl_features-cpu",
          "keeps less.*.decsl", (SSL, SL, UNTRAINED), _ENDS,
          "Dec-SLRep falls as little as Dec-SSL by the means, and is 0.4 and 0.3 points above it, "
          "which is not shown."),
    PaperClaim("S4", "Table 1, left", "For detection on COCO Dec-SSL (22.1) is close to "
               "centralized SSL (23.2), and above Dec-SLRep (19.8) and no pretraining (20.5).",
               untried="ImageNet-100 and all of COCO are not here, and the [hundred images of "
               "COCO](detection.md) cannot rank encoders. `launch.detect` has the protocol."),
    PaperClaim("S5", "Table 1, right", "For segmentation of packages Dec-SSL (61.2) is close to "
               "centralized SSL (61.6), and above no pretraining (60.8).",
               untried="Not possible: the images of packages are private."),
    PaperClaim("S6", "Theorem 3.2, Proposition 4.1, Figure 3", "A local Dec-SSL model represents "
               "all directions of the data but its own, and the global one all of them; a local "
               "Dec-SLRep model represents its own alone.",
               (Proof("Linear networks with 3 sources, d = 64 to 1024, worst of 3 draws",
                      "At d = 1024 the local Dec-SSL has 0.989 of the other directions and the "
                      "global one 0.996 of all, both with the limit 1; Dec-SLRep has 0.872 of its "
                      "own (at least 1 in the limit) and 0.048 of the others (limit 0). "
                      "Dec-SSL's shortfall from 1 falls with exponents of -0.78 (local) and -0.74 "
                      "(global), where the theorem has -0.80 at most; Dec-SLRep's 0.048 with -0.33 "
                      "(-0.10 at most)",
                      (Number(-0.78, -0.78, most=-0.80), Number(-0.74, -0.74, most=-0.80),
                       Number(-0.33, -0.33, most=-0.10)),
                      "python -m launch.studies.linear_theory", contradicts=False),)),
    claim("S9", "Figure 6a and b",
          "Dec-SSL is more robust to non-IID labels than Dec-SLRep, which is above Dec-SL.", _CPU,
          "dec_ssl_figure2-cpu", "less.*.decslrep slrep", (SSL, SLREP, SL, UNTRAINED), _ENDS,
          "Dec-SLRep falls by 5 points by the mean, and differs too much between three seeds. "
          "Dec-SL is below the untrained encoder.",
          Trial(f"{SWEEPS} Skewness beta 1, 0.3 and 0.", "dec_ssl_robustness-cpu",
                "skewed.less.*.decslrep skewed.slrep", (*METHODS, UNTRAINED),
                ("beta 1", "beta 0"),
                "On skewed clients Dec-SSL loses less than Dec-SLRep and is above it by 9 "
                "points. Dec-SLRep is above Dec-SL, too, but at beta 0 both are below the "
                "untrained encoder, so that this counts as not shown.")),
    claim("S29", "section 4, Figure 6", "Where clients differ much, Dec-SSL is above Dec-SLRep, "
          "although the latter has labels.", _CPU, "dec_ssl_figure2-cpu", "above.decslrep",
          (SSL, SLREP, UNTRAINED), ("alpha 0.01",),
          "Dec-SLRep differs too much between three seeds.",
          Trial(f"{SWEEPS} Skewness beta 0.", "dec_ssl_robustness-cpu", "skewed.above.decslrep",
                (SSL, SLREP, UNTRAINED), ("beta 0",)),
          Trial(f"{SWEEPS} 10 clients of one class each.", "dec_ssl_clients-cpu",
                "ten.above.decslrep", (SSL, SLREP, UNTRAINED), ("one class a client",))),
    claim("S16", "Figure 9, section B.3", "Local models of Dec-SSL are closer to the global one "
          "than those of Dec-SLRep: distances 17.16 and 178.92.", _FIGURE9,
          "dec_ssl_figure9-cpu", "*.order", (SSL, SLREP), (_D_W,),
          "The paper says an order of magnitude; more than a factor of nine counts here."),
    claim("S26", "Figure 9", "The features of Dec-SSL's local models are aligned with those of the "
          "global one; those of Dec-SLRep are not (pictures without figures).", _FIGURE9,
          "dec_ssl_figure9-cpu", "features.*.aligned", (SSL, SLREP), (_CKA,),
          "The paper compares by eye. The means are as it says, but those of Dec-SLRep differ much "
          "between seeds."),
    claim("S17", "Figure 11", "Dec-SSL is robust to clients of rotated and styled images.",
          "CIFAR-10, 5 clients with a rotation or a style each, 5000 images, tiny ResNet at 16x16, "
          "10 epochs in all; figures of rotations.", "dec_ssl_figure11-cpu",
          "*.keeps", (*METHODS, UNTRAINED), _ENDS, "Dec-SLRep loses 4 to 6 points by "
          "the means, and its losses differ too much between three seeds to be shown."),
)  # fmt: skip
