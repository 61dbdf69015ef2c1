"""Slices of a round of clients that keep nothing between rounds."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow_federated as tff

from tff_ssl.runtime.sliced_rounds import Slicing, Stage
from tff_ssl.runtime.slices import to_bytes
from tff_ssl.simulation.cohort import Cohort


def slice_stage(
    process: tff.learning.templates.LearningProcess, slicing: Slicing
) -> Callable[[Any, Sequence[Cohort]], tff.learning.templates.LearningProcessOutput]:
    """Compiles a stage of the round: (state, groups) -> state and metrics."""
    stage = Stage(process.next)

    def run(state: Any, groups: Sequence[Cohort]) -> tff.learning.templates.LearningProcessOutput:
        content = to_bytes(state)
        partials = slicing.work_on(stage.program, content, groups)
        return tff.learning.templates.LearningProcessOutput(*stage.finish(content, partials))

    return run
