"""Slices of local training in a network without a server.

Only the clients' local training is spread over nodes. There is nothing to merge, and models are
averaged on this machine, which has their files.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_ssl.runtime.sliced_rounds import ClientFiles, Cutter, Slicing, write_states
from tff_ssl.runtime.slices import serialize, to_bytes, with_files
from tff_ssl.simulation.cohort import Cohort


class SlicedDecentralized:
    """Local training in a network: (round, paths to read, paths to write, clients)."""

    def __init__(self, training: tff.Computation, group_data: tff.Computation, slicing: Slicing):
        """Compiles `Decentralized.training`; see `PlannedRun.slice_rounds`."""
        clock_type, models_type, _ = training.type_signature.parameter
        _, metrics_type = training.type_signature.result
        files = ClientFiles(models_type.member, metrics_type.member, group_data)

        @tff.federated_computation(clock_type, files.type)
        def train(round_number, clients):
            models, metrics = training(round_number, *files.read(clients))
            return files.write(clients, models, metrics)

        self._files, self._program = files, serialize(with_files(train))
        self._cut, self._nodes = Cutter(slicing), slicing.nodes

    def __call__(
        self,
        round_number: np.int64,
        to_read: Sequence[str],
        to_write: Sequence[str],
        groups: Sequence[Cohort],
    ) -> tuple[list[Any], int]:
        """The clients' metrics, and the number of bytes written."""
        parts, work = self._cut(groups, to_read)
        programs = [self._program] * len(parts)
        partials = self._nodes.work_on(programs, to_bytes(round_number), parts, work)
        return self._files.metrics(partials), write_states(to_write, partials)
