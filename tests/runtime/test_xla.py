"""Rounds in this process whose model XLA compiles."""

import collections
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import programs
from tests.networks import Linear, two_views
from tests.runtime.test_in_process import numbers
from tests.runtime.test_sliced_rounds import simulate, stored, train  # noqa: F401
from tff_ssl.algorithms import registry
from tff_ssl.runtime import in_process
from tff_ssl.templates.task import Task

SHAPE = (2, 2, 3)
VALUES = {
    "dcco": {"micro_batch_size": 4, "server_optimizer": "sgd"},
    "fedavg": {"batch_size": 2, "local_steps": 2, "learning_rate_schedule": "cosine"},
}
ELEMENT = collections.OrderedDict(
    client=tf.TensorSpec([], tf.int64),
    example_id=tf.TensorSpec([], tf.int64),
    image=tf.TensorSpec(SHAPE, tf.uint8),
)


def build(name, xla):
    entry = registry.ALGORITHMS[name]
    model = Linear("tiny", SHAPE, (4,), xla=xla)
    task = Task(model, two_views, tff.types.tensorflow_to_type(ELEMENT), 10, entry.objectives[0])
    return entry.build(task, entry.hyperparameters(**VALUES[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_rounds_are_equal_up_to_rounding(stored, tmp_path, name):  # noqa: F811
    def rounds(xla):
        folder = tmp_path / f"{xla}"
        return numbers(train(simulate(build(name, xla), stored, folder), folder, rounds=2))

    with in_process.start():
        for a, b in zip(rounds(xla=True), rounds(xla=False), strict=True):
            scale = np.abs(b).max(initial=1e-3)
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * scale)


def print_compilations(dump):
    """Prints how many functions XLA has compiled after each of some rounds of growing groups."""
    process = build("dcco", xla=True).process
    with in_process.start():
        state = process.initialize()
        for count in (9, 10, 11, 12, 9, 10, 11, 12):
            columns = (np.zeros(count), np.arange(count), np.zeros([count, *SHAPE]))
            examples = tf.data.Dataset.from_tensor_slices(
                {
                    name: values.astype(spec.dtype.as_numpy_dtype)
                    for (name, spec), values in zip(ELEMENT.items(), columns, strict=True)
                }
            )
            state = process.next(state, [examples]).state
            print(len(list(pathlib.Path(dump).glob("*.before_optimizations.txt"))))


@pytest.mark.slow
def test_later_rounds_compile_nothing(project_root, tmp_path):
    code = f"from tests.runtime import test_xla; test_xla.print_compilations({str(tmp_path)!r})"
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    done = programs.run(
        [sys.executable, "-c", code], cwd=project_root, stdin=subprocess.DEVNULL,
        capture_output=True, env=os.environ | {"XLA_FLAGS": flags},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # The last micro-batch has 1 to 4 images, the others 4. For each size, XLA compiles statistics,
    # the encodings with what the gradient needs, and the gradient. The first round compiles two
    # functions more: the server's step, and one which TensorFlow's optimization of graphs would
    # have merged with another.
    assert [int(line) for line in done.stdout.split()] == [8, 11, 14, 14, 14, 14, 14, 14]
