"""Two networks for paired inputs (the DCCO paper's Figure 1 b and c)."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import tensorflow as tf

from tff_ssl.bounds import Bounded, one_of
from tff_ssl.models.dual_encoder import DualEncoder, Outputs, Weights
from tff_ssl.models.layers import ParameterSpec

Modality = Callable[[tf.Tensor], tf.Tensor]


# Name -> the part of a view that each of the two towers encodes, [n, h, w, c] -> [n, ...].
MODALITIES: dict[str, tuple[Modality, Modality]] = {
    "views": (tf.identity, tf.identity),
    "halves": (lambda x: x[:, :, : x.shape[2] // 2], lambda x: x[:, :, x.shape[2] // 2 :]),
    "colour_planes": (lambda x: x[..., :1], lambda x: x[..., 2:]),
}


@dataclasses.dataclass(frozen=True)
class TwoTowers(Bounded):
    """Two dual encoders with weights of their own, one for each of a pair of inputs.

    A pair is made from one image: its two views (Figure 1 b), or two modalities, one from each view
    (Figure 1 c): the left and right halves, or the red and blue planes. The class has the interface
    of `DualEncoder`; its h is the concatenation of the two encodings of an image.

    Raises:
      ValueError: If the pair is unknown, images cannot be divided into it, or the tower has another
        head than a projector.
    """

    #: Network of each tower, for whole images; towers differ in the shape of their input.
    tower: DualEncoder
    pair: str = one_of("views", MODALITIES)  #: Kind of pair, a name of `MODALITIES`.
    predictor: ClassVar[tuple[int, ...]] = ()
    classes: ClassVar[int] = 0
    decoder: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _, width, channels = self.tower.image_shape
        if self.pair == "colour_planes" and channels != 3:
            raise ValueError(f"colour_planes needs images of 3 channels, found {channels}")
        if self.pair == "halves" and width % 2:
            raise ValueError(f"halves needs an even width, found {width}")
        if self.tower.predictor or self.tower.classes or self.tower.decoder:
            raise ValueError("two towers have projectors only")

    @functools.cached_property
    def towers(self) -> tuple[DualEncoder, DualEncoder]:
        image = tf.TensorSpec([1, *self.tower.image_shape])

        def build_tower(modality: Modality) -> DualEncoder:
            shape = tf.function(modality).get_concrete_function(image).structured_outputs.shape
            return dataclasses.replace(self.tower, image_shape=tuple(shape[1:]))

        first, second = (build_tower(modality) for modality in MODALITIES[self.pair])
        return first, second

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.tower.image_shape

    @property
    def projector(self) -> tuple[int, ...]:
        return self.tower.projector

    @property
    def xla(self) -> bool:
        return self.tower.xla

    @property
    def has_batch_norm(self) -> bool:
        return self.tower.has_batch_norm

    @property
    def batch_norm_remedy(self) -> str:
        return self.tower.batch_norm_remedy

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
        """Draws initial weights, different for each tower; a pure function of `seed`."""
        first, second = self.towers
        return _join_weights(first.init(seed), second.init(~seed))

    def random_init(self, seed: int) -> Weights:
        """`init`, since two towers have no other initial weights."""
        return self.init(seed)

    def apply(self, weights: Any, images: tf.Tensor, training: bool) -> Outputs:
        """Encodes the two modalities of the same images, and concatenates the outputs."""
        first, second = self.apply_pair(weights, images, images, training)
        pairs = zip(first[:-1], second[:-1], strict=True)
        h, z, p, logits = (tf.concat(pair, 1) for pair in pairs)
        return Outputs(h, z, p, logits, second.non_trainable)

    def apply_pair(
        self, weights: Any, x1: tf.Tensor, x2: tf.Tensor, training: bool
    ) -> tuple[Outputs, Outputs]:
        """Encodes one modality of `x1` with the first tower, the other of `x2` with the second."""
        (first, second), (part1, part2) = self.towers, self._split_weights(weights)
        modality1, modality2 = MODALITIES[self.pair]
        outputs1 = first.apply(part1, modality1(x1), training)
        outputs2 = second.apply(part2, modality2(x2), training)
        new = {"non_trainable": outputs1.non_trainable + outputs2.non_trainable}
        return outputs1._replace(**new), outputs2._replace(**new)

    @property
    def target_model(self) -> "TwoTowers":
        """This model, which has no predictor."""
        return self

    def without_heads(self, weights: Any) -> tuple["TwoTowers", Weights]:
        """The encoders alone, in float32, and their weights."""
        pairs = zip(self.towers, self._split_weights(weights), strict=True)
        first, second = (tower.without_heads(part)[1] for tower, part in pairs)
        encoder = dataclasses.replace(
            self.tower, projector=(), projector_output_batch_norm=False, precision="float32"
        )
        return dataclasses.replace(self, tower=encoder), _join_weights(first, second)

    def part_of(self, weights: Any) -> Weights:
        """This model's weights, taken from those of a model with more heads."""
        return _join_weights(*self._split_weights(weights))

    def _split_weights(self, weights: Any) -> tuple[Weights, Weights]:
        first, second = self.towers
        n, m = len(first.trainable_specs), len(first.non_trainable_specs)
        rest = Weights(tuple(weights.trainable[n:]), tuple(weights.non_trainable[m:]))
        return first.part_of(weights), second.part_of(rest)


def _join_weights(first: Weights, second: Weights) -> Weights:
    return Weights(first.trainable + second.trainable, first.non_trainable + second.non_trainable)


Model = DualEncoder | TwoTowers
