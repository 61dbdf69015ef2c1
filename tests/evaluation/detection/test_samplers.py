"""Samples of anchors and proposals: sizes, candidates, seeds, and that every one may be drawn."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.evaluation.detection import samplers


def draw(positive, negative, count, fraction, seed):
    drawn = samplers.balanced_sample(
        tf.constant(positive), tf.constant(negative), count, fraction, tf.constant(seed, tf.int32)
    )
    return drawn.numpy()


@pytest.mark.parametrize(
    ("positives", "negatives", "expected"),
    [(20, 50, (4, 12)), (3, 50, (3, 13)), (20, 5, (4, 5)), (0, 9, (0, 9)), (2, 0, (2, 0))],
)
def test_positives_are_a_quarter_at_most_and_negatives_fill_up(positives, negatives, expected):
    rng = np.random.default_rng(positives)
    kinds = np.concatenate([np.ones(positives), -np.ones(negatives), np.zeros(7)])
    kinds = np.stack([rng.permutation(kinds), rng.permutation(kinds)])
    for step in range(5):
        drawn = draw(kinds > 0, kinds < 0, 16, 0.25, [3, step])
        assert not drawn[kinds == 0].any()
        for row, kind in zip(drawn, kinds, strict=True):
            assert (row[kind > 0].sum(), row[kind < 0].sum()) == expected


def test_a_sample_is_a_pure_function_of_the_seed():
    positive = np.arange(60).reshape(1, 60) < 30
    first, again, other = (draw(positive, ~positive, 16, 0.5, [1, s]) for s in (2, 2, 3))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_every_candidate_is_drawn_equally_often():
    positive = np.arange(40).reshape(1, 40) < 8
    counts = sum(draw(positive, ~positive, 8, 0.5, [0, step]) for step in range(400))[0]
    # 4 of 8 positives and 4 of 32 negatives; five standard deviations.
    np.testing.assert_allclose(counts[:8] / 400, 0.5, atol=5 * np.sqrt(0.25 / 400))
    np.testing.assert_allclose(counts[8:] / 400, 0.125, atol=5 * np.sqrt(0.125 * 0.875 / 400))


def test_anchors_that_are_not_drawn_are_not_trained_on():
    rng = np.random.default_rng(0)
    shapes = {"2": (2, 8, 8, 3), "3": (2, 4, 4, 3), "4": (2, 2, 2, 3)}
    targets = {
        level: rng.choice([-1, 0, 0, 0, 1], shape).astype(np.int32)
        for level, shape in shapes.items()
    }
    sampled = samplers.sample_anchors(
        {level: tf.constant(t) for level, t in targets.items()}, 40, 0.5, tf.constant([1, 2])
    )
    assert list(sampled) == list(targets)
    kept = {level: values.numpy() for level, values in sampled.items()}
    for level, before in targets.items():
        changed = kept[level] != before
        assert (kept[level][changed] == -1).all()
    for image in range(2):
        flat = np.concatenate([values[image].ravel() for values in kept.values()])
        assert ((flat == 1).sum(), (flat == 0).sum()) == (20, 20)


def test_proposals_are_the_sample_and_fill_up_to_a_fixed_number():
    sampler = samplers.ProposalSampler(10, 0.25)
    kinds = np.array([[1] * 3 + [-1] * 4 + [0] * 20, [1] * 9 + [-1] * 18])
    sampler.seed.assign([5, 6])
    indices = sampler(
        tf.constant(kinds > 0), tf.constant(kinds < 0), tf.constant(kinds == 0)
    ).numpy()
    assert indices.shape == (2, 10)
    assert all(len(set(row)) == 10 for row in indices)
    # Two positives and four negatives, and then the first of the others.
    assert set(range(3, 7)) <= set(indices[0])
    assert sorted(set(indices[0]) - set(range(7))) == [7, 8, 9]
    assert ((indices[1] < 9).sum(), (indices[1] >= 9).sum()) == (2, 8)
