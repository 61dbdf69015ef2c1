"""The model of every algorithm: image x -> encoding h -> projection z -> prediction p."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import tensorflow as tf

from tff_ssl.models import heads, layers, resnet

ENCODERS = tuple(resnet.RESNETS)


class Weights(NamedTuple):
    """A model's weights: float32 tensors, in the order of `DualEncoder.specs`."""

    trainable: tuple[tf.Tensor, ...]
    non_trainable: tuple[tf.Tensor, ...]


class Outputs(NamedTuple):
    """What the model gives for a batch.

    Attributes:
      h: Encodings, float32 [batch, features].
      z: Projections, float32 [batch, projector[-1]]; h where there is no projector.
      p: Predictions, float32 [batch, predictor[-1]]; z where there is no predictor.
      non_trainable: New values of the non-trainable weights (batch norm's moving averages).
    """

    h: tf.Tensor
    z: tf.Tensor
    p: tf.Tensor
    non_trainable: tuple[tf.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class DualEncoder:
    """A network that encodes both views of an image, as a pure function of its weights.

    Attributes:
      encoder: A name of `ENCODERS`.
      image_shape: Height, width and channels of the (float32) images that `apply` takes.
      projector: Widths of the projector's layers; empty for none.
      predictor: Widths of the predictor's layers; empty for none.
      norm: `group` (group norm and weight standardization) or `batch`.

    Raises:
      ValueError: If a field has a value that the model cannot be built with.
    """

    encoder: str
    image_shape: tuple[int, int, int]
    projector: tuple[int, ...] = ()
    predictor: tuple[int, ...] = ()
    norm: str = "group"

    def __post_init__(self):
        if self.encoder not in ENCODERS:
            raise ValueError(f"encoder must be one of {', '.join(ENCODERS)}; got {self.encoder!r}")
        if self.norm not in ("group", "batch"):
            raise ValueError(f"norm must be group or batch; got {self.norm!r}")
        if any(width < 1 for width in (*self.projector, *self.predictor)):
            raise ValueError("projector and predictor widths must be at least 1")
        groups = resnet.RESNETS[self.encoder].groups
        hidden = (*self.projector[:-1], *self.predictor[:-1])
        if self.norm == "group" and any(width % groups for width in hidden):
            raise ValueError(
                f"hidden widths of projector and predictor must be multiples of {groups}, "
                f"the number of groups of encoder {self.encoder}; got {hidden}"
            )

    @functools.cached_property
    def specs(self) -> tuple[layers.ParameterSpec, ...]:
        """Name, shape and kind of each weight."""
        return layers.collect(self._forward, self.image_shape, **self._options)

    @property
    def trainable_specs(self) -> tuple[layers.ParameterSpec, ...]:
        return tuple(spec for spec in self.specs if spec.trainable)

    @property
    def non_trainable_specs(self) -> tuple[layers.ParameterSpec, ...]:
        return tuple(spec for spec in self.specs if not spec.trainable)

    @property
    def parameter_count(self) -> int:
        """Number of trainable parameters, heads included."""
        return sum(math.prod(spec.shape) for spec in self.trainable_specs)

    def init(self, seed: int) -> Weights:
        """Draws initial weights, a pure function of `seed`."""
        values = {
            spec.name: layers.initialize(spec, tf.constant([seed, index], tf.int64))
            for index, spec in enumerate(self.specs)
        }
        return Weights(
            tuple(values[spec.name] for spec in self.trainable_specs),
            tuple(values[spec.name] for spec in self.non_trainable_specs),
        )

    def apply(self, weights: Any, images: tf.Tensor, training: bool) -> Outputs:
        """Applies the network.

        Args:
          weights: `Weights`, or any object with these two fields.
          images: float32 [batch, *image_shape].
          training: Whether batch norm uses, and updates, with the batch's statistics.
        """
        specs = (*self.trainable_specs, *self.non_trainable_specs)
        tensors = (*weights.trainable, *weights.non_trainable)
        values = {spec.name: value for spec, value in zip(specs, tensors, strict=True)}
        parameters = layers.Parameters(values, training=training, **self._options)
        h, z, p = self._forward(parameters, images)
        non_trainable = tuple(
            parameters.updates.get(spec.name, values[spec.name])
            for spec in self.non_trainable_specs
        )
        return Outputs(h, z, p, non_trainable)

    def without_heads(self, weights: Any) -> tuple["DualEncoder", Weights]:
        """The encoder alone, whose z and p are h, and its part of the weights."""
        encoder = dataclasses.replace(self, projector=(), predictor=())
        # The heads come after the encoder in the order of the weights.
        return encoder, Weights(
            tuple(weights.trainable[: len(encoder.trainable_specs)]),
            tuple(weights.non_trainable[: len(encoder.non_trainable_specs)]),
        )

    @property
    def _options(self) -> dict[str, Any]:
        return {"norm": self.norm, "groups": resnet.RESNETS[self.encoder].groups}

    def _forward(self, parameters, images):
        spec = resnet.RESNETS[self.encoder]
        small_stem = self.image_shape[0] < resnet.SMALL_IMAGE
        h = resnet.resnet(parameters, images, spec, small_stem)
        z = heads.mlp(parameters, "projector", h, self.projector) if self.projector else h
        p = heads.mlp(parameters, "predictor", z, self.predictor) if self.predictor else z
        return h, z, p
