"""Algorithm 2 of DeNAV by hand."""

import numpy as np
import pytest

from tff_ssl.algorithms.denav import staleness
from tff_ssl.algorithms.denav.state_log import StateLog


def log(model_id, steps, volume=3):
    return StateLog(model_id, steps, volume)


def test_other_models_within_the_bound_are_eligible():
    received = log(0, steps=20)
    assert staleness.eligible(received, log(1, 15), 5)
    assert staleness.eligible(received, log(1, 25), 5)
    assert not staleness.eligible(received, log(1, 14), 5)
    assert not staleness.eligible(received, log(1, 26), 5)
    # An earlier copy of the same model.
    assert not staleness.eligible(received, log(0, 20), 5)


def test_weights_by_hand():
    # Volumes 3 and 3: 1/2, 1/2. Steps 2 and 1: e / (1 + e) = 0.731059, 0.268941.
    # Products 0.365529 and 0.134471; they differ by 0.231059: 1 / (1 + e^-0.231059) = 0.557509.
    weights = staleness.aggregation_weights([log(0, 2), log(1, 1)])
    np.testing.assert_allclose(weights, [0.557509, 0.442491], atol=1e-6)
    # Volumes 4 and 3: 0.731059, 0.268941. The products with those of the steps are 0.534447 and
    # 0.072329. They differ by 0.462117: 1 / (1 + e^-0.462117) = 0.613516.
    logs = [log(0, 2, volume=4), log(1, 1, volume=3)]
    np.testing.assert_allclose(staleness.aggregation_weights(logs), [0.613516, 0.386484], atol=1e-6)
    # Without the steps: 0.731059 and 0.268941 differ by 0.462117 too.
    np.testing.assert_allclose(
        staleness.aggregation_weights(logs, "volume"), [0.613516, 0.386484], atol=1e-6
    )
    np.testing.assert_array_equal(staleness.aggregation_weights(logs, "average"), [0.5, 0.5])


def test_thousands_of_examples_do_not_overflow():
    # The first SoftMax is 1, 0; steps 1/2, 1/2; products 1/2, 0: 1 / (1 + e^-0.5) = 0.622459.
    logs = [log(0, 900, volume=90_000), log(1, 900, volume=80_000)]
    np.testing.assert_allclose(staleness.aggregation_weights(logs), [0.622459, 0.377541], atol=1e-6)


def test_eligible_copies_have_weights_and_others_have_none():
    received, local = log(0, 2), [log(2, 9), log(1, 1), log(0, 1)]
    weights = staleness.weights_at_client(received, local, 5)
    np.testing.assert_allclose(weights, [0.557509, 0, 0.442491, 0], atol=1e-6)
    np.testing.assert_array_equal(
        staleness.weights_at_client(received, local, 7, "average"), [1 / 3, 1 / 3, 1 / 3, 0]
    )


def test_without_eligible_copies_the_model_stays_as_it_is():
    assert staleness.weights_at_client(log(0, 9), [log(1, 1)], 5).tolist() == [1, 0]
    assert staleness.weights_at_client(log(0, 9), [], 5).tolist() == [1]


def test_unknown_weightings_are_refused():
    with pytest.raises(ValueError, match="weighting must be one of staleness, volume, average"):
        staleness.aggregation_weights([log(0, 1)], "newest")
