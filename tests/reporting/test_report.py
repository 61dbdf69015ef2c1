"""Tables, claims and reports, from result files written by hand."""

import dataclasses
import json
import math

import pytest

from tests import browser
from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting import measured, report
from tff_ssl.reporting.experiment import Cell, Claim, Contrast, Experiment, Table
from tff_ssl.reporting.measured import Selector
from tff_ssl.reporting.records import FAILED, read_folder, summarize_training

LINEAR = Selector("linear", 500)
TABLE = Table(
    "Linear",
    LINEAR,
    ("one", "four"),
    {"DCCO": ("dcco_1", "dcco_4"), "FedAvg": (None, "fedavg_4"), "Centralized": ("centralized",)},
    {"DCCO": (51.7, 49.6), "FedAvg": (None, "failed"), "Centralized": (52.6,)},
)


def write_run(folder, cell, seed, accuracy, labels=500, **extra):
    run = folder / cell / f"seed{seed}"
    run.mkdir(parents=True, exist_ok=True)
    entry = {
        "protocol": "linear",
        "labels": labels,
        "accuracy": accuracy,
        "baselines": {"random_encoder": {"accuracy": accuracy / 2}},
    } | extra
    other = entry | {"labels": 1, "accuracy": 0.99}
    (run / "result.json").write_text(json.dumps([other, entry]))
    return run


def write_report(folder, experiment, more_pictures=None):
    return report.write(folder, read_folder(folder), experiment, more_pictures or {})


@pytest.fixture
def folder(tmp_path):
    for seed, accuracy in enumerate((0.5, 0.52, 0.54)):
        write_run(tmp_path, "dcco_1", seed, accuracy)
        write_run(tmp_path, "dcco_4", seed, accuracy - 0.02)
    write_run(tmp_path, "centralized", 0, 0.53, bytes_down_per_client_and_round=1.5e6,
              bytes_up_per_client_and_round=2e6)  # fmt: skip
    return tmp_path


def test_values_are_means_and_sample_deviations_over_seeds(folder):
    values = report.read_table_values(read_folder(folder), TABLE)
    assert values["DCCO", "one"].mean == pytest.approx(0.52)
    assert values["DCCO", "one"].std == pytest.approx(0.02)
    assert values["DCCO", "one"].seeds == 3
    assert values["Centralized", "one"] == values["Centralized", "four"]
    assert math.isnan(values["FedAvg", "four"].mean)


def test_a_baseline_of_a_result_can_be_shown(folder):
    runs = read_folder(folder).runs["dcco_1"]
    value = measured.select(runs, Selector("linear", 500, baseline="random_encoder"))
    assert value.mean == pytest.approx(0.26)


def test_a_baseline_can_be_that_of_a_further_evaluation(folder):
    for run in (folder / "dcco_1").iterdir():
        entry = {"protocol": "linear", "labels": 500, "accuracy": 0.9}
        further = entry | {"baselines": {"raw_pixels": {"accuracy": 0.3}}}
        (run / "result_linear.json").write_text(json.dumps([further]))
    runs = read_folder(folder).runs["dcco_1"]
    linear = Selector("linear", 500)
    pixels, untrained = (linear._replace(baseline=b) for b in ("raw_pixels", "random_encoder"))
    values = [measured.select(runs, shown).mean for shown in (linear, untrained, pixels)]
    assert values == pytest.approx([0.52, 0.26, 0.3])


def test_results_of_earlier_versions_have_no_effective_rank(tmp_path):
    """A later figure is not measured where it is missing; any other is an error."""
    write_run(tmp_path, "dcco_1", 0, 0.5)
    write_run(tmp_path, "dcco_1", 1, 0.5, effective_rank=7.0)
    runs = read_folder(tmp_path).runs["dcco_1"]
    value = measured.select(runs, LINEAR._replace(metric="effective_rank"))
    assert (value.mean, value.seeds) == (7.0, 1)
    with pytest.raises(ConfigurationError, match="nosuch"):
        measured.select(runs, LINEAR._replace(metric="nosuch"))


def test_grids(folder):
    (folder / "fedavg_4" / "seed0").mkdir(parents=True)
    (folder / "fedavg_4" / "seed0" / FAILED).write_text("{}")
    assert report.measured_grid(TABLE, report.read_table_values(read_folder(folder), TABLE)) == [
        ["measured (%)", "one", "four"],
        ["DCCO", "52.0 ± 2.0", "50.0 ± 2.0"],
        ["FedAvg", "-", "failed"],
        ["Centralized", "53.0 (1 of 3 seeds)", ""],
    ]
    assert report.published_grid(TABLE)[2:] == [["FedAvg", "-", "failed"],
                                                ["Centralized", "52.6", ""]]  # fmt: skip


def write_summary(run, curve, **flags):
    (run / "done.json").write_text(json.dumps({"knn": curve, "flags": flags}))


def test_the_better_of_two_rates_is_chosen_on_training_images(tmp_path):
    """By the mean over seeds of the evaluated encoders, and not by test accuracy."""
    for seed, last in enumerate((0.30, 0.40)):
        high = write_run(tmp_path, "high", seed, 0.6)
        low = write_run(tmp_path, "low", seed, 0.5)
        best_of_high = write_run(tmp_path, "best_of_high", seed, 0.7)
        write_summary(high, [[50, 0.9], [100, last]])
        write_summary(low, [[50, 0.3], [100, last + 0.05]])
        write_summary(best_of_high, [[50, 0.9], [100, last]], encoder_round="best")
    diverged = tmp_path / "diverged" / "seed0"
    diverged.mkdir(parents=True)
    (diverged / FAILED).write_text("{}")
    choices = {
        "last": ("high", "low"),
        "best": ("low", "best_of_high"),
        "failed": ("diverged", "low"),
        "not done": ("low", "never_run"),
    }
    rows = {name: (name,) for name in choices}
    table = Table("T", LINEAR, ("all",), rows, {})
    cells = ("high", "low", "best_of_high", "diverged", "never_run")
    experiment = Experiment(
        "e", "E", tuple(Cell(cell, "pretrain", ()) for cell in cells), (table,), (), choices=choices
    )
    chosen = {"last": "low", "best": "best_of_high", "failed": "low"}
    assert report.choose_cells(read_folder(tmp_path), experiment) == chosen
    means = {
        row: value.mean
        for (row, _), value in report.read_values(read_folder(tmp_path), experiment)["T"].items()
    }
    assert [means[row] for row in ("last", "best", "failed")] == pytest.approx([0.5, 0.7, 0.5])
    assert math.isnan(means["not done"])
    markdown, _ = write_report(tmp_path, experiment)
    assert "| last | high 35.0, low 40.0 | low |" in markdown.read_text()
    # By the linear probe instead, the choice is between its means over the seeds.
    by_probe = dataclasses.replace(experiment, chosen_by=LINEAR)
    chosen = {"last": "high", "best": "best_of_high", "failed": "low"}
    assert report.choose_cells(read_folder(tmp_path), by_probe) == chosen
    markdown, _ = write_report(tmp_path, by_probe)
    assert "linear probe on training images" in markdown.read_text()
    assert "| last | high 60.0, low 50.0 | high |" in markdown.read_text()


def test_the_report_is_complete_and_small(folder):
    run = folder / "dcco_1" / "seed0"
    (run / "metrics.csv").write_text(
        "round,loss,seconds,knn_accuracy\n1,3.0,30,\n2,2.0,30,0.4\n3,1.5,30,\n4,1.0,30,0.5\n"
    )
    cells = tuple(Cell(name, "pretrain", ()) for name in ("dcco_1", "dcco_4", "centralized"))
    one, four = ("DCCO", "one"), {("DCCO", "four"): 1}
    claims = (
        Claim("one < four & more", "Linear", (Contrast({**four, one: -1}, -0.02),)),
        Claim("any", "Linear", (Contrast({one: 1, **four}, 0.1),)),
    )
    untrained = {"(untrained)": LINEAR._replace(baseline="random_encoder")}
    shown = dataclasses.replace(
        TABLE, rows={**TABLE.rows, "(untrained)": ("dcco_1", "dcco_4")}, selectors=untrained
    )
    experiment = Experiment(
        "x", "A <title>", cells, (shown,), claims, ("A note.",), against=(("Linear", "Linear"),)
    )
    partition = folder / "alpha 1 (5)" / "partition.png"
    partition.parent.mkdir()
    partition.write_bytes(b"\x89PNG")
    markdown, page = write_report(folder, experiment, {"Partition": partition})
    text, html = markdown.read_text(), page.read_text()
    # A blank would end the address.
    assert "![Partition](alpha%201%20%285%29/partition.png)" in text
    assert "| DCCO | 52.0 ± 2.0 | 50.0 ± 2.0 |" in text
    assert "| DCCO | 51.7 | 49.6 |" in text
    # The difference is 0.02 with each seed, at the margin of the first claim.
    claimed = text.split("## Claims, in the measured tables\n\n")[1]
    assert claimed.startswith(
        "### Holds: 1 of 2\n\n- any (Linear)\n\n### Not shown: 1 of 2\n\n- one < four & more"
    )
    assert '"unshown">Not shown: 1 of 2' in html
    assert "| Centralized | 1 | 1.50 + 2.00 | - | centralized |" in text
    # Only one of the seeds has metrics.
    assert "| DCCO, one | 3 | - | 2.0 | dcco_1 |" in text
    assert "7 of 9 runs are done." in text
    # The summary of a run that is done replaces its metrics.
    picture = (folder / "picture_2.png").read_bytes()
    summary = summarize_training(run)
    assert summary == {
        "training_minutes": 2.0, "training_seconds": 120.0, "knn": [[2, 0.4], [4, 0.5]]
    }  # fmt: skip
    (run / "done.json").write_text(json.dumps(summary))
    (run / "metrics.csv").unlink()
    assert write_report(folder, experiment, {"Partition": partition})[0].read_text() == text
    assert (folder / "picture_2.png").read_bytes() == picture
    assert "A &lt;title&gt;" in html
    assert html.count('src="data:image/png;base64,') == html.count("src=") == 4
    assert len(list(folder.glob("*.png"))) == 3
    for path in folder.glob("*.png"):
        assert f"]({path.name})" in text
    assert len(html) < 300_000
    assert not [path for path in folder.iterdir() if path.name.endswith(".new")]


def test_a_figure_of_the_training_is_read_from_the_summaries(folder):
    runs = [folder / "dcco_1" / f"seed{seed}" for seed in range(3)]
    for run, (sent, seconds) in zip(runs, [((1e6, 2e6), 3.0), ((3e6, 4e6), 5.0)], strict=False):
        lines = [f"{k},{s},{seconds}\n" for k, s in enumerate(sent, 1)]
        (run / "metrics.csv").write_text("".join(["round,bytes,seconds\n", *lines]))
        (run / "done.json").write_text(json.dumps(summarize_training(run)))
    runs = read_folder(folder).runs["dcco_1"]  # The third seed has no summary yet.
    megabytes = measured.select(runs, Selector(measured.TRAINING, metric="megabytes"))
    assert megabytes[:3] == (5.0, pytest.approx(math.sqrt(8)), 2)
    seconds = measured.select(runs, Selector(measured.TRAINING, metric="training_seconds"))
    assert seconds.mean == 8.0


def test_figures_of_a_monitor_are_its_last_accuracy_and_its_losses_and_gains(folder):
    runs = [folder / "dcco_1" / f"seed{seed}" for seed in range(3)]
    for run, curve in zip(runs, ([0.2, 0.5, 0.4], [0.3, 0.3, 0.6], []), strict=True):
        knn = [[10 * k, accuracy] for k, accuracy in enumerate(curve)]
        (run / "done.json").write_text(json.dumps({"knn": knn}))
    runs = read_folder(folder).runs["dcco_1"]
    last = measured.select(runs, Selector(measured.TRAINING, metric="knn_last"))
    assert (last.mean, last.seeds) == (pytest.approx(0.5), 2)
    lost = measured.select(runs, Selector(measured.TRAINING, metric="knn_lost"))
    assert (lost.mean, lost.seeds) == (pytest.approx(0.05), 2)
    gained = measured.select(runs, Selector(measured.TRAINING, metric="knn_gained"))
    assert (gained.mean, gained.seeds) == (pytest.approx((-0.1 + 0.3) / 2), 2)


def test_learning_curves_are_drawn_against_the_sums_of_costs(folder, monkeypatch):
    header = "round,simulated_time,examples_trained,seconds,knn_accuracy\n"
    rows = "1,5.0,70,1,\n2,3.0,30,1,0.4\n3,1.0,10,1,\n4,2.0,20,1,0.6\n"
    for cell, seed, text in (
        ("dcco_1", 0, rows), ("dcco_1", 1, rows.rsplit("4,", 1)[0]), ("dcco_4", 0, rows)
    ):  # fmt: skip
        (folder / cell / f"seed{seed}" / "metrics.csv").write_text(header + text)
    drawn = []
    monkeypatch.setattr(report.pictures, "draw_curves_against", lambda *a: drawn.append(a))
    cells = tuple(Cell(name, "pretrain", ()) for name in ("dcco_1", "dcco_4"))
    costs = {"time": "simulated_time", "samples": "examples_trained"}
    experiment = Experiment("x", "X", cells, (TABLE,), (), costs=costs)
    write_report(folder, experiment)
    curve = {
        "accuracy": [0.4, 0.6], "round": [2, 4], "simulated_time": [8, 11],
        "examples_trained": [100, 130],
    }  # fmt: skip
    # The second seed continues: it has fewer points, and is left out until it ends.
    ((curves, labels, styles),) = drawn
    assert curves == {"DCCO, one": [curve], "DCCO, four": [curve]}
    assert labels == costs
    assert styles["DCCO, one"] == styles["DCCO, four"]
    write_report(folder, Experiment("x", "X", cells, (TABLE,), ()))
    assert drawn[1][:2] == ({}, {})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("result.json", b""),
        ("result.json", b'[{"protocol": "linear"'),
        ("result.json", b"\x80\xff"),
        ("result.json", b'[{"protocol": "linear"}]'),
        ("result.json", b"3"),
        ("done.json", b"{"),
        ("metrics.csv", b"round,seconds\n1,abc\n"),
    ],
)
def test_a_damaged_file_is_named(folder, name, content):
    path = folder / "dcco_1" / "seed1" / name
    path.write_bytes(content)
    cells = (Cell("dcco_1", "pretrain", ()),)
    with pytest.raises(ConfigurationError, match=str(path)):
        write_report(folder, Experiment("x", "X", cells, (TABLE,), ()))


def test_a_missing_figure_is_named(folder):
    runs = read_folder(folder).runs["dcco_1"]
    with pytest.raises(ConfigurationError, match=r"dcco_1/seed0.*f1"):
        measured.select(runs, Selector("linear", 500, "f1"))


def test_a_baseline_that_no_evaluation_has_is_not_measured(folder):
    runs = read_folder(folder).runs["dcco_1"]
    assert measured.select(runs, Selector("linear", 500, baseline="nothing")).seeds == 0


def test_counts_have_no_unit_and_data_sets_are_distinguished(tmp_path):
    for seed, sent in enumerate((14000, 15000)):
        write_run(tmp_path, "gossip", seed, 0.5, communications=sent, dataset="cifar10")
    selector = Selector("linear", 500, metric="communications", dataset="cifar10")
    table = Table(
        "Sent", selector, ("communications",), {"Gossip": ("gossip",)}, {"Gossip": (14850,)},
        percent=False,
    )  # fmt: skip
    values = report.read_table_values(read_folder(tmp_path), table)
    assert report.measured_grid(table, values) == [
        ["measured", "communications"], ["Gossip", "14,500 ± 707"],
    ]  # fmt: skip
    assert report.published_grid(table)[1] == ["Gossip", "14,850"]
    other = selector._replace(dataset="cifar100")
    assert math.isnan(measured.select(read_folder(tmp_path).runs["gossip"], other).mean)


def test_logistic_regression_has_a_table_of_its_own_where_it_was_measured(tmp_path):
    for seed, accuracy in enumerate((0.5, 0.52, 0.54)):
        run = write_run(tmp_path, "dcco_1", seed, accuracy)
        entries = json.loads((run / "result.json").read_text())
        entries += [e | {"protocol": "linear_logistic", "accuracy": e["accuracy"] + 0.1}
                    for e in entries]  # fmt: skip
        (run / "result.json").write_text(json.dumps(entries))
    write_run(tmp_path, "dcco_4", 0, 0.3)
    rows = TABLE.rows | {"kNN": ("dcco_1", "dcco_4"), "Untrained": ("dcco_1",)}
    selectors = {"kNN": Selector("knn"), "Untrained": LINEAR._replace(baseline="random_encoder")}
    table = dataclasses.replace(TABLE, rows=rows, selectors=selectors)
    assert report.logistic_grid(read_folder(tmp_path), table) == [
        ["by logistic regression (%)", "one", "four"],
        ["DCCO", "62.0 ± 2.0", "not run"],
        ["Untrained", "26.0 ± 1.0", ""],
    ]
    chosen = dataclasses.replace(TABLE, rows={"chosen": ("choice", "dcco_4")}, selectors={})
    assert report.logistic_grid(read_folder(tmp_path), chosen, {"choice": "dcco_1"})[1:] == [
        ["chosen", "62.0 ± 2.0", "not run"],
    ]
    # Figures of other probes are not repeated, and a table without any is left out.
    personalized = table.selector._replace(protocol="linear_personalized_tiny")
    beside = report.logistic_table(dataclasses.replace(table, selector=personalized))
    assert beside.selector.protocol == "linear_logistic_personalized_tiny"
    assert beside.selectors["kNN"].protocol == ""
    experiment = Experiment("e", "Title", (Cell("dcco_1", "pretrain", ()),), (table,), ())
    markdown, _ = write_report(tmp_path, experiment)
    assert markdown.read_text().count("by logistic regression") == 1
    (tmp_path / "dcco_1" / "seed0" / "result.json").unlink()
    for seed in (1, 2):
        write_run(tmp_path, "dcco_1", seed, 0.5)
    assert "by logistic" not in write_report(tmp_path, experiment)[0].read_text()


def test_small_mean_counts_have_a_decimal(tmp_path):
    for seed, rounds in enumerate((1.2, 1.6)):
        write_run(tmp_path, "some", seed, 0.5, rounds=rounds)
        write_run(tmp_path, "all", seed, 0.5, rounds=10)
        write_run(tmp_path, "bytes", seed, 0.5, rounds=1234.5)
    table = Table(
        "Rounds", LINEAR._replace(metric="rounds"), ("rounds",),
        {name: (name,) for name in ("some", "all", "bytes")}, {}, percent=False,
    )  # fmt: skip
    grid = report.measured_grid(table, report.read_table_values(read_folder(tmp_path), table))
    assert [row[1] for row in grid[1:]] == ["1.4 ± 0.3", "10", "1,234"]


@pytest.mark.slow
def test_nothing_overflows_in_a_browser(folder):
    columns = tuple(f"a setting with a name, {number}" for number in range(8))
    rows = {"DCCO": ("dcco_1",) * 8, "Another method with a long name": ("dcco_4",) * 8}
    table = Table("Linear", LINEAR, columns, rows, {"DCCO": (51.7,) * 8})
    claim = Claim("one is above the other", "Linear", (Contrast({("DCCO", columns[0]): 1}),))
    cells = tuple(Cell(name, "pretrain", ()) for name in ("dcco_1", "dcco_4"))
    notes = ("A_name_without_blanks_" * 9,)
    experiment = Experiment("x", "A report", cells, (table,), (claim,), notes)
    _, page = write_report(folder, experiment)
    browser.check_layout(page)
