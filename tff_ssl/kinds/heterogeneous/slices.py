"""Slices of local training, for clients of different architectures.

There is one computation for each architecture; the slices of all are computed at the same time.
Representations are aggregated on this machine, which has their files.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

from tff_ssl.runtime.sliced_rounds import ClientFiles, Slicing, Stage, write_states
from tff_ssl.runtime.slices import to_bytes
from tff_ssl.simulation import state_files
from tff_ssl.simulation.cohort import Cohort, fold


class Members(NamedTuple):
    """Clients of a round that have the same architecture."""

    architecture: int  #: Index of the architecture.
    clients: Cohort  #: Indices of the clients, int64 [k].
    to_read: Sequence[str]  #: Paths of their states.
    to_write: Sequence[str]  #: Paths to which their new states are written.
    to_send: Sequence[str]  #: Paths to which their new representations are written.


class SlicedHeterogeneousClients:
    """Local training of all architectures: (round, B, X, members) -> metrics."""

    def __init__(
        self, trainings: Sequence[tff.Computation], group_data: tff.Computation, slicing: Slicing
    ):
        """Compiles `Architecture.train` of each architecture."""
        rounds = [_round_of(train, group_data) for train in trainings]
        self._files = [files for files, _ in rounds]
        self._stages = [Stage(next_round) for _, next_round in rounds]
        self._slicing = slicing

    def __call__(
        self, round_number: int, kernel: Any, rad: Any, members: Sequence[Members]
    ) -> list[tuple[Any, list[Any]]]:
        """The metrics at the server and of the clients, for each architecture.

        Clients receive a factor of the mean kernel, float32, and the server's images X, uint8.
        """
        server = to_bytes((np.int64(round_number), kernel, rad))
        cuts = [self._slicing.cut(fold(group.clients, 0), group.to_read) for group in members]
        programs = [
            self._stages[group.architecture].program
            for group, (parts, _) in zip(members, cuts, strict=True)
            for _ in parts
        ]
        parts_of_all = [part for parts, _ in cuts for part in parts]
        amounts = [amount for _, work in cuts for amount in work]
        partials = iter(self._slicing.nodes.work_on(programs, server, parts_of_all, amounts))
        results = []
        for group, (parts, _) in zip(members, cuts, strict=True):
            partials_of_group = [next(partials) for _ in parts]
            _, (metrics, _) = self._stages[group.architecture].finish(server, partials_of_group)
            write_states(group.to_write, partials_of_group)
            notes = self._files[group.architecture].metrics(partials_of_group)
            for path, (_, representations) in zip(group.to_send, notes, strict=True):
                state_files.write_state(path, representations)
            results.append((metrics, [client_metrics for client_metrics, _ in notes]))
        return results


def _round_of(
    train: tff.Computation, group_data: tff.Computation
) -> tuple[ClientFiles, tff.Computation]:
    """Composes an architecture's round: (<round, B, X>@SERVER, clients@CLIENTS)."""
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
