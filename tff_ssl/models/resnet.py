"""Residual networks (He et al. 2016): image -> encoding h.

| name | blocks | widths | h | used for |
|---|---|---|---|---|
| tiny | basic 1, 1, 1 | 16, 32, 64 | 64 | digits |
| small | basic 1, 1, 1 | 32, 64, 128 | 128 | runs on CPUs |
| resnet14 | basic 2, 2, 2 | 64, 128, 256 | 256 | the DCCO paper, on CIFAR-100 |
| resnet14_bottleneck | bottleneck 1, 1, 1, 1 | 64, 128, 256, 512 | 2048 | another "14 layers" |
| resnet18, resnet34 | basic | 64, 128, 256, 512 | 512 | FedU, Dec-SSL, Hetero-SSFL |
| resnet50 | bottleneck 3, 4, 6, 3 | 64, 128, 256, 512 | 2048 | the DCCO paper, on DERM |
"""

import dataclasses

import tensorflow as tf

from tff_ssl.models import layers


@dataclasses.dataclass(frozen=True)
class ResNetSpec:
    """Numbers of blocks and of channels of each stage, kind of block, and groups of group norm.

    Channels are counted before a bottleneck's factor of 4.
    """

    blocks: tuple[int, ...]
    widths: tuple[int, ...]
    bottleneck: bool = False
    groups: int = 32

    @property
    def features(self) -> int:
        """Size of the encoding h."""
        return self.widths[-1] * (4 if self.bottleneck else 1)


RESNETS = {
    "tiny": ResNetSpec((1, 1, 1), (16, 32, 64), groups=4),
    "small": ResNetSpec((1, 1, 1), (32, 64, 128), groups=8),
    # 14 = 6n + 2 with n = 2: He et al.'s own network for CIFAR, made wide enough for 32 groups.
    "resnet14": ResNetSpec((2, 2, 2), (64, 128, 256)),
    "resnet14_bottleneck": ResNetSpec((1, 1, 1, 1), (64, 128, 256, 512), bottleneck=True),
    "resnet18": ResNetSpec((2, 2, 2, 2), (64, 128, 256, 512)),
    "resnet34": ResNetSpec((3, 4, 6, 3), (64, 128, 256, 512)),
    "resnet50": ResNetSpec((3, 4, 6, 3), (64, 128, 256, 512), bottleneck=True),
}

# Below this height a 7x7 stem of stride 2 and a pooling would leave too little of the image.
SMALL_IMAGE = 96


def resnet(
    parameters: layers.Parameters, x: tf.Tensor, spec: ResNetSpec, small_stem: bool
) -> tf.Tensor:
    """Encodings h averaged over space, float32 [batch, spec.features]; see `feature_maps`."""
    return tf.reduce_mean(feature_maps(parameters, x, spec, small_stem)[-1], [1, 2])


def feature_maps(
    parameters: layers.Parameters, x: tf.Tensor, spec: ResNetSpec, small_stem: bool
) -> list[tf.Tensor]:
    """The output of each stage, float32 [batch, height / stride, width / stride, channels].

    A small stem is CIFAR's (one 3x3 convolution); the other is ImageNet's (7x7 of stride 2,
    pooling). The stride of the first stage is 4, or 1 with a small stem, and doubles with each
    further stage.
    """
    if small_stem:
        x = _conv_norm(parameters, "stem", x, spec.widths[0], 3)
    else:
        x = _conv_norm(parameters, "stem", x, spec.widths[0], 7, stride=2)
        x = tf.nn.max_pool2d(tf.nn.relu(x), 3, 2, "SAME")
    x = tf.nn.relu(x)
    block = _bottleneck_block if spec.bottleneck else _basic_block
    stages = []
    for stage, (blocks, width) in enumerate(zip(spec.blocks, spec.widths, strict=True)):
        for index in range(blocks):
            stride = 2 if stage > 0 and index == 0 else 1
            x = block(parameters, f"stage{stage}/block{index}", x, width, stride)
        stages.append(x)
    return stages


def _conv_norm(parameters, name, x, filters, size, stride=1):
    return layers.norm(parameters, name, layers.conv(parameters, name, x, filters, size, stride))


def _shortcut(parameters, name, x, filters, stride):
    if stride == 1 and x.shape[-1] == filters:
        return x
    return _conv_norm(parameters, f"{name}/shortcut", x, filters, 1, stride)


def _basic_block(parameters, name, x, width, stride):
    """Two 3x3 convolutions, [b, h, w, c] -> [b, h/stride, w/stride, width]."""
    y = tf.nn.relu(_conv_norm(parameters, f"{name}/conv0", x, width, 3, stride))
    y = _conv_norm(parameters, f"{name}/conv1", y, width, 3)
    return tf.nn.relu(y + _shortcut(parameters, name, x, width, stride))


def _bottleneck_block(parameters, name, x, width, stride):
    """1x1, 3x3 (with the stride) and 1x1 convolutions, [b, h, w, c] -> [.., .., .., 4 * width]."""
    y = tf.nn.relu(_conv_norm(parameters, f"{name}/conv0", x, width, 1))
    y = tf.nn.relu(_conv_norm(parameters, f"{name}/conv1", y, width, 3, stride))
    y = _conv_norm(parameters, f"{name}/conv2", y, 4 * width, 1)
    return tf.nn.relu(y + _shortcut(parameters, name, x, 4 * width, stride))
