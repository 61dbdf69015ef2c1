"""Keras models as encoders: their graphs as pure functions of the weights.

A Keras model keeps its weights in variables, which a federated computation cannot carry. The model
is called once for images of a shape, and the graph of that call becomes a pure function
(`pure_graphs`).
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal
from unittest import mock

import tensorflow as tf

from tff_ssl.models import pure_graphs
from tff_ssl.models.layers import ParameterSpec, number_repeated
from tff_ssl.models.pure_graphs import GraphNetwork, PureGraph

BatchNorm = Literal["frozen", "local", "global"]
_BATCH_NORMS = ("frozen", "local", "global")


def from_keras(
    model: tf.keras.Model,
    batch_norm: BatchNorm = "frozen",
    preprocess: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> GraphNetwork:
    """Makes an encoder of a Keras model, which starts from the weights that the model has.

    >>> layer = tf.keras.layers.Conv2D(16, 3, activation="relu", input_shape=(8, 8, 1))
    >>> keras_model = tf.keras.Sequential([layer, tf.keras.layers.GlobalAveragePooling2D()])
    >>> encoder = tff_ssl.models.from_keras(keras_model)  # For `encoder` of `tff_ssl.train`.
    >>> encoder.features((8, 8, 1))
    16

    Args:
      model: A functional or sequential model (Keras 2) of images [batch, height, width, channels]
        with one output: encodings [batch, features], or maps [batch, h, w, features], whose mean
        over the pixels is the encoding.
      batch_norm: `frozen`: batch norms use the model's moving averages, which become a part of
        their scales and offsets; these are trained. Every algorithm takes such a model. `local` and
        `global`: batch norms use the batch's statistics in training. Algorithms that keep batch
        norm at the clients (FedBN, and gossip with `batch_norm=local`) keep it with `local`, and
        average it with `global`.
      preprocess: Function of images, float32 from -1 to 1, whose result the model takes; None if it
        takes these. For a model of pixels from 0 to 255: `lambda x: (x + 1) * 127.5`.

    Raises:
      ValueError: If the model has several inputs or outputs, or an output of another rank, or does
        something in training that a pure function cannot.
    """
    if batch_norm not in _BATCH_NORMS:
        raise ValueError(f"batch_norm must be one of {', '.join(_BATCH_NORMS)}; got {batch_norm!r}")
    if not isinstance(model, tf.keras.Model):
        raise ValueError(f"from_keras takes a tf.keras.Model; got {type(model).__name__}")
    if not model.built:
        raise ValueError(
            f"the Keras model {model.name!r} has no weights yet: give its first layer an "
            "input_shape"
        )
    if len(model.inputs or []) != 1 or len(model.outputs or []) != 1:
        raise ValueError(
            f"the Keras model {model.name!r} must be functional or sequential, with one input and "
            "one output"
        )
    graphs = _KerasGraphs(model, batch_norm, preprocess)
    # Arrays, since a computation cannot read a variable of the program.
    initial = [variable.numpy() for variable in graphs.variables]
    return GraphNetwork(
        f"keras:{model.name}", graphs.specs, initial, graphs.trace, graphs.batch_statistics
    )


class _KerasGraphs:
    """The weights and the graphs of a Keras model."""

    def __init__(
        self,
        model: tf.keras.Model,
        batch_norm: BatchNorm,
        preprocess: Callable[[tf.Tensor], tf.Tensor] | None,
    ):
        self._model, self._preprocess = model, preprocess
        norms = [
            layer for layer in model._flatten_layers() if isinstance(layer, _batch_norm_class())
        ]
        self.batch_statistics = batch_norm != "frozen" and any(norm.trainable for norm in norms)
        self._folded = {id(norm): _fold(norm) for norm in norms if batch_norm == "frozen"}
        trained = {id(variable) for variable in model.trainable_weights}
        kept, of_norms = list(model.weights), {id(v) for norm in norms for v in norm.weights}
        if self._folded:
            kept = [variable for variable in kept if id(variable) not in of_norms]
            for norm in norms:
                kept += self._folded[id(norm)]
                trained |= set(map(id, self._folded[id(norm)])) if norm.trainable else set()
        local = of_norms if batch_norm == "local" else set()
        found = [
            (variable, _spec(variable, id(variable) in trained, id(variable) in local))
            for variable in kept
            # Whole numbers that are not trained are the states of random numbers.
            if not variable.dtype.is_integer or variable.trainable
        ]
        names = number_repeated([spec.name for _, spec in found])
        pairs = [(v, spec._replace(name=n)) for (v, spec), n in zip(found, names, strict=True)]
        # The trained ones first, as in `Weights`.
        pairs.sort(key=lambda pair: not pair[1].trainable)
        self.variables = [variable for variable, _ in pairs]
        self.specs = [spec for _, spec in pairs]

    def trace(self, image_shape: tuple[int, ...], training: bool) -> PureGraph:
        """The graph for images of a shape."""
        name = self._model.name
        pure_graphs.check_shape(name, self._model.input_shape[1:], image_shape)

        def encode(images):
            x = images if self._preprocess is None else self._preprocess(images)
            y = self._model(x, training=training)
            return tf.reduce_mean(y, [1, 2]) if y.shape.rank == 4 else y

        with _changed_layers(self._folded):
            concrete = tf.function(encode, autograph=False).get_concrete_function(
                tf.TensorSpec([None, *image_shape], tf.float32)
            )
        shape = concrete.structured_outputs.shape
        if shape.rank != 2 or shape[1] is None:
            raise ValueError(
                f"the output of encoder {name} must be [batch, features] or "
                f"[batch, h, w, features], and is {shape}"
            )
        cut = sum(spec.trainable for spec in self.specs)
        return pure_graphs.without_variables(concrete, self.variables, cut, name)


def _spec(variable: tf.Variable, trainable: bool, is_local: bool) -> ParameterSpec:
    name = variable.name.removesuffix(":0")
    if variable.dtype != tf.float32:
        raise ValueError(f"weight {name} is {variable.dtype.name}, not float32")
    return ParameterSpec(name, tuple(variable.shape), "", trainable, is_local)


def _batch_norm_class() -> Any:
    """The base class of Keras's batch norms."""
    return tf.keras.layers.BatchNormalization.__mro__[1]


def _fold(layer: Any) -> tuple[tf.Variable, tf.Variable]:
    """Scale and offset of a batch norm with its moving averages."""
    scale = tf.math.rsqrt(layer.moving_variance + layer.epsilon)
    scale = scale * layer.gamma if layer.scale else scale
    offset = -layer.moving_mean * scale
    offset = offset + layer.beta if layer.center else offset
    return (
        tf.Variable(scale, name=f"{layer.name}/scale"),
        tf.Variable(offset, name=f"{layer.name}/offset"),
    )


@contextlib.contextmanager
def _changed_layers(folded: dict[int, tuple[tf.Variable, tf.Variable]]) -> Iterator[None]:
    """Within it, Keras calls frozen batch norms and grouped convolutions in another form."""
    norm = _batch_norm_class()
    call, convolution = norm.call, tf.keras.layers.Conv2D.__mro__[1]

    def scale_and_shift(self, inputs, *args, **kwargs):
        if id(self) not in folded:
            return call(self, inputs, *args, **kwargs)
        shape = [1] * inputs.shape.rank
        for axis in self.axis:
            shape[axis] = inputs.shape[axis]
        scale, offset = (tf.reshape(variable, shape) for variable in folded[id(self)])
        return inputs * scale + offset

    with (
        mock.patch.object(norm, "call", scale_and_shift),
        mock.patch.object(convolution, "_jit_compiled_convolution_op", _grouped_convolution),
    ):
        yield


def _grouped_convolution(layer: Any, images: tf.Tensor, kernel: Any) -> tf.Tensor:
    """A convolution in groups of channels, which Keras leaves to XLA on a CPU."""
    kernel, groups = tf.convert_to_tensor(kernel), layer.groups
    padding, strides = layer.padding.upper(), list(layer.strides)
    if layer.data_format != "channels_last" or layer.rank != 2:
        raise ValueError(f"layer {layer.name}: groups need 2-D convolutions with channels last")
    if kernel.shape[2] == 1 and max(strides) == min(strides):
        height, width, _, filters = kernel.shape
        depthwise = tf.reshape(kernel, [height, width, groups, filters // groups])
        return tf.nn.depthwise_conv2d(
            images, depthwise, [1, *strides, 1], padding, dilations=list(layer.dilation_rate)
        )
    parts = zip(tf.split(images, groups, -1), tf.split(kernel, groups, -1), strict=True)
    convolved = [
        tf.nn.conv2d(x, k, strides, padding, dilations=list(layer.dilation_rate)) for x, k in parts
    ]
    return tf.concat(convolved, -1)
