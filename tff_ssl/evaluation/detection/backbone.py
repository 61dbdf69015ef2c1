"""This package's ResNets as the backbone of the TensorFlow Model Garden's Mask R-CNN.

The Model Garden's own ResNet differs in its padding, norms and stem, so that copied weights would
not give the same features. The backbone here is the network itself: the same function of the same
weights, with a Keras interface around it.
"""

import numpy as np
import tensorflow as tf

from tff_ssl.models.dual_encoder import DualEncoder, Weights

# The Model Garden's parser normalizes images by these (`preprocess_ops.normalize_image`).
_PARSER_MEAN = (0.485, 0.456, 0.406)
_PARSER_DEVIATION = (0.229, 0.224, 0.225)


class ResNetBackbone(tf.keras.Model):
    """A ResNet whose stages are endpoints, by level: a stage of stride 2**L is endpoint `L`.

    Encoders for images of 96 pixels and more have the endpoints `2` to `5` (networks of four
    stages) or `2` to `4`. Those for smaller images have a stem of stride 1, so that their stages
    are the levels 0 to 3, of which Mask R-CNN uses those from 2 on. The pyramid network makes the
    coarser levels from the last endpoint.

    Batch norm keeps the moving averages of pretraining, because detection's batches are too small
    for it. Its scales and offsets are trained.
    """

    def __init__(self, encoder: DualEncoder, image_size: int, first_level: int = 2):
        """Makes the variables of an encoder without heads, with its initial weights of seed 0.

        The side of the images is a multiple of 64; endpoints begin with `first_level`.
        """
        super().__init__(name="backbone")
        self._encoder = encoder
        self._first_level = first_level
        initial = encoder.init(0)
        self._trained = _variables(initial.trainable, encoder.trainable_specs, trainable=True)
        self._fixed = _variables(initial.non_trainable, encoder.non_trainable_specs, False)
        shape = [None, image_size, image_size, 3]
        signature = tf.TensorSpec([1, *shape[1:]])
        outputs = tf.function(self.call).get_concrete_function(signature).structured_outputs
        self._output_specs = {
            level: tf.TensorShape([None, *output.shape[1:]]) for level, output in outputs.items()
        }

    def call(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Endpoints by level, float32 [b, height / 2**level, width / 2**level, channels].

        Inputs are images as the Model Garden's parser gives them, float32 [b, height, width, 3].
        """
        unit_range = inputs * tf.constant(_PARSER_DEVIATION) + tf.constant(_PARSER_MEAN)
        # Encoders are trained on values from -1 to 1 (`augmentation.to_float`).
        maps = self._encoder.feature_maps(
            Weights(tuple(self._trained), tuple(self._fixed)), unit_range * 2.0 - 1.0
        )
        level = int(np.log2(self._encoder.first_stride))
        return {
            str(level + i): features
            for i, features in enumerate(maps)
            if level + i >= self._first_level
        }

    @property
    def output_specs(self) -> dict[str, tf.TensorShape]:
        """Shape of each endpoint, for the Model Garden's pyramid network."""
        return self._output_specs


def _variables(values, specs, trainable: bool) -> list[tf.Variable]:
    return [
        tf.Variable(value, trainable=trainable, name=spec.name)
        for value, spec in zip(values, specs, strict=True)
    ]
