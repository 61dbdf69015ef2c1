"""The kNN monitor against a loop over its definition and against scikit-learn."""

import math

import numpy as np
import pytest
from sklearn import datasets, neighbors

from tff_ssl.evaluation import knn
from tff_ssl.evaluation import labels as labelling


def clusters(n, seed, num_classes=4, size=6):
    """Overlapping clusters, so that votes are close; labels 10, 11, ..."""
    centres = np.random.default_rng(99).standard_normal((num_classes, size))
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=n)
    return centres[labels] + rng.standard_normal((n, size)), labels + 10


def loop_predictions(bank, bank_labels, queries, k, temperature, excluded=None):
    """Wu et al. 2018, section 3.4, query by query; query q does not see example `excluded[q]`."""
    predictions = []
    for q, query in enumerate(queries):
        pairs = []
        for b, example in enumerate(bank):
            if excluded is None or excluded[q] != b:
                cosine = query @ example / np.sqrt((query @ query) * (example @ example))
                pairs.append((cosine, bank_labels[b]))
        votes: dict[int, float] = {}
        for cosine, label in sorted(pairs, reverse=True)[:k]:
            votes[label] = votes.get(label, 0.0) + math.exp(cosine / temperature)
        predictions.append(max(votes, key=lambda label: votes[label]))
    return np.array(predictions)


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.07), (20, 0.07), (20, 1.0), (500, 0.5)])
def test_equals_the_loop(k, temperature):
    (bank, bank_labels), (queries, query_labels) = clusters(120, 0), clusters(60, 1)
    expected = loop_predictions(bank, bank_labels, queries, k, temperature)
    scores = knn.knn_probe(bank, bank_labels, queries, query_labels, k, temperature)
    assert 0.3 < scores.accuracy < 1.0
    assert scores == labelling.score(expected, query_labels)


def test_leave_one_out_equals_the_loop_also_in_chunks(monkeypatch):
    features, labels = clusters(90, 2)
    expected = loop_predictions(features, labels, features, 7, 0.2, excluded=np.arange(90))
    for in_memory in (2**22, 90 * 13, 1):
        monkeypatch.setattr(knn, "_SIMILARITIES_IN_MEMORY", in_memory)
        scores = knn.leave_one_out_knn(features, labels, 7, 0.2)
        assert scores == labelling.score(expected, labels)


def test_equal_votes_equal_scikit_learn_on_digits():
    x, y = datasets.load_digits(return_X_y=True)
    classifier = neighbors.KNeighborsClassifier(5, metric="cosine").fit(x[:1200], y[:1200])
    expected = classifier.score(x[1200:], y[1200:])
    scores = knn.knn_probe(x[:1200], y[:1200], x[1200:], y[1200:], 5, math.inf)
    # Equal similarities may be ordered differently.
    assert scores.accuracy == pytest.approx(expected, abs=2e-3)
    assert scores.accuracy > 0.9


def test_leave_one_out_ignores_the_example_itself():
    # Each example's only near neighbour has the other label.
    features = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0], [0.01, 1.0]])
    labels = np.array([0, 1, 0, 1])
    assert knn.leave_one_out_knn(features, labels, k=1).accuracy == 0.0
    assert knn.knn_probe(features, labels, features, labels, k=1).accuracy == 1.0


def test_only_directions_count_and_no_temperature_overflows():
    (bank, bank_labels), (queries, query_labels) = clusters(120, 0), clusters(60, 1)
    lengths = np.random.default_rng(0).uniform(0.1, 50, (120, 1))
    expected = knn.knn_probe(bank, bank_labels, queries, query_labels)
    assert knn.knn_probe(bank * lengths, bank_labels, queries * 7, query_labels) == expected
    nearest = knn.knn_probe(bank, bank_labels, queries, query_labels, k=1)
    assert knn.knn_probe(bank, bank_labels, queries, query_labels, 20, 1e-6) == nearest


def test_unlabelled_examples_are_ignored():
    (bank, bank_labels), (queries, query_labels) = clusters(120, 0), clusters(60, 1)
    expected = knn.knn_probe(bank[:100], bank_labels[:100], queries[:50], query_labels[:50])
    bank_labels[100:] = query_labels[50:] = -1
    assert knn.knn_probe(bank, bank_labels, queries, query_labels) == expected


def test_a_collapsed_encoder_does_no_better_than_chance():
    labels = np.repeat(np.arange(4), 10)
    assert knn.leave_one_out_knn(np.zeros([40, 3]), labels, k=39).accuracy <= 0.25


def test_errors():
    (bank, bank_labels), (queries, query_labels) = clusters(20, 0), clusters(5, 1)
    with pytest.raises(ValueError, match="differ in size: 6 and 5"):
        knn.knn_probe(bank, bank_labels, queries[:, :5], query_labels)
    with pytest.raises(ValueError, match="k must"):
        knn.knn_probe(bank, bank_labels, queries, query_labels, k=0)
    with pytest.raises(ValueError, match="temperature"):
        knn.knn_probe(bank, bank_labels, queries, query_labels, temperature=0.0)
    with pytest.raises(ValueError, match="at least two"):
        knn.leave_one_out_knn(bank[:1], bank_labels[:1])
    queries[2] = np.nan
    with pytest.raises(ValueError, match="query features are not finite"):
        knn.knn_probe(bank, bank_labels, queries, query_labels)
