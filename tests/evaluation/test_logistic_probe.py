"""The quick probe against a minimization with SciPy, and on real digits."""

import numpy as np
import pytest
from scipy import optimize, special
from sklearn import datasets

from tff_ssl.evaluation import labels as labelling
from tff_ssl.evaluation import logistic_probe, scaling


def noisy_classes(n, seed):
    """Three overlapping classes in five dimensions, of sizes 3 : 2 : 1, labelled 2, 4, 7."""
    centres = np.random.default_rng(50).standard_normal((3, 5))
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=n, p=[1 / 2, 1 / 3, 1 / 6])
    features = 4.0 + centres[labels] + rng.standard_normal((n, 5))
    return features, np.array([2, 4, 7])[labels]


def reference_predictions(train, test, inverse_regularization):
    """Minimizes C * (sum of losses) + ||W||^2 / 2 with SciPy; C = inverse_regularization / d."""
    features, labels = train
    mean, rms = features.mean(axis=0), np.sqrt(features.var(axis=0).mean())
    x, (classes, y) = (features - mean) / rms, np.unique(labels, return_inverse=True)
    size, c = x.shape[1], inverse_regularization / x.shape[1]

    def objective(flat):
        kernel, bias = np.split(flat.reshape(size + 1, len(classes)), [size])
        log_p = special.log_softmax(x @ kernel + bias, axis=1)
        return -c * log_p[np.arange(len(y)), y].sum() + 0.5 * (kernel**2).sum()

    solution = optimize.minimize(objective, np.zeros((size + 1) * len(classes)), tol=1e-9).x
    kernel, bias = np.split(solution.reshape(size + 1, len(classes)), [size])
    return classes[((test - mean) / rms @ kernel + bias).argmax(axis=1)]


@pytest.mark.parametrize("strength", [0.01, 10.0])
def test_equals_an_independent_minimization(strength):
    train, test = noisy_classes(60, 0), noisy_classes(400, 1)
    expected = labelling.score(reference_predictions(train, test[0], strength), test[1])
    scores = logistic_probe.logistic_probe(scaling.prepare(*train, *test), strength)
    assert 0.4 < scores.accuracy < 0.95
    # One of the 400 examples may lie on the boundary.
    np.testing.assert_allclose(scores[:2], expected[:2], atol=2.5e-3)


def test_repeated_features_change_nothing():
    """Repeating the features must not weaken the regularization."""
    train, test = noisy_classes(60, 0), noisy_classes(400, 1)
    expected = logistic_probe.logistic_probe(scaling.prepare(*train, *test))
    repeated = [(np.tile(x, (1, 8)), y) for x, y in (train, test)]
    scores = logistic_probe.logistic_probe(scaling.prepare(*repeated[0], *repeated[1]))
    np.testing.assert_allclose(scores[:2], expected[:2], atol=5e-3)


def test_unlabelled_examples_are_ignored():
    (x, y), test = noisy_classes(60, 0), noisy_classes(400, 1)
    expected = logistic_probe.logistic_probe(scaling.prepare(x[:40], y[:40], *test))
    y[40:] = -1
    assert logistic_probe.logistic_probe(scaling.prepare(x, y, *test)) == expected


@pytest.mark.parametrize(
    ("per_class", "lowest", "highest"), [(1, 0.5, 0.8), (5, 0.8, 0.92), (None, 0.95, 0.99)]
)
def test_raw_digits_have_their_usual_accuracy(per_class, lowest, highest):
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    (x, y), test = ((x[part], y[part]) for part in np.split(order, [1200]))
    accuracies = []
    for seed in range(5):
        chosen = np.arange(1200)
        if per_class:
            chosen = labelling.draw_labels(y, np.random.default_rng(seed), per_class=per_class)
        sets = scaling.prepare(x[chosen], y[chosen], *test, scaling.fit_scaler(x))
        scores = logistic_probe.logistic_probe(sets)
        accuracies.append(scores.accuracy)
    assert lowest < np.mean(accuracies) < highest


def test_non_finite_features_are_named():
    train, test = noisy_classes(20, 0), noisy_classes(20, 1)
    test[0][3, 1] = np.inf
    with pytest.raises(ValueError, match="test features are not finite in 1 of 20 rows"):
        logistic_probe.logistic_probe(scaling.prepare(*train, *test))
