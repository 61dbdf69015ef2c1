"""The random numbers of views: distribution, independence, and a key for every argument."""

import itertools
import math

import numpy as np
import scipy.stats
import tensorflow as tf

from tests.views.inputs import many_draws
from tff_ssl.views.draws import DRAW_NAMES, draw_uniforms


def test_uniforms_are_uniform_and_independent():
    draws = np.stack([u.numpy() for u in many_draws().values()])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert min(scipy.stats.kstest(u, "uniform").pvalue for u in draws) > 1e-3
    correlation = np.corrcoef(draws)[np.triu_indices(len(draws), 1)]
    assert np.abs(correlation).max() < 5 / math.sqrt(draws.shape[1])


def test_uniforms_do_not_collide_across_keys():
    keys = list(itertools.product((0, 1, 2**31 - 1), (0, 1, 2**32), (0, 1, 2**40), (0, 1, 2**16)))
    rows = [
        tf.stack([*draw_uniforms(s, r, tf.constant([e], tf.int64), tf.constant([v])).values()])
        for s, r, e, v in ((s, r, e, np.int64(v)) for s, r, e, v in keys)
    ]
    values = np.concatenate([row.numpy().ravel() for row in rows])
    assert len(values) == len(keys) * len(DRAW_NAMES)
    assert len(np.unique(values)) > len(values) - 5  # 1620 of 2**24 values: 0.08 pairs expected
