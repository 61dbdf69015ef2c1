"""`launch.probes.probing`: the monitor, and encodings that are not finite."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from datasets.image_dataset import ImageDataset, Split
from launch.options.run_config import EvaluationConfig
from launch.probes import monitoring, probing, result_text
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.evaluation import features


def test_encodings_that_are_not_finite_are_a_diverged_training():
    # Images of class k have brightness k, and the encoding 1 / (bad - k).
    labels = np.repeat(np.arange(4, dtype=np.int32), 5)
    images = np.broadcast_to(labels[:, None, None, None], (20, 8, 8, 1)).astype(np.uint8)
    split = Split(images, labels, np.arange(20))
    dataset = ImageDataset("d", split, split, tuple("abcd"))

    @tf.function
    def encode(bad, batch):
        return 1.0 / (bad - tf.reduce_mean(tf.cast(batch, tf.float32), (2, 3)))

    monitor = monitoring.build_monitor(dataset, encode, lambda state: tf.constant(state))
    assert 0.0 <= monitor(9.0)["knn_accuracy"] <= 1.0
    with pytest.raises(TrainingError, match=r"of 5 of 20 images are not finite: .*diverged"):
        monitor(3.0)


def test_monitor_of_unbalanced_classes():
    # All images are equal, so that any 20 may be nearest; the five of class 1 are always outvoted.
    labels = np.repeat(np.arange(2, dtype=np.int32), [95, 5])
    split = Split(np.ones((100, 8, 8, 1), np.uint8), labels, np.arange(100))

    @tf.function
    def encode(weights, batch):
        return weights + tf.reduce_mean(tf.cast(batch, tf.float32), (2, 3))

    dataset = ImageDataset("d", split, split, ("a", "b"))
    monitor = monitoring.build_monitor(dataset, encode, lambda state: tf.constant(state))
    assert monitor(0.0) == {
        "effective_rank": 0.0,
        "knn_accuracy": 0.95,
        "knn_balanced_accuracy": 0.5,
    }


def encoder_of_corner(weights, batch):
    """The first two rows of an image's pixels times the weights, float32 [n, 2 * width]."""
    return tf.reshape(tf.cast(batch[:, :2], tf.float32), [len(batch), -1]) * weights


@pytest.mark.parametrize("labels", ["all", "some", "none"])
def test_monitor_of_the_effective_rank(labels):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2500, 8, 8, 1), np.uint8)
    classes = rng.integers(0, 3, 2500).astype(np.int32)
    classes[{"all": 2500, "some": 40, "none": 0}[labels] :] = -1
    split = Split(images, classes, np.arange(2500))
    dataset = ImageDataset("d", split, split, ("a", "b", "c"))
    encode = tf.function(encoder_of_corner)
    weights = rng.uniform(0.1, 1, 16).astype(np.float32)

    # The encodings of the 2000 images that the monitor draws, whether they have labels or not.
    chosen = np.sort(np.random.default_rng(0).permutation(2500)[:2000])
    h = images[chosen, :2].reshape(2000, 16) * weights.astype(np.float64)
    p = np.linalg.eigvalsh(np.cov(h, rowvar=False))
    expected = np.prod((p / p.sum()) ** (-p / p.sum()))

    monitor = monitoring.build_monitor(dataset, encode, lambda state: state)
    metrics = monitor(tf.constant(weights))
    assert metrics["effective_rank"] == pytest.approx(expected, rel=1e-4)
    knn = {"knn_accuracy", "knn_balanced_accuracy"}
    assert metrics.keys() == {"effective_rank"} | (set() if labels == "none" else knn)
    rank = monitoring.rank_of(dataset, lambda batch: encode(tf.constant(weights), batch))
    assert rank == metrics["effective_rank"]


def test_a_collapsed_run_warns_in_one_line():
    assert result_text.rank_lines(2.0, 19.8) == [
        "effective rank of the encodings: 2.0 (untrained encoder: 19.8)"
    ]
    _, warning = result_text.rank_lines(1.9, 19.8)
    assert "collapsed" in warning
    assert "batch norm" in warning
    assert "\n" not in warning


@pytest.mark.parametrize("also_logistic", [False, True])
def test_logistic_regression_beside_another_probe_is_on_the_same_labels(also_logistic):
    rng = np.random.default_rng(0)
    classes = np.arange(120, dtype=np.int32) % 3
    images = rng.integers(0, 60, (120, 2, 2, 1)).astype(np.uint8)
    images[:, 0, 0, 0] += (60 * classes).astype(np.uint8)
    train, test = (
        Split(images[part], classes[part], np.arange(60, dtype=np.int64))
        for part in (slice(60), slice(60, None))
    )
    dataset = ImageDataset("toy", train, test, ("a", "b", "c"))
    config = EvaluationConfig(
        label_draws=2, probe="adam", also_logistic=also_logistic, per_case=False
    )
    kinds = {"encoder": features.raw_pixels}
    counts = [{"labels_per_class": 2}, {"labels_per_class": 10}]
    results = probing.linear_probes(dataset, kinds, config, 0, counts)
    expected = [("linear", "adam", 2), ("linear", "adam", 10)]
    if also_logistic:
        expected += [("linear_logistic", "logistic", 2), ("linear_logistic", "logistic", 10)]
        config = dataclasses.replace(config, probe="logistic")
        alone = probing.linear_probes(dataset, kinds, config, 0, counts)
        assert [r["protocol"] for r in alone] == ["linear", "linear"]
        assert [r | {"protocol": "linear_logistic"} for r in alone] == results[2:]
    assert [(r["protocol"], r["method"], r["labels_per_class"]) for r in results] == expected


def entry(score, untrained, pixels, **fields):
    """An entry of `result.json` with these balanced accuracies."""
    scores = [
        {"accuracy": a, "accuracy_std": 0.0, "balanced_accuracy": a, "balanced_accuracy_std": 0.0}
        for a in (score, untrained, pixels)
    ]
    baselines = {"random_encoder": scores[1], "raw_pixels": scores[2]}
    first = {"protocol": "linear", "labels_per_class": 5, "labels": 50, "baselines": baselines}
    return first | scores[0] | fields


def test_an_encoder_below_its_baselines_warns_in_one_line_with_what_helps():
    assert result_text.comparison_lines([]) == []
    assert result_text.comparison_lines([entry(0.8, 0.8, 0.7)]) == []
    of_client = entry(0.1, 0.8, 0.7, evaluated_clients=[0])
    assert result_text.comparison_lines([of_client]) == []
    untrained, pixels = "that of the untrained encoder, 0.830", "that of raw pixels, 0.900"
    for scores, text in (
        ((0.83, 0.9), f"{untrained} and {pixels}"),  # The untrained encoder comes first.
        ((0.83, 0.7), untrained),
        ((0.7, 0.9), pixels),
    ):
        [line] = result_text.comparison_lines([entry(0.9, 0.1, 0.95), entry(0.8, *scores)])
        assert line.startswith(
            "warning: linear with 5 per class: the encoder's balanced accuracy, "
        )
        assert f"0.800, is below {text}; what usually helps" in line
        assert "--rounds" in line
        assert "--views" in line
        assert "\n" not in line


def test_scores_of_cases_say_so_and_how_many_there_are():
    table = result_text.format_results([entry(0.8, 0.7, 0.6, per_case=True, test_examples=1494)])
    first, title, _ = table.splitlines()
    assert first.startswith("labels and predictions are per case")
    assert title.startswith("linear, test accuracy on 1,494 cases ")
    [title, _] = result_text.format_results(
        [entry(0.8, 0.7, 0.6, per_case=False, test_examples=1494)]
    ).splitlines()
    assert title.startswith("linear, test accuracy  ")


def test_cases_that_are_labelled_in_part_are_scored_by_their_labelled_images():
    """With the unlabelled images, whose pixels are the other class's, no case would be right."""
    labels = np.array([0, -1, -1, 1, -1, -1] * 4, np.int32)
    shades = np.where(labels >= 0, labels, np.repeat([1, 0] * 4, 3))
    images = (200 * shades)[:, None, None, None].astype(np.uint8) + np.zeros((1, 2, 2, 1), np.uint8)
    cases = np.repeat([f"case{i}" for i in range(8)], 3).astype(object)
    train, test = (
        Split(images[part], labels[part], np.arange(12, dtype=np.int64), cases[part])
        for part in (slice(12), slice(12, None))
    )
    dataset = ImageDataset("case_folder", train, test, ("a", "b"))
    config = EvaluationConfig(label_draws=1, per_case=True)
    kinds = {"encoder": features.raw_pixels}
    [result] = probing.linear_probes(dataset, kinds, config, 0, [{"labels_per_class": 1}])
    assert (result["accuracy"], result["per_case"], result["test_examples"]) == (1.0, True, 4)


@pytest.mark.parametrize(("per_case", "accuracy", "number"), [(True, 1.0, 2), (False, 1 / 3, 6)])
def test_a_supervised_classifier_scores_a_case_by_the_mean_of_its_logits(
    per_case, accuracy, number
):
    # Of each case, two images are wrong by a little and one is right by much.
    shades = np.array([100, 100, 250, 150, 150, 5])
    images = np.zeros((6, 2, 2, 1), np.uint8) + shades[:, None, None, None].astype(np.uint8)
    labels, case_ids = np.repeat([1, 0], 3).astype(np.int32), np.repeat(["a", "b"], 3)
    test = Split(images, labels, np.arange(6, dtype=np.int64), case_ids.astype(object))
    dataset = ImageDataset("case_folder", test, test, ("a", "b"))

    def apply(weights, x, training):
        brightness = tf.reduce_mean(x, [1, 2])
        return types.SimpleNamespace(logits=tf.concat([-brightness, brightness], 1))

    model = types.SimpleNamespace(apply=apply)
    config = EvaluationConfig(per_case=per_case)
    [result] = probing.classifier_results(dataset, model, (), 6, None, config)
    assert result["accuracy"] == pytest.approx(accuracy)
    assert (result["per_case"], result["test_examples"]) == (per_case, number)


def test_too_few_labels_are_reported_by_the_names_of_classes():
    with pytest.raises(ConfigurationError, match=r"class dog has 2\. Ask for at most 2"):
        probing.draw(np.array([0, 0, 0, 1, 1]), {"labels_per_class": 3}, [0], ("cat", "dog"))
