"""Rounds cut into slices of the cohort, which may be worked on anywhere.

A round's mergeable form has three parts: `up_to_merge`, the clients' work and the sums over them,
on a slice of the cohort; `merge`, of the sums of two slices; `after_merge`, the server's update.
The slices of a round depend on its cohort alone, and their sums are merged in the cohort's order:
so the weights do not depend, to the last bit, on how many nodes work, which of them works on what,
and whether some of it has to be done again. Where each client (or group of them) is a slice, the
weights are those of the round that is not cut, which adds up its clients one after the other.

A round of two stages is two such rounds on the same slices. Clients with memory get their states as
bytes with their slice, and send the new ones back, so that a slice can be done again.
"""

import collections
import functools
import itertools
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow_federated as tff
import tree
from tensorflow_federated.proto.v0 import computation_pb2

from tff_ssl import client_states
from tff_ssl.algorithms.client_memory import ClientMemory
from tff_ssl.cohort import Cohort


class Slice(NamedTuple):
    """A part of a cohort.

    Attributes:
      groups: Indices of the clients, int64 [k] for each group of clients that is worked on at once.
      states: Their states as the bytes of their files; None where clients have no memory.
    """

    groups: Sequence[Cohort]
    states: Sequence[bytes] | None = None


class Partial(NamedTuple):
    """What the work on a slice gives.

    Attributes:
      sums: What `up_to_merge` gives.
      states: The clients' new states as bytes; None where clients have no memory.
      metrics: The clients' metrics as bytes; None where clients have no memory.
    """

    sums: Any
    states: Sequence[bytes] | None = None
    metrics: Sequence[bytes] | None = None


class Nodes(Protocol):
    """Where slices are worked on: this process, or `ray_nodes.RayNodes`."""

    def work_on(
        self, up_to_merge: bytes, state: Any, slices: Sequence[Slice], work: Sequence[int]
    ) -> list[Partial]:
        """The results of `work_on_slice` for all slices, in their order.

        Args:
          up_to_merge: Serialized; the same object in each round.
          state: The server's.
          slices: The slices.
          work: What each of them takes, in any unit.
        """


def cut(work: Sequence[int], slices: int) -> list[slice]:
    """Cuts a cohort into neighbours of about equal work.

    Args:
      work: Of each client or group, such as its number of examples; positive.
      slices: How many slices at most; from `len(work)` on, each is a slice of its own.
    """
    count = len(work)
    if slices >= count:
        return [slice(k, k + 1) for k in range(count)]
    # The slice in which the middle of a client's work falls.
    ends = np.cumsum(np.asarray(work, np.int64))
    where = (2 * ends - np.asarray(work, np.int64)) * slices // (2 * ends[-1])
    starts = [0, *(np.flatnonzero(np.diff(where)) + 1).tolist(), count]
    return [slice(a, b) for a, b in itertools.pairwise(starts)]


def serialize(computation: tff.framework.ConcreteComputation) -> bytes:
    """For `deserialize`."""
    return tff.framework.serialize_computation(computation).SerializeToString()


def deserialize(content: bytes) -> tff.framework.ConcreteComputation:
    """The computation of `serialize`; its structs have names, but no Python classes any more."""
    return tff.framework.deserialize_computation(computation_pb2.Computation.FromString(content))


def work_on_slice(
    up_to_merge: tff.framework.ConcreteComputation, state: Any, part: Slice
) -> Partial:
    """A node's work.

    Args:
      up_to_merge: Of the round.
      state: The server's.
      part: The slice.
    """
    if part.states is None:
        return Partial(_without_classes(up_to_merge(state, list(part.groups))))
    with tempfile.TemporaryDirectory(prefix="tff_ssl_states_") as name:
        folder = pathlib.Path(name)
        clients = []
        for k, (indices, content) in enumerate(zip(part.groups, part.states, strict=True)):
            (folder / f"{k}").write_bytes(content)
            paths = (str(folder / f"{k}{suffix}") for suffix in ("", ".new", ".metrics"))
            clients.append((*paths, indices))
        sums = _without_classes(up_to_merge(state, clients))
        new, metrics = (
            [(folder / f"{k}{suffix}").read_bytes() for k in range(len(clients))]
            for suffix in (".new", ".metrics")
        )
    return Partial(sums, new, metrics)


def _without_classes(value: Any) -> Any:
    """A value of TFF as nested tuples: it matches types by position."""
    nested = tff.structure.from_container(value, recursive=True)
    return _tuples(nested)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, tff.structure.Struct) else value


class _Stage:
    """A computation (state@SERVER, clients@CLIENTS) -> (state@SERVER, metrics@SERVER), cut."""

    def __init__(self, computation: tff.Computation):
        form = tff.backends.native.compile_to_mergeable_comp_form(computation)
        self._merge, self._after_merge = form.merge, form.after_merge
        self._up_to_merge = serialize(form.up_to_merge)

    def run(
        self, nodes: Nodes, state: Any, slices: Sequence[Slice], work: Sequence[int]
    ) -> tuple[Any, Any, list[Partial]]:
        """State and metrics after it, and the slices' results."""
        partials = nodes.work_on(self._up_to_merge, state, slices, work)
        merged = functools.reduce(self._merge, (partial.sums for partial in partials))
        # The server's part alone: there is nothing left to do for clients.
        after, metrics = self._after_merge([state, []], merged)
        return after, metrics, partials


class LearningRound:
    """`next` of an algorithm without client memory: (state, groups) -> state and metrics."""

    def __init__(
        self,
        computations: Any,
        group_data: tff.Computation,
        client_sizes: npt.NDArray[np.int64],
        slices: int,
        nodes: Nodes,
    ):
        """Compiles it.

        Args:
          computations: What the algorithm's `build_...` gives.
          group_data: (client indices int64 [k]) -> their examples; runs on the nodes.
          client_sizes: Number of examples of each client.
          slices: How many slices at most; see `cut`.
          nodes: Where they are worked on.
        """
        processes = getattr(computations, "stages", {"round": computations.process}).values()
        compose = tff.simulation.compose_dataset_computation_with_learning_process
        self._stages = [_Stage(compose(group_data, process).next) for process in processes]
        self._sizes, self._slices, self._nodes = client_sizes, slices, nodes

    def __call__(
        self, state: Any, groups: Sequence[Cohort]
    ) -> tff.learning.templates.LearningProcessOutput:
        work = [int(self._sizes[group].sum()) for group in groups]
        cuts = cut(work, self._slices)
        parts = [Slice(groups[where]) for where in cuts]
        for stage in self._stages:
            state, metrics, _ = stage.run(
                self._nodes, state, parts, [sum(work[where]) for where in cuts]
            )
        return tff.learning.templates.LearningProcessOutput(state, metrics)


class MemoryRound:
    """The round of clients with memory: (server, paths to read, paths to write, clients)."""

    def __init__(
        self,
        computations: ClientMemory,
        group_data: tff.Computation,
        client_sizes: npt.NDArray[np.int64],
        slices: int,
        nodes: Nodes,
    ):
        """As `LearningRound`'s."""
        process_next = computations.process.next
        metrics_type = process_next.type_signature.result.client_metrics.member
        self._metrics_specs = tff.types.type_to_tf_tensor_specs(metrics_type)
        self._stage = _Stage(_round_with_files(process_next, group_data))
        self._sizes, self._slices, self._nodes = client_sizes, slices, nodes

    def __call__(
        self,
        server: Any,
        to_read: Sequence[str],
        to_write: Sequence[str],
        groups: Sequence[Cohort],
    ) -> tuple[Any, Any, list[Any], int]:
        """The server's state, its metrics, the clients' metrics, bytes written."""
        work = [int(self._sizes[group].sum()) for group in groups]
        cuts = cut(work, self._slices)
        contents = [pathlib.Path(path).read_bytes() for path in to_read]
        parts = [Slice(groups[where], contents[where]) for where in cuts]
        server, (metrics, *_), partials = self._stage.run(
            self._nodes, server, parts, [sum(work[where]) for where in cuts]
        )
        states = [content for partial in partials for content in partial.states or ()]
        for path, content in zip(to_write, states, strict=True):
            pathlib.Path(path).write_bytes(content)
        client_metrics = [
            tree.map_structure(np.asarray, client_states.from_bytes(content, self._metrics_specs))
            for partial in partials
            for content in partial.metrics or ()
        ]
        return server, metrics, client_metrics, sum(map(len, states))


def _round_with_files(process_next: tff.Computation, group_data: tff.Computation):
    """The round of clients with memory, whose states and metrics are files on the node.

    As `client_states.round_with_stored_states`, with the clients' metrics beside their states and
    their examples read by index.
    """
    server_type, states_type, _ = process_next.type_signature.parameter
    read, write = client_states.reader_and_writer(states_type.member)
    metrics_type = process_next.type_signature.result.client_metrics.member
    _, write_metrics = client_states.reader_and_writer(metrics_type)
    client_type = collections.OrderedDict(
        read=np.str_, write=np.str_, metrics=np.str_, indices=group_data.type_signature.parameter
    )

    @tff.federated_computation(server_type, tff.types.FederatedType(client_type, tff.CLIENTS))
    def next_round(server, clients):
        states = tff.federated_map(read, clients.read)
        output = process_next(server, states, tff.federated_map(group_data, clients.indices))
        written = tff.federated_map(write, (clients.write, output.client_states))
        noted = tff.federated_map(write_metrics, (clients.metrics, output.client_metrics))
        sums = tff.federated_sum(written), tff.federated_sum(noted)
        return output.state, tff.federated_zip((output.metrics, *sums))

    return next_round
