"""Graphs of TensorFlow that a computation contains, as functions of eager tensors."""

import functools
import hashlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2
from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.impl.types import type_serialization

from tff_ssl.runtime.eager_values import leaves, rebuilt, spec


class GraphFunction:
    """A computation of TensorFlow as a function of eager tensors.

    A graph with variables has an operation that sets them before every call. They belong to this
    process, so that calls of one such graph wait for each other.
    """

    def __init__(self, proto: computation_pb2.Computation, suffix: str):
        content = proto.tensorflow
        self._graph_def = tf.compat.v1.GraphDef()
        content.graph_def.Unpack(self._graph_def)
        _rename(self._graph_def, suffix)
        function_type = type_serialization.deserialize_type(proto.type)
        assert isinstance(function_type, tff.FunctionType)
        self._result, self._initialize_op = content.result, content.initialize_op
        has_parameter = content.HasField("parameter")
        inputs = list(_bound(content.parameter, function_type.parameter)) if has_parameter else []
        self._inputs, self._specs = [name for name, _ in inputs], [spec for _, spec in inputs]
        self._outputs = [name for name, _ in _bound(content.result, function_type.result)]
        self._lock = threading.Lock()

    def __call__(self, argument: Any) -> Any:
        tensors = list(leaves(argument))
        if not tf.executing_eagerly():
            results = self._imported(*tensors)
        elif self._initialize_op:
            with self._lock:
                initialize, function = self._functions
                assert initialize is not None
                initialize()
                results = function(*tensors)
        else:
            results = self._functions[1](*tensors)
        return _structured(self._result, iter(results))

    def _imported(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        # A value of the computation itself may be none of the graph that is being traced.
        traced = [t if tf.is_symbolic_tensor(t) else tf.identity(t) for t in tensors]
        given = dict(zip(self._inputs, traced, strict=True))
        return tf.graph_util.import_graph_def(self._graph_def, given, self._outputs, name="")

    @functools.cached_property
    def _functions(self) -> tuple[Callable[[], Any] | None, Callable[..., list[tf.Tensor]]]:
        """The function that sets variables, if there are any, and the graph's own."""
        function = tf.compat.v1.wrap_function(self._imported, self._specs)
        if not self._initialize_op:
            return None, function
        operation = function.graph.get_operation_by_name(self._initialize_op)
        # Without pruning, a call of the function itself might set the variables as well.
        return function.prune([], operation), function.prune(function.inputs, function.outputs)


class OneGraph:
    """A function of the executor's values, computed as one graph.

    It consists of graph functions and operations of TensorFlow; it is traced at the first call.
    """

    def __init__(self, function: Callable[[Any], Any], specs: Any):
        """`specs` are those of the parameter's tensors, in its structure; None without one."""
        self._function, self._specs = function, specs
        self._tracing = threading.Lock()

    def __call__(self, argument: Any) -> Any:
        with self._tracing:
            traced, result = self._traced
        return rebuilt(result, iter(traced(*leaves(argument))))

    @functools.cached_property
    def _traced(self) -> tuple[Callable[..., list[tf.Tensor]], Any]:
        """The function of the tensors, and the structure of its result."""
        structure_of_result = None

        def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
            nonlocal structure_of_result
            result = self._function(self._specs and rebuilt(self._specs, iter(tensors)))
            # The tensors would keep the graph of the trace.
            structure_of_result = rebuilt(result, itertools.repeat(0))
            return list(leaves(result))

        traced = tf.compat.v1.wrap_function(run, list(leaves(self._specs)))
        return traced, structure_of_result


_graphs: weakref.WeakValueDictionary[bytes, GraphFunction] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_building = threading.Lock()


def graph_function(proto: computation_pb2.Computation) -> GraphFunction:
    """The function of a graph; that of an equal graph if another computation has one."""
    key = hashlib.sha256(proto.SerializeToString(deterministic=True)).digest()
    with _building:
        graph = _graphs.get(key)
        if graph is None:
            _graphs[key] = graph = GraphFunction(proto, f"_{next(_numbers)}")
    return graph


def _rename(graph_def: tf.compat.v1.GraphDef, suffix: str) -> None:
    """Gives functions and resources of a graph names of their own.

    This process may hold others of the same name and another content.
    """
    functions = graph_def.library.function
    names = {function.signature.name: function.signature.name + suffix for function in functions}

    def rename_values(attributes: Any) -> None:
        for value in attributes.values():
            for function in [value.func, *value.list.func]:
                if function.name in names:
                    function.name = names[function.name]
                if function.name:
                    rename_values(function.attr)

    def rename_nodes(nodes: Any) -> None:
        for node in nodes:
            node.op = names.get(node.op, node.op)
            if "shared_name" in node.attr:
                node.attr["shared_name"].s = (node.attr["shared_name"].s or node.name.encode()) + (
                    suffix.encode()
                )
            rename_values(node.attr)

    rename_nodes(graph_def.node)
    for function in functions:
        function.signature.name = names[function.signature.name]
        rename_nodes(function.node_def)
        rename_values(function.attr)
    for gradient in graph_def.library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)


def _bound(
    binding: computation_pb2.TensorFlow.Binding, type_signature: tff.Type
) -> Iterator[tuple[str, tf.TensorSpec]]:
    """Names and specifications of the tensors of a parameter or result, in order."""
    which = binding.WhichOneof("binding")
    if which == "struct":
        for part, (_, element) in zip(
            binding.struct.element, structure.iter_elements(type_signature), strict=True
        ):
            yield from _bound(part, element)
    elif which == "sequence":
        yield binding.sequence.variant_tensor_name, tf.TensorSpec([], tf.variant)
    else:
        yield binding.tensor.tensor_name, spec(type_signature)


def _structured(binding: computation_pb2.TensorFlow.Binding, tensors: Iterator[tf.Tensor]) -> Any:
    if binding.WhichOneof("binding") == "struct":
        return [_structured(part, tensors) for part in binding.struct.element]
    return next(tensors)
