"""Figures 6 (c, d), 7, 8, 12, 13 and 15 of the Dec-SSL paper: clients, networks, local epochs."""

from launch.studies import dec_ssl
from launch.studies.dec_ssl import BY_LABELS, MANY_EPOCHS, METHODS, SKEWED, SL, SLREP, SSL, SWEEPS
from launch.studies.engine.claims import Number, PaperClaim, Proof, Trial, claim
from launch.studies.engine.statements import above, say, slug
from launch.studies.engine.study import UNTRAINED, At, grid, study
from tff_ssl.reporting.experiment import Cell, Experiment, Table

# Of 20 clients and 10 classes, the partition may leave a client a single image, and NT-Xent needs
# two. The paper does not give its smallest client.
_SMALLEST = "--min_client_size=10"
_ALPHA, _TWO = "0.02", ("5", "0.01")  # Table 3; and those of the CPU's scale.


@study("Dec-SSL, Figures 6 (d), 13 and 15, on {data} at {scale} scale", "cifar10")
def dec_ssl_clients(at: At) -> Experiment:
    """Dec-SSL, Dec-SLRep and Dec-SL with few participants, one class a client, 100 clients.

    Published as curves without numbers: Dec-SSL is robust to few participants, to clients of one
    class, and to 100 clients. With fewer participants there are more rounds, so that all runs see
    as many images. The 100 clients are of equal size (`--partition=dirichlet`): portions of each
    class, as in the other figures, would leave most of them without images at alpha 0.01.
    """
    of_20 = {
        f"{n} of 20": (f"{n}of20", f"{dec_ssl.training(at, share=n / 20)} --clients_per_round={n}")
        for n in at((20, 5, 1), (20, 10, 4, 1))
    }
    ten = "--num_clients=10 --clients_per_round=10"
    of_10 = {
        "IID": ("10_beta1", f"{SKEWED}1 {ten}"),
        "one class a client": ("10_beta0", f"{SKEWED}0 {ten}"),
    }
    alphas = at(_TWO, dec_ssl.PAPERS_ALPHAS)
    of_100 = dec_ssl.by_alpha(alphas, "100_", "--partition=dirichlet --num_clients=100")
    # 64 images a client in batches of 32, and as many epochs in all as elsewhere.
    small = at("--samples_per_client=64 --data_fraction=1 --hparam=batch_size=32", "")
    cells, tables = [], {}
    for key, title, columns, flags in (
        ("of_20", f"Figure 6 (d): participation of 20 clients, alpha = {_ALPHA}", of_20,
         f"--num_clients=20 {BY_LABELS} --alpha={_ALPHA} {_SMALLEST}"),
        ("ten", "Figure 13: 10 clients", of_10, dec_ssl.training(at, at(*MANY_EPOCHS))),
        ("hundred", "Figure 15: 20 of 100 clients in a round", of_100,
         f"{dec_ssl.training(at, at(4, 50), share=0.2)} --clients_per_round=20 {small}"),
    ):  # fmt: skip
        found, tables[key] = dec_ssl.sweep(at, title, columns, flags)
        cells += found
    partitions = {"one class a client": "nt_xent_10_beta0", "100 clients": cells[-1].name}
    statements = [dec_ssl.robust(shown) + dec_ssl.keeps(shown) for shown in tables.values()]
    found, shown = _few_of_hundred(at, f"{list(of_100.values())[-1][1]} {small}", tables["hundred"])
    tables["few_of_hundred"] = shown
    statements.append(dec_ssl.keeps(shown))
    return at.build([cells, found], tables, statements, partitions)


def _few_of_hundred(at: At, flags: str, of_fifth: Table) -> tuple[list[Cell], Table]:
    """Cells and table of participants among 100 clients; a fifth are the last column of another."""
    most, *fewer = at((50, 5), (50, 10, 5))
    training = {n: dec_ssl.training(at, at(4, 50), share=n / 100) for n in (most, *fewer)}
    columns = {
        f"{n} of 100": (f"100_{n}", f"{own} --clients_per_round={n}") for n, own in training.items()
    }
    cells, rows = grid(dec_ssl.methods(at), columns, flags)
    rows = {row: (one, of_fifth.rows[row][-1], *others) for row, (one, *others) in rows.items()}
    rows[SL] = rows[SLREP]
    first, *last = columns
    title = f"Figure 15 (left): participation of 100 clients, {of_fifth.columns[-1]}"
    return cells, dec_ssl.accuracies(at, title, (first, "20 of 100", *last), rows)


_SERVER, _OTHER = "Star with a server", "--algorithm=dfedavg --topology"
# Row -> start of its cells' names, and its flags. The paper's star has a server in its centre.
_NETWORKS = {
    _SERVER: ("star_server", "--num_clients=10 --algorithm=fedbn --clients_per_round=10"),
    "Star": ("star", f"--num_clients=10 {_OTHER}=star"),
    "Cycle": ("cycle", f"--num_clients=10 {_OTHER}=cycle"),
    "Binary tree": ("tree", f"--num_clients=20 {_OTHER}=tree"),
    "Random graph": ("random", f"--num_clients=20 {_OTHER}=erdos_renyi --connectivity=0.7"),
}


@study("Dec-SSL, Figure 12, on {data} at {scale} scale", "cifar10")
def dec_ssl_figure12(at: At) -> Experiment:
    """Dec-SSL on networks without a server.

    Published as curves without numbers: on every topology Dec-SSL is stable to non-IIDness. 10
    clients on star and cycle, 20 on tree and random graph (connectivity 0.7), all take part, E =
    50. The model evaluated is the mean of the clients' models. Clients with fewer than 10 images
    are filled up from the largest client.
    """
    columns = dec_ssl.by_alpha(at(_TWO, dec_ssl.PAPERS_ALPHAS), "", BY_LABELS)
    flags = dec_ssl.training(at, at(*MANY_EPOCHS), preset="networks")
    cells, rows = grid(_NETWORKS, columns, flags, _SMALLEST, "--objective=nt_xent")
    shown = dec_ssl.accuracies(at, "Topologies", columns, rows)
    worst = shown.columns[-1]
    # Less than 5 points counts as the paper's "a similar behaviour".
    near = [
        say(shown, f"near.{slug(row)}", f"{row}: less than 5 points below the server at {worst}",
            above(row, _SERVER, worst, -0.05))
        for row in rows if row != _SERVER
    ]  # fmt: skip
    return at.build(cells, shown, [*(dec_ssl.keeps(shown, row) for row in rows), near])


@study("Dec-SSL, Figures 6 (c) and 8, on {data} at {scale} scale", "cifar10")
def dec_ssl_figure6(at: At) -> Experiment:
    """Dec-SSL with SimCLR, BYOL and SimSiam, Dec-SLRep and Dec-SL against local epochs.

    Published as curves without numbers: Dec-SSL hardly falls with E, supervised learning does; so
    it is with BYOL and SimSiam. The number of epochs in all is the same in each column, and the
    learning rate constant: steps between rounds would come at other epochs in each.

    gpu: E = 1 and 10 alone, because rounds of more epochs take longer than ten minutes, in which a
    run could not be stopped. Figure 8 (BYOL and SimSiam) is left out.
    """
    clients = f"{BY_LABELS} --alpha={_ALPHA} --hparam=learning_rate_schedule=constant"
    # Epochs in all -> numbers of local epochs. The paper has one budget.
    budgets: dict[int, tuple[int, ...]] = at(
        {10: (1, 2, 5), 20: (1, 10)}, {500: (1, 5, 10, 50, 100, 250)}, {500: (1, 10)}
    )
    first = next(iter(budgets))
    cells, tables = [], {}
    for total, numbers in budgets.items():
        end = "" if total == first else f"_of{total}"
        columns = {f"E = {e}": (f"epochs{e}{end}", dec_ssl.training(at, e, total)) for e in numbers}
        title = f"Local epochs, alpha = {_ALPHA}, {total} epochs in all"
        found, tables[f"of_{total}"] = dec_ssl.sweep(at, title, columns, clients)
        cells += found
    statements = [dec_ssl.robust(shown) + dec_ssl.keeps(shown) for shown in tables.values()]
    partitions = {f"alpha {_ALPHA}": cells[0].name}
    if at.scale == "gpu":
        return at.build(cells, tables, statements, partitions)
    # Without batch norm on the projector's output, the small networks' encodings collapse. The
    # target network has to follow in fewer steps than the paper's.
    siamese = {
        "BYOL": ("byol", f"--objective=byol {at('--hparam=target_momentum=0.95', '')}"),
        "SimSiam": ("simsiam", "--objective=simsiam"),
    }
    ends = {
        f"E = {e}": (f"epochs{e}", dec_ssl.training(at, e, preset=at("", "byol")))
        for e in (budgets[first][0], budgets[first][-1])
    }
    others, rows = grid(siamese, ends, clients, at("--projector_output_batch_norm", ""))
    rows |= {row: (names[0], names[-1]) for row, names in tables[f"of_{first}"].rows.items()}
    del rows[UNTRAINED]
    shown = tables["others"] = dec_ssl.accuracies(at, "Figure 8: other SSL methods", ends, rows)
    statements += [dec_ssl.stable(shown, row) for row in siamese]
    return at.build([cells, others], tables, statements, partitions)


_MAE, _MAE_SLREP = "Dec-SSL with MAE", "Dec-SLRep with the same transformer"


@study("Dec-SSL, Figure 7, on {data} at {scale} scale", "cifar10")
def dec_ssl_figure7(at: At) -> Experiment:
    """Dec-SSL with a masked autoencoder.

    Published as curves without numbers: with a masked autoencoder, too, Dec-SSL hardly falls with
    non-IIDness and local epochs.
    """
    few, alphas = at(2, 5), at(("5", _ALPHA), dec_ssl.PAPERS_ALPHAS)
    numbers = at((2, 20), (1, 5, 10, 50, 100))
    methods = {_MAE: ("mae", "--objective=mae"), _MAE_SLREP: dec_ssl.methods(at)[SLREP]}

    def column(alpha: str, epochs: int) -> tuple[str, str]:
        flags = dec_ssl.training(at, epochs, at(40, 1000), preset="mae")
        return f"alpha{alpha}_epochs{epochs}", f"{flags} --alpha={alpha}"

    by_alpha = {f"alpha {alpha}": column(alpha, few) for alpha in alphas}
    by_epochs = {f"E = {epochs}": column(_ALPHA, epochs) for epochs in numbers}
    cells, rows = grid(methods, by_alpha)
    others, of_epochs = grid(methods, by_epochs)
    title = f"Figure 7 (b): local epochs, alpha = {_ALPHA}"
    tables = {
        "alpha": dec_ssl.accuracies(at, f"Figure 7 (a): non-IIDness, E = {few}", by_alpha, rows),
        "epochs": dec_ssl.accuracies(at, title, by_epochs, of_epochs),
    }
    statements = [dec_ssl.stable(shown, _MAE, _MAE_SLREP) for shown in tables.values()]
    # One run is in both figures.
    return at.build(dict.fromkeys(cells + others), tables, statements)


_GAIN_WITHIN = (
    "By the means, Dec-SSL keeps {} points of its gain over the untrained encoder. It loses less "
    "than both others."
)
_ALPHAS = ("alpha 5", "alpha 0.01")
CLAIMS = (
    claim("S8", "Figures 4 right and 6d",
          "As fewer of 20 clients take part, Dec-SLRep and Dec-SL fall, and Dec-SSL loses less.",
          f"{SWEEPS} Alpha 0.02; 20, 5 or 1 of 20 clients in a round.",
          "dec_ssl_clients-cpu", "of_20.less", (*METHODS, UNTRAINED), ("20 of 20", "1 of 20"),
          "Dec-SLRep is below its untrained encoder throughout, and Dec-SL guesses, so that "
          "neither has anything to lose. Dec-SSL gains as fewer clients take part."),
    claim("S18", "Figure 12", "On cycle, tree and random graph Dec-SSL is as stable to non-IID "
          "labels as on the star, which has a server.",
          f"{SWEEPS} 10 clients, and 20 on the tree and the random graph.",
          "dec_ssl_figure12-cpu",
          "keeps.star_with_a_server *.cycle *.binary_tree *.random_graph", _NETWORKS, _ALPHAS,
          "The row \"Star\" has no server, and does not count. Every network loses 1.1 to 1.5 "
          "points from non-IID labels, as the server does. By the means each keeps about two "
          "thirds of its gain of four points with 10 clients; with 20, the tree and the random "
          "graph keep 36 and 46 percent of two points. Such gains are too small to show whether "
          "more than half is kept."),
    claim("S19", "Figure 13", "Dec-SSL is robust where each of 10 clients has one class.",
          f"{SWEEPS} 10 clients, IID or of one class.", "dec_ssl_clients-cpu",
          "ten.keeps", (*METHODS, UNTRAINED), ("IID", "one class a client"),
          _GAIN_WITHIN.format("2.6 of 4.5")),
    claim("S21", "Figure 15",
          "With 100 clients, a fifth of them in a round, Dec-SSL is still robust.",
          "CIFAR-10, 100 clients of 64 images of whom 20 take part in a round, tiny ResNet at "
          "16x16, 12 rounds of 4 epochs.", "dec_ssl_clients-cpu", "hundred.keeps",
          (*METHODS, UNTRAINED), _ALPHAS, _GAIN_WITHIN.format("2.1 of 3.6")),
    claim("S28", "Figure 15, left", "With 100 clients Dec-SSL is robust to few participants, too.",
          "CIFAR-10, 100 clients of 64 images, alpha 0.01, tiny ResNet at 16x16, rounds of 4 "
          "epochs; 50, 20 or 5 of them in a round.", "dec_ssl_clients-cpu", "few_of_hundred.keeps",
          (*METHODS, UNTRAINED), ("50 of 100", "20 of 100", "5 of 100"),
          "Dec-SSL gains as fewer clients take part, because all runs see as many images, and "
          "with fewer participants there are more rounds. With 50 of them, in five rounds, it has "
          "learned nothing yet, so that it has no gain to keep. The text says CIFAR-10, the "
          "figure's title CIFAR-100 with beta 0.1."),
    PaperClaim("S7", "Figures 4 left and 6c",
               "As local epochs E rise, Dec-SLRep and Dec-SL fall, and Dec-SSL loses less.", tuple(
        Trial(f"CIFAR-10, 5000 images of 5 clients, alpha {_ALPHA}, tiny ResNet at 16x16, {total} "
              "epochs in all.", "dec_ssl_figure6-cpu", f"of_{total}.less", METHODS,
              ("E = 1", last), "Dec-SLRep gains with E, and a loss of Dec-SL is not shown. "
              "Dec-SSL is above both throughout.")
        for total, last in ((10, "E = 5"), (20, "E = 10")))),
    claim("S14", "Figure 7",
          "Dec-SSL with a masked autoencoder is robust to non-IID labels and to local epochs, too.",
          "CIFAR-10, 5 clients of 1000 images, `vit_micro` at 16x16, 40 epochs in all.",
          "dec_ssl_figure7-cpu", "*.keeps", (_MAE, _MAE_SLREP, UNTRAINED),
          ("alpha 5", "alpha 0.02")),
    PaperClaim("S27", "section B.1", "A masked autoencoder with a ViT-Tiny (1000 epochs) has a "
               "lower linear probe than contrastive learning with a ResNet (500 epochs).",
               (Proof(f"CIFAR-10, 5000 images of 5 clients, alpha {_ALPHA}, at 16x16: "
                      "`dec_ssl_figure6` with a tiny ResNet and 20 epochs in all, E = 1 and 10, "
                      "`dec_ssl_figure7` with `vit_micro` and 40, E = 2 and 20; 5 seeds, paired. "
                      "Like the paper's, this compares networks as well as objectives. With 10 "
                      "epochs of contrastive learning, a quarter, the difference is 1.1 (0.1 to "
                      "2.1)", "Contrastive learning is 3.4 points above the masked autoencoder "
                      "with few local epochs (95 % interval 2.4 to 4.3), and 3.2 with many (2.0 "
                      "to 4.5)", (Number(2.4, 4.3, least=0.0, p_value=0.0006),
                                  Number(2.0, 4.5, least=0.0, p_value=0.0019)),
                      "pytest tests/launch/studies/test_dec_ssl.py", is_trained=True),)),
    claim("S15", "Figure 8a and b", "With BYOL and SimSiam Dec-SSL is as robust to local epochs.",
          f"{SWEEPS} Alpha {_ALPHA}.", "dec_ssl_figure6-cpu", "others.keeps",
          ("BYOL", "SimSiam", SLREP, UNTRAINED), ("E = 1", "E = 5")),
    claim("S30", "Figure 8e and f", "With many local epochs, Dec-SSL is above Dec-SLRep on "
          "CIFAR-100 and on Tiny-ImageNet, too.",
          f"{SWEEPS} CIFAR-100 in place of CIFAR-10, beta 0.1.", "dec_ssl_transfer-cpu",
          "epochs.above.decslrep", (*METHODS, UNTRAINED),
          ("E = 2", "E = 5"), "Tiny-ImageNet is not here."),
    PaperClaim("S31", "Figure 4 left",
               "With little communication Dec-SSL is above Dec-SLRep.", tuple(
        Trial(f"{SWEEPS} Alpha {_ALPHA}, {total} epochs in all.", "dec_ssl_figure6-cpu",
              f"of_{total}.above.decslrep", (SSL, SLREP, UNTRAINED), (last,))
        for total, last in ((10, "E = 5"), (20, "E = 10")))),
    claim("S32", "Figure 4 right", "With few participants Dec-SSL is above Dec-SLRep.",
          f"{SWEEPS} Alpha {_ALPHA}; 1 of 20 clients in a round.", "dec_ssl_clients-cpu",
          "of_20.above.decslrep", (SSL, SLREP, UNTRAINED), ("1 of 20",)),
    PaperClaim("S33", "abstract", "With less communication, the performance of Dec-SSL hardly "
               "drops.", tuple(
        Trial(f"{SWEEPS} Alpha {_ALPHA}, {total} epochs in all.", "dec_ssl_figure6-cpu",
              f"of_{total}.keeps", (SSL, UNTRAINED), ("E = 1", last))
        for total, last in ((10, "E = 5"), (20, "E = 10")))),
    claim("S34", "abstract", "With fewer participants, the performance of Dec-SSL hardly drops.",
          f"{SWEEPS} Alpha {_ALPHA}; 20, 5 or 1 of 20 clients in a round.", "dec_ssl_clients-cpu",
          "of_20.keeps", (SSL, UNTRAINED), ("20 of 20", "1 of 20"), "It rises: all runs see as "
          "many images, and with fewer participants there are more rounds."),
)  # fmt: skip
