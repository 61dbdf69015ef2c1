"""Random numbers and images for the tests of single steps."""

import numpy as np
import tensorflow as tf

from tff_ssl.views.draws import DRAW_NAMES, draw_uniforms


def fixed_draws(**fixed: float | list[float]) -> dict[str, tf.Tensor]:
    """Uniforms by name: those given, and 0.5 (the middle of all ranges) for the others."""
    rows = max([1, *(len(v) for v in fixed.values() if isinstance(v, list))])
    return {
        name: tf.constant(np.broadcast_to(fixed.get(name, 0.5), [rows]), tf.float64)
        for name in DRAW_NAMES
    }


def many_draws(rows: int = 20_000) -> dict[str, tf.Tensor]:
    """Uniforms of many examples, by name, float64 [rows] each."""
    ids = tf.range(rows, dtype=tf.int64)
    return draw_uniforms(11, 5, ids, tf.zeros_like(ids))


def unit_images(batch: int = 1, size: int = 12, channels: int = 3) -> np.ndarray:
    """Random images with values in [0, 1)."""
    return np.random.default_rng(2).random((batch, size, size, channels), np.float32)
