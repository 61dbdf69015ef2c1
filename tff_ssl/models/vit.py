"""Vision transformers (Dosovitskiy et al. 2020) and the masked autoencoder around them.

| name | encoder: width, blocks, heads | decoder | h | used for |
|---|---|---|---|---|
| vit_micro | 64, 2, 4 | 32, 1, 4 | 64 | digits |
| vit_tiny | 192, 12, 3 (DeiT's "tiny") | 192, 4, 3 | 192 | Dec-SSL's masked autoencoder |
| vit_small_cpu | 128, 4, 4 | 64, 2, 4 | 128 | runs on CPUs |
| vit_one_block | 768, 1, 12 | 512, 1, 16 | 768 | DeNAV's one-block masked autoencoder |
| vit_one_block_small | 128, 1, 4 | 64, 1, 4 | 128 | the same for CPUs |
| vit_one_block_micro | 64, 1, 4 | 32, 1, 4 | 64 | the same for digits |

Sources: He et al. 2021, "Masked Autoencoders Are Scalable Vision Learners" (arXiv:2111.06377), and
its code: fixed sine and cosine positions, a class token that is never masked, blocks with the norm
before attention and MLP, Xavier initialization. The encoding h is the mean of the patches' tokens
after the last norm; the class token only takes part in the attention (the paper finds pooling and
class token equally good).

DeNAV gives no widths. With those of He et al. (ViT-B, a decoder of width 512) and one block each,
the numbers of parameters and operations are those of DeNAV's Table 1: see `multiply_adds`.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tff_ssl.models import layers

_MLP_RATIO = 4
_SMALL_PATCH, _LARGE_PATCH = 4, 16
# Height in pixels from which images are cut into large patches; equal to `resnet.SMALL_IMAGE`.
_LARGE_IMAGE = 96


class Transformer(NamedTuple):
    """A stack of `depth` transformer blocks, whose tokens have `width` features."""

    width: int
    depth: int
    heads: int


@dataclasses.dataclass(frozen=True)
class ViTSpec:
    """Transformers that encode the patches, and that predict all patches from the visible ones.

    `groups` is the number of groups of the group norm in projector and predictor.
    """

    encoder: Transformer
    decoder: Transformer
    groups: int = 32

    @property
    def features(self) -> int:
        """Size of the encoding h."""
        return self.encoder.width


VITS = {
    "vit_micro": ViTSpec(Transformer(64, 2, 4), Transformer(32, 1, 4), groups=4),
    "vit_tiny": ViTSpec(Transformer(192, 12, 3), Transformer(192, 4, 3)),
    "vit_small_cpu": ViTSpec(Transformer(128, 4, 4), Transformer(64, 2, 4), groups=8),
    "vit_one_block": ViTSpec(Transformer(768, 1, 12), Transformer(512, 1, 16)),
    "vit_one_block_small": ViTSpec(Transformer(128, 1, 4), Transformer(64, 1, 4), groups=8),
    "vit_one_block_micro": ViTSpec(Transformer(64, 1, 4), Transformer(32, 1, 4), groups=4),
}


def patch_size(height: int) -> int:
    """Side of the patches for images of this height: 16 pixels, or 4 for small images."""
    return _LARGE_PATCH if height >= _LARGE_IMAGE else _SMALL_PATCH


def check_image_shape(image_shape: tuple[int, int, int]) -> None:
    """Raises ValueError unless an image can be cut into at least two patches."""
    height, width, _ = image_shape
    size = patch_size(height)
    if height % size or width % size or height * width < 2 * size**2:
        raise ValueError(
            f"a vision transformer cuts images of {height}x{width} into patches of {size}x{size}: "
            f"height and width must be multiples of {size}, with two patches or more"
        )


def patches(x: tf.Tensor) -> tf.Tensor:
    """Cuts images row by row, [b, h, w, c] -> [b, patches, size * size * c]."""
    size = patch_size(x.shape[1])
    cut = tf.nn.space_to_depth(x, size)
    return tf.reshape(cut, [-1, cut.shape[1] * cut.shape[2], cut.shape[3]])


def encode(
    parameters: layers.Parameters, x: tf.Tensor, spec: ViTSpec, visible: tf.Tensor | None = None
) -> tf.Tensor:
    """The class token and the patches' tokens after the last norm, float32 [b, 1 + v, width].

    Images are float32 [b, h, w, c]; only their patches `visible`, int32 [b, v], are encoded.
    """
    width = spec.encoder.width
    tokens = layers.linear(parameters, "patches", patches(x), width)
    tokens += positions(_patch_grid(x), width)
    if visible is not None:
        tokens = tf.gather(tokens, visible, batch_dims=1)
    class_token = parameters.get("class_token", (width,), "normal_0.02")
    tokens = tf.concat([_repeat_token(class_token, tokens, 1), tokens], 1)
    for index in range(spec.encoder.depth):
        tokens = _block(parameters, f"block{index}", tokens, spec.encoder.heads)
    return layers.layer_norm(parameters, "norm", tokens)


def pool(tokens: tf.Tensor) -> tf.Tensor:
    """The encoding h: the mean of the patches' tokens, [b, 1 + v, width] -> [b, width]."""
    return tf.reduce_mean(tokens[:, 1:], 1)


def decode(
    parameters: layers.Parameters,
    tokens: tf.Tensor,
    x: tf.Tensor,
    spec: ViTSpec,
    visible: tf.Tensor,
) -> tf.Tensor:
    """Predicts all patches from the tokens of the visible ones, whose indices are int32 [b, v].

    Only the shape of the images x, float32 [b, h, w, c], is used. The result has the pixels in the
    order of `patches`, float32 [b, patches, size * size * channels].
    """
    width = spec.decoder.width
    grid = _patch_grid(x)
    tokens = layers.linear(parameters, "decoder/embed", tokens, width)
    mask_token = parameters.get("decoder/mask_token", (width,), "normal_0.02")
    mask_tokens = _repeat_token(mask_token, tokens, grid[0] * grid[1])
    image = tf.broadcast_to(tf.range(tf.shape(visible)[0])[:, tf.newaxis], tf.shape(visible))
    indices = tf.stack([image, visible], -1)
    all_patches = tf.tensor_scatter_nd_update(mask_tokens, indices, tokens[:, 1:])
    tokens = tf.concat([tokens[:, :1], all_patches + positions(grid, width)], 1)
    for index in range(spec.decoder.depth):
        tokens = _block(parameters, f"decoder/block{index}", tokens, spec.decoder.heads)
    tokens = layers.layer_norm(parameters, "decoder/norm", tokens[:, 1:])
    values = patch_size(x.shape[1]) ** 2 * x.shape[3]
    return layers.linear(parameters, "decoder/pixels", tokens, values)


def positions(grid: tuple[int, int], width: int) -> npt.NDArray[np.float32]:
    """Position embedding of a grid (rows, columns) of patches, float32 [rows * columns, width].

    The first half of the channels encodes the column, the second half the row, each by sines and
    then cosines of the index times 10000^(-i / (width / 4)), as in He et al.'s code.

    Raises:
      ValueError: If the width is not a multiple of 4.
    """
    if width % 4:
        raise ValueError(f"positions need a width that is a multiple of 4; got {width}")
    frequencies = 10000.0 ** (-np.arange(width // 4) / (width / 4))
    row, column = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    angles = [index[:, np.newaxis] * frequencies for index in (column, row)]
    waves = [wave for angle in angles for wave in (np.sin(angle), np.cos(angle))]
    return np.concatenate(waves, 1).astype(np.float32)


def multiply_adds(
    spec: ViTSpec, image_shape: tuple[int, int, int], visible: int | None = None
) -> int:
    """Multiplications, each with its addition, in the matrix products of one image's forward pass.

    `visible` is the number of visible patches of a masked autoencoder; None counts the encoder on
    the whole image. Tools report this number as FLOPs. It is 1.23e9 for `vit_one_block` with 49 of
    the 196 patches of a 224x224 image visible, and 7.39e9 for five of its blocks on whole images,
    both as in DeNAV's Table 1.
    """
    height, width, channels = image_shape
    size = patch_size(height)
    total, values = height * width // size**2, size**2 * channels
    embedding = total * values * spec.encoder.width
    tokens = 1 + (total if visible is None else visible)
    encoder = _transformer_multiply_adds(spec.encoder, tokens)
    if visible is None:
        return embedding + encoder
    decoder_embedding = tokens * spec.encoder.width * spec.decoder.width
    prediction = total * spec.decoder.width * values
    decoder = _transformer_multiply_adds(spec.decoder, 1 + total)
    return embedding + encoder + decoder_embedding + decoder + prediction


def _transformer_multiply_adds(transformer: Transformer, tokens: int) -> int:
    width, depth, _ = transformer
    # Query, key, value and output each have a matrix of width x width; the MLP has two layers.
    linear = (4 + 2 * _MLP_RATIO) * width**2 * tokens
    return depth * (linear + 2 * tokens**2 * width)


def _block(parameters: layers.Parameters, name: str, x: tf.Tensor, heads: int) -> tf.Tensor:
    """Attention and MLP, each after a norm and with a shortcut, [b, t, width] -> same shape."""
    y = layers.layer_norm(parameters, f"{name}/norm0", x)
    x += layers.attention(parameters, f"{name}/attention", y, heads)
    y = layers.layer_norm(parameters, f"{name}/norm1", x)
    y = tf.nn.gelu(layers.linear(parameters, f"{name}/mlp0", y, _MLP_RATIO * x.shape[-1]))
    return x + layers.linear(parameters, f"{name}/mlp1", y, x.shape[-1])


def _patch_grid(x: tf.Tensor) -> tuple[int, int]:
    """Rows and columns of patches."""
    size = patch_size(x.shape[1])
    return x.shape[1] // size, x.shape[2] // size


def _repeat_token(token: tf.Tensor, tokens: tf.Tensor, times: int) -> tf.Tensor:
    """Repeats one token for each image of `tokens`, [width] -> [b, times, width]."""
    return tf.broadcast_to(token, [tf.shape(tokens)[0], times, token.shape[0]])
