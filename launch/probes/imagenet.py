"""EfficientNet-Lite0 with its weights of ImageNet, a baseline on photographs.

It has learned from 1.3 million labelled photographs, and everybody can start from its weights
(`--init_from=efficientnet_lite0`): an encoder that is below it has less to offer than they have.
"""

import functools

import numpy as np

from launch.options import pretrained
from launch.probes.monitoring import encodings
from tff_ssl.deployment import saved_model
from tff_ssl.models.dual_encoder import DualEncoder


def features(images: np.ndarray) -> np.ndarray:
    """Images, uint8 [n, h, w, c] -> features, float32 [n, 1280], from RGB images of 96 pixels.

    Grey images have three equal channels; channels after the third are left out.
    """
    return encodings(_encoder(), np.broadcast_to(images[..., :3], (*images.shape[:-1], 3)))


@functools.cache
def _encoder():
    size = pretrained.VIEW_SIZE
    initial, _ = pretrained.efficientnet_lite0()
    model = DualEncoder(pretrained.EFFICIENTNET, (size, size, 3), norm="frozen", initial=initial)
    return functools.partial(saved_model.encoder_function(model, size), model.init(0))
