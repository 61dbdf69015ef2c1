"""Slices of a round of clients that keep a state between rounds."""

from collections.abc import Sequence
from typing import Any

import tensorflow_federated as tff

from tff_ssl.runtime.sliced_rounds import ClientFiles, Slicing, Stage, write_states
from tff_ssl.runtime.slices import to_bytes
from tff_ssl.simulation.cohort import Cohort


class SlicedStatefulClients:
    """The round of stateful clients: (server, paths to read, paths to write, clients)."""

    def __init__(
        self, process_next: tff.Computation, group_data: tff.Computation, slicing: Slicing
    ):
        """Compiles the round of typed states."""
        server_type, states_type, _ = process_next.type_signature.parameter
        metrics_type = process_next.type_signature.result.client_metrics
        files = ClientFiles(states_type.member, metrics_type.member, group_data)

        @tff.federated_computation(server_type, files.type)
        def next_round(server, clients):
            output = process_next(server, *files.read(clients))
            written = files.write(clients, output.client_states, output.client_metrics)
            return output.state, tff.federated_zip((output.metrics, written))

        self._files, self._stage, self._slicing = files, Stage(next_round), slicing

    def __call__(
        self, server: Any, to_read: Sequence[str], to_write: Sequence[str], groups: Sequence[Cohort]
    ) -> tuple[Any, Any, list[Any], int]:
        """The server's state and metrics, the clients' metrics, and the number of bytes written."""
        content = to_bytes(server)
        partials = self._slicing.work_on(self._stage.program, content, groups, to_read)
        server, (metrics, _) = self._stage.finish(content, partials)
        written = write_states(to_write, partials)
        return server, metrics, self._files.metrics(partials), written
