"""Projector (h -> z), predictor (z -> p) and classifier (h -> logits)."""

from collections.abc import Sequence

import tensorflow as tf

from tff_ssl.models import layers


def mlp(
    parameters: layers.Parameters,
    name: str,
    x: tf.Tensor,
    widths: Sequence[int],
    output_batch_norm: bool = False,
) -> tf.Tensor:
    """Fully connected layers, float32 [b, n] -> [b, widths[-1]], with weights named `name`/...

    Each layer but the last has a norm and a ReLU (DCCO, section 4.2: weight standardization and
    group norm "at every layer except the last projection layer"). No layer has a bias: losses on
    statistics do not depend on a bias of the last one, whose gradient would be rounding noise,
    which Adam scales up to full steps.

    With `output_batch_norm`, the output has a batch norm without scale and offset, as in the code
    of SimSiam (Chen & He 2021, section 4.4): a following layer with a norm of its own cancels them,
    and the gradient of an offset would again be rounding noise.
    """
    for index, width in enumerate(widths[:-1]):
        layer = f"{name}/layer{index}"
        x = layers.dense(parameters, layer, x, width, standardize=parameters.norm == "group")
        x = tf.nn.relu(layers.norm(parameters, layer, x))
    last = f"{name}/layer{len(widths) - 1}"
    x = layers.dense(parameters, last, x, widths[-1])
    return layers.batch_norm(parameters, last, x) if output_batch_norm else x


def classifier(parameters: layers.Parameters, h: tf.Tensor, classes: int) -> tf.Tensor:
    """A linear classifier that starts at zero, [b, n] -> [b, classes]."""
    kernel = parameters.get("classifier/kernel", (h.shape[-1], classes), "zeros")
    bias = parameters.get("classifier/bias", (classes,), "zeros")
    return tf.linalg.matmul(h, kernel) + bias
