"""Numbers of parameters and of multiply-adds of a model."""

from typing import Any

from tff_ssl.models import vit
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import Model
from tff_ssl.views import patch_masks


def model_costs(model: Model, mask_ratio: float = 0.75) -> dict[str, Any]:
    """`parameters`, and `gflops`, billions of multiply-adds of one image; None for ResNets.

    A model with a decoder does not see `mask_ratio` of the patches of an image.
    """
    operations = None
    if isinstance(model, DualEncoder):
        visible = None
        if model.decoder:
            height, width, _ = model.image_shape
            patches = height * width // vit.patch_size(height) ** 2
            visible = patch_masks.number_visible(patches, mask_ratio)
        operations = model.multiply_adds(visible)
    gflops = None if operations is None else operations / 1e9
    return {"parameters": model.parameter_count, "gflops": gflops}
