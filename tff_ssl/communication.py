"""Bytes that a client receives and sends, read off TFF types."""

import math
from collections.abc import Iterable

import numpy as np
import tensorflow_federated as tff


def type_bytes(type_spec: tff.Type) -> int:
    """Bytes of a value of a (nested) tensor type.

    Raises:
      ValueError: If the size does not follow from the type (unknown dimensions, strings).
    """
    if isinstance(type_spec, tff.types.StructType):
        return sum(type_bytes(element) for _, element in tff.structure.iter_elements(type_spec))
    if not isinstance(type_spec, tff.types.TensorType):
        raise ValueError(f"no fixed size: {type_spec}")
    if type_spec.shape is None or None in type_spec.shape or type_spec.dtype.type is np.str_:
        raise ValueError(f"no fixed size: {type_spec}")
    return math.prod(type_spec.shape) * type_spec.dtype.itemsize


def total_bytes(type_specs: Iterable[tff.Type]) -> int:
    """Bytes of one value of each type."""
    return sum(type_bytes(type_spec) for type_spec in type_specs)
