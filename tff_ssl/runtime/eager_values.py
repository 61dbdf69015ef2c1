"""The values of the runtime in this process.

A tensor is an eager tensor, a structure a list, a sequence the variant of a dataset, and a
federated value is `Placed`.
"""

import collections
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.common_libs import structure


class Placed(list):
    """The members of a federated value: one at the server, one for each client."""


def leaves(value: Any) -> Iterator[Any]:
    """The tensors of a value, in order; None has none."""
    if value is None:
        return
    if isinstance(value, list):
        for element in value:
            yield from leaves(element)
    else:
        yield value


def rebuilt(value: Any, tensors: Iterator[Any]) -> Any:
    """The structure of a value with other tensors."""
    if isinstance(value, list):
        return type(value)(rebuilt(element, tensors) for element in value)
    return next(tensors)


def spec(type_signature: tff.TensorType) -> tf.TensorSpec:
    dtype = type_signature.dtype.type
    return tf.TensorSpec(type_signature.shape, tf.string if dtype is np.str_ else dtype)


def specs(type_signature: tff.Type, num_clients: int = 0) -> Any:
    """The specifications of a value's tensors, in the structure of the value."""
    if isinstance(type_signature, tff.FederatedType):
        members = num_clients if type_signature.placement is tff.CLIENTS else 1
        return Placed([specs(type_signature.member)] * members)
    if isinstance(type_signature, tff.StructType):
        elements = structure.iter_elements(type_signature)
        return [specs(element, num_clients) for _, element in elements]
    if isinstance(type_signature, tff.SequenceType):
        return tf.TensorSpec([], tf.variant)
    return spec(type_signature)


def _packed(type_signature: tff.Type, leaves: Iterator[Any]) -> Any:
    """Leaves in the structure of a dataset's elements: dictionaries where elements have names."""
    if not isinstance(type_signature, tff.StructType):
        return next(leaves)
    named = structure.to_elements(type_signature)
    parts = [_packed(element, leaves) for _, element in named]
    if any(name is None for name, _ in named):
        return tuple(parts)
    return collections.OrderedDict(zip((name for name, _ in named), parts, strict=True))


def dataset(sequence: tf.Tensor, element_type: tff.Type) -> tf.data.Dataset:
    """The dataset of a sequence."""
    packed = _packed(element_type, leaves(specs(element_type)))
    return tf.data.experimental.from_variant(sequence, packed)


def sequence(elements: Sequence[Any], element_type: tff.Type) -> tf.Tensor:
    """The dataset of a sequence's elements, as a variant.

    Elements may differ in shape, as the last one of batches often does.
    """
    rows = [list(leaves(element)) for element in elements]
    shapes = [[leaf.shape.as_list() for leaf in row] for row in rows]
    alike = [list(group) for _, group in itertools.groupby(range(len(rows)), shapes.__getitem__)]
    parts = [[tf.stack(c) for c in zip(*(rows[i] for i in group), strict=True)] for group in alike]
    if not parts:
        parts = [[
            tf.zeros([0, *(size or 0 for size in s.shape)], s.dtype)
            for s in leaves(specs(element_type))
        ]]  # fmt: skip
    of_parts = [
        tf.data.Dataset.from_tensor_slices(_packed(element_type, iter(columns)))
        for columns in parts
    ]
    joined = functools.reduce(lambda first, second: first.concatenate(second), of_parts)
    return tf.data.experimental.to_variant(joined)


def elements(sequence: tf.Tensor, element_type: tff.Type) -> Iterator[Any]:
    """The elements of a sequence, as values of the executor."""
    for element in dataset(sequence, element_type):
        yield from_python(element, element_type)


def from_python(value: Any, type_signature: tff.Type) -> Any:
    """A value that a program gives, as a value of the executor."""
    if isinstance(type_signature, tff.FederatedType):
        members = [value] if type_signature.all_equal else value
        return Placed(from_python(member, type_signature.member) for member in members)
    if isinstance(type_signature, tff.StructType):
        parts = [part for _, part in structure.iter_elements(structure.from_container(value))]
        types = [element for _, element in structure.iter_elements(type_signature)]
        if len(parts) != len(types):
            raise TypeError(f"a value of {len(parts)} elements is no {type_signature}")
        return [from_python(part, element) for part, element in zip(parts, types, strict=True)]
    if isinstance(type_signature, tff.SequenceType):
        if isinstance(value, tf.data.Dataset):
            return tf.data.experimental.to_variant(value)
        element = type_signature.element
        return sequence([from_python(part, element) for part in value], element)
    expected = spec(type_signature)
    tensor = tf.convert_to_tensor(value, None if isinstance(value, np.ndarray) else expected.dtype)
    if tensor.dtype != expected.dtype or not expected.shape.is_compatible_with(tensor.shape):
        raise TypeError(f"{tensor.dtype.name}{tensor.shape} is no {type_signature}")
    return tensor


def to_python(value: Any, type_signature: tff.Type) -> Any:
    """A value of the executor, as a program gets it: tensors stay eager tensors."""
    if isinstance(type_signature, tff.FederatedType):
        members = [to_python(member, type_signature.member) for member in value]
        return members[0] if type_signature.all_equal else members
    if isinstance(type_signature, tff.StructType):
        named = structure.iter_elements(type_signature)
        return structure.Struct(
            (name, to_python(part, element))
            for (name, element), part in zip(named, value, strict=True)
        )
    if isinstance(type_signature, tff.SequenceType):
        return dataset(value, type_signature.element)
    return value
