"""EfficientNet-Lite0 with its weights of ImageNet, a baseline on photographs.

It has learned from 1.3 million labelled photographs: below it, an encoder's user would do better
with weights that are there for the taking (`--init_from=efficientnet_lite0`).
"""

import functools

import numpy as np

from launch.options import pretrained
from launch.probes.monitoring import encodings
from tff_ssl.deployment import saved_model
from tff_ssl.models.dual_encoder import DualEncoder


def features(images: np.ndarray) -> np.ndarray:
    """Images, uint8 [n, h, w, 1 or 3] -> features, float32 [n, 1280], from images of 96 pixels."""
    return encodings(_encoder(), np.broadcast_to(images, (*images.shape[:-1], 3)))


@functools.cache
def _encoder():
    size = pretrained.VIEW_SIZE
    initial = pretrained.efficientnet_lite0()
    model = DualEncoder(pretrained.EFFICIENTNET, (size, size, 3), norm="frozen", initial=initial)
    return functools.partial(saved_model.encoder_function(model, size), model.init(0))
