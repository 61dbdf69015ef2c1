"""Graphs of TensorFlow as pure functions of weights and images.

`without_variables` changes the graph of a function that uses variables:

- What reads a variable is replaced by an input, and what assigns to one becomes an output: the new
  value of a moving average.
- Random numbers, of dropout, become functions of a seed, which is a function of the batch: the same
  images in the same order drop the same units.
- Gradients of activations are those of their operations, not those that Keras wrote by hand, which
  belong to the graph of the first call.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tff_ssl.models.dual_encoder import EncoderNetwork, Weights
from tff_ssl.models.layers import ParameterSpec

_STATELESS = {
    "RandomUniform": "StatelessRandomUniform",
    "RandomStandardNormal": "StatelessRandomNormal",
    "TruncatedNormal": "StatelessTruncatedNormal",
}  # Operation of TensorFlow -> the one that takes a seed.
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_SEED = "tff_ssl_seed"  # Start of the names of the seeds of random numbers.
# What a graph in a file may compute; nothing here reads or writes anything.
_NAMES = """
    Abs Acos Add AddN AddV2 All Any ArgMax ArgMin Asin Atan Atan2 AvgPool BatchMatMul BatchMatMulV2
    BatchToSpaceND BiasAdd BroadcastArgs BroadcastTo Cast Ceil ClipByValue ConcatV2 Const Conv2D
    Conv2DBackpropInput Cos Cosh Cumprod Cumsum DepthToSpace DepthwiseConv2dNative
    DepthwiseConv2dNativeBackpropInput Dilation2D Div DivNoNan Einsum Elu Equal Erf Erfc
    EuclideanNorm Exp ExpandDims Expm1 Fill Floor FloorDiv FloorMod FusedBatchNormV3 GatherNd
    GatherV2 Greater GreaterEqual Identity IdentityN Inv IsFinite IsInf IsNan L2Loss LRN LeakyRelu
    Less LessEqual LinSpace Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr MatMul
    MatrixBandPart Max MaxPool Maximum Mean Min Minimum MirrorPad Mul MulNoNan Neg NoOp NotEqual
    OneHot OnesLike Pack Pad PadV2 PartitionedCall Placeholder PlaceholderWithDefault Pow Prod Range
    Rank RealDiv Reciprocal Relu Relu6 Reshape ResizeArea ResizeBicubic ResizeBilinear
    ResizeNearestNeighbor ReverseV2 Rint Round Rsqrt Select SelectV2 Selu Shape ShapeN Sigmoid Sign
    Sin Sinh Size Slice Softmax Softplus Softsign SpaceToBatchND SpaceToDepth Split SplitV Sqrt
    Square SquaredDifference Squeeze StatefulPartitionedCall StopGradient StridedSlice Sub Sum Tan
    Tanh Tile TopKV2 Transpose Unpack Where Xdivy Xlogy ZerosLike
"""
_OPERATIONS = frozenset(_NAMES.split())


class PureGraph(NamedTuple):
    """A function of weights and images [batch, height, width, channels]."""

    graph_def: Any  #: Graph of TensorFlow, without variables.
    image: str  #: Name of the images' placeholder.
    weights: dict[str, int]  #: Name of a placeholder -> index of the weight whose value it takes.
    output: str  #: Name of the tensor of the encodings.
    #: Names of the tensors of the new statistics; those of placeholders if unchanged.
    statistics: tuple[str, ...]
    seeds: tuple[str, ...]  #: Names of the placeholders of seeds.
    features: int  #: Size of the encoding.


def run(
    graph: PureGraph, values: Sequence[tf.Tensor], images: tf.Tensor
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Encodings and new statistics; in a function of TensorFlow, whose gradient a tape sees."""
    inputs = {f"{name}:0": values[index] for name, index in graph.weights.items()}
    inputs[f"{graph.image}:0"] = images
    if graph.seeds:
        seed = _seed_of(images)
        inputs |= {f"{name}:0": seed + k for k, name in enumerate(graph.seeds)}
    h, *new = tf.graph_util.import_graph_def(
        graph.graph_def, inputs, [graph.output, *graph.statistics], name=""
    )
    return h, tuple(new)


def of_inference(network: EncoderNetwork, image_shape: tuple[int, int, int]) -> PureGraph:
    """The graph of an encoder of one's own in inference mode."""
    specs = sorted(network.specs(image_shape), key=lambda spec: not spec.trainable)
    cut = sum(spec.trainable for spec in specs)

    def encode(images, *values):
        if isinstance(network, GraphNetwork):  # Flat, so that the file's graph has gradients.
            return network.encode(False, values[:cut], values[cut:], images)[0]
        weights = Weights(tuple(values[:cut]), tuple(values[cut:]))
        return network.apply(weights, images, training=False)[0]

    signature = [tf.TensorSpec([None, *image_shape]), *(tf.TensorSpec(s.shape) for s in specs)]
    graph = tf.function(encode, autograph=False).get_concrete_function(*signature).graph
    images, *placeholders = (tensor.op.name for tensor in graph.inputs)
    index_of = {name: index for index, name in enumerate(placeholders)}
    return PureGraph(
        graph.as_graph_def(), images, index_of, graph.outputs[0].name, (), (),
        network.features(image_shape),
    )  # fmt: skip


def check_operations(graph_def: Any) -> None:
    """Raises a ValueError if a graph, which is or will be in a file, could do more than compute."""
    bodies = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    unknown = sorted({node.op for body in bodies for node in body} - _OPERATIONS)
    names = {function.signature.name for function in graph_def.library.function}
    unknown = [op for op in unknown if op not in names]
    if unknown:
        raise ValueError(f"operation {unknown[0]} of its graph is not known to only compute")


class GraphNetwork:
    """An `EncoderNetwork` that computes with graphs.

    Attributes:
      name: Name in messages.
      batch_statistics: See `EncoderNetwork`.
      brings_weights: Whether the initial weights may be trained ones, so that nothing stands for
        the untrained encoder.
    """

    brings_weights = True

    def __init__(
        self,
        name: str,
        specs: Sequence[ParameterSpec],
        initial: Sequence[npt.NDArray[np.float32]],
        trace: Callable[[tuple[int, ...], bool], PureGraph],
        batch_statistics: bool = False,
    ):
        """Makes the encoder.

        Args:
          specs: Weights, the trained ones first.
          initial: Initial values of the weights.
          trace: (shape of the images, whether in training) -> the graph.
        """
        self.name, self.batch_statistics = name, batch_statistics
        self._specs, self._initial, self._trace_anew = tuple(specs), tuple(initial), trace
        self._cut = sum(spec.trainable for spec in specs)
        self._traces: dict[tuple[tuple[int, ...], bool], PureGraph] = {}
        self._functions = {
            training: tf.function(
                functools.partial(self.encode, training), autograph=False, reduce_retracing=True
            )
            for training in (False, True)
        }

    def specs(self, image_shape: tuple[int, int, int]) -> Sequence[ParameterSpec]:
        """See `EncoderNetwork`."""
        self._trace(image_shape, training=False)
        return self._specs

    def features(self, image_shape: tuple[int, int, int]) -> int:
        """See `EncoderNetwork`."""
        return self._trace(image_shape, training=False).features

    def init(self, image_shape: tuple[int, int, int], seed: int) -> Weights:
        """The weights that the encoder was made with, whatever the seed."""
        values = [tf.constant(value) for value in self._initial]
        return Weights(tuple(values[: self._cut]), tuple(values[self._cut :]))

    def apply(
        self, weights: Weights, images: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        """See `EncoderNetwork`."""
        # A function of TensorFlow, since tapes do not see the operations of an imported graph.
        function = self._functions[training]
        return function(tuple(weights.trainable), tuple(weights.non_trainable), images)

    def encode(
        self, training: bool, trainable: Any, non_trainable: Any, images: tf.Tensor
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        """`apply` as a part of the graph that is being built."""
        graph = self._trace(tuple(images.shape[1:]), training)
        h, statistics = run(graph, (*trainable, *non_trainable), images)
        return h, statistics or tuple(non_trainable)

    def _trace(self, image_shape: tuple[int, ...], training: bool) -> PureGraph:
        key = (tuple(image_shape), training)
        if key not in self._traces:
            # Inside the graph of a computation, Keras would choose the operations of TensorFlow 1.
            with tf.__internal__.eager_context.eager_mode():
                self._traces[key] = self._trace_anew(*key)
        return self._traces[key]


def stored_network(
    name: str, graph: PureGraph, specs: Sequence[ParameterSpec], image_shape: tuple[int, int, int]
) -> GraphNetwork:
    """The encoder of a file, which is in inference mode, and whose weights are elsewhere."""
    zeros = [np.zeros(spec.shape, np.float32) for spec in specs]

    def trace(shape: tuple[int, ...], training: bool) -> PureGraph:
        check_shape(name, image_shape, shape)
        return graph

    return GraphNetwork(name, specs, zeros, trace)


def check_shape(name: str, expected: Sequence[int | None], given: Sequence[int]) -> None:
    """Raises a ValueError if an encoder does not take images of a shape; None is any size."""
    if len(expected) == len(given) and all(
        e in (None, n) for e, n in zip(expected, given, strict=True)
    ):
        return
    message = f"encoder {name} takes images of {tuple(expected)}, not {tuple(given)}"
    if (expected[-1], given[-1]) == (3, 1):
        message += ": it needs RGB images, and these are grey"
    side, *others = expected
    if others == [side, given[-1]]:
        message += f": add --view_size={side}"
    raise ValueError(message)


def without_variables(
    concrete: Any, variables: Sequence[tf.Variable], cut: int, name: str
) -> PureGraph:
    """The graph of a function in which inputs and outputs stand for the variables.

    The variables from number `cut` are statistics.
    """
    graph_def = concrete.graph.as_graph_def()
    handles = {id(variable.handle): index for index, variable in enumerate(variables)}
    index_of = {
        internal.op.name: handles[id(external)]
        for external, internal in concrete.graph.captures
        if id(external) in handles
    }
    resources = {i.op.name for e, i in concrete.graph.captures if i.dtype == tf.resource}
    weights: dict[str, int] = {}
    new: dict[int, str] = {}
    seeds: list[str] = []
    for node in graph_def.node:
        source = node.input[0] if node.input else ""
        if node.op == "ReadVariableOp" and source in index_of:
            weights[node.name] = index_of[source]
            node.op = "Placeholder"
            del node.input[:]
            shape = variables[index_of[source]].shape
            node.attr["shape"].shape.CopyFrom(shape.as_proto())
        elif node.op == "AssignVariableOp" and source in index_of:
            new[index_of[source]] = node.input[1]
        elif resources & {text.split(":")[0].lstrip("^") for text in node.input}:
            kind = "changes" if node.op in _ASSIGNMENTS else "uses"
            raise ValueError(
                f"encoder {name}: operation {node.name} ({node.op}) {kind} a variable in a way "
                "that federated computations cannot"
            )
        elif node.op in _STATELESS:
            seeds.append(f"{_SEED}{len(seeds)}")
            _take_seed(node, seeds[-1])
        elif "_gradient_op_type" in node.attr:
            del node.attr["_gradient_op_type"]
        # A control input on an assignment would keep it.
        kept = [text for text in node.input if not text.startswith("^")]
        del node.input[:]
        node.input.extend(kept)
    for seed in seeds:
        _add_placeholder(graph_def, seed, tf.TensorSpec([2], tf.int64))
    first = {index: node for node, index in reversed(weights.items())}
    statistics = []
    for index in range(cut, len(variables)):
        if index not in first and index not in new:
            first[index] = f"tff_ssl_weight{index}"
            _add_placeholder(graph_def, first[index], variables[index])
            weights[first[index]] = index
        statistics.append(new.get(index) or first[index])
    image, output = concrete.inputs[0].op.name, concrete.outputs[0].op.inputs[0].name
    wanted = [output, *statistics]
    nodes = [text.split(":")[0] for text in wanted]
    present = _remove_unused(graph_def, [*nodes, image])
    return PureGraph(
        graph_def,
        image,
        {node: index for node, index in weights.items() if node in present},
        output,
        tuple(text if ":" in text else f"{text}:0" for text in statistics),
        tuple(seed for seed in seeds if seed in present),
        concrete.structured_outputs.shape[1],
    )


def _remove_unused(graph_def: Any, outputs: Sequence[str]) -> set[str]:
    """Removes the nodes that no output needs; the names of those that remain."""
    inputs = {n.name: [text.split(":")[0] for text in n.input] for n in graph_def.node}
    present: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name not in present:
            present.add(name)
            waiting.extend(inputs[name])
    kept = [node for node in graph_def.node if node.name in present]
    del graph_def.node[:]
    graph_def.node.extend(kept)
    return present


def _add_placeholder(graph_def: Any, name: str, like: Any) -> None:
    """Adds an input with the shape and type of a variable or spec."""
    node = graph_def.node.add(name=name, op="Placeholder")
    node.attr["dtype"].type = like.dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(like.shape.as_proto())


def _take_seed(node: Any, seed: str) -> None:
    """Turns an operation that draws random numbers into one that takes a seed."""
    node.op = _STATELESS[node.op]
    node.input.append(seed)
    for name in ("seed", "seed2"):
        del node.attr[name]
    node.attr["Tseed"].type = tf.int64.as_datatype_enum


def _seed_of(images: tf.Tensor) -> tf.Tensor:
    """A seed, int64 [2], that depends on all values of a batch of images."""
    bits = tf.cast(tf.bitcast(images, tf.int32), tf.int64)
    flat = tf.reshape(bits, [-1])
    places = tf.range(tf.size(flat, tf.int64))
    return tf.stack([tf.reduce_sum(flat), tf.reduce_sum(flat * (places * 2 + 1))])
