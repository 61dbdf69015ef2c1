"""Slices of a round of clients that keep nothing between rounds."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow_federated as tff

from tff_ssl.runtime.sliced_rounds import Cutter, Slicing, Stage
from tff_ssl.runtime.slices import to_bytes
from tff_ssl.simulation.cohort import Cohort


class SlicedStatelessClients:
    """The round of clients that keep no state: (state, groups) -> state and metrics.

    Attributes:
      stages: Function (state, groups) -> state and metrics for each stage of the round, whose
        groups may differ.
    """

    def __init__(
        self,
        stages: Sequence[tff.learning.templates.LearningProcess],
        group_data: tff.Computation,
        slicing: Slicing,
    ):
        """Compiles the stages, or a round of one stage; see `PlannedRun.slice_rounds`."""
        compose = tff.simulation.compose_dataset_computation_with_learning_process
        self.stages = [
            functools.partial(self._run, Stage(compose(group_data, stage).next)) for stage in stages
        ]
        self._cut, self._nodes = Cutter(slicing), slicing.nodes

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
