"""Nested states as few vectors: what a file costs is per tensor, not per byte."""

from typing import Any

import numpy as np
import tree


def pack(state: Any) -> dict[str, np.ndarray]:
    """A nested state as one vector per dtype: a checkpoint's cost is per tensor, not per byte."""
    vectors: dict[str, list[np.ndarray]] = {}
    for leaf in tree.flatten(state):
        array = np.asarray(leaf)
        vectors.setdefault(array.dtype.name, []).append(array.ravel())
    return {dtype: np.concatenate(parts) for dtype, parts in vectors.items()}


def unpack(packed: dict[str, np.ndarray], like: Any) -> Any:
    """The state that was packed, in the shapes and containers of `like`.

    Raises:
      ValueError: If the sizes do not fit.
    """
    offsets = dict.fromkeys(packed, 0)

    def take(leaf):
        array = np.asarray(leaf)
        start = offsets[array.dtype.name]
        offsets[array.dtype.name] = start + array.size
        values = packed[array.dtype.name][start : start + array.size]
        return values.reshape(array.shape) if array.ndim else values[0]

    state = tree.map_structure(take, like)
    if any(offsets[dtype] != len(vector) for dtype, vector in packed.items()):
        raise ValueError("the checkpoint holds a state of another shape")
    return state
