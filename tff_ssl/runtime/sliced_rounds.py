"""Rounds cut into slices of the cohort, which may be worked on anywhere.

A round's mergeable form has three parts: `up_to_merge`, the clients' work and the sums over them,
on a slice of the cohort; `merge`, of the sums of two slices; `after_merge`, the server's update.
The slices of a round depend on its cohort alone, and their sums are merged in the cohort's order:
so the weights do not depend, to the last bit, on how many nodes work, which of them works on what,
and whether some of it has to be done again. Where each client (or group of them) is a slice, the
weights are those of the round that is not cut, which adds up its clients one after the other.

A round of two stages is two such rounds. Clients with memory get their states as bytes with their
slice, and send the new ones back. What is done with a slice is in `slice_work`; `sliced_training`
is for clients that train models of their own.
"""

import collections
import functools
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow_federated as tff
import tree

from tff_ssl.runtime.slices import (
    Partial,
    Slice,
    plain_type,
    scratch_folder,
    serialize,
    to_bytes,
    with_files,
)
from tff_ssl.simulation import state_files
from tff_ssl.simulation.cohort import Cohort
from tff_ssl.templates.stateful_clients import StatefulClients


class Nodes(Protocol):
    """Where slices are worked on: this process, or `ray_nodes.RayNodes`."""

    def work_on(
        self, programs: Sequence[bytes], state: bytes, slices: Sequence[Slice], work: Sequence[int]
    ) -> list[Partial]:
        """The results of `work_on_slice` for all slices, in their order.

        Args:
          programs: Of each slice, serialized; the same objects in each round.
          state: The server's; see `to_bytes`.
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


class Stage:
    """A computation (state@SERVER, clients@CLIENTS) -> (state@SERVER, metrics@SERVER), cut.

    Attributes:
      program: `up_to_merge`, for `Nodes.work_on`.
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
        """State and metrics after it.

        Args:
          state: The server's, before it.
          partials: Of all slices, in their order.
        """
        with scratch_folder() as folder:
            (folder / "server").write_bytes(state)
            paths = [folder / f"sums{k}" for k in range(len(partials))]
            for path, partial in zip(paths, partials, strict=True):
                path.write_bytes(partial.sums)
            # The server's part alone: there is nothing left to do for clients.
            after, metrics = self._after(len(paths))(
                str(folder / "server"), tuple(map(str, paths)), []
            )
        return after, metrics


class Cutter:
    """Cuts cohorts by the examples of their clients."""

    def __init__(self, client_sizes: npt.NDArray[np.int64], slices: int):
        """Takes what it cuts by.

        Args:
          client_sizes: Number of examples of each client.
          slices: How many slices at most; see `cut`.
        """
        self._sizes, self._slices = client_sizes, slices

    def __call__(
        self, groups: Sequence[Cohort], to_read: Sequence[str] | None = None
    ) -> tuple[list[Slice], list[int]]:
        """The slices, and the work of each.

        Args:
          groups: Clients that are worked on at once.
          to_read: Where their states are, if they have memory.
        """
        work = [max(int(self._sizes[group].sum()), 1) for group in groups]  # Some have no clients.
        cuts = cut(work, self._slices)
        contents = None if to_read is None else [pathlib.Path(p).read_bytes() for p in to_read]
        parts = [Slice(groups[where], contents and contents[where]) for where in cuts]
        return parts, [sum(work[where]) for where in cuts]


class SlicedStatelessClients:
    """`next` of an algorithm without client memory: (state, groups) -> state and metrics.

    Attributes:
      stages: The same of each of its stages alone, whose clients may be others.
    """

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
        self.stages = [
            functools.partial(self._run, Stage(compose(group_data, process).next))
            for process in processes
        ]
        self._cut, self._nodes = Cutter(client_sizes, slices), nodes

    def __call__(
        self, state: Any, groups: Sequence[Cohort]
    ) -> tff.learning.templates.LearningProcessOutput:
        for stage in self.stages:
            output = stage(state, groups)
            state = output.state
        return output

    def _run(
        self, stage: Stage, state: Any, groups: Sequence[Cohort]
    ) -> tff.learning.templates.LearningProcessOutput:
        parts, work = self._cut(groups)
        content = to_bytes(state)
        partials = self._nodes.work_on([stage.program] * len(parts), content, parts, work)
        return tff.learning.templates.LearningProcessOutput(*stage.finish(content, partials))


class SlicedStatefulClients:
    """The round of clients with memory: (server, paths to read, paths to write, clients)."""

    def __init__(
        self,
        computations: StatefulClients,
        group_data: tff.Computation,
        client_sizes: npt.NDArray[np.int64],
        slices: int,
        nodes: Nodes,
    ):
        """As `SlicedStatelessClients`'s."""
        process_next = computations.process.next
        server_type, states_type, _ = process_next.type_signature.parameter
        metrics_type = process_next.type_signature.result.client_metrics
        files = ClientFiles(states_type.member, metrics_type.member, group_data)

        @tff.federated_computation(server_type, files.type)
        def next_round(server, clients):
            output = process_next(server, *files.read(clients))
            written = files.write(clients, output.client_states, output.client_metrics)
            return output.state, tff.federated_zip((output.metrics, written))

        self._files, self._stage = files, Stage(next_round)
        self._cut, self._nodes = Cutter(client_sizes, slices), nodes

    def __call__(
        self,
        server: Any,
        to_read: Sequence[str],
        to_write: Sequence[str],
        groups: Sequence[Cohort],
    ) -> tuple[Any, Any, list[Any], int]:
        """The server's state, its metrics, the clients' metrics, bytes written."""
        parts, work = self._cut(groups, to_read)
        content = to_bytes(server)
        partials = self._nodes.work_on([self._stage.program] * len(parts), content, parts, work)
        server, (metrics, _) = self._stage.finish(content, partials)
        written = write_states(to_write, partials)
        return server, metrics, self._files.metrics(partials), written


class ClientFiles:
    """Clients whose states and metrics are files on the node, and whose examples it reads by index.

    Attributes:
      type: Of such clients, for a computation that uses `read` and `write`.
    """

    def __init__(self, state_type: tff.Type, metrics_type: tff.Type, group_data: tff.Computation):
        """Takes the types of a client's state and of its metrics, and its examples."""
        self._metrics_specs = tff.types.type_to_tf_tensor_specs(metrics_type)
        self._read, self._write = state_files.reader_and_writer(state_type)
        _, self._write_metrics = state_files.reader_and_writer(metrics_type)
        self._group_data = group_data
        paths = dict.fromkeys(("read", "write", "metrics"), np.str_)
        indices = group_data.type_signature.parameter
        client_type = collections.OrderedDict(**paths, indices=indices)
        self.type = tff.types.FederatedType(client_type, tff.CLIENTS)

    def read(self, clients: tff.Value) -> tuple[tff.Value, tff.Value]:
        """Their states and their examples."""
        states = tff.federated_map(self._read, clients.read)
        return states, tff.federated_map(self._group_data, clients.indices)

    def write(self, clients: tff.Value, states: tff.Value, metrics: tff.Value) -> tff.Value:
        """Writes new states and metrics; at the server, how many bytes they are."""
        written = tff.federated_map(self._write, (clients.write, states))
        noted = tff.federated_map(self._write_metrics, (clients.metrics, metrics))
        return tff.federated_zip((tff.federated_sum(written), tff.federated_sum(noted)))

    def metrics(self, partials: Sequence[Partial]) -> list[Any]:
        """The metrics of all clients, in their order."""
        return [
            tree.map_structure(np.asarray, state_files.from_bytes(content, self._metrics_specs))
            for partial in partials
            for content in partial.metrics or ()
        ]


def write_states(paths: Sequence[str], partials: Sequence[Partial]) -> int:
    """Writes all clients' new states, in their order; the number of bytes."""
    states = [content for partial in partials for content in partial.states or ()]
    for path, content in zip(paths, states, strict=True):
        pathlib.Path(path).write_bytes(content)
    return sum(map(len, states))
