"""Rounds cut into slices of the cohort, for computation on several nodes or in little memory.

A round's mergeable form has three parts: `up_to_merge`, the clients' work and its sums over a
slice; `merge`, which adds the sums of two slices; and `after_merge`, the server's update. The
slices of a round depend on its cohort alone, and their sums are merged in the cohort's order. To
the last bit, the weights therefore do not depend on the number of nodes, on which node computes
which slice, or on whether a slice is recomputed. If each client or group is a slice of its own, the
weights are those of the uncut round, which adds up its clients one by one.

A round of two stages is two such rounds. Stateful clients get their states as bytes with their
slice and return the new ones. The work on a slice is in `slices`; in `kinds`, each kind of
algorithm composes its rounds from these parts.
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

from tff_ssl.runtime.slices import Partial, Slice, plain_type, serialize, with_files
from tff_ssl.simulation import state_files
from tff_ssl.simulation.cohort import Cohort


class Nodes(Protocol):
    """Nodes that compute slices: `slices.InThisProcess` or `ray_nodes.RayNodes`."""

    def work_on(
        self, programs: Sequence[bytes], state: bytes, slices: Sequence[Slice], work: Sequence[int]
    ) -> list[Partial]:
        """The results of `work_on_slice` for all slices, in their order.

        Args:
          programs: Serialized program of each slice; the same objects in each round.
          state: The server's state as bytes, see `slices.to_bytes`.
          slices: Slices to compute.
          work: Amount of work of each slice, in any unit.
        """


class Slicing(NamedTuple):
    """The cutting of rounds into slices."""

    nodes: Nodes  #: Nodes that compute the slices.
    client_sizes: npt.NDArray[np.int64]  #: Number of examples of each client, int64 [clients].
    slices: int  #: Largest number of slices of a round, see `cut`.

    def cut(
        self, groups: Sequence[Cohort], to_read: Sequence[str] | None = None
    ) -> tuple[list[Slice], list[int]]:
        """Slices of groups of clients (a group is one call), and the amount of work of each slice.

        `to_read` has the paths of the clients' states; None where clients keep no state.
        """
        # A group may have no clients.
        work = [max(int(self.client_sizes[group].sum()), 1) for group in groups]
        cuts = cut(work, self.slices)
        contents = None if to_read is None else [pathlib.Path(p).read_bytes() for p in to_read]
        parts = [Slice(groups[span], contents and contents[span]) for span in cuts]
        return parts, [sum(work[span]) for span in cuts]

    def work_on(
        self,
        program: bytes,
        state: bytes,
        groups: Sequence[Cohort],
        to_read: Sequence[str] | None = None,
    ) -> list[Partial]:
        """The results of the groups' slices, see `Nodes.work_on` and `cut`."""
        parts, work = self.cut(groups, to_read)
        return self.nodes.work_on([program] * len(parts), state, parts, work)


def cut(work: Sequence[int], slices: int) -> list[slice]:
    """Cuts a cohort into at most `slices` contiguous slices of about equal work.

    `work` is that of each client or group, such as its number of examples, and positive. With
    `len(work)` slices or more, each client or group is a slice.
    """
    count = len(work)
    if slices >= count:
        return [slice(k, k + 1) for k in range(count)]
    # A client belongs to the slice in which the middle of its work falls.
    ends = np.cumsum(np.asarray(work, np.int64))
    positions = (2 * ends - np.asarray(work, np.int64)) * slices // (2 * ends[-1])
    starts = [0, *(np.flatnonzero(np.diff(positions)) + 1).tolist(), count]
    return [slice(a, b) for a, b in itertools.pairwise(starts)]


class Stage:
    """A computation (state@SERVER, clients@CLIENTS) -> (state@SERVER, metrics@SERVER) in slices.

    Attributes:
      program: Serialized `up_to_merge`, for `Nodes.work_on`.
    """

    def __init__(self, computation: tff.Computation):
        self._form = tff.backends.native.compile_to_mergeable_comp_form(computation)
        self.program = serialize(with_files(self._form.up_to_merge))
        self._after = functools.cache(self._compose_after)

    def _compose_after(self, slices: int) -> tff.Computation:
        """(state's path@SERVER, paths of sums@SERVER, no clients) -> state and metrics."""
        state_type, clients_type = self._form.after_merge.type_signature.parameter[0]
        sums_type = self._form.merge.type_signature.result
        read_state, _ = state_files.reader_and_writer(plain_type(state_type.member))
        read_sums, _ = state_files.reader_and_writer(plain_type(sums_type))
        merge, after_merge = self._form.merge, self._form.after_merge

        @tff.federated_computation(
            tff.types.FederatedType(np.str_, tff.SERVER),
            tff.types.FederatedType((np.str_,) * slices, tff.SERVER),
            clients_type,
        )
        def after(state_path, paths, clients):
            sums = [tff.federated_map(read_sums, paths[k]) for k in range(slices)]
            merged = functools.reduce(
                lambda a, b: tff.federated_map(merge, tff.federated_zip((a, b))), sums
            )
            return after_merge((tff.federated_map(read_state, state_path), clients), merged)

        return after

    def finish(self, state: bytes, partials: Sequence[Partial]) -> tuple[Any, Any]:
        """State and metrics after the stage, from the state before it and the slices' results."""
        with tempfile.TemporaryDirectory(prefix="tff_ssl_slice_") as name:
            folder = pathlib.Path(name)
            (folder / "server").write_bytes(state)
            paths = [folder / f"sums{k}" for k in range(len(partials))]
            for path, partial in zip(paths, partials, strict=True):
                path.write_bytes(partial.sums)
            # Only the server's part is left, so there are no clients.
            after, metrics = self._after(len(paths))(
                str(folder / "server"), tuple(map(str, paths)), []
            )
        return after, metrics


class ClientFiles:
    """Clients with states and metrics in files of the node, which reads examples by index.

    Attributes:
      type: Type of these clients at CLIENTS, for a computation that uses `read` and `write`.
    """

    def __init__(self, state_type: tff.Type, metrics_type: tff.Type, group_data: tff.Computation):
        self._metrics_specs = tff.types.type_to_tf_tensor_specs(metrics_type)
        self._read, self._write = state_files.reader_and_writer(state_type)
        _, self._write_metrics = state_files.reader_and_writer(metrics_type)
        self._group_data = group_data
        paths = dict.fromkeys(("read", "write", "metrics"), np.str_)
        indices = group_data.type_signature.parameter
        client_type = collections.OrderedDict(**paths, indices=indices)
        self.type = tff.types.FederatedType(client_type, tff.CLIENTS)

    def read(self, clients: tff.Value) -> tuple[tff.Value, tff.Value]:
        """States and examples of the clients."""
        states = tff.federated_map(self._read, clients.read)
        return states, tff.federated_map(self._group_data, clients.indices)

    def write(self, clients: tff.Value, states: tff.Value, metrics: tff.Value) -> tff.Value:
        """Writes new states and metrics; returns their numbers of bytes at the server."""
        written = tff.federated_map(self._write, (clients.write, states))
        metrics_written = tff.federated_map(self._write_metrics, (clients.metrics, metrics))
        return tff.federated_zip((tff.federated_sum(written), tff.federated_sum(metrics_written)))

    def metrics(self, partials: Sequence[Partial]) -> list[Any]:
        """The metrics of all clients, in their order."""
        return [
            tree.map_structure(np.asarray, state_files.from_bytes(content, self._metrics_specs))
            for partial in partials
            for content in partial.metrics or ()
        ]


def write_states(paths: Sequence[str], partials: Sequence[Partial]) -> int:
    """Writes the new states of all clients, in their order; returns the number of bytes."""
    states = [content for partial in partials for content in partial.states or ()]
    for path, content in zip(paths, states, strict=True):
        pathlib.Path(path).write_bytes(content)
    return sum(map(len, states))
