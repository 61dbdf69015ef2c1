"""EfficientNet-Lite (Tan & Le 2019, in Google's form for mobile devices): image -> encoding h.

Blocks without squeeze-and-excitation, and ReLU6 instead of swish, as in the "lite" networks of
github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite. Lite0 has 3.4 million
weights and an encoding of 1280 numbers.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_ssl.models import layers


class Stage(NamedTuple):
    """Inverted residual blocks: factor of expansion, size, stride, channels, number of blocks."""

    expansion: int
    size: int
    stride: int
    width: int
    blocks: int


class EfficientNetSpec(NamedTuple):
    """Stages, channels of the first and last convolution, and groups of group norm."""

    stages: tuple[Stage, ...]
    stem: int = 32
    features: int = 1280
    groups: int = 8


EFFICIENTNETS = {
    "efficientnet_lite0": EfficientNetSpec(
        (
            Stage(1, 3, 1, 16, 1),
            Stage(6, 3, 2, 24, 2),
            Stage(6, 5, 2, 40, 2),
            Stage(6, 3, 2, 80, 3),
            Stage(6, 5, 1, 112, 3),
            Stage(6, 5, 2, 192, 4),
            Stage(6, 3, 1, 320, 1),
        )
    )
}


def efficientnet(parameters: layers.Parameters, x: tf.Tensor, spec: EfficientNetSpec) -> tf.Tensor:
    """Encodings h averaged over space, float32 [batch, spec.features]."""
    x = _relu6_norm(parameters, "stem", layers.conv(parameters, "stem", x, spec.stem, 3, 2))
    for number, stage in enumerate(spec.stages):
        for index in range(stage.blocks):
            stride = stage.stride if index == 0 else 1
            x = _block(parameters, f"stage{number}/block{index}", x, stage, stride)
    x = _relu6_norm(parameters, "head", layers.conv(parameters, "head", x, spec.features, 1))
    return tf.reduce_mean(x, [1, 2])


def _relu6_norm(parameters, name, x):
    return tf.nn.relu6(layers.norm(parameters, name, x))


def _block(parameters, name, x, stage, stride):
    """Expansion, depthwise convolution, projection; added to the input if the shapes are equal."""
    y, width = x, x.shape[-1] * stage.expansion
    if stage.expansion > 1:
        expanded = layers.conv(parameters, f"{name}/expand", y, width, 1)
        y = _relu6_norm(parameters, f"{name}/expand", expanded)
    y = layers.depthwise_conv(parameters, f"{name}/depthwise", y, stage.size, stride)
    y = _relu6_norm(parameters, f"{name}/depthwise", y)
    y = layers.conv(parameters, f"{name}/project", y, stage.width, 1)
    y = layers.norm(parameters, f"{name}/project", y)
    return y + x if stride == 1 and x.shape[-1] == stage.width else y
