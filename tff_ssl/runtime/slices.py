"""The work of a node on a slice of a round's cohort.

A node gets a program, the server's state and the slice as bytes, and returns bytes. It can
therefore be this process (`InThisProcess`) or another machine, and a slice can be recomputed.
`sliced_rounds` makes the programs and slices.
"""

import collections
import functools
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff
import tree
from tensorflow_federated.proto.v0 import computation_pb2

from tff_ssl.simulation import state_files
from tff_ssl.simulation.cohort import Cohort

# Suffixes of a client's files beside its state: the new state and the metrics.
_WRITTEN = (".new", ".metrics")


class Slice(NamedTuple):
    """A part of a cohort."""

    #: Client indices int64 [k] of each group of clients that is computed in one call.
    groups: Sequence[Cohort]
    #: Content of the clients' state files; None where clients keep no state.
    states: Sequence[bytes] | None = None


class Partial(NamedTuple):
    """The result of the work on a slice."""

    sums: bytes  #: Result of `up_to_merge`, as bytes.
    #: Content of the clients' new state files; None where clients keep no state.
    states: Sequence[bytes] | None = None
    #: Metrics of the clients, as bytes; None where clients keep no state.
    metrics: Sequence[bytes] | None = None


def serialize(computation: tff.framework.ConcreteComputation) -> bytes:
    """A computation as bytes."""
    return tff.framework.serialize_computation(computation).SerializeToString()


def deserialize(content: bytes) -> tff.framework.ConcreteComputation:
    """The computation from `serialize`'s bytes; its structs have names, but no Python classes."""
    return tff.framework.deserialize_computation(computation_pb2.Computation.FromString(content))


def to_bytes(state: Any) -> bytes:
    """The server's state as bytes, as a node reads it."""
    return state_files.to_bytes(_plain(state))


def with_files(work: tff.Computation) -> tff.Computation:
    """A node's program, which reads the server's state from a file and writes its sums to a file.

    It turns (state@SERVER, clients@CLIENTS) -> sums@SERVER into
    (<path to read, path to write>@SERVER, clients@CLIENTS) -> number of bytes@SERVER. TFF's worker
    reads files many times faster than it receives tensors, and a node's sums travel as bytes.
    """
    state_type, clients_type = work.type_signature.parameter
    read, _ = state_files.reader_and_writer(plain_type(state_type.member))
    sums_type = plain_type(work.type_signature.result.member)
    _, write = state_files.reader_and_writer(sums_type)

    @tff.federated_computation(
        tff.types.FederatedType((np.str_, np.str_), tff.SERVER), clients_type
    )
    def program(paths, clients):
        sums = work(tff.federated_map(read, paths[0]), clients)
        return tff.federated_map(write, tff.federated_zip((paths[1], sums)))

    return program


def work_on_slice(
    program: tff.framework.ConcreteComputation,
    state: bytes,
    part: Slice,
    scratch: str | None = None,
) -> Partial:
    """Computes a slice with the result of `with_files` and the server's state as bytes.

    Clients with states have the type of `ClientFiles`. Scratch files are in `scratch`, or in the
    system's folder for temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="tff_ssl_slice_", dir=scratch) as name:
        folder = pathlib.Path(name)
        (folder / "server").write_bytes(state)
        server = (str(folder / "server"), str(folder / "sums"))
        if part.states is None:
            program(server, list(part.groups))
            return Partial((folder / "sums").read_bytes())
        clients = []
        for k, (indices, content) in enumerate(zip(part.groups, part.states, strict=True)):
            (folder / f"{k}").write_bytes(content)
            clients.append((*(str(folder / f"{k}{end}") for end in ("", *_WRITTEN)), indices))
        program(server, clients)
        new, metrics = (
            [(folder / f"{k}{end}").read_bytes() for k in range(len(clients))] for end in _WRITTEN
        )
        return Partial((folder / "sums").read_bytes(), new, metrics)


class InThisProcess:
    """This process as a node, with TFF's installed context (see `sliced_rounds.Nodes`).

    It computes one slice at a time, so the worker holds only that slice's contributions.
    """

    def __init__(self) -> None:
        self._load = functools.cache(deserialize)

    def work_on(
        self, programs: Sequence[bytes], state: bytes, slices: Sequence[Slice], work: Sequence[int]
    ) -> list[Partial]:
        """See `sliced_rounds.Nodes`."""
        return [
            work_on_slice(self._load(program), state, part)
            for program, part in zip(programs, slices, strict=True)
        ]


def plain_type(value_type: tff.Type) -> tff.Type:
    """The type with ordered dicts and tuples only; other containers have their own orders."""
    if not isinstance(value_type, tff.types.StructType):
        return value_type
    fields = [(name, plain_type(field)) for name, field in tff.structure.iter_elements(value_type)]
    if any(name for name, _ in fields):
        return tff.types.to_type(collections.OrderedDict(fields))
    return tff.types.to_type(tuple(field for _, field in fields))


def _plain(value: Any) -> Any:
    """A TFF value in the containers of `plain_type`."""
    if not (isinstance(value, tff.structure.Struct) or tree.is_nested(value)):
        return value
    value = tff.structure.from_container(value)
    if tff.structure.name_list(value):
        return collections.OrderedDict(
            (k, _plain(v)) for k, v in tff.structure.iter_elements(value)
        )
    return tuple(map(_plain, value))
