"""A deep backbone from the blocks of a shallow one (DeNAV, section 4, "Fine-tuning").

After pretraining with one block, a client builds a backbone with as many blocks as it can afford.
Each block starts from the pretrained block's parameters and is fine-tuned separately.
"""

import dataclasses
import re
from typing import Any

from tff_ssl.models import vit
from tff_ssl.models.dual_encoder import DualEncoder, Weights

_BLOCK = re.compile(r"^block(\d+)/")


def stacked(encoder: DualEncoder, weights: Any, depth: int) -> tuple[DualEncoder, Weights]:
    """A vision transformer of another depth, and its initial weights, from one without heads.

    Block i starts from block i modulo B of the B pretrained ones.

    Raises:
      ValueError: If the encoder is not a vision transformer or has heads, or the depth is below 1.
    """
    if encoder.encoder not in vit.VITS:
        known = ", ".join(vit.VITS)
        raise ValueError(
            f"only vision transformers ({known}) can be stacked, not {encoder.encoder_name}"
        )
    if encoder.projector or encoder.predictor or encoder.classes or encoder.decoder:
        raise ValueError("only an encoder without heads can be stacked")
    if depth < 1:
        raise ValueError(f"depth must be at least 1, not {depth}")
    deep = dataclasses.replace(encoder, depth=depth)
    blocks = encoder.depth or vit.VITS[encoder.encoder_name].encoder.depth
    names = (spec.name for spec in encoder.trainable_specs)
    pretrained = dict(zip(names, weights.trainable, strict=True))

    def source_name(name: str) -> str:
        return _BLOCK.sub(lambda match: f"block{int(match[1]) % blocks}/", name)

    initial = tuple(pretrained[source_name(spec.name)] for spec in deep.trainable_specs)
    return deep, Weights(initial, ())
