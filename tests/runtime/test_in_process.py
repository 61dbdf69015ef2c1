"""The runtime in this process: equal to TFF's worker, and complete for computations of others."""

import asyncio
import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2
from tensorflow_privacy.privacy.dp_query import gaussian_query

from tests.by_algorithm import by_algorithm
from tests.runtime.test_sliced_rounds import (
    build,
    rows,
    simulate,
    stored,  # noqa: F401
    train,
)
from tests.simulation import test_dropouts
from tff_ssl.aggregation import aggregators, differential_privacy
from tff_ssl.algorithms import registry
from tff_ssl.errors import ClientFailedError, OutOfMemoryError
from tff_ssl.runtime import eager_values, graph_functions, in_process
from tff_ssl.simulation import dropouts

# Both runtimes round differently in the last digits: TFF's worker is built by another compiler.
# Relative to the largest weight. It is 1e-5 on a processor with AMX; on one without, two rounds of
# FedProx differ by 1.6e-5, because the two runtimes come from different compilers.
TOLERANCE = 3e-5


@pytest.fixture
def here():
    with in_process.start() as running:
        yield running


def numbers(state):
    leaves = tff.structure.flatten(tff.structure.from_container(state, recursive=True))
    return [np.asarray(leaf) for leaf in leaves]


def assert_close(one, other):
    for a, b in zip(numbers(one), numbers(other), strict=True):
        if a.dtype.kind == "f":
            assert a.dtype == b.dtype
            scale = np.abs(b).max(initial=1e-3)
            np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE * scale)
        else:
            np.testing.assert_array_equal(a, b)


def assert_close_metrics(folder, expected_folder):
    for name in ("metrics.csv", "client_metrics.csv"):
        if not (expected_folder / name).exists():
            assert not (folder / name).exists()
            continue
        for row, expected in zip(rows(folder / name), rows(expected_folder / name), strict=True):
            assert row.keys() == expected.keys()
            for column, text in expected.items():
                if text != row[column]:
                    assert float(row[column]) == pytest.approx(float(text), rel=3e-4, abs=1e-5)


def compare(algorithm, stored, tmp_path, rounds=2, **options):  # noqa: F811
    """Runs some rounds in both runtimes and asserts that they are equal."""
    there, here = tmp_path / "worker", tmp_path / "here"
    expected = train(simulate(algorithm, stored, there, **options), there, rounds)
    with in_process.start():
        state = train(simulate(algorithm, stored, here, **options), here, rounds)
    assert type(state) is type(expected)
    assert_close(state, expected)
    assert_close_metrics(here, there)


@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(registry.ALGORITHMS, ("dcco", "denav")))
def test_rounds_equal_those_of_the_worker(worker, small_algorithm, stored, tmp_path, name):  # noqa: F811
    # Orchestra's k-means decides ties by the last digits: later rounds have other clusters.
    rounds = 1 if name == "orchestra" else 2
    compare(build(small_algorithm, name), stored, tmp_path, rounds)


@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(["dcco", "fedavg", "fedema"], ("dcco",)))
def test_clients_that_drop_out(worker, small_algorithm, stored, tmp_path, name):  # noqa: F811
    compare(build(small_algorithm, name), stored, tmp_path, dropout=0.5)


@pytest.mark.xdist_group("dcco")
@pytest.mark.slow
@pytest.mark.parametrize("fold", [1, 2])
def test_folded_clients(worker, small_algorithm, stored, tmp_path, monkeypatch, fold):  # noqa: F811
    """A round of one group is one graph, which is traced once."""
    traces, trace = [], graph_functions.OneGraph._traced.func
    traced = functools.cached_property(lambda self: (traces.append(self), trace(self))[1])
    traced.__set_name__(graph_functions.OneGraph, "_traced")
    monkeypatch.setattr(graph_functions.OneGraph, "_traced", traced)
    compare(build(small_algorithm, "dcco"), stored, tmp_path, fold=fold)
    # A round takes the numbers of its clients.
    numbers = tf.TensorSpec([None], tf.int64)
    of_rounds = [one for one in traces if numbers in eager_values.leaves(one._specs)]
    assert len(of_rounds) == (1 if fold == 1 else 0)


# Clients of whose examples some have views that are not finite, or fail.
faulty_store = test_dropouts.store


@pytest.mark.slow
@pytest.mark.parametrize("name", by_algorithm(test_dropouts.OF_COHORTS, ("dcco", "fedema")))
def test_bad_clients(worker, small_algorithm, faulty_store, tmp_path, name, caplog):
    """Both drop and count the same clients, and give the same warning with the failing one."""

    def rounds(folder):
        _, computations = test_dropouts.build(small_algorithm, name)
        lenient = dropouts.Dropouts(max_dropped=0.7)
        run = test_dropouts.Rounds(computations, faulty_store, tmp_path / folder, faulty=lenient)
        caplog.clear()
        state, metrics = run([1, 0, 3, 4, 5])  # 1 fails; 3 and 4 are not finite.
        return state, metrics, [record.getMessage() for record in caplog.records]

    expected, expected_metrics, expected_warnings = rounds("worker")
    with in_process.start():
        state, metrics, warnings = rounds("here")
    if name != "orchestra":  # Its k-means decides ties by the last digits.
        assert_close(state, expected)
    assert metrics == pytest.approx(expected_metrics, rel=3e-4, abs=1e-5)
    assert (metrics["clients"], metrics["dropped_clients"]) == (5, 3)
    (warning,) = (text for text in warnings if "continues without clients 1: " in text)
    assert "no battery" in warning
    assert warning in expected_warnings


def means(name):
    if name == "private":
        mean = differential_privacy.GaussianMean(noise_multiplier=1.0, clip=1.0)
        return mean.factory(3), mean.factory(3)
    chosen = aggregators.AGGREGATORS[name]
    return tuple(make and make(0, 8) for make in (chosen.statistics, chosen.update))


@pytest.fixture
def fixed_noise(monkeypatch):
    """Noise of differential privacy that depends on its deviation and shape alone."""

    def noise(stddev):
        return lambda shape: stddev * tf.random.stateless_normal(shape, (1, 2))

    monkeypatch.setattr(gaussian_query.tf, "random_normal_initializer", noise)


@pytest.mark.xdist_group("dcco")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["private"]
    + [
        pytest.param(name, marks=pytest.mark.long)
        for name in ("secure", "robust", "quantized", "rotated")
    ],
)
def test_aggregators(worker, small_algorithm, stored, tmp_path, name, fixed_noise):  # noqa: F811
    statistics, update = means(name)
    entry = registry.ALGORITHMS["dcco"]
    algorithm = entry.build(
        small_algorithm("dcco").task, entry.hyperparameters(),
        statistics_aggregator=statistics, update_aggregator=update,
    )  # fmt: skip
    compare(algorithm, stored, tmp_path)


def test_a_process_of_tff_learning(worker):
    def model_fn():
        layer = tf.keras.layers.Dense(2, input_shape=(3,), kernel_initializer="zeros")
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([layer]),
            loss=tf.keras.losses.MeanSquaredError(),
            input_spec=(tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2])),
            metrics=[tf.keras.metrics.MeanSquaredError()],
        )

    rng = np.random.default_rng(0)
    clients = [
        tf.data.Dataset.from_tensor_slices(
            (rng.normal(size=(n, 3)).astype(np.float32), rng.normal(size=(n, 2)).astype(np.float32))
        ).batch(2)
        for n in (3, 5, 2)
    ]
    process = tff.learning.algorithms.build_weighted_fed_avg(
        model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_adam(0.01),
    )

    def run():
        state = process.initialize()
        for _ in range(3):
            output = process.next(state, clients)
            state = output.state
        return state, output.metrics

    expected = run()
    with in_process.start():
        assert_close(run(), expected)


def computations():
    """Federated computations that use what the algorithms here do not, and their arguments."""
    at_clients = tff.FederatedType(np.int32, tff.CLIENTS)
    sequence = tff.SequenceType(np.int32)
    pairs = tff.SequenceType(collections.OrderedDict(a=np.int32, b=(np.float32, [2])))
    keys = tff.FederatedType((np.int32, [2]), tff.CLIENTS)

    @tff.tensorflow.computation(np.int32)
    def double(x):
        return 2 * x

    @tff.tensorflow.computation(np.int32, np.int32)
    def add(x, y):
        return x + y

    @tff.tensorflow.computation(pairs)
    def only_b(elements):
        return elements.skip(1).map(lambda e: e["b"])

    @tff.tensorflow.computation((np.int32, [4]), np.int32)
    def select(values, key):
        return values[key]

    @tff.tensorflow.computation(tff.SequenceType(np.int32))
    def total(values):
        return values.reduce(0, tf.add)

    @tff.federated_computation(at_clients)
    def smallest_and_largest(values):
        return tff.federated_min(values), tff.federated_max(values)

    @tff.federated_computation(at_clients)
    def there_and_back(values):
        summed = tff.federated_sum(values)
        return tff.federated_map(add, (tff.federated_broadcast(summed), values)), summed

    @tff.federated_computation(sequence)
    def doubled(values):
        return tff.sequence_map(double, values)

    @tff.federated_computation(sequence)
    def reduced(values):
        return tff.sequence_sum(values), tff.sequence_reduce(values, np.int32(1), add)

    @tff.federated_computation(keys)
    def selected(keys):
        values = tff.federated_value(np.arange(4, dtype=np.int32) * 10, tff.SERVER)
        most = tff.federated_value(np.int32(4), tff.SERVER)
        slices = tff.federated_select(keys, most, values, select)
        return tff.federated_map(total, slices)

    @tff.tensorflow.computation(tff.SequenceType((np.float32, [None])))
    def sum_of_batches(batches):
        return batches.reduce(0.0, lambda s, batch: s + tf.reduce_sum(batch))

    batches = [np.full(n, 0.5, np.float32) for n in (3, 3, 2)]
    two_pairs = [
        collections.OrderedDict(a=np.int32(k), b=np.full(2, k, np.float32)) for k in (1, 2, 3)
    ]
    return {
        "minimum": (smallest_and_largest, [3, 1, 2]),
        "all equal": (there_and_back, [3, 1, 2]),
        "list of sequences": (only_b, two_pairs),
        "batches of which the last is smaller": (sum_of_batches, batches),
        "sequence_map": (doubled, [1, 2, 3]),
        "sequence_reduce": (reduced, [1, 2, 3]),
        "select": (selected, [np.array(k, np.int32) for k in ([0, 3], [1, 1])]),
    }


# TFF's worker computes the first three, and lacks the others.
EXPECTED = {
    "batches of which the last is smaller": 4.0, "sequence_map": [2, 4, 6],
    "sequence_reduce": [6, 7], "select": [30, 20],
}  # fmt: skip


@pytest.mark.parametrize("name", ["minimum", "all equal", "list of sequences", *EXPECTED])
def test_other_computations(worker, name):
    computation, argument = computations()[name]
    with in_process.start():
        found = computation(argument)
    expected = EXPECTED[name] if name in EXPECTED else computation(argument)
    assert_equal(found, expected)


def assert_equal(found, expected):
    if isinstance(expected, list | tuple | tf.data.Dataset):
        found, expected = list(found), list(expected)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_variables_are_set_before_every_call(here):
    @tff.tensorflow.computation(np.int32)
    def count(times):
        counter = tf.Variable(0)
        with tf.control_dependencies([counter.assign_add(times)]):
            return counter.read_value()

    assert [int(count(k)) for k in (2, 3)] == [2, 3]


def test_functions_of_the_same_name(here):
    """A process may get graphs of other processes, which name their functions as its own."""

    @tf.function
    def inner(x):
        return tf.constant(2) * x

    @tff.tensorflow.computation(np.int32)
    def double(x):
        return tf.map_fn(inner, x[tf.newaxis])[0]

    proto = tff.framework.serialize_computation(double)
    graph = tf.compat.v1.GraphDef()
    proto.tensorflow.graph_def.Unpack(graph)
    factors = [
        node.attr["value"].tensor
        for function in graph.library.function
        for node in function.node_def
        if node.op == "Const" and list(node.attr["value"].tensor.int_val) == [2]
    ]
    assert len(factors) == 1
    factors[0].int_val[0] = 3
    proto.tensorflow.graph_def.Pack(graph)
    triple = tff.framework.deserialize_computation(proto)
    assert [int(double(5)), int(triple(5)), int(double(5))] == [10, 15, 10]


def test_a_program_of_tff(here):
    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def total(values):
        return tff.federated_sum(values)

    async def program():
        return await tff.program.materialize_value(total([1, 2, 3]))

    with tff.framework.get_context_stack().install(here.federated_context):
        assert int(asyncio.run(program())) == 6


def test_a_computation_that_fails(here):
    @tff.tensorflow.computation(np.int32)
    def positive(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, "no image is left")]):
            return tf.identity(x)

    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def of_all(values):
        return tff.federated_map(positive, values)

    assert [int(value) for value in of_all([1, 2])] == [1, 2]
    with pytest.raises(ClientFailedError, match="no image is left"):
        of_all([1, -1])


@pytest.mark.parametrize(
    ("error", "lacks_memory", "reason"),
    [
        (tf.errors.ResourceExhaustedError(None, None, "a\nOOM when allocating\nb"), True,
         "OOM when allocating"),
        (tf.errors.InternalError(None, None, "x: CUBLAS_STATUS_ALLOC_FAILED"), True,
         "x: CUBLAS_STATUS_ALLOC_FAILED"),
        (tf.errors.NotFoundError(None, None, "No algorithm worked!  Error messages:"), True,
         "No algorithm worked!  Error messages:"),
        (tf.errors.InvalidArgumentError(None, None, "where\nno image is left"), False,
         "no image is left"),
        (tf.errors.InternalError(None, None, ""), False, "InternalError"),
    ],
)  # fmt: skip
def test_errors_that_mean_too_little_memory(error, lacks_memory, reason):
    assert in_process._lacks_memory(error) is lacks_memory
    assert in_process._reason(error) == reason


def test_computations_stay_prepared(here, monkeypatch):
    prepared, prepare = [], in_process._Intrinsics.prepare
    monkeypatch.setattr(
        in_process._Intrinsics, "prepare",
        lambda self, computation: (prepared.append(computation), prepare(self, computation))[1],
    )  # fmt: skip

    def add(k):
        return tff.tensorflow.computation(lambda x: x + k, np.int32)

    computations = [add(k) for k in range(9)]
    for _ in range(2):
        assert [int(computation(1)) for computation in computations] == list(range(1, 10))
    assert len(prepared) == 9


@pytest.mark.long  # TensorFlow waits for memory.
def test_a_computation_that_needs_too_much_memory(here):
    @tff.tensorflow.computation(np.int64)
    def large(n):
        return tf.reduce_sum(tf.random.uniform([n], dtype=tf.float64))

    with pytest.raises(OutOfMemoryError, match="OOM"):
        large(2**50)


@pytest.mark.parametrize(
    ("value", "type_signature"),
    [
        (np.zeros(3, np.float32), tff.TensorType(np.float32, [2])),
        (np.zeros(2), tff.TensorType(np.float32, [2])),
        ([1, 2, 3], tff.StructType([np.int32, np.int32])),
    ],
)
def test_a_value_of_another_type(value, type_signature):
    with pytest.raises(TypeError, match="is no"):
        eager_values.from_python(value, type_signature)


def test_an_intrinsic_that_it_lacks():
    unknown = computation_pb2.Computation(intrinsic=computation_pb2.Intrinsic(uri="federated_sort"))
    with pytest.raises(NotImplementedError, match="federated_sort"):
        in_process._Intrinsics(1, None).close_over(unknown)


def test_results_stay_on_the_device(here):
    @tff.tensorflow.computation((np.float32, [2]))
    def double(x):
        return 2 * x

    assert isinstance(double(np.ones(2, np.float32)), tf.Tensor)
