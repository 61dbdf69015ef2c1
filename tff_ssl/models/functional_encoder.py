"""Functional models of TFF as encoders."""

from typing import Any

import numpy as np
import tensorflow as tf

from tff_ssl.models.layers import ParameterSpec
from tff_ssl.models.pure_graphs import GraphNetwork, PureGraph


def from_tff(model: Any, name: str = "tff") -> GraphNetwork:
    """Makes an encoder of a `tff.learning.models.FunctionalModel`, from its initial weights.

    >>> layers = [tf.keras.layers.Flatten(input_shape=(8, 8, 1)), tf.keras.layers.Dense(16)]
    >>> batch_type = (tf.TensorSpec([None, 8, 8, 1]), tf.TensorSpec([None], tf.int32))
    >>> model = tff.learning.models.functional_model_from_keras(
    ...     tf.keras.Sequential(layers), tf.keras.losses.MeanSquaredError(), batch_type
    ... )
    >>> encoder = tff_ssl.models.from_tff(model)  # For `encoder` of `tff_ssl.train`.
    >>> encoder.features((8, 8, 1))
    16

    Args:
      model: A model whose `predict_on_batch` maps images, float32 [batch, height, width, channels]
        from -1 to 1, to encodings [batch, features]. Its loss and metrics are not used. Weights
        that are not trained stay as they are.
      name: Name in messages.

    Raises:
      ValueError: If a weight is not float32, or the output has another shape.
    """
    specs, initial = [], []
    for part, kind in zip(model.initial_weights, ("weight", "statistic"), strict=True):
        for index, value in enumerate(tf.nest.flatten(part)):
            array = np.asarray(value)
            if array.dtype != np.float32:
                raise ValueError(f"{kind} {index} of encoder {name} is {array.dtype}, not float32")
            specs.append(ParameterSpec(f"{kind}{index}", array.shape, "", kind == "weight"))
            initial.append(array)

    def trace(image_shape: tuple[int, ...], training: bool) -> PureGraph:
        # A graph of the old kind: TFF refuses models of Keras in a function of TensorFlow.
        with tf.Graph().as_default() as graph:
            images = tf.compat.v1.placeholder(tf.float32, [None, *image_shape])
            values = [tf.compat.v1.placeholder(tf.float32, spec.shape) for spec in specs]
            weights = tf.nest.pack_sequence_as(model.initial_weights, values)
            h = tf.identity(model.predict_on_batch(weights, images, training=training))
        if h.shape.rank != 2 or h.shape[1] is None:
            raise ValueError(
                f"the output of encoder {name} must be [batch, features], not {h.shape}"
            )
        places = {value.op.name: index for index, value in enumerate(values)}
        return PureGraph(
            graph.as_graph_def(), images.op.name, places, h.name, (), (), int(h.shape[1])
        )

    return GraphNetwork(name, specs, initial, trace)
