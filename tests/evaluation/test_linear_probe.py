"""The comparison against single probes on the same draws, and the shape of its result."""

import json

import numpy as np
import pytest

from tff_ssl.evaluation import adam_probe, lars_probe, linear_probe, logistic_probe, scaling
from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation.linear_probe import FeatureSet

RNG = np.random.default_rng(0)
CENTRES = RNG.standard_normal((4, 8)) * 1.5
TRAIN_LABELS, TEST_LABELS = RNG.integers(4, size=300), RNG.integers(4, size=200)
TRAIN_LABELS[::7] = -1


def features(spread, seed):
    """Class centres (of the unlabelled too) plus noise: the less, the better the features."""
    rng = np.random.default_rng(seed)
    train, test = (CENTRES[y] + spread * rng.standard_normal((len(y), 8)) for y in LABELS)
    return FeatureSet(train, test, train + 0.1)


LABELS = (TRAIN_LABELS, TEST_LABELS)
SETS = {
    "encoder": features(0.7, 1),
    "random_encoder": features(2.0, 2),
    "raw_pixels": features(1.5, 3),
}


def draw(draws, per_class=None, total=None):
    generators = (np.random.default_rng([3, i]) for i in range(draws))
    return [
        labelling.draw_labels(TRAIN_LABELS, rng, per_class=per_class, total=total)
        for rng in generators
    ]


def compare(drawn, **kwargs):
    return linear_probe.few_label_comparison(
        SETS, *LABELS, dataset="toy", drawn=drawn, seed=3, **kwargs
    )


def test_the_result_has_the_fields_of_result_json():
    result = compare(draw(4, per_class=2), labels_per_class=2)
    assert json.loads(json.dumps(result)) == result
    means = {"accuracy", "accuracy_std", "balanced_accuracy", "balanced_accuracy_std",
             "class_accuracies"}  # fmt: skip
    fields = {"protocol", "method", "dataset", "labels", "labels_per_class", "draws", "baselines"}
    assert set(result) == means | fields
    assert set(result["baselines"]) == {"random_encoder", "raw_pixels"}
    assert all(set(b) == means for b in result["baselines"].values())
    assert (result["protocol"], result["method"], result["dataset"]) == (
        "linear",
        "logistic",
        "toy",
    )
    assert (result["labels"], result["labels_per_class"], result["draws"]) == (8, 2, 4)


@pytest.mark.parametrize("method", ["logistic", "lars", "adam"])
def test_equals_single_probes_on_the_same_draws(method):
    drawn = draw(3, per_class=2)
    result = compare(drawn, method=method)
    for name, entry in [("encoder", result), *result["baselines"].items()]:
        train, test, flipped = SETS[name]
        scaler, scores = scaling.fit_scaler(train), []
        for i, indices in enumerate(drawn):
            data = (train[indices], TRAIN_LABELS[indices], test, TEST_LABELS)
            sets = scaling.prepare(*data, scaler, flipped[indices])
            if method == "logistic":
                scores.append(logistic_probe.logistic_probe(sets))
            elif method == "adam":
                scores.append(adam_probe.adam_probe(sets, [3, i, 1]))
            else:
                scores.append(lars_probe.lars_probe(sets, [3, i, 1]))
        accuracy, balanced = np.transpose([s[:2] for s in scores])
        of_class = [s.class_accuracies[1] for s in scores]
        assert entry["class_accuracies"]["1"] == pytest.approx(np.mean(of_class))
        assert entry["accuracy"] == pytest.approx(accuracy.mean())
        assert entry["accuracy_std"] == pytest.approx(accuracy.std() * np.sqrt(3 / 2))
        assert entry["balanced_accuracy"] == pytest.approx(balanced.mean())
        assert entry["balanced_accuracy_std"] == pytest.approx(balanced.std() * np.sqrt(3 / 2))


def test_better_features_and_more_labels_score_better():
    few, many = compare(draw(10, per_class=1)), compare(draw(5, total=80))
    for result in (few, many):
        baselines = [b["accuracy"] for b in result["baselines"].values()]
        assert result["accuracy"] > max(baselines) + 0.05
    assert many["accuracy"] > few["accuracy"] + 0.02
    assert many["labels_per_class"] is None
    assert many["labels"] == 80


def test_one_draw_has_no_deviation():
    result = compare([np.flatnonzero(TRAIN_LABELS != -1)])
    assert result["labels"] == (TRAIN_LABELS != -1).sum()
    assert (result["labels_per_class"], result["draws"], result["accuracy_std"]) == (None, 1, 0.0)


def test_errors_name_the_feature_set():
    def with_set(**changed):
        return linear_probe.few_label_comparison(
            {**SETS, **changed}, *LABELS, dataset="toy", drawn=draw(1, per_class=1), seed=0
        )

    train, test, _ = SETS["raw_pixels"]
    broken = np.where(np.arange(8) == 3, np.nan, test)
    with pytest.raises(ValueError, match="'raw_pixels': The test features are not finite in 200"):
        with_set(raw_pixels=FeatureSet(train, broken))
    with pytest.raises(ValueError, match="'raw_pixels': There are 299 training features for 300"):
        with_set(raw_pixels=FeatureSet(train[1:], test))
    with pytest.raises(ValueError, match="needs 'encoder'"):
        linear_probe.few_label_comparison({}, *LABELS, dataset="toy", drawn=draw(1, 1), seed=0)
    with pytest.raises(ValueError, match="draws"):
        compare([])
    with pytest.raises(ValueError, match="method"):
        compare(draw(1, 1), method="svm")
