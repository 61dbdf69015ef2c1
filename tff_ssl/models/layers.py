"""Layers that ask a `Parameters` object for their weights, so that a network is a pure function.

The same function `network(parameters, x) -> y` lists the weights that it needs (`collect`), and
computes with given values. TFF computations can thus carry weights as tensors; creating Keras
variables inside a client's computation would double the cost of a client call.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

NORM_EPSILON = 1e-5
_BATCH_NORM_MOMENTUM = 0.9
_LAYER_NORM_EPSILON = 1e-6


class ParameterSpec(NamedTuple):
    """One weight tensor (float32)."""

    name: str  #: Name, unique in the network.
    shape: tuple[int, ...]  #: Shape of the tensor.
    #: Distribution of the initial value: `zeros`, `ones`, `he_normal`, `xavier_uniform` or
    #: `normal_0.02`.
    initializer: str
    trainable: bool  #: Whether gradients train the tensor.
    #: Whether the tensor is a scale, an offset or a moving average of a batch norm.
    batch_norm: bool = False


def number_repeated(names: Sequence[str]) -> tuple[str, ...]:
    """Names of weights; those that occur more than once are followed by ` #1`, ` #2`, ..."""
    return tuple(
        f"{name} #{names[:i].count(name) + 1}" if names.count(name) > 1 else name
        for i, name in enumerate(names)
    )


@dataclasses.dataclass(eq=False)
class Parameters:
    """A network's access to its weights."""

    values: dict[str, tf.Tensor] | None = None  #: Values of the weights by name; None to list them.
    #: Whether batch norm uses the batch's statistics (True) or its moving averages.
    training: bool = False
    #: Kind of the norm layers, `group`, `batch`, or `frozen` (a batch norm whose moving averages
    #: are a part of its scale and offset).
    norm: str = "group"
    groups: int = 32  #: Number of groups of group norm.
    #: Beginnings of names of layers whose batch norms use their moving averages in training, too.
    frozen: tuple[str, ...] = ()
    #: Type of the factors in the encoder's convolutions and matrix products, `float32` or
    #: `bfloat16`; everything else is float32.
    precision: str = "float32"
    #: New values of the non-trainable weights after a call, by name.
    updates: dict[str, tf.Tensor] = dataclasses.field(default_factory=dict)
    #: Specifications of the weights that a call asked for, by name.
    specs: dict[str, ParameterSpec] = dataclasses.field(default_factory=dict)

    def multiply(
        self, operation: Callable[..., tf.Tensor], left: tf.Tensor, right: tf.Tensor
    ) -> tf.Tensor:
        """`operation`, a convolution or matrix product of two float32 tensors, in `precision`.

        A CPU with bfloat16 instructions multiplies in bfloat16 and adds in float32. Values between
        two products stay float32, because norms lose too much in bfloat16.
        """
        if self.precision == "float32":
            return operation(left, right)
        result = operation(tf.cast(left, tf.bfloat16), tf.cast(right, tf.bfloat16))
        return tf.cast(result, tf.float32)

    def get(
        self,
        name: str,
        shape: Sequence[int],
        initializer: str,
        trainable: bool = True,
        batch_norm: bool = False,
    ) -> tf.Tensor:
        """The value of weight `name`: a float32 tensor of `shape`."""
        if name in self.specs:
            raise ValueError(f"two layers are called {name!r}")
        self.specs[name] = ParameterSpec(name, tuple(shape), initializer, trainable, batch_norm)
        return tf.zeros(shape) if self.values is None else self.values[name]


def collect(
    network: Callable[[Parameters, tf.Tensor], object], input_shape: Sequence[int], **options: Any
) -> tuple[ParameterSpec, ...]:
    """Lists the weights of `network` for inputs [batch, *input_shape]; options of `Parameters`."""
    parameters = Parameters(**options)
    with tf.Graph().as_default():
        network(parameters, tf.zeros([1, *input_shape]))
    return tuple(parameters.specs.values())


def initialize(spec: ParameterSpec, seed: tf.Tensor) -> tf.Tensor:
    """Draws the initial value of a weight, a pure function of `seed`, int [2]."""
    if spec.initializer == "zeros":
        return tf.zeros(spec.shape)
    if spec.initializer == "ones":
        return tf.ones(spec.shape)
    if spec.initializer == "normal_0.02":
        return tf.random.stateless_normal(spec.shape, seed, stddev=0.02)
    fan_in = math.prod(spec.shape[:-1])
    if spec.initializer == "xavier_uniform":  # Glorot & Bengio 2010, Eq. 16
        limit = (6.0 / (fan_in + spec.shape[-1])) ** 0.5
        return tf.random.stateless_uniform(spec.shape, seed, -limit, limit)
    # He et al. 2015: variance 2 / fan_in keeps the scale through a ReLU network.
    return tf.random.stateless_normal(spec.shape, seed, stddev=(2.0 / fan_in) ** 0.5)


def standardize_weight(weight: tf.Tensor) -> tf.Tensor:
    """Weight standardization (Qiao et al. 2019, Eq. 5): per output unit, mean 0, deviation 1."""
    axes = list(range(weight.shape.rank - 1))
    mean, variance = tf.nn.moments(weight, axes, keepdims=True)
    return (weight - mean) * tf.math.rsqrt(variance + 1e-10)


def conv(
    parameters: Parameters, name: str, x: tf.Tensor, filters: int, size: int, stride: int = 1
) -> tf.Tensor:
    """Convolution without bias, [b, h, w, c] -> [b, h/stride, w/stride, filters].

    Weights are standardized if the norm is group norm (Qiao et al. 2019).
    """
    shape = (size, size, x.shape[-1], filters)
    kernel = parameters.get(f"{name}/kernel", shape, "he_normal")
    if parameters.norm == "group":
        kernel = standardize_weight(kernel)
    convolve = functools.partial(tf.nn.conv2d, strides=stride, padding="SAME")
    return parameters.multiply(convolve, x, kernel)


def depthwise_conv(
    parameters: Parameters, name: str, x: tf.Tensor, size: int, stride: int = 1
) -> tf.Tensor:
    """Convolution of each channel without bias, [b, h, w, c] -> [b, h/stride, w/stride, c]."""
    kernel = parameters.get(f"{name}/kernel", (size, size, 1, x.shape[-1]), "he_normal")

    def convolve(x, kernel):
        kernel = tf.transpose(kernel, [0, 1, 3, 2])  # TensorFlow's order
        return tf.nn.depthwise_conv2d(x, kernel, [1, stride, stride, 1], "SAME")

    return parameters.multiply(convolve, x, kernel)


def dense(
    parameters: Parameters, name: str, x: tf.Tensor, units: int, standardize: bool = False
) -> tf.Tensor:
    """Linear layer without bias, [b, n] -> [b, units]."""
    kernel = parameters.get(f"{name}/kernel", (x.shape[-1], units), "he_normal")
    return tf.linalg.matmul(x, standardize_weight(kernel) if standardize else kernel)


def norm(parameters: Parameters, name: str, x: tf.Tensor) -> tf.Tensor:
    """The network's norm layer, with a scale and an offset per channel; same shape as `x`."""
    shape, is_batch_norm = (x.shape[-1],), parameters.norm == "batch"
    scale = parameters.get(f"{name}/scale", shape, "ones", batch_norm=is_batch_norm)
    offset = parameters.get(f"{name}/offset", shape, "zeros", batch_norm=is_batch_norm)
    if is_batch_norm:
        return batch_norm(parameters, name, x, scale, offset)
    if parameters.norm == "frozen":
        return x * scale + offset
    return group_norm(x, scale, offset, parameters.groups)


def group_norm(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, groups: int) -> tf.Tensor:
    """Group norm (Wu & He 2018) of each example, [b, ..., channels].

    Mean and variance are folded into one multiplication and one addition per element, because
    passes over the activations, not arithmetic, dominate the cost on a CPU.

    Raises:
      ValueError: If `groups` does not divide the number of channels.
    """
    channels = x.shape[-1]
    if channels % groups:
        raise ValueError(f"{groups} groups do not divide {channels} channels")
    spatial_axes = list(range(1, x.shape.rank - 1))

    def group_means(values: tf.Tensor) -> tf.Tensor:  # [b, ..., channels] -> [b, groups, 1]
        means = tf.reduce_mean(values, spatial_axes) if spatial_axes else values
        return tf.reduce_mean(tf.reshape(means, [-1, groups, channels // groups]), 2, True)

    mean, square = group_means(x), group_means(tf.square(x))
    inverse = tf.math.rsqrt(tf.nn.relu(square - tf.square(mean)) + NORM_EPSILON)
    multiplier = inverse * tf.reshape(scale, [groups, -1])
    addend = tf.reshape(offset, [groups, -1]) - mean * multiplier
    shape = [-1] + [1] * len(spatial_axes) + [channels]
    return x * tf.reshape(multiplier, shape) + tf.reshape(addend, shape)


def batch_norm(
    parameters: Parameters,
    name: str,
    x: tf.Tensor,
    scale: tf.Tensor | None = None,
    offset: tf.Tensor | None = None,
) -> tf.Tensor:
    """Batch norm (Ioffe & Szegedy 2015) of [b, ..., channels].

    Its moving averages are non-trainable weights whose names begin with `name`. Scale and offset,
    [channels], are left out if None.
    """
    shape, momentum = (x.shape[-1],), _BATCH_NORM_MOMENTUM
    moving_mean = parameters.get(f"{name}/moving_mean", shape, "zeros", False, True)
    moving_variance = parameters.get(f"{name}/moving_variance", shape, "ones", False, True)
    mean, variance = moving_mean, moving_variance
    if parameters.training and not f"{name}/".startswith(parameters.frozen):
        mean, variance = tf.nn.moments(x, list(range(x.shape.rank - 1)))
        parameters.updates |= {
            f"{name}/moving_mean": momentum * moving_mean + (1 - momentum) * mean,
            f"{name}/moving_variance": momentum * moving_variance + (1 - momentum) * variance,
        }
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, NORM_EPSILON)


def linear(parameters: Parameters, name: str, x: tf.Tensor, units: int) -> tf.Tensor:
    """Linear layer with bias, [..., n] -> [..., units]."""
    kernel = parameters.get(f"{name}/kernel", (x.shape[-1], units), "xavier_uniform")
    bias = parameters.get(f"{name}/bias", (units,), "zeros")
    # One product of two matrices: a batched product would sum the kernel's gradients afterwards.
    return parameters.multiply(lambda x, kernel: tf.tensordot(x, kernel, 1), x, kernel) + bias


def layer_norm(parameters: Parameters, name: str, x: tf.Tensor) -> tf.Tensor:
    """Layer norm (Ba et al. 2016) over the last axis, with a scale and an offset per channel."""
    scale = parameters.get(f"{name}/scale", (x.shape[-1],), "ones")
    offset = parameters.get(f"{name}/offset", (x.shape[-1],), "zeros")
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
    return centred * tf.math.rsqrt(variance + _LAYER_NORM_EPSILON) * scale + offset


def attention(parameters: Parameters, name: str, x: tf.Tensor, heads: int) -> tf.Tensor:
    """Multi-head self-attention (Vaswani et al. 2017, Eq. 1), [b, tokens, width] -> the same shape.

    Raises:
      ValueError: If `heads` does not divide the width.
    """
    tokens, width = x.shape[1:]
    if width % heads:
        raise ValueError(f"{heads} heads do not divide a width of {width}")
    qkv = linear(parameters, f"{name}/qkv", x, 3 * width)
    qkv = tf.reshape(qkv, [-1, tokens, 3, heads, width // heads])
    q, k, v = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))  # [b, heads, tokens, width / heads]
    compare = functools.partial(tf.linalg.matmul, transpose_b=True)
    scores = parameters.multiply(compare, q, k) * (width // heads) ** -0.5
    mixed = parameters.multiply(tf.linalg.matmul, tf.nn.softmax(scores), v)
    mixed = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, tokens, width])
    return linear(parameters, f"{name}/out", mixed, width)
