"""Batches of permuted examples, by their properties."""

import numpy as np
import pytest

from tff_ssl.evaluation.labels import permuted_batches


def test_every_example_is_seen_equally_often_in_changing_order():
    batches = permuted_batches(np.arange(24) + 7, 30, 8, np.random.default_rng(0))
    assert batches.shape == (30, 8)
    np.testing.assert_array_equal(np.bincount(batches.ravel() - 7), np.full(24, 10))
    assert len({tuple(epoch) for epoch in batches.reshape(10, 24)}) == 10


@pytest.mark.parametrize(("batch_size", "shape"), [(3, (4, 3)), (5, (4, 5)), (9, (4, 5))])
def test_a_batch_holds_at_most_all_examples(batch_size, shape):
    batches = permuted_batches(np.arange(5), 4, batch_size, np.random.default_rng(0))
    assert batches.shape == shape
    first_epoch = batches.ravel()[:5]
    np.testing.assert_array_equal(np.sort(first_epoch), np.arange(5))
