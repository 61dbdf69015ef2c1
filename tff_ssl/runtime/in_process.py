"""Runs TFF computations in this process, on TensorFlow's devices.

By default, TFF 0.87 sends every computation to a worker process that is built without CUDA. Here
TensorFlow runs them in this process: on a GPU where it has one, otherwise on the CPU. Nothing has
to be started, and nothing listens on a port. Everything on TFF's side is public interface:
`tff.framework.Executor`, `ExecutorFactory` and the execution contexts.

    from tff_ssl.runtime import in_process

    process = tff.learning.algorithms.build_weighted_fed_avg(...)
    with in_process.start():
        state = process.initialize()
        state, metrics = process.next(state, datasets)

How a computation is run:

- `compiling.compile_computation` reduces it to TensorFlow graphs, calls of them, and a few
  intrinsics. The tree of these is turned into Python closures once; a call only runs the closures.
- A graph becomes one function of TensorFlow, which computations with the same graph share.
- Between graphs, values are eager tensors, which stay on their device. Results are eager tensors,
  too: what the program does not read never comes to the host. A sequence is a dataset.
- Clients are computed in the order of their values, `max_concurrent_calls` at a time.

What a process of its own can do, this cannot: end a computation that takes too long, and survive a
crash of TensorFlow.
"""

import collections
import concurrent.futures
import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2
from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.impl.compiler import array
from tensorflow_federated.python.core.impl.executors import executor_base, executor_value_base
from tensorflow_federated.python.core.impl.types import type_serialization

from tff_ssl.errors import ClientFailedError, OutOfMemoryError
from tff_ssl.runtime import devices, eager_values
from tff_ssl.runtime.compiling import contexts
from tff_ssl.runtime.eager_values import Placed
from tff_ssl.runtime.graph_functions import OneGraph, graph_function

_MOST_COMPUTATIONS = 32  # that an executor keeps ready
_MOST_THREADS = 64
_Environment = dict[str, Any]  # name of a reference -> its value
_Closure = Callable[[_Environment], Any]


class InProcess:
    """The execution contexts of this process.

    On a CPU, TensorFlow runs graphs as they are until `close`: to optimize them would take 2 to 3 s
    in the first round, and later rounds would not be faster.

    Attributes:
      context: A `tff.framework.SyncExecutionContext`.
      federated_context: A `tff.program.NativeFederatedContext`, for programs of `tff.program`.
    """

    def __init__(self, max_concurrent_calls: int | None = None):
        """Starts the threads of the clients.

        Args:
          max_concurrent_calls: Number of clients of a round that may compute at the same time; two
            per core if None, 64 if -1.
        """
        devices.prepare_gpus()
        devices.start_unoptimized()
        self._ended = contextlib.ExitStack()
        if not tf.config.list_physical_devices("GPU"):
            self._ended.enter_context(devices.unoptimized_graphs())
        cores = os.cpu_count() or 1
        calls = _MOST_THREADS if max_concurrent_calls == -1 else max_concurrent_calls or 2 * cores
        self._threads = concurrent.futures.ThreadPoolExecutor(calls, "clients")
        factory = tff.framework.ResourceManagingExecutorFactory(
            lambda cardinalities: _Executor(cardinalities.get(tff.CLIENTS, 0), self._threads)
        )
        self.context, self.federated_context = contexts(factory)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown()
        self._ended.close()


@contextlib.contextmanager
def start(max_concurrent_calls: int | None = None) -> Iterator[InProcess]:
    """Runs the TFF computations of the `with` block in this process; see `InProcess`."""
    running = InProcess(max_concurrent_calls)
    try:
        with tff.framework.get_context_stack().install(running.context):
            yield running
    finally:
        running.close()


class _Value(executor_value_base.ExecutorValue):
    """A value of the executor, and its type."""

    def __init__(self, value: Any, type_signature: tff.Type):
        self._value = value
        self._type = type_signature

    @property
    def reference(self) -> Any:
        return self._value

    @property
    def type_signature(self) -> tff.Type:
        return self._type

    async def compute(self) -> Any:
        return eager_values.to_python(self._value, self._type)


class _Executor(executor_base.Executor):
    """Runs computations of a fixed number of clients."""

    def __init__(self, num_clients: int, threads: concurrent.futures.Executor):
        self._intrinsics = _Intrinsics(num_clients, threads)
        self._ready: collections.OrderedDict[int, tuple[Any, Any]] = collections.OrderedDict()

    def close(self) -> None:
        self._ready.clear()

    async def create_value(self, value: Any, type_spec: Any = None) -> _Value:
        if isinstance(value, tff.framework.ConcreteComputation):
            if id(value) not in self._ready:
                # The computation is kept as well, so that its id is not given to another one.
                self._ready[id(value)] = (value, self._intrinsics.prepare(value))
                if len(self._ready) > _MOST_COMPUTATIONS:
                    self._ready.popitem(last=False)
            self._ready.move_to_end(id(value))
            return _Value(self._ready[id(value)][1], value.type_signature)
        type_signature = tff.to_type(type_spec)
        members = eager_values.from_python(value, type_signature)
        federated = isinstance(type_signature, tff.FederatedType)
        if federated and type_signature.all_equal and type_signature.placement is tff.CLIENTS:
            members = Placed(members * self._intrinsics.num_clients)
        return _Value(members, type_signature)

    async def create_call(self, comp: _Value, arg: _Value | None = None) -> _Value:
        function_type = comp.type_signature
        assert isinstance(function_type, tff.FunctionType)
        try:
            result = comp.reference(None if arg is None else arg.reference)
        except tf.errors.OpError as error:
            if _lacks_memory(error):
                raise OutOfMemoryError(_reason(error)) from error
            raise ClientFailedError(_reason(error)) from error
        return _Value(result, function_type.result)

    async def create_struct(self, elements: Any) -> _Value:
        named = structure.to_elements(structure.from_container(elements))
        types = [(name, v.type_signature) if name else v.type_signature for name, v in named]
        return _Value([v.reference for _, v in named], tff.StructType(types))

    async def create_selection(self, source: _Value, index: int) -> _Value:
        assert isinstance(source.type_signature, tff.StructType)
        return _Value(source.reference[index], source.type_signature[index])


class _Intrinsics:
    """Turns the proto of a computation into closures.

    A computation's value is a Python function of one argument, which is None where it has no
    parameter; a structure is a list, a federated value `Placed`.
    """

    def __init__(self, num_clients: int, threads: concurrent.futures.Executor):
        self.num_clients = num_clients
        self._threads = threads
        # Ids of intrinsics whose functions have been called; a reused id only costs time.
        self._prepared: set[int] = set()

    def prepare(self, computation: tff.framework.ConcreteComputation) -> Any:
        """The value of a computation.

        A function of at most one client, or group of clients, becomes one graph, so that a round is
        one call of TensorFlow. With several clients, the graph would hold the work of each one.
        """
        proto = tff.framework.serialize_computation(computation)
        closure = self.close_over(proto)({})
        function_type = computation.type_signature
        if not isinstance(function_type, tff.FunctionType) or self.num_clients > 1:
            return closure
        if any(_needs_python(part) for part in _parts(proto)):
            return closure
        parameter = function_type.parameter
        specs = None if parameter is None else eager_values.specs(parameter, self.num_clients)
        return OneGraph(closure, specs)

    def close_over(self, proto: computation_pb2.Computation) -> _Closure:
        """A function of the values of the references, which gives the computation's value."""
        which = proto.WhichOneof("computation")
        content = getattr(proto, which)
        if which == "tensorflow":
            graph = graph_function(proto)
            return lambda _: graph
        if which == "literal":
            value = tf.convert_to_tensor(array.from_proto(content.value))
            return lambda _: value
        if which == "reference":
            return lambda values: values[content.name]
        if which == "selection":
            source = self.close_over(content.source)
            return lambda values: source(values)[content.index]
        if which == "struct":
            parts = [self.close_over(element.value) for element in content.element]
            return lambda values: [part(values) for part in parts]
        if which == "intrinsic":
            rule = getattr(self, f"_{content.uri}", None)
            if rule is None:
                raise NotImplementedError(f"TFF's intrinsic {content.uri!r}")
            intrinsic = functools.partial(rule, proto)
            return lambda _: intrinsic
        if which == "call":
            function = self.close_over(content.function)
            if not content.HasField("argument"):
                return lambda values: function(values)(None)
            argument = self.close_over(content.argument)
            return lambda values: function(values)(argument(values))
        if which == "block":
            return self._block(content)
        if which == "lambda":
            name, result = content.parameter_name, self.close_over(content.result)
            return lambda values: lambda argument: result({**values, name: argument})
        raise NotImplementedError(f"TFF computations of kind {which!r}")

    def _block(self, content: computation_pb2.Block) -> _Closure:
        named = [(local.name, self.close_over(local.value)) for local in content.local]
        result = self.close_over(content.result)

        def run(values: _Environment) -> Any:
            values = dict(values)
            for name, closure in named:
                values[name] = closure(values)
            return result(values)

        return run

    def _at_clients(
        self, proto: computation_pb2.Computation, function: Callable, members: Sequence[Any]
    ) -> Placed:
        if len(members) < 2:
            return Placed(map(function, members))
        if id(proto) in self._prepared:
            return Placed(self._threads.map(function, members))
        # TensorFlow would prepare a function once for each thread that calls it first.
        first = function(members[0])
        self._prepared.add(id(proto))
        return Placed([first, *self._threads.map(function, members[1:])])

    def _federated_map(self, proto, argument):
        function, members = argument
        return self._at_clients(proto, function, members)

    _federated_map_all_equal = _federated_apply = _federated_map

    def _federated_broadcast(self, proto, argument):
        return Placed(argument * self.num_clients)

    def _federated_value_at_server(self, proto, argument):
        return Placed([argument])

    def _federated_value_at_clients(self, proto, argument):
        return Placed([argument] * self.num_clients)

    def _federated_eval_at_server(self, proto, argument):
        return Placed([argument(None)])

    def _federated_eval_at_clients(self, proto, argument):
        return self._at_clients(proto, argument, [None] * self.num_clients)

    def _federated_zip_at_server(self, proto, argument):
        return Placed([_member(argument, 0)])

    def _federated_zip_at_clients(self, proto, argument):
        return Placed(_member(argument, client) for client in range(self.num_clients))

    def _federated_aggregate(self, proto, argument):
        members, zero, accumulate, _, report = argument
        return Placed([report(functools.reduce(lambda s, m: accumulate([s, m]), members, zero))])

    def _federated_sum(self, proto, argument):
        member_type = type_serialization.deserialize_type(proto.type).result.member
        return Placed([functools.reduce(_add, argument, _zero(member_type))])

    def _federated_select(self, proto, argument):
        keys, _, [server_value], select = argument
        element = type_serialization.deserialize_type(proto.type).result.member.element

        def slices(own: tf.Tensor) -> Any:
            return eager_values.sequence(
                [select([server_value, key]) for key in tf.unstack(own)], element
            )

        return self._at_clients(proto, slices, keys)

    _federated_secure_select = _federated_select

    def _sequence_map(self, proto, argument):
        function, elements = argument
        sequence_type = type_serialization.deserialize_type(proto.type)
        source, result = sequence_type.parameter[1].element, sequence_type.result.element
        return eager_values.sequence(
            [function(e) for e in eager_values.elements(elements, source)], result
        )

    def _sequence_reduce(self, proto, argument):
        elements, zero, op = argument
        source = type_serialization.deserialize_type(proto.type).parameter[0].element
        return functools.reduce(
            lambda s, e: op([s, e]), eager_values.elements(elements, source), zero
        )

    def _sequence_sum(self, proto, argument):
        element = type_serialization.deserialize_type(proto.type).parameter.element
        return functools.reduce(_add, eager_values.elements(argument, element), _zero(element))


# What the libraries of a GPU say when its memory is full, in errors of other types.
_OUT_OF_MEMORY = (
    "OOM when", "ut of memory", "OUT_OF_MEMORY", "ALLOC_FAILED", "No algorithm worked"
)  # fmt: skip


def _lacks_memory(error: tf.errors.OpError) -> bool:
    """Whether a smaller round might succeed."""
    texts = any(text in (error.message or "") for text in _OUT_OF_MEMORY)
    return texts or isinstance(error, tf.errors.ResourceExhaustedError)


def _reason(error: tf.errors.OpError) -> str:
    """The line of an error's message that says what happened; the others say where."""
    lines = (error.message or "").split("\n\t [[")[0].strip().splitlines()
    memory = [line for line in lines if any(text in line for text in _OUT_OF_MEMORY)]
    return (memory or lines[-1:] or [type(error).__name__])[0].strip()


def _parts(message: Any) -> Iterator[computation_pb2.Computation]:
    """A computation's proto and all protos of computations inside."""
    if isinstance(message, computation_pb2.Computation):
        yield message
        if message.WhichOneof("computation") in ("tensorflow", "literal"):
            return
    for field, value in message.ListFields():
        if field.message_type is not None and field.name != "type":
            for part in value if field.label == field.LABEL_REPEATED else [value]:
                yield from _parts(part)


def _needs_python(proto: computation_pb2.Computation) -> bool:
    """Whether a part of a computation cannot be a node of a graph."""
    if proto.WhichOneof("computation") == "intrinsic":
        return proto.intrinsic.uri.startswith("sequence_") or "select" in proto.intrinsic.uri
    return bool(proto.tensorflow.initialize_op)


def _member(value: Any, index: int) -> Any:
    """The structure of one member of each federated value in a structure of them."""
    if isinstance(value, Placed):
        return value[index]
    return [_member(element, index) for element in value]


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, list):
        return [_add(x, y) for x, y in zip(left, right, strict=True)]
    return left + right


def _zero(type_signature: tff.Type) -> Any:
    if isinstance(type_signature, tff.StructType):
        return [_zero(element) for _, element in structure.iter_elements(type_signature)]
    return tf.zeros(type_signature.shape, type_signature.dtype.type)
