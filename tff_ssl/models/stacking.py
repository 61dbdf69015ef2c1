"""A deep backbone from the blocks of a shallow one (DeNAV, section 4, "Fine-tuning").

After pretraining with one block, a client makes a backbone of as many blocks as it can afford: each
starts from the pretrained block's parameters, and they are fine-tuned as parameters of their own.
"""

import dataclasses
import re
from typing import Any

from tff_ssl.models import vit
from tff_ssl.models.dual_encoder import DualEncoder, Weights

_BLOCK = re.compile(r"^block(\d+)/")


def stacked(encoder: DualEncoder, weights: Any, depth: int) -> tuple[DualEncoder, Weights]:
    """A vision transformer of another depth, and its initial weights.

    Args:
      encoder: The pretrained encoder, without heads, of B blocks.
      weights: Its `Weights`.
      depth: Blocks of the new one; block i starts from block i modulo B, and a depth below B has
        the first blocks.

    Raises:
      ValueError: The encoder is no vision transformer, has heads, or the depth is below 1.
    """
    if encoder.encoder not in vit.VITS:
        raise ValueError(
            f"only vision transformers ({', '.join(vit.VITS)}) can be stacked, not "
            f"{encoder.encoder}"
        )
    if encoder.projector or encoder.predictor or encoder.classes or encoder.decoder:
        raise ValueError("only an encoder without heads can be stacked")
    if depth < 1:
        raise ValueError(f"depth must be at least 1, not {depth}")
    deep = dataclasses.replace(encoder, depth=depth)
    blocks = encoder.depth or vit.VITS[encoder.encoder].encoder.depth
    trained = {
        spec.name: w for spec, w in zip(encoder.trainable_specs, weights.trainable, strict=True)
    }

    def source(name: str) -> str:
        return _BLOCK.sub(lambda found: f"block{int(found[1]) % blocks}/", name)

    return deep, Weights(tuple(trained[source(spec.name)] for spec in deep.trainable_specs), ())
