"""Costs of a model: its parameters and its multiply-adds."""

from typing import Any

from tff_ssl.models import vit
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import Model
from tff_ssl.views import patch_masks


def model_costs(model: Model, mask_ratio: float = 0.75) -> dict[str, Any]:
    """`parameters`, and `gflops`, billions of multiply-adds of one image; None for ResNets.

    A model with a decoder does not see `mask_ratio` of the patches of an image.
    """
    if not isinstance(model, DualEncoder):
        return {"parameters": model.parameter_count, "gflops": None}
    visible = None
    if model.decoder:
        height, width, _ = model.image_shape
        patches = height * width // vit.patch_size(height) ** 2
        visible = patch_masks.number_visible(patches, mask_ratio)
    operations = model.multiply_adds(visible)
    return {
        "parameters": model.parameter_count,
        "gflops": None if operations is None else operations / 1e9,
    }
