"""Probes of raw pixels and of an encoder from ImageNet, beside figures of the same labels."""

import json

import pytest

from datasets import catalog
from tff_ssl.evaluation import features, knn
from tff_ssl.reporting import references, report
from tff_ssl.reporting.experiment import Table
from tff_ssl.reporting.measured import Selector
from tff_ssl.reporting.records import Records, Run

TABLE = Table("T", Selector("linear", 50), ("one", "two"), {"A": ("a_1", "a_2")}, {})


def a_run(seed, pixels=None, labels=50, baseline="raw_pixels", protocol="linear", **flags):
    entry = {"protocol": protocol, "labels": labels, "accuracy": 0.9, "dataset": "digits"}
    if pixels is not None:
        entry["baselines"] = {baseline: {"accuracy": pixels}}
    return Run("", {"result": [entry]}, {"flags": {"dataset": "digits", **flags}})


def test_other_runs_scores_count_where_data_labels_and_probe_are_the_same():
    others = Records(
        {},
        {
            "x": {0: a_run(0, 0.5), 1: a_run(1, 0.6)},
            "z": {0: a_run(0, 0.8, baseline="imagenet_encoder")},
            "w": {0: a_run(0, 0.3, protocol="held_out"), 2: a_run(2, 0.3, protocol="held_out")},
            "y": {0: a_run(0, 0.1, probe="lars"), 1: a_run(1, 0.2, labels=10)},
        },
    )
    scores = references.collect([others])
    own = Records({}, {"a_1": {0: a_run(0), 1: a_run(1)}, "a_2": {0: a_run(0, probe="lars")}})
    found = references.values(own, TABLE, scores, {})
    pixels, imagenet = found["(raw pixels)"], found["(encoder from ImageNet)"]
    assert pixels["one"].by_seed == {0: 0.5, 1: 0.6}
    assert pixels["one"].mean == pytest.approx(0.55)
    assert pixels["two"].by_seed == {0: 0.1}
    assert {column: value.by_seed for column, value in imagenet.items()} == {"one": {0: 0.8}}
    figures = report.read_table_values(own, TABLE)
    assert report.measured_grid(TABLE, figures, found)[-2:] == [
        ["(raw pixels)", "55.0 ± 7.1", "10.0"],
        ["(encoder from ImageNet)", "80.0", "-"],
    ]
    # A table that has the row keeps it, and counts have none.
    selectors = {"(raw pixels)": Selector("linear", 50, baseline="raw_pixels")}
    with_row = TABLE.__class__(
        "T", TABLE.selector, TABLE.columns, {**TABLE.rows, "(raw pixels)": ("a_1",)}, {}, selectors
    )
    assert references.values(own, with_row, scores, {}).keys() == {"(encoder from ImageNet)"}
    counts = TABLE.__class__("T", TABLE.selector, TABLE.columns, TABLE.rows, {}, percent=False)
    assert references.values(own, counts, scores, {}) == {}
    assert references.values(Records({}, {}), TABLE, scores, {}) == {}


def test_the_monitor_of_training_images_has_one_score_for_all_seeds_of_a_data_set():
    monitored = references.Setting("raw_pixels", "digits", "", 0, "training")
    run = Run("", {}, {"flags": {"dataset": "digits"}, "knn": [[1, 0.4], [2, 0.6]]})
    own = Records({}, {"a_1": {0: run}, "a_2": {0: run}})
    for metric, shown in (("knn_last", ["(raw pixels)"]), ("knn_lost", [])):
        curves = TABLE.__class__(
            "T", Selector("training", metric=metric), TABLE.columns, TABLE.rows, {}
        )
        found = references.values(own, curves, {monitored: {0: {"knn_last": 0.5}}}, {})
        assert list(found) == shown
    train = catalog.load("digits").train
    scores = knn.leave_one_out_knn(features.raw_pixels(train.images), train.labels)
    kept = references.kept()[monitored][0]["knn_last"]
    assert kept == pytest.approx(scores.accuracy, abs=1e-4)


def test_a_report_has_its_own_scores_first_and_those_of_measured_on_public_data(monkeypatch):
    digits, own_folder = (
        references.Setting("raw_pixels", data, "", 50, "logistic") for data in ("digits", "npz")
    )
    kept = {digits: {seed: {"accuracy": 0.1} for seed in (0, 1)}, own_folder: {0: {"accuracy": 0}}}
    monkeypatch.setattr(references, "kept", lambda: kept)
    records = Records({}, {"a_1": {1: a_run(1, 0.6)}})
    expected = {digits: {0: {"accuracy": 0.1}, 1: {"accuracy": 0.6}}}
    assert references.of_report(records) == expected
    found = references.values(records, TABLE, references.of_report(records), {})
    assert found["(raw pixels)"]["one"].by_seed == {0: 0.1, 1: 0.6}


def test_kept_scores_are_those_of_runs_and_noted_ones(project_root):
    folder = project_root / "measured"
    lines = map(json.loads, (folder / "noted.jsonl").read_text().splitlines())
    noted = [line for line in lines if line["what"] == "raw pixels"]
    assert len(noted) > 3
    for line in noted:
        fields = (line[key] for key in ("dataset", "image_size", "labels", "probe"))
        assert len(references.kept()[references.Setting("raw_pixels", *fields)]) == line["seeds"]
    one = json.loads(
        next(
            line
            for line in (folder / "digits_defaults-cpu.jsonl").read_text().splitlines()
            if '"cell": "dcco", "seed": 1' in line
        )
    )
    (entry,) = (entry for entry in one["results"]["result"] if entry["labels"] == 50)
    setting = references.Setting("raw_pixels", "digits", "", 50, "logistic")
    pixels = entry["baselines"]["raw_pixels"]
    assert references.kept()[setting][1]["accuracy"] == pixels["accuracy"]


def test_nothing_is_kept_without_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(references, "_MEASURED", tmp_path / "measured")
    assert references.kept.__wrapped__() == {}
