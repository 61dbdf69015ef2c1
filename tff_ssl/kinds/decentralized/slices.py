"""Slices of local training in a network without a server.

Only the clients' local training is distributed. There is nothing to merge; models are averaged on
this machine, which has their files.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_ssl.runtime.sliced_rounds import ClientFiles, Slicing, write_states
from tff_ssl.runtime.slices import serialize, to_bytes, with_files
from tff_ssl.simulation.cohort import Cohort


class SlicedDecentralized:
    """Local training in a network: (round, paths to read, paths to write, clients)."""

    def __init__(self, training: tff.Computation, group_data: tff.Computation, slicing: Slicing):
        """Compiles `Decentralized.training`."""
        clock_type, models_type, _ = training.type_signature.parameter
        _, metrics_type = training.type_signature.result
        files = ClientFiles(models_type.member, metrics_type.member, group_data)

        @tff.federated_computation(clock_type, files.type)
        def train(round_number, clients):
            models, metrics = training(round_number, *files.read(clients))
            return files.write(clients, models, metrics)

        self._files, self._slicing = files, slicing
        self._program = serialize(with_files(train))

    def __call__(
        self,
        round_number: np.int64,
        to_read: Sequence[str],
        to_write: Sequence[str],
        groups: Sequence[Cohort],
    ) -> tuple[list[Any], int]:
        """The clients' metrics, and the number of bytes written."""
        partials = self._slicing.work_on(self._program, to_bytes(round_number), groups, to_read)
        return self._files.metrics(partials), write_states(to_write, partials)
