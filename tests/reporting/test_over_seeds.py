"""Mean, deviation and paired differences over seeds, against NumPy."""

import math

import numpy as np
import pytest

from tff_ssl.reporting import over_seeds
from tff_ssl.reporting.over_seeds import Measured


def entry(accuracy, untrained=None, **fields):
    baselines = {} if untrained is None else {"random_encoder": {"accuracy": untrained}}
    return {
        "protocol": "linear",
        "labels": 10,
        "accuracy": accuracy,
        "baselines": baselines,
    } | fields


def test_mean_and_deviation_are_those_of_numpy():
    values = np.random.default_rng(0).uniform(size=7)
    mean, deviation, count = over_seeds.spread(values)
    assert count == 7
    assert mean == pytest.approx(np.sum(values) / 7)
    assert deviation == pytest.approx(math.sqrt(np.sum((values - mean) ** 2) / 6))


def test_one_seed_has_no_deviation_and_none_has_no_mean():
    assert over_seeds.spread([0.25]) == (0.25, None, 1)
    assert over_seeds.spread([0.25]).text() == "0.250"
    assert math.isnan(over_seeds.spread([]).mean)
    assert over_seeds.spread([0.5, 0.7]).text(100, 1, "+") == "+60.0 ± 14.1"


def test_differences_are_paired_by_seed():
    first, second = {2: 0.9, 0: 0.5, 1: 0.7}, {0: 0.4, 1: 0.5, 3: 0.1}
    difference = over_seeds.paired(first, second)
    assert difference.seeds == 2  # Seeds 0 and 1.
    assert difference.mean == pytest.approx(np.mean([0.1, 0.2]))
    assert difference.deviation == pytest.approx(np.std([0.1, 0.2], ddof=1))
    assert over_seeds.paired(first, {7: 1.0}) is None


def test_results_are_collected_by_what_they_measure():
    results = {
        0: [entry(0.5, 0.3), entry(0.6, labels_per_class=1), {"protocol": "none", "labels": 1}],
        1: [entry(0.7, 0.6), entry(0.1), entry(0.2, dataset="x", pretrained_on="y")],
    }
    found = over_seeds.collect(results)
    ten, one, other = found
    assert ten == Measured("linear", "", 10, False)
    assert (one.labels, one.is_per_class) == (1, True)
    assert (other.name(), other.labels_text()) == ("linear on x", "10 labels")
    assert one.labels_text() == "1 label a class"
    assert found[ten].accuracy == {0: 0.5, 1: 0.7}  # Of a seed's two entries, the first.
    gain = found[ten].gain()
    assert (gain.mean, gain.deviation) == pytest.approx((0.15, np.std([0.2, 0.1], ddof=1)))
    assert found[one].gain() is None


def test_other_methods_and_other_folders_of_images_are_other_measurements():
    elsewhere = {"dataset": "case_folder", "pretrained_on": "case_folder"}
    entries = [
        entry(0.5, method="logistic"),
        entry(0.6, method="lars"),
        entry(0.7, data_dir="/images/b", **elsewhere),
        entry(0.8, data_dir="/images/c", method="adam", **elsewhere),
    ]
    found = over_seeds.collect({0: entries})
    assert {one.name(): figures.accuracy for one, figures in found.items()} == {
        "linear": {0: 0.5}, "linear (lars)": {0: 0.6}, "linear on case_folder b": {0: 0.7},
        "linear (adam) on case_folder c": {0: 0.8},
    }  # fmt: skip
