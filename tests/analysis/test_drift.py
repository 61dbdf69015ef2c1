"""The drift of several local steps: none with one step, and more with more steps."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import networks
from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.analysis.drift import measure
from tff_ssl.templates.task import Task

SHAPE = (8, 8, 1)
MODEL = networks.OneLayer("tiny", SHAPE, projector=(16,))


def two_views(images, example_ids, round_number):
    """Views that are the same in all passes, so that models alone make statistics differ."""
    return networks.two_views(images, example_ids, 0)


@pytest.mark.long
@pytest.mark.slow
def test_one_step_does_not_drift_and_more_steps_drift_more(worker):
    element = collections.OrderedDict(example_id=np.int64, image=(np.uint8, SHAPE))
    task = Task(MODEL, two_views, tff.types.to_type(element), rounds=1)
    rng = np.random.default_rng(0)
    clients = [
        collections.OrderedDict(
            example_id=np.arange(6 * k, 6 * k + 6),
            image=rng.integers(0, 256, (6, *SHAPE), np.uint8),
        )
        for k in range(3)
    ]
    weights = MODEL.init(0).trainable
    drifts = [
        measure(
            task,
            weights,
            clients,
            two_stage.DCCOHyperparameters(
                lambda_=2.0, local_steps=steps, batch_size=batch_size, client_learning_rate=1e-3
            ),
        )
        for steps, batch_size in ((1, 0), (2, 0), (4, 0), (1, 3))
    ]  # fmt: skip
    distances = [drift.relative_distance for drift in drifts]
    assert distances[0] < 1e-3
    assert drifts[0].cosine == pytest.approx(1.0, abs=1e-4)
    assert 5 * distances[0] < distances[1] < distances[2]
    assert distances[3] > 0.1  # The gradient of half of the examples differs.
