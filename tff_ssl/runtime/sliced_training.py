"""Rounds without a server's model, cut into slices: of clients that train models of their own.

What is spread over nodes is the clients' local training. In a network without a server there is
nothing to merge, and models are averaged on this machine, where they lie. Unlike clients have a
computation for each architecture; those of all architectures are worked on at once, and the
aggregation of what they sent before stays on this machine, too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow_federated as tff

from tff_ssl.algorithms.hetero_ssfl import Architecture, UnlikeClients
from tff_ssl.runtime.sliced_rounds import ClientFiles, Cutter, Nodes, Stage, write_states
from tff_ssl.runtime.slices import serialize, to_bytes, with_files
from tff_ssl.simulation import state_files
from tff_ssl.simulation.cohort import Cohort, fold
from tff_ssl.templates.serverless import Serverless


class SlicedServerless:
    """Clients of a network train: (round, paths to read, paths to write, clients)."""

    def __init__(
        self,
        computations: Serverless,
        group_data: tff.Computation,
        client_sizes: npt.NDArray[np.int64],
        slices: int,
        nodes: Nodes,
    ):
        """As `sliced_rounds.SlicedStatelessClients`'s."""
        clock_type, models_type, _ = computations.training.type_signature.parameter
        _, metrics_type = computations.training.type_signature.result
        files = ClientFiles(models_type.member, metrics_type.member, group_data)

        @tff.federated_computation(clock_type, files.type)
        def train(round_number, clients):
            models, metrics = computations.training(round_number, *files.read(clients))
            return files.write(clients, models, metrics)

        self._files, self._program = files, serialize(with_files(train))
        self._cut, self._nodes = Cutter(client_sizes, slices), nodes

    def __call__(
        self,
        round_number: np.int64,
        to_read: Sequence[str],
        to_write: Sequence[str],
        groups: Sequence[Cohort],
    ) -> tuple[list[Any], int]:
        """The clients' metrics, bytes written."""
        parts, work = self._cut(groups, to_read)
        programs = [self._program] * len(parts)
        partials = self._nodes.work_on(programs, to_bytes(round_number), parts, work)
        return self._files.metrics(partials), write_states(to_write, partials)


class Members(NamedTuple):
    """The clients of a round that have the same architecture.

    Attributes:
      architecture: Its number.
      clients: Their indices, int64 [k].
      to_read: Where their states are.
      to_write: Where their new states are to be.
      to_send: Where their new representations are to be.
    """

    architecture: int
    clients: Cohort
    to_read: Sequence[str]
    to_write: Sequence[str]
    to_send: Sequence[str]


class SlicedUnlikeClients:
    """Unlike clients train: (round, contents of two files, members) -> metrics."""

    def __init__(
        self,
        computations: UnlikeClients,
        group_data: tff.Computation,
        client_sizes: npt.NDArray[np.int64],
        slices: int,
        nodes: Nodes,
    ):
        """As `SlicedStatelessClients`'s; `slices` is of the members of each architecture."""
        rounds = [_round_of(a, group_data) for a in computations.architectures]
        self._files = [files for files, _ in rounds]
        self._stages = [Stage(next_round) for _, next_round in rounds]
        self._cut, self._nodes = Cutter(client_sizes, slices), nodes

    def __call__(
        self, round_number: int, kernel: Any, rad: Any, members: Sequence[Members]
    ) -> list[tuple[Any, list[Any]]]:
        """The metrics at the server and of the clients, for each of `members`.

        Args:
          round_number: From 0.
          kernel: B, float32.
          rad: X, uint8.
          members: Who takes part.
        """
        server = to_bytes((np.int64(round_number), kernel, rad))
        cuts = [self._cut(fold(of.clients, 0), of.to_read) for of in members]
        partials = iter(
            self._nodes.work_on(
                [
                    self._stages[of.architecture].program
                    for of, (parts, _) in zip(members, cuts, strict=True)
                    for _ in parts
                ],
                server,
                [part for parts, _ in cuts for part in parts],
                [one for _, work in cuts for one in work],
            )
        )
        found = []
        for of, (parts, _) in zip(members, cuts, strict=True):
            mine = [next(partials) for _ in parts]
            _, (metrics, _) = self._stages[of.architecture].finish(server, mine)
            write_states(of.to_write, mine)
            notes = self._files[of.architecture].metrics(mine)
            for path, (_, representations) in zip(of.to_send, notes, strict=True):
                state_files.write_state(path, representations)
            found.append((metrics, [client_metrics for client_metrics, _ in notes]))
        return found


def _round_of(
    architecture: Architecture, group_data: tff.Computation
) -> tuple[ClientFiles, tff.Computation]:
    """The round of an architecture: (<round, B, X>@SERVER, clients@CLIENTS).

    What a client sends is in one file with its metrics.
    """
    train = architecture.train
    _, kernel_type, rad_type, states_type, _ = train.type_signature.parameter
    result = train.type_signature.result
    notes_type = tff.types.to_type((result.client_metrics.member, result.representations.member))
    files = ClientFiles(states_type.member, notes_type, group_data)
    server_type = tff.types.to_type((np.int64, kernel_type.member, rad_type.member))

    @tff.federated_computation(tff.types.FederatedType(server_type, tff.SERVER), files.type)
    def next_round(server, clients):
        output = train(server[0], server[1], server[2], *files.read(clients))
        notes = tff.federated_zip((output.client_metrics, output.representations))
        written = files.write(clients, output.client_states, notes)
        return server, tff.federated_zip((output.metrics, written))

    return files, next_round
