"""Two networks for paired inputs (the DCCO paper's Figure 1 b and c)."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_ssl.models.dual_encoder import DualEncoder, Outputs, Weights
from tff_ssl.models.layers import ParameterSpec

Modality = Callable[[tf.Tensor], tf.Tensor]


# Name -> what each tower sees of its view, [n, h, w, c] -> [n, ...].
MODALITIES: dict[str, tuple[Modality, Modality]] = {
    "views": (tf.identity, tf.identity),
    "halves": (lambda x: x[:, :, : x.shape[2] // 2], lambda x: x[:, :, x.shape[2] // 2 :]),
    "colour_planes": (lambda x: x[..., :1], lambda x: x[..., 2:]),
}


@dataclasses.dataclass(frozen=True)
class TwoTowers:
    """Two dual encoders with weights of their own, one for each of a pair of inputs.

    What is paired is made from an image: its two views as they are (Figure 1 b), or two modalities
    of it, one from each view (Figure 1 c): its left and right halves, or its red and blue planes.
    It has the interface of `DualEncoder`; h is the two encodings of an image, side by side.

    Attributes:
      tower: The network of each tower, for whole images; towers differ in the shape of their input.
      pair: A name of `MODALITIES`.

    Raises:
      ValueError: If images cannot be divided so.
    """

    tower: DualEncoder
    pair: str = "views"

    def __post_init__(self):
        if self.pair not in MODALITIES:
            raise ValueError(f"pair must be one of {', '.join(MODALITIES)}; got {self.pair!r}")
        _, width, channels = self.tower.image_shape
        if self.pair == "colour_planes" and channels != 3:
            raise ValueError(f"colour_planes needs images of 3 channels, found {channels}")
        if self.pair == "halves" and width % 2:
            raise ValueError(f"halves needs an even width, found {width}")
        if self.tower.predictor or self.tower.classes or self.tower.decoder:
            raise ValueError("two towers have projectors only")

    @functools.cached_property
    def towers(self) -> tuple[DualEncoder, DualEncoder]:
        """The two networks."""
        whole = tf.TensorSpec([1, *self.tower.image_shape])

        def tower(modality):
            seen = tf.function(modality).get_concrete_function(whole).structured_outputs.shape
            return dataclasses.replace(self.tower, image_shape=tuple(seen[1:]))

        first, second = (tower(modality) for modality in MODALITIES[self.pair])
        return first, second

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.tower.image_shape

    @property
    def projector(self) -> tuple[int, ...]:
        return self.tower.projector

    @property
    def predictor(self) -> tuple[int, ...]:
        return ()

    @property
    def classes(self) -> int:
        return 0

    @property
    def decoder(self) -> bool:
        return False

    @property
    def norm(self) -> str:
        return self.tower.norm

    @property
    def features(self) -> int:
        return sum(tower.features for tower in self.towers)

    @property
    def trainable_specs(self) -> tuple[ParameterSpec, ...]:
        first, second = self.towers
        return first.trainable_specs + second.trainable_specs

    @property
    def non_trainable_specs(self) -> tuple[ParameterSpec, ...]:
        first, second = self.towers
        return first.non_trainable_specs + second.non_trainable_specs

    @property
    def parameter_count(self) -> int:
        return sum(tower.parameter_count for tower in self.towers)

    def init(self, seed: int) -> Weights:
        """Draws initial weights, other ones for each tower; a pure function of `seed`."""
        first, second = self.towers
        return _joined(first.init(seed), second.init(~seed))

    def apply(self, weights: Any, images: tf.Tensor, training: bool) -> Outputs:
        """Encodes the two modalities of the same images; the outputs are side by side."""
        first, second = self.apply_pair(weights, images, images, training)
        pairs = zip(first[:-1], second[:-1], strict=True)
        h, z, p, logits = (tf.concat(pair, 1) for pair in pairs)
        return Outputs(h, z, p, logits, second.non_trainable)

    def apply_pair(
        self, weights: Any, x1: tf.Tensor, x2: tf.Tensor, training: bool
    ) -> tuple[Outputs, Outputs]:
        """One modality of `x1` through the first tower, the other of `x2` through the second."""
        first, second = (
            tower.apply(own, modality(x), training)
            for tower, own, modality, x in zip(
                self.towers, self._parts(weights), MODALITIES[self.pair], (x1, x2), strict=True
            )
        )
        non_trainable = first.non_trainable + second.non_trainable
        return (
            first._replace(non_trainable=non_trainable),
            second._replace(non_trainable=non_trainable),
        )

    @property
    def target_model(self) -> "TwoTowers":
        return self

    def without_heads(self, weights: Any) -> tuple["TwoTowers", Weights]:
        """The encoders alone, and their part of the weights."""
        pairs = zip(self.towers, self._parts(weights), strict=True)
        parts = [tower.without_heads(own)[1] for tower, own in pairs]
        return dataclasses.replace(
            self, tower=dataclasses.replace(self.tower, projector=())
        ), _joined(*parts)

    def part_of(self, weights: Any) -> Weights:
        return _joined(*self._parts(weights))

    def _parts(self, weights: Any) -> tuple[Weights, Weights]:
        first, second = self.towers
        n, m = len(first.trainable_specs), len(first.non_trainable_specs)
        rest = Weights(tuple(weights.trainable[n:]), tuple(weights.non_trainable[m:]))
        return first.part_of(weights), second.part_of(rest)


def _joined(first: Weights, second: Weights) -> Weights:
    return Weights(first.trainable + second.trainable, first.non_trainable + second.non_trainable)


Model = DualEncoder | TwoTowers
