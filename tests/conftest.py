"""Fixtures of all tests."""

import collections
import functools
import gc
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # As `tff_ssl` sets it.
# As many processes of tests as cores: threads of BLAS would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import psutil
import pytest

_MOST_RESIDENT_BYTES = 2 * 2**30  # of the worker, after a file of tests
_workers: list[Any] = []  # the worker of all tests, once it runs
_types_are_shared = False

# Containers often forbid Python to keep bytecode; each script would then compile the project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser):
    parser.addoption("--everything", action="store_true", help="also run the tests marked `long`")


def pytest_collection_modifyitems(config, items):
    """Leaves out the tests marked `long`, unless `--everything` is given."""
    if not config.getoption("--everything"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_configure():
    """Lets the programs that tests start be interrupted, also where pytest itself is not.

    A shell ignores SIGINT for what it starts in the background, and child processes inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup():
    """Prepares TensorFlow and TFF, once they are imported."""
    _forbid_tensor_equality()
    _share_types()


def _forbid_tensor_equality():
    """Makes `==` and `!=` of tensors in `tff_ssl` and in `launch` an error.

    In the graphs that TFF builds they compare objects, so that they are always False and True; in
    eager code they compare values, so that a test would not notice. `tf.equal` is right in both.
    """
    if "tensorflow" not in sys.modules:
        return
    import tensorflow as tf

    for name in ("__eq__", "__ne__"):
        compare = getattr(tf.Tensor, name)
        if hasattr(compare, "is_checked"):
            return

        def checked(self, other, compare=compare):
            caller = sys._getframe(1)
            module = caller.f_globals.get("__name__", "")
            assert not module.startswith(("tff_ssl.", "launch.")), (
                f"{caller.f_code.co_filename}:{caller.f_lineno} compares tensors: use tf.equal"
            )
            return compare(self, other)

        checked.is_checked = True
        setattr(tf.Tensor, name, checked)


def _share_types():
    """Lets TFF read equal types of computations once.

    TFF reads the types of all parts of a computation whenever it takes it apart, which is half of
    the time of lowering a round. Types are immutable, so that equal ones can be shared.
    """
    global _types_are_shared
    if _types_are_shared or "tensorflow_federated" not in sys.modules:
        return
    from tensorflow_federated.python.core.impl.types import type_serialization

    read = type_serialization.deserialize_type
    known: dict[bytes, Any] = {}

    def read_once(message):
        key = message.SerializeToString(deterministic=True)
        if key not in known:
            known[key] = read(message)
        return known[key]

    type_serialization.deserialize_type = read_once
    _types_are_shared = True


def pytest_sessionfinish():
    """Keeps the end of the tests free of messages by TFF and JAX.

    TFF's default context, whose collection at the exit prints errors, is replaced. JAX's callback
    of the garbage collector is removed: pytest-xdist ends its processes by an interrupt, which
    would reach the callback and be printed as ignored.
    """
    if "tensorflow_federated" in sys.modules:
        from tff_ssl.runtime import compiling  # noqa: F401
    gc.callbacks[:] = [
        c for c in gc.callbacks if not getattr(c, "__module__", "").startswith("jax")
    ]


@pytest.fixture(scope="session")
def worker():
    """A private TFF worker, as in the scripts, for all tests that compute with TFF."""
    from tff_ssl.runtime import local_worker

    with local_worker.start() as running:
        _workers.append(running)
        yield running
        _workers.clear()


@pytest.fixture(scope="module", autouse=True)
def _bounded_memory():
    """Starts the worker anew after a file of tests if it has crashed or grown too large.

    It keeps a session, with its graph, of every computation that it has run.
    """
    yield
    for running in _workers:
        processes = psutil.Process(running.relay_pid).children(recursive=True)
        if not processes or max(p.memory_info().rss for p in processes) > _MOST_RESIDENT_BYTES:
            running.restart()


@pytest.fixture(scope="session")
def project_root() -> pathlib.Path:
    return pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, project_root):
    """A run of six rounds and what it printed: (folder, `subprocess.CompletedProcess`).

    Tests do not write into the folder. They are of the group `finished run`, so that one process
    trains it.
    """
    from tests import programs

    folder = tmp_path_factory.mktemp("runs") / "finished"
    flags = (
        "--rounds=6", "--checkpoint_every=2", "--eval_every=3", "--label_draws=2", "--seed=3",
        f"--output_dir={folder}",
    )  # fmt: skip
    done = programs.run(
        [sys.executable, "-m", "launch.pretrain", *flags],
        cwd=project_root, stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done


class SmallAlgorithm:
    """An algorithm with default hyperparameters, on a network and views that compile quickly.

    Attributes:
      task: Task of the algorithm.
      inputs: The task, and the examples of three clients, `tf.data.Dataset`s.
    """

    def __init__(self, algorithm, task, clients):
        self._algorithm = algorithm
        self.task, self.inputs = task, (task, clients)

    @functools.cached_property
    def computations(self):
        """Result of the algorithm's `build_...` function, whose tracing takes seconds."""
        return self._algorithm.build(self.task, self._algorithm.hyperparameters())


@pytest.fixture(scope="session")
def small_algorithm():
    """(name of an algorithm in the registry) -> `SmallAlgorithm`."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_federated as tff

    from tests.networks import Linear, two_views
    from tff_ssl.algorithms import registry
    from tff_ssl.objectives.registry import OBJECTIVES
    from tff_ssl.templates.task import FrozenEncoder, Population, Task

    shape, rng = (2, 2, 3), np.random.default_rng(0)
    element = collections.OrderedDict(
        client=tf.TensorSpec([], tf.int64),
        example_id=tf.TensorSpec([], tf.int64),
        image=tf.TensorSpec(shape, tf.uint8),
    )

    def examples(client, ids):
        columns = (np.full(len(ids), client), ids, rng.integers(0, 256, (len(ids), *shape)))
        typed = zip(element.items(), columns, strict=True)
        return tf.data.Dataset.from_tensor_slices(
            collections.OrderedDict(
                (name, values.astype(spec.dtype.as_numpy_dtype)) for (name, spec), values in typed
            )
        )

    clients = [examples(k, 10 * k + np.arange(n)) for k, n in enumerate((3, 5, 2))]

    @functools.cache
    def build(name):
        algorithm = registry.ALGORITHMS[name]
        objective = next(o for o in algorithm.objectives if not OBJECTIVES[o].decoder)
        needs_predictor = OBJECTIVES[objective].predictor or algorithm.predictor
        predictor = (4,) if needs_predictor else ()
        model = Linear("tiny", shape, (4,), predictor)
        population = Population((model,), (0, 0, 0), (3, 5, 2), 4)
        element_type = tff.types.tensorflow_to_type(element)
        base = Linear("tiny", shape)
        task = Task(
            model,
            two_views,
            element_type,
            10,
            objective,
            population=population,
            client_sizes=(3, 5, 2),
            base_encoder=FrozenEncoder(base, base.init(7)),
        )
        return SmallAlgorithm(algorithm, task, clients)

    return build
