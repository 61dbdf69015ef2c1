"""Draws of labels, by their properties, and scores, against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from tff_ssl.evaluation import labels as labelling


def labels_of_sizes(sizes, unlabelled=0, seed=0):
    labels = np.repeat([*range(len(sizes)), -1], [*sizes, unlabelled])
    return np.random.default_rng(seed).permutation(labels)


@pytest.mark.parametrize("per_class", [1, 3, 5])
def test_a_draw_per_class_is_balanced(per_class):
    labels = labels_of_sizes([5, 9, 30], unlabelled=20)
    drawn = labelling.draw_labels(labels, np.random.default_rng(1), per_class=per_class)
    assert len(set(drawn)) == len(drawn)
    np.testing.assert_array_equal(np.bincount(labels[drawn]), [per_class] * 3)


@pytest.mark.parametrize(
    ("total", "expected"),
    [(3, [1, 1, 1]), (10, [3, 3, 4]), (20, [5, 7, 8]), (44, [5, 9, 30])],
)
def test_an_even_draw_is_as_even_as_the_sizes_allow(total, expected):
    labels = labels_of_sizes([5, 9, 30], unlabelled=20)
    drawn = labelling.draw_labels(labels, np.random.default_rng(2), total=total, even=True)
    assert len(set(drawn)) == total
    np.testing.assert_array_equal(sorted(np.bincount(labels[drawn])), expected)


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        # One of each class, and the rest in proportion to the other examples, here 4 : 8 : 29.
        ([5, 9, 30], 44, [5, 9, 30]),
        ([5, 9, 29], 23, [3, 5, 15]),
        ([5, 9, 30], 3, [1, 1, 1]),
        ([1, 11, 1001], 104, [1, 2, 101]),
        ([50] * 10, 20, [2] * 10),
    ],
)
def test_a_draw_of_a_total_is_proportional_to_the_classes(sizes, total, expected):
    labels = labels_of_sizes(sizes, unlabelled=20)
    drawn = labelling.draw_labels(labels, np.random.default_rng(2), total=total)
    assert len(set(drawn)) == total
    np.testing.assert_array_equal(np.bincount(labels[drawn]), expected)


def test_ties_between_classes_are_broken_at_random():
    labels, rng = labels_of_sizes([7] * 4), np.random.default_rng(0)
    more = np.zeros(4)
    for _ in range(400):
        counts = np.bincount(labels[labelling.draw_labels(labels, rng, total=10)])
        assert sorted(counts) == [2, 2, 3, 3]
        more += counts == 3
    np.testing.assert_allclose(more / 400, 0.5, atol=0.1)


def test_the_generator_fixes_the_draw():
    labels = labels_of_sizes([20] * 5)
    draws = [
        labelling.draw_labels(labels, np.random.default_rng(s), per_class=4) for s in (3, 3, 4)
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert set(draws[0]) != set(draws[2])


def test_every_example_is_drawn_equally_often():
    labels = labels_of_sizes([4, 8])
    rng = np.random.default_rng(5)
    counts = np.zeros(12)
    for _ in range(2000):
        counts[labelling.draw_labels(labels, rng, per_class=2)] += 1
    np.testing.assert_allclose(counts / 2000, np.where(labels == 0, 0.5, 0.25), atol=0.05)


def test_impossible_draws():
    labels, rng = labels_of_sizes([2, 9, 1], unlabelled=9), np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"class 0 has 2, class 2 has 1\. Ask for at most 1\."):
        labelling.draw_labels(labels, rng, per_class=3)
    with pytest.raises(ValueError, match="class cat has 2, class eel has 1"):
        labelling.draw_labels(labels, rng, per_class=3, class_names=["cat", "dog", "eel"])
    with pytest.raises(ValueError, match=r"from 3 .* to 12 .* found 13"):
        labelling.draw_labels(labels, rng, total=13)
    with pytest.raises(ValueError, match="found 2"):
        labelling.draw_labels(labels, rng, total=2)
    with pytest.raises(ValueError, match="at least 1"):
        labelling.draw_labels(labels, rng, per_class=0)
    for both in ({}, {"per_class": 1, "total": 3}):
        with pytest.raises(ValueError, match="exactly one"):
            labelling.draw_labels(labels, rng, **both)
    with pytest.raises(ValueError, match="no labelled example"):
        labelling.draw_labels(np.full(5, -1), rng, per_class=1)


def test_scores_equal_scikit_learn():
    rng = np.random.default_rng(0)
    labels = rng.choice([0, 2, 5], size=200, p=[0.7, 0.2, 0.1])
    predicted = np.where(rng.random(200) < 0.6, labels, rng.choice([0, 2, 5], size=200))
    scores = labelling.score(predicted, labels)
    assert scores.accuracy == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert scores.balanced_accuracy == pytest.approx(
        metrics.balanced_accuracy_score(labels, predicted)
    )
    recalls = metrics.recall_score(labels, predicted, average=None)
    assert list(scores.class_accuracies) == [0, 2, 5]
    assert list(scores.class_accuracies.values()) == pytest.approx(recalls)


def test_a_class_never_seen_in_training_counts_as_wrong():
    scores = labelling.score(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 7]))
    assert scores[:2] == (0.75, pytest.approx(2 / 3))
    assert scores.class_accuracies == {0: 1.0, 1: 1.0, 7: 0.0}


def test_labelled_examples_drops_unknown_labels_and_names_errors():
    features = np.arange(8.0).reshape(4, 2)
    kept, labels = labelling.labelled_examples("bank", features, np.array([1, -1, 0, -1]))
    np.testing.assert_array_equal(kept, features[[0, 2]])
    np.testing.assert_array_equal(labels, [1, 0])
    features[[1, 3], 0] = [np.nan, np.inf]
    with pytest.raises(ValueError, match=r"bank features are not finite in 2 of 4 rows.* row 1"):
        labelling.labelled_examples("bank", features, np.zeros(4, np.int64))
    with pytest.raises(ValueError, match=r"integer labels \[4\], found int64 \[3\]"):
        labelling.labelled_examples("bank", np.zeros([4, 2]), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="None of the 4 bank examples"):
        labelling.labelled_examples("bank", np.zeros([4, 2]), np.full(4, -1))
