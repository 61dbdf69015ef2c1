"""Bytes that a client receives and sends, computed from TFF types."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import tensorflow_federated as tff


class Message(NamedTuple):
    """A value that passes between the server and each client at one place of a computation."""

    #: TFF's name of the operation, such as `federated_broadcast` or `federated_sum`.
    operation: str
    down: bool  #: Whether the value goes from the server to the clients.
    type_spec: tff.Type  #: Type of the value.

    @property
    def is_secure(self) -> bool:
        """Whether the server sees only the sum over the clients."""
        return self.operation.startswith("federated_secure")


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


def messages(computation: tff.framework.ConcreteComputation) -> list[Message]:
    """All messages between server and clients in a round, or in another federated computation."""
    collected = []

    def visit(block):
        if isinstance(block, tff.framework.Call) and _crosses(block.function):
            operation = block.function
            down = operation.uri == tff.framework.FEDERATED_BROADCAST.uri
            sender = tff.SERVER if down else tff.CLIENTS
            for type_spec in _placed_types(operation.type_signature.parameter, sender):
                collected.append(Message(operation.uri, down, type_spec))
        return block, False

    tff.framework.transform_postorder(
        tff.framework.to_call_dominant(computation.to_building_block()), visit
    )
    return collected


def client_bytes(computation: tff.framework.ConcreteComputation) -> tuple[int, int]:
    """Bytes that each client receives and sends in a computation; errors: see `type_bytes`."""
    sent = messages(computation)
    down = total_bytes(message.type_spec for message in sent if message.down)
    return down, total_bytes(message.type_spec for message in sent if not message.down)


def _crosses(function: tff.framework.ComputationBuildingBlock) -> bool:
    """Whether the function moves values from server to clients, or from clients to server."""
    if not isinstance(function, tff.framework.Intrinsic):
        return False
    if function.uri == tff.framework.FEDERATED_BROADCAST.uri:
        return True
    sent = _placed_types(function.type_signature.parameter, tff.CLIENTS)
    return bool(sent) and bool(_placed_types(function.type_signature.result, tff.SERVER))


def _placed_types(type_spec: tff.Type | None, placement: object) -> list[tff.Type]:
    """The types of the values at a placement in a type."""
    if isinstance(type_spec, tff.types.StructType):
        elements = (element for _, element in tff.structure.iter_elements(type_spec))
        return [member for element in elements for member in _placed_types(element, placement)]
    if isinstance(type_spec, tff.types.FederatedType) and type_spec.placement is placement:
        return [type_spec.member]
    return []
