"""Packs nested state into one vector per dtype: a checkpoint costs mostly per tensor."""

from typing import Any

import numpy as np
import tree


def pack(state: Any) -> dict[str, np.ndarray]:
    """Packs a nested state: dtype name -> vector of this dtype's values, in flat order."""
    vectors: dict[str, list[np.ndarray]] = {}
    for leaf in tree.flatten(state):
        array = _as_array(leaf)
        vectors.setdefault(array.dtype.name, []).append(array.ravel())
    return {dtype: np.concatenate(parts) for dtype, parts in vectors.items()}


def unpack(packed: dict[str, np.ndarray], like: Any) -> Any:
    """Restores the result of `pack`, with the structure, shapes and dtypes of another state.

    Raises:
      ValueError: If the sizes or dtypes do not fit, or a value is not finite.
    """
    for dtype, vector in packed.items():
        if vector.dtype.name != dtype or vector.ndim != 1:
            raise ValueError(f"its {dtype} values are {vector.dtype.name} {vector.shape}")
        if not is_finite(vector):
            raise ValueError(f"some of its {dtype} values are not finite")
    offsets = dict.fromkeys(packed, 0)

    def take(leaf):
        array = _as_array(leaf)
        if array.dtype.name not in packed:
            raise ValueError(f"it has no {array.dtype.name} values")
        start = offsets[array.dtype.name]
        offsets[array.dtype.name] = start + array.size
        values = packed[array.dtype.name][start : start + array.size]
        if len(values) != array.size:
            raise ValueError("it holds a state of another shape")
        return values.reshape(array.shape) if array.ndim else values[0]

    state = tree.map_structure(take, like)
    if any(offsets[dtype] != len(vector) for dtype, vector in packed.items()):
        raise ValueError("it holds a state of another shape")
    return state


def _as_array(leaf: Any) -> np.ndarray:
    """A leaf as an array, whose strings are bytes: those of a tensor of TensorFlow are objects."""
    array = np.asarray(leaf)
    return array.astype(np.bytes_) if array.dtype == object else array


def is_finite(array: np.ndarray) -> bool:
    """Whether no value of an array is NaN or infinite."""
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
