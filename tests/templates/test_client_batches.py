"""The draw of the examples that take part in a round."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.templates.client_batches import drawn_in_round
from tff_ssl.templates.local_training import batch_ends

SIZES = {3: 5, 1: 2, 7: 9}


def examples(sizes):
    """Examples with ids that start at ten times the client's number."""
    clients = [np.full(n, k) for k, n in sizes.items()]
    ids = [np.arange(10 * k, 10 * k + n) for k, n in sizes.items()]
    return collections.OrderedDict(
        client=tf.constant(np.concatenate([*clients, np.zeros(0, int)]), tf.int64),
        example_id=tf.constant(np.concatenate([*ids, np.zeros(0, int)]), tf.int64),
    )


def draw(examples, count=4, round_number=0, seed=5):
    drawn = drawn_in_round(examples, count, tf.constant(round_number, tf.int64), seed)
    return {name: values.numpy().tolist() for name, values in drawn.items()}


def test_each_client_gives_so_many_examples_in_their_order():
    drawn = draw(examples(SIZES))
    assert drawn["client"] == [3] * 4 + [1] * 2 + [7] * 4
    assert all(id_ // 10 == k for id_, k in zip(drawn["example_id"], drawn["client"], strict=True))
    for client in SIZES:
        own = [i for i in drawn["example_id"] if i // 10 == client]
        assert own == sorted(set(own))


def test_a_client_gives_the_same_examples_alone_and_in_a_group():
    together = draw(examples(SIZES), round_number=8)["example_id"]
    alone = [draw(examples({k: n}), round_number=8)["example_id"] for k, n in SIZES.items()]
    assert together == list(itertools.chain(*alone))


def test_examples_without_a_client_are_those_of_one():
    one = collections.OrderedDict(example_id=tf.range(9, dtype=tf.int64))
    assert len(draw(one)["example_id"]) == 4


@pytest.mark.parametrize("count", [2, 6])
def test_without_enough_examples_all_are_taken(count):
    none = draw(examples({}), count)
    assert none["example_id"] == []
    assert draw(examples({1: 2}), count)["example_id"] == [10, 11]


@pytest.mark.long
@pytest.mark.slow
def test_all_examples_are_drawn_equally_often_and_independently_of_each_other():
    rounds, count, n = 300, 2, 5
    shares, pairs = np.zeros(n), np.zeros((n, n))
    for r in range(rounds):
        chosen = draw(examples({1: n}), count, r)["example_id"]
        shares[np.array(chosen) - 10] += 1 / rounds
        pairs[tuple(np.array(chosen) - 10)] += 1 / rounds
    # Five deviations of a binomial share.
    assert np.abs(shares - count / n).max() < 5 * np.sqrt(0.4 * 0.6 / rounds)
    of_pair = pairs[np.triu_indices(n, 1)]
    assert np.abs(of_pair - 1 / 10).max() < 5 * np.sqrt(0.1 * 0.9 / rounds)


def test_seeds_and_rounds_draw_others():
    whole = examples({7: 9})
    draws = {tuple(draw(whole, 4, r, s)["example_id"]) for r in range(4) for s in range(4)}
    assert len(draws) > 12


@pytest.mark.parametrize(("size", "batch_size"), [(50_000, 1), (1_281_167, 256), (7, 3)])
def test_the_batches_of_an_epoch_have_every_example_once(size, batch_size):
    batches = size // batch_size
    positions = tf.range(batches)
    starts, ends = (x.numpy() for x in batch_ends(tf.constant(size), positions, batches))
    assert (starts[0], ends[-1]) == (0, size)
    np.testing.assert_array_equal(starts[1:], ends[:-1])
    sizes = ends - starts
    assert sizes.min() >= batch_size
    assert sizes.max() <= sizes.min() + 1
