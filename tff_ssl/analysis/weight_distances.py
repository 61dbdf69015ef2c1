"""Distances of two networks' weights, layer by layer (Dec-SSL paper, appendix B.3)."""

from collections.abc import Sequence

import numpy as np

from tff_ssl.errors import ConfigurationError


def layer_distances(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> np.ndarray:
    """The l2 norm of the difference in each layer, a weight tensor: float64 [layers].

    The sum over the layers is d_w(a, b), the paper's surrogate for the drift of models.

    Raises:
      ConfigurationError: The structures differ.
    """
    if len(a) != len(b):
        raise ConfigurationError(f"they have {len(a)} and {len(b)} layers")
    distances = []
    for number, (v, w) in enumerate(zip(a, b, strict=True), 1):
        if np.shape(v) != np.shape(w):
            shapes = " and ".join("x".join(map(str, np.shape(x))) or "scalar" for x in (v, w))
            raise ConfigurationError(f"their layer {number} of {len(a)} has shapes {shapes}")
        # In float32, the sum of squares of a large layer would lose digits.
        distances.append(np.linalg.norm(np.subtract(v, w, dtype=np.float64)))
    return np.array(distances)
