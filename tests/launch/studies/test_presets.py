"""Presets and experiments: the names in them exist, and their values are the papers'."""

import dataclasses
import math

import pytest

from launch.options import presets, settings
from launch.options.run_config import RunConfig
from launch.options.script_configs import DetectConfig
from launch.studies import catalog, dcco, dcco_beyond, dcco_table2
from launch.studies.engine.runner import effective_flags
from launch.studies.engine.study import SCALES, At, study
from tff_ssl.algorithms.fedu import FedUHyperparameters
from tff_ssl.reporting import methods, verdicts
from tff_ssl.reporting.measured import ROUND, TRAINING, Value
from tff_ssl.reporting.records import COSTS


@pytest.fixture(autouse=True)
def at_the_root(project_root, monkeypatch):
    """Changes to the project's root, from which presets name other presets."""
    monkeypatch.chdir(project_root)


def _presets(project_root):
    return sorted((project_root / "launch" / "presets").rglob("*.flags"))


def _protocols(trained, evaluated):
    """The protocols of a cell's results, from the flags of its training and its evaluations."""
    protocols = {TRAINING, *(flags.get("protocol", "linear") for flags in evaluated)}
    protocols.add("supervised" if trained.get("objective") == "supervised" else "linear")
    if int(trained.get("personalized_clients", 0)):
        protocols.add("linear_personalized")
    return protocols


@pytest.mark.parametrize(("name", "scale"), catalog.SCALES)
def test_cells_measure_the_results_of_their_tables(name, scale):
    experiment = catalog.EXPERIMENTS[name][0](scale, None, None)
    cells = {cell.name: cell for cell in experiment.cells}
    assert all(cells[cell].script == "pretrain" for cell in experiment.partitions.values())
    styles = methods.method_styles(experiment)
    for table in experiment.tables:
        probes = set()  # The labels of the linear probes, which all rows of a table share.
        for row, names in table.rows.items():
            assert row in styles
            selector = table.selectors.get(row, table.selector)
            names = [
                cell for name in names if name for cell in experiment.choices.get(name, (name,))
            ]
            for cell in (cells[name] for name in names):
                trained = effective_flags(cell.flags)
                evaluated = [effective_flags(flags) for flags in cell.evaluations]
                protocol = selector.protocol
                if protocol.startswith("linear_personalized"):
                    protocol = "linear_personalized"
                assert protocol in _protocols(trained, evaluated), (table.title, row, cell.name)
                # A baseline that no evaluation has would count as not measured. That of the weights
                # with which a run starts is there without being asked for.
                if selector.baseline not in (None, "pretrained_encoder"):
                    probe = "linear" if protocol.startswith("linear") else protocol
                    asked = {
                        name for flags in (trained | {"protocol": "linear"}, *evaluated)
                        if flags.get("protocol", "linear") == probe
                        for name in flags.get("baselines", "random_encoder,raw_pixels").split(",")
                    }  # fmt: skip
                    assert selector.baseline in asked, (table.title, row, cell.name)
                probes_itself = trained.get("objective") != "supervised"
                probed = trained if probes_itself else evaluated[0] if evaluated else {}
                if protocol == "linear":
                    probes.add((probed.get("labels"), probed.get("labels_per_class")))
        assert len(probes) <= 1, (table.title, probes)


@pytest.mark.parametrize(("name", "scale"), catalog.SCALES)
def test_every_cell_of_every_table_exists_and_has_its_preset(project_root, name, scale):
    experiment = catalog.EXPERIMENTS[name][0](scale, None, None)
    names = [cell.name for cell in experiment.cells]
    assert len(set(names)) == len(names)
    for table in experiment.tables:
        for row, cells in table.rows.items():
            assert len(cells) in (1, len(table.columns))
            assert set(cells) <= {*names, *experiment.choices, None}
            assert row not in table.published or len(table.published[row]) in (
                1, len(table.columns),
            )  # fmt: skip
    assert {cell for choice in experiment.choices.values() for cell in choice} <= set(names)
    titles = {table.title for table in experiment.tables}
    assert {claim.table for claim in experiment.claims} <= titles
    assert {title for pair in experiment.against for title in pair} <= titles
    assert set(experiment.costs.values()) <= {*COSTS, ROUND}
    used = {flag for cell in experiment.cells for flag in cell.flags if "flagfile" in flag}
    for flag in used:
        assert (project_root / flag.partition("=")[2]).exists()


# What papers say of their tables, and their tables do not; the cards of the claims say so.
NOT_IN_ITS_TABLE = {
    ("Table 1: linear probe", "FedU is more than 14 points above other methods on non-IID clients"),
    ("Table 4: fine-tuned on CIFAR10", "The formula loses most without data volume, and least "
     "without selection history"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "scale"), catalog.SCALES)
def test_the_papers_claims_hold_in_the_papers_tables(name, scale):
    def published(figure, percent):
        if isinstance(figure, str):  # "failed"
            return Value(math.nan, 0.0, 0, 3, dict.fromkeys(range(3)))
        if figure is None:
            return Value(math.nan, 0.0, 0, 0)
        share = figure / 100 if percent else figure
        return Value(share, 0.0, 3, 0, dict.fromkeys(range(3), share))  # Without a deviation.

    experiment = catalog.EXPERIMENTS[name][0](scale, None, None)
    tables = {table.title: table for table in experiment.tables}
    found = {}
    for claim in experiment.claims:
        table = tables[claim.table]
        values = {}
        for row in table.rows:
            figures = table.published.get(row, (None,))
            for i, column in enumerate(table.columns):
                figure = figures[i if len(figures) > 1 else 0]
                values[row, column] = published(figure, table.percent)
        # Most papers publish no figures of an untrained encoder, which accuracies would need.
        selector = table.selector._replace(metric="published")
        published_table = dataclasses.replace(table, selector=selector, selectors={})
        found[claim.table, claim.text] = verdicts.check(claim, published_table, values)
    wrong = {claim for claim, verdict in found.items() if verdict == "does not hold"}
    assert wrong == NOT_IN_ITS_TABLE & found.keys()
    if name in ("dcco_table1", "dcco_table2", "fedu_table1", "hetero_table1", "denav_table4"):
        assert "holds" in found.values()


def test_a_preset_outside_of_the_experiments_names_its_data(project_root):
    experiments = [
        build(scale, None, None) for build, _ in catalog.EXPERIMENTS.values() for scale in SCALES
    ]
    cells = [cell for experiment in experiments for cell in experiment.cells]
    used = {flag for cell in cells for flag in cell.flags if flag.startswith("--flagfile")}
    # Used presets include others.
    used |= {
        line
        for flag in used
        for line in (project_root / flag.partition("=")[2]).read_text().splitlines()
    }
    unused = [
        name
        for path in _presets(project_root)
        if (name := f"--flagfile={path.relative_to(project_root)}") not in used
    ]
    assert unused
    # The data of `launch.detect` is a folder of the user's.
    unused.remove("--flagfile=launch/presets/dec_ssl/paper/detection.flags")
    for name in unused:
        assert "dataset" in effective_flags([name]), name


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_epsilons_of_more_clients_have_the_settings_of_the_runs(scale):
    at = At(scale, "", None)
    given = effective_flags(dcco_beyond.dcco_privacy(scale, None, None).cells[0].flags)
    _, per_round, rounds = at(*dcco_beyond.PARTICIPATION)
    assert (given["clients_per_round"], given["rounds"]) == (str(per_round), str(rounds))


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_the_selection_limit_has_the_ratio_of_denavs_table_6(project_root, scale):
    # Table 6: Z = 3 selections of each client, for S = 200 steps on 100 clients.
    runs = [
        effective_flags(cell.flags)
        for name, (build, _) in catalog.EXPERIMENTS.items()
        for rounds in (None, 77)
        for cell in build(scale, None, rounds).cells
        # Table 12 is about other limits.
        if name.startswith("denav") and not cell.name.startswith("limit_")
    ]
    runs.append(effective_flags(["--flagfile=launch/presets/digits/denav.flags"]))
    federated = {"fedbn", "fedu", "fedema", "orchestra"}  # The baselines of Table 2.
    limits = [given for given in runs if "hparam.selection_limit" in given]
    others = {given["algorithm"] for given in runs if given not in limits}
    assert others == {"gossip", "all_reduce", *federated}
    for given in limits:
        steps, clients = int(given["rounds"]), int(given["num_clients"])
        assert int(given["hparam.selection_limit"]) == math.ceil(3 / 200 * 100 * steps / clients)


# Settings in the papers' texts: experiment, cell, and flags that its training must have.
_ADAM = {"hparam.server_optimizer": "adam", "hparam.server_learning_rate": "0.005"}
_LARS = {"hparam.server_optimizer": "lars", "hparam.server_momentum": "0.9", "rounds": "75000"}
_PAPERS = [
    # DCCO, section 4.2 and Appendix B.
    ("dcco_table1", "dcco_noniid_1", {
        "dataset": "cifar100", "encoder": "resnet14", "projector": "1024,1024,1024",
        "views": "byol_no_blur", "rounds": "100000", "hparam.lambda": "20", "alpha": "0",
        "samples_per_client": "1", "clients_per_round": "512",
        "hparam.client_learning_rate": "1.0", **_ADAM,
    }),
    ("dcco_table1", "contrastive_fedavg_iid_16", {
        "projector": "256,256,128", "hparam.temperature": "0.1", "clients_per_round": "32",
        "samples_per_client": "16", "rounds": "100000", "encoder_round": "best", **_ADAM,
    }),
    ("dcco_table1", "cco_fedavg_rate_0.001_iid_8", {
        "projector": "1024,1024,1024", "clients_per_round": "64",
        "hparam.server_learning_rate": "0.001", "encoder_round": "best",
    }),
    ("dcco_table1", "centralized", {
        "batch_size": "512", "rounds": "97000", "hparam.optimizer": "adam",
        "hparam.learning_rate": "0.005",
    }),
    ("dcco_table1", "supervised_5000", {
        "batch_size": "256", "rounds": "1900", "hparam.learning_rate": "0.01", "views": "flip",
    }),
    ("dcco_table2", "dcco_256", {
        "encoder": "resnet50", "projector": "2048,2048,4096", "image_size": "224",
        "views": "skin", "hparam.server_learning_rate": "1.8", "clients_per_round": "256", **_LARS,
    }),
    ("dcco_table2", "dcco_64", {"hparam.server_learning_rate": "0.15"}),
    ("dcco_table2", "contrastive_fedavg_128", {
        "projector": "2048,2048,128", "hparam.temperature": "0.1",
        "hparam.server_learning_rate": "0.3", **_LARS,
    }),
    ("dcco_table2", "centralized", {
        "batch_size": "512", "rounds": "129280", "hparam.optimizer": "lars",
        "hparam.learning_rate": "0.6", "hparam.momentum": "0.9",
    }),
    # FedU, section 4.1.
    ("fedu_table1", "fedu_noniid", {
        "num_clients": "5", "rounds": "100", "hparam.local_epochs": "5", "hparam.mu": "0.4",
        "hparam.batch_size": "128", "hparam.client_optimizer": "sgd",
        "hparam.client_learning_rate": "0.032",
        # The authors' code, EasyFL, applications/fedssl/main.py and client.py.
        "hparam.client_weight_decay": "0.0005", "hparam.learning_rate_schedule": "cosine",
        "hparam.divergence": "mean_layer_l2",
    }),
    ("fedu_table4", "dapu", {
        "encoder": "resnet50", "rounds": "800", "hparam.local_epochs": "1", "hparam.mu": "0.4",
        "hparam.divergence": "mean_layer_l2",
    }),
    # Dec-SSL, appendix C.1 and Table 3.
    ("dec_ssl_figure5", "featarc_noniid", {
        "encoder": "resnet18", "num_clients": "5", "hparam.client_optimizer": "adam",
        "hparam.client_learning_rate": "0.001", "hparam.batch_size": "256",
        "hparam.temperature": "0.5", "hparam.local_epochs": "5", "alpha": "0.02", "rounds": "100",
    }),
    ("dec_ssl_figure6", "nt_xent_epochs250", {
        "alpha": "0.02", "hparam.local_epochs": "250", "rounds": "2",
    }),
    ("dec_ssl_figure6", "simsiam_epochs250", {
        "alpha": "0.02", "rounds": "2", "hparam.client_optimizer": "sgd",
        "hparam.client_learning_rate": "0.03",
    }),
    ("dec_ssl_figure7", "mae_alpha0.02_epochs5", {
        "encoder": "vit_tiny", "rounds": "200", "hparam.client_optimizer": "adamw",
        "hparam.batch_size": "256",
    }),
    ("dec_ssl_figure12", "tree_alpha0.01", {
        "num_clients": "20", "hparam.local_epochs": "50", "rounds": "10", "topology": "tree",
    }),
    ("dec_ssl_robustness", "nt_xent_beta0.3", {
        "num_clients": "5", "partition": "skew", "hparam.local_epochs": "5", "rounds": "100",
    }),
    ("dec_ssl_transfer", "supervised_beta0.1_epochs5", {
        "dataset": "cifar100", "num_clients": "5", "rounds": "100",
    }),
    ("dec_ssl_clients", "nt_xent_4of20", {
        "num_clients": "20", "clients_per_round": "4", "alpha": "0.02",
        "hparam.local_epochs": "5",
    }),
    ("dec_ssl_clients", "supervised_10_beta0", {
        "num_clients": "10", "beta": "0", "hparam.local_epochs": "50", "rounds": "10",
    }),
    ("dec_ssl_clients", "nt_xent_100_alpha0.01", {
        "num_clients": "100", "clients_per_round": "20", "hparam.local_epochs": "50",
    }),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cell", "expected"), _PAPERS)
def test_the_presets_have_the_papers_settings(name, cell, expected):
    cells = {one.name: one for one in catalog.EXPERIMENTS[name][0]("paper", None, None).cells}
    actual = effective_flags(cells[cell].flags)
    assert expected == {flag: actual.get(flag) for flag in expected}


def test_the_scale_of_a_gpu_differs_from_the_papers_where_its_notes_say_so():
    """Cells of a GPU's scale are the paper's, but for rounds, local epochs and fine-tuning."""
    # `choices` of rates have other names, and their first rate is that of the preset.
    differ = {"rounds", "eval_every", "checkpoint_every", "hparam.local_epochs"}
    for name in catalog.OF_GPU:
        build, _ = catalog.EXPERIMENTS[name]
        paper = [effective_flags(cell.flags) for cell in build("paper", None, None).cells]
        for cell in build("gpu", None, None).cells:
            own = effective_flags(cell.flags)
            kept = {flag: value for flag, value in own.items() if flag not in differ}
            assert any(kept.items() <= one.items() for one in paper), (name, cell.name)
    cells = [cell.name for cell in catalog.EXPERIMENTS["dcco_table1"][0]("gpu", None, None).cells]
    assert cells[:3] == ["centralized", "dcco_noniid_4", "contrastive_fedavg_noniid_4"]


def test_notes_of_other_scales_are_left_out():
    @study("Title", "digits")
    def noted(at):
        """Summary.

        Few labels: for all scales.

        cpu: For one.

        gpu, paper: For two.
        """
        return at

    notes = {scale: noted(scale, None, None).notes for scale in SCALES}
    shared = "Few labels: for all scales."
    assert notes == {
        "cpu": [shared, "For one."],
        "gpu": [shared, "For two."],
        "paper": [shared, "For two."],
    }
    at = noted("gpu", None, None)
    assert (at("small", "large"), at("small", "large", "medium")) == ("large", "medium")
    assert at.preset("dcco_table1/dcco").endswith("/dcco_table1/gpu/dcco.flags")
    assert at.preset("dcco_table1/supervised").endswith("/dcco_table1/paper/supervised.flags")


def test_detection_has_detectrons_default_schedule():
    # Dec-SSL, appendix C.1; the other values are those of Detectron's Mask R-CNN with a pyramid.
    given = effective_flags(["--flagfile=launch/presets/dec_ssl/paper/detection.flags"])
    expected = {
        "rounds": "90000", "hparam.batch_size": "16", "hparam.learning_rate": "0.02",
        "hparam.momentum": "0.9", "hparam.weight_decay": "0.0001", "hparam.warmup_steps": "500",
        "hparam.sampled_anchors": "256", "hparam.proposals": "2000", "hparam.sampled_boxes": "512",
        "hparam.filters": "256", "hparam.box_head_width": "1024", "hparam.anchor_size": "8",
    }  # fmt: skip
    assert expected == {flag: given.get(flag) for flag in expected}


def test_cifar10_has_a_larger_encoder_and_more_rounds_at_the_cpus_scale():
    for rounds, expected in ((None, "2000"), (3, "3")):
        cells = {cell.name: cell for cell in dcco.dcco_table1("cpu", "cifar10", rounds).cells}
        for cell in cells.values():
            assert effective_flags(cell.flags)["encoder"] == "small"
        assert effective_flags(cells["centralized"].flags)["rounds"] == expected
        assert effective_flags(cells["dcco_noniid_4"].flags)["rounds"] == expected
        supervised = effective_flags(cells["supervised_5000"].flags)["rounds"]
        assert supervised == ("1900" if rounds is None else "3")  # 100 epochs of the labels.


def test_the_papers_finetuning_and_clients_too_small():
    cells = {cell.name: cell for cell in dcco.dcco_table1("paper", None, None).cells}
    assert "contrastive_fedavg_noniid_1" not in cells
    derm = {cell.name: cell for cell in dcco_table2.dcco_table2("paper", None, None).cells}
    for evaluation in derm["centralized"].evaluations:  # Fine-tuning, and training from scratch.
        given = effective_flags(evaluation)
        assert (given["finetune_batch_size"], given["image_size"]) == ("128", "448")
        assert given["finetune_learning_rate"] == "0.0003,0.0001"
        assert given["finetune_steps"].endswith(",100000")
    fedu_on_100 = catalog.EXPERIMENTS["fedu_table1"][0]("paper", "cifar100", None)
    cells = {cell.name: cell for cell in fedu_on_100.cells}
    assert effective_flags(cells["fedu_iid"].flags)["hparam.mu"] == "0.6"
    assert "hparam.divergence" not in effective_flags(cells["fedsimclr_iid"].flags)


@pytest.mark.parametrize(
    ("scale", "momentum", "rounds"), [("cpu", 0.856, 200), ("paper", 0.99, 800)]
)
def test_a_round_of_fedus_table4_replaces_the_papers_share_of_the_target(scale, momentum, rounds):
    cells = catalog.EXPERIMENTS["fedu_table4"][0](scale, None, None).cells
    for flags_of_cell in (effective_flags(cell.flags) for cell in cells):
        images = 50_000 * float(flags_of_cell.get("data_fraction", 1))
        images_of_client = round(images) / int(flags_of_cell["num_clients"])
        epochs = int(flags_of_cell["hparam.local_epochs"])
        steps = epochs * (images_of_client // int(flags_of_cell["hparam.batch_size"]))
        m = float(flags_of_cell.get("hparam.target_momentum", FedUHyperparameters.target_momentum))
        assert m == momentum
        assert 1 - m**steps == pytest.approx(0.54, abs=0.01)
        assert int(flags_of_cell["rounds"]) == rounds


def test_fedus_preset_at_the_papers_scale_is_that_of_its_experiment():
    cells = {
        cell.name: cell for cell in catalog.EXPERIMENTS["fedu_table1"][0]("paper", None, None).cells
    }
    preset = effective_flags(["--flagfile=launch/presets/fedu/paper/fedu.flags"])
    cell = effective_flags(cells["fedu_noniid"].flags)
    assert preset == {flag: cell.get(flag) for flag in preset}


def test_the_presets_name_flags_that_exist(project_root):
    known = {*settings.settings(RunConfig), *settings.settings(DetectConfig)}
    for preset in _presets(project_root):
        for argument in presets.expand([f"--flagfile={preset}"]):
            name = argument.lstrip("-").split("=")[0]
            assert {name, name.removeprefix("no")} & known, (preset, name)
