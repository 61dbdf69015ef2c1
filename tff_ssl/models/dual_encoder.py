"""The model of every algorithm: image x -> encoding h -> projection z -> prediction p."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tff_ssl import compiled
from tff_ssl.bounds import Bounded, bounded, one_of
from tff_ssl.models import efficientnet, heads, layers, resnet, vit

_SPECS: dict[str, resnet.ResNetSpec | vit.ViTSpec | efficientnet.EfficientNetSpec] = {
    **resnet.RESNETS,
    **vit.VITS,
    **efficientnet.EFFICIENTNETS,
}
ENCODERS = tuple(_SPECS)
PRECISIONS = ("float32", "bfloat16")
_OF_OWN = "of the encoder"  # Initializer of the weights that an encoder of one's own draws.
_GROUPS_OF_OWN = 16  # Groups of group norm in the heads on an encoder of one's own.


class Weights(NamedTuple):
    """A model's weights, float32 tensors in the order of `DualEncoder.specs`."""

    trainable: tuple[tf.Tensor, ...]
    non_trainable: tuple[tf.Tensor, ...]


class EncoderNetwork(Protocol):
    """An encoder of one's own: a pure function of its weights and of images.

    `keras_encoder.from_keras` and `functional_encoder.from_tff` make one from a model of Keras or
    TFF. Any other hashable object with these members is one, too.
    """

    name: str  #: Name in messages and tables.
    #: Whether an encoding in training depends on the other images of its batch.
    batch_statistics: bool

    def specs(self, image_shape: tuple[int, int, int]) -> Sequence[layers.ParameterSpec]:
        """The weights for images of this shape; names are unique.

        Those that gradients do not train are statistics, such as moving averages. `batch_norm`
        marks the weights that algorithms with local batch norm keep at the clients. `initializer`
        is not read.

        Raises:
          ValueError: If the network takes no such images.
        """
        ...

    def features(self, image_shape: tuple[int, int, int]) -> int:
        """Size of the encoding h."""
        ...

    def init(self, image_shape: tuple[int, int, int], seed: int) -> Weights:
        """Initial weights in the order of `specs`, a pure function of `seed`."""
        ...

    def apply(
        self, weights: Weights, images: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        """Encodes images, float32 [batch, height, width, channels] from -1 to 1; in a graph.

        Returns:
          h, float32 [batch, features], and the new statistics, which are the given ones if
          `training` is False.
        """
        ...


class Outputs(NamedTuple):
    """The model's outputs for a batch."""

    h: tf.Tensor  #: Encodings, float32 [batch, features].
    z: tf.Tensor  #: Projections, float32 [batch, projector[-1]]; h without a projector.
    p: tf.Tensor  #: Predictions, float32 [batch, predictor[-1]]; z without a predictor.
    #: Outputs of a linear classifier on h, float32 [batch, classes]; h without a classifier.
    logits: tf.Tensor
    #: New values of the non-trainable weights (batch norm's moving averages).
    non_trainable: tuple[tf.Tensor, ...]


class Reconstruction(NamedTuple):
    """A masked autoencoder's outputs for a batch.

    Encodings h of the visible patches are float32 [batch, features], predictions of all patches
    float32 [batch, patches, values of a patch].
    """

    h: tf.Tensor
    patches: tf.Tensor


@dataclasses.dataclass(frozen=True)
class DualEncoder(Bounded):
    """A network that encodes both views of an image, as a pure function of its weights.

    Raises:
      ValueError: If no model can be built from the values.
    """

    #: Name of the encoder, one of `ENCODERS`, or an encoder of one's own.
    encoder: str | EncoderNetwork
    image_shape: tuple[int, int, int]  #: Height, width and channels of the images.
    projector: tuple[int, ...] = ()  #: Widths of the projector's layers; empty for none.
    predictor: tuple[int, ...] = ()  #: Widths of the predictor's layers; empty for none.
    #: Norm of a convolutional network, the projector and the predictor: `group` (group norm and
    #: weight standardization) or `batch`; a vision transformer has layer norm. `frozen`: norms of
    #: the network are a scale and an offset, those of a pretrained network with batch norm, and the
    #: other two have group norm.
    norm: str = one_of("group", ("group", "batch", "frozen"))
    #: Number of outputs of a linear classifier on h; 0 for none.
    classes: int = bounded(0, at_least=0)
    #: Whether the model has a masked autoencoder's decoder, and no other head.
    decoder: bool = False
    #: Number of blocks of a vision transformer's encoder; 0 for the number in `vit.VITS`.
    depth: int = bounded(0, at_least=0)
    #: Whether z has a batch norm without scale and offset, whatever the other norms are
    #: (`heads.mlp`).
    projector_output_batch_norm: bool = False
    #: Type of the convolutions and matrix products in encoder and decoder: `float32` or `bfloat16`.
    #: Everything else is float32, as is the encoder of `without_heads`.
    precision: str = one_of("float32", PRECISIONS)
    #: Number of the encoder's stages, from its first convolution on, that are not trained, and
    #: whose batch norms use and keep their moving averages. The first is the stem, or a
    #: transformer's embedding of patches.
    frozen_stages: int = bounded(0, at_least=0)
    #: Whether XLA compiles `apply` in training, for rounds in this process (`in_process`); TFF's
    #: worker has no XLA, and computes without it.
    xla: bool = False
    #: Values of weights by name with which `init` starts, in place of random ones.
    initial: Mapping[str, npt.NDArray[np.float32]] | None = dataclasses.field(
        default=None, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.encoder, str) and self.encoder not in ENCODERS:
            raise ValueError(f"encoder must be one of {', '.join(ENCODERS)}; got {self.encoder!r}")
        if any(width < 1 for width in (*self.projector, *self.predictor)):
            raise ValueError("projector and predictor widths must be at least 1")
        if self.projector_output_batch_norm and not self.projector:
            raise ValueError("batch norm on the projector's output needs a projector")
        self._check_transformer()
        if self.frozen_stages and (self._own or self.frozen_stages > len(self._stages)):
            there_are = "no stages" if self._own else f"{len(self._stages)} stages"
            raise ValueError(f"encoder {self.encoder_name} has {there_are}")
        if self.xla and (self._own or self.decoder):
            what = self.encoder_name if self._own else "masked autoencoders"
            raise ValueError(f"XLA compiles the encoders of this project, but not {what}")
        if self._own and self.precision != "float32":
            raise ValueError(
                f"encoder {self.encoder_name} has its own precision, not {self.precision}"
            )
        groups = self._groups
        hidden = (*self.projector[:-1], *self.predictor[:-1])
        # A single unit in a group is constant after its norm, and nothing before it is trained.
        if self.norm != "batch" and any(width % groups or width == groups for width in hidden):
            raise ValueError(
                f"hidden widths of projector and predictor must be multiples of {groups}, the "
                f"number of groups of encoder {self.encoder_name}, and larger; got {hidden}"
            )

    def _check_transformer(self) -> None:
        if isinstance(self._spec, vit.ViTSpec):
            vit.check_image_shape(self.image_shape)
        elif self.decoder:
            raise ValueError(
                f"a decoder needs a vision transformer, one of {', '.join(vit.VITS)}, as encoder; "
                f"got {self.encoder_name}"
            )
        elif self.depth:
            raise ValueError(
                f"only vision transformers have a depth; got {self.depth} for {self.encoder_name}"
            )
        if self.decoder and (self.projector or self.predictor or self.classes):
            raise ValueError("a model with a decoder has no projector, predictor or classifier")

    @property
    def has_batch_norm(self) -> bool:
        """Whether there is batch norm, in the layers or on z."""
        of_own = self._own is not None and self._own.batch_statistics
        return self.norm == "batch" or self.projector_output_batch_norm or of_own

    @property
    def batch_norm_remedy(self) -> str:
        """What makes this a model without batch norm."""
        if self._own is not None and self._own.batch_statistics:
            return 'batch_norm="frozen" of from_keras (--norm=group with --encoder=keras:NAME)'
        return "--norm=group and --noprojector_output_batch_norm"

    @property
    def brings_weights(self) -> bool:
        """Whether the encoder's random weights may be trained ones (`GraphNetwork`)."""
        return getattr(self._own, "brings_weights", False)

    @property
    def encoder_name(self) -> str:
        """The encoder's name, also if it is one's own."""
        return self.encoder if isinstance(self.encoder, str) else self.encoder.name

    @functools.cached_property
    def specs(self) -> tuple[layers.ParameterSpec, ...]:
        """Name, shape and kind of each weight."""
        return tuple(
            spec._replace(trainable=False) if spec.name.startswith(self._frozen) else spec
            for spec in _specs(self)
        )

    @property
    def _frozen(self) -> tuple[str, ...]:
        """Beginnings of the names of the weights of the frozen stages."""
        return tuple(f"{name}/" for name in self._stages[: self.frozen_stages])

    @property
    def _stages(self) -> tuple[str, ...]:
        """Beginnings of the names of the weights of each stage."""
        if isinstance(self._spec, vit.ViTSpec):
            return ("patches", *(f"block{k}" for k in range(self._spec.encoder.depth)))
        if isinstance(self._spec, efficientnet.EfficientNetSpec):
            return ("stem", *(f"stage{k}" for k in range(len(self._spec.stages))), "head")
        if self._spec:
            return ("stem", *(f"stage{k}" for k in range(len(self._spec.blocks))))
        return ()

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

    @property
    def features(self) -> int:
        """Size of the encoding h."""
        return self._own.features(self.image_shape) if self._own else self._spec.features

    def multiply_adds(self, visible: int | None = None) -> int | None:
        """Multiply-adds of one image's forward pass (`vit.multiply_adds`); None for ResNets."""
        if not isinstance(self._spec, vit.ViTSpec):
            return None
        return vit.multiply_adds(self._spec, self.image_shape, visible)

    def init(self, seed: int) -> Weights:
        """Draws initial weights, a pure function of `seed`."""
        values = {
            spec.name: layers.initialize(spec, tf.constant([seed, index], tf.int64))
            for index, spec in enumerate(self.specs)
            if spec.initializer != _OF_OWN
        }
        # Replaced values are not drawn: both would be constants of a federated computation.
        if self._own and not {spec.name for spec in self._own_specs} <= set(self.initial or ()):
            given = self._own.init(self.image_shape, seed)
            order = sorted(self._own_specs, key=lambda spec: not spec.trainable)
            for spec, value in zip(order, (*given.trainable, *given.non_trainable), strict=True):
                values[spec.name] = tf.convert_to_tensor(value)
        names = {spec.name for spec in self.specs}
        for name, value in (self.initial or {}).items():
            if name in names:  # The model of a target network has fewer.
                values[name] = tf.constant(value)
        return self._ordered(values)

    def random_init(self, seed: int) -> Weights:
        """`init` without `initial`, unless the encoder brings its weights."""
        if self.brings_weights:
            return self.init(seed)
        return dataclasses.replace(self, initial=None).init(seed)

    def _ordered(self, values: Mapping[str, Any]) -> Weights:
        return Weights(
            tuple(values[spec.name] for spec in self.trainable_specs),
            tuple(values[spec.name] for spec in self.non_trainable_specs),
        )

    def apply(self, weights: Any, images: tf.Tensor, training: bool) -> Outputs:
        """Applies the network to images, float32 [batch, *image_shape].

        The weights are `Weights`, or any object with these two fields. In training, batch norm uses
        the batch's statistics and updates its moving averages.
        """
        if self.xla and training:
            return self._apply_compiled(weights, images)
        values = self._values_by_name(weights)
        parameters = layers.Parameters(
            values, training=training, frozen=self._frozen, **self._options
        )
        h, z, p, logits = self._forward(parameters, images)
        non_trainable = tuple(
            parameters.updates.get(spec.name, values[spec.name])
            for spec in self.non_trainable_specs
        )
        return Outputs(h, z, p, logits, non_trainable)

    def _apply_compiled(self, weights: Any, images: tf.Tensor) -> Outputs:
        """`apply` in training, compiled by XLA."""
        rows = tf.shape(images)[0]
        # Further images would change the statistics of batch norm.
        batch = images if self.has_batch_norm else compiled.padded(images)
        own = Weights(tuple(weights.trainable), tuple(weights.non_trainable))
        h, z, p, logits, non_trainable = self._compiled(own, batch)
        return Outputs(h[:rows], z[:rows], p[:rows], logits[:rows], non_trainable)

    @functools.cached_property
    def _compiled(self) -> Callable[[Weights, tf.Tensor], Outputs]:
        network = dataclasses.replace(self, xla=False)
        return compiled.compiled(lambda weights, images: network.apply(weights, images, True))

    def apply_pair(
        self, weights: Any, x1: tf.Tensor, x2: tf.Tensor, training: bool
    ) -> tuple[Outputs, Outputs]:
        """Applies the network to two views of each image, as one batch; see `apply`."""
        outputs = self.apply(weights, tf.concat([x1, x2], 0), training)
        pairs = (tf.split(output, 2) for output in outputs[:-1])
        (h1, h2), (z1, z2), (p1, p2), (logits1, logits2) = pairs
        first = Outputs(h1, z1, p1, logits1, outputs.non_trainable)
        return first, Outputs(h2, z2, p2, logits2, outputs.non_trainable)

    def feature_maps(self, weights: Any, images: tf.Tensor) -> list[tf.Tensor]:
        """The outputs of a ResNet's stages in inference mode (`resnet.feature_maps`).

        Images are float32 [batch, height, width, channels] of any size; the stem is that for
        `image_shape`.

        Raises:
          ValueError: If the encoder is not a ResNet.
        """
        spec = self._spec
        if not isinstance(spec, resnet.ResNetSpec):
            raise ValueError(f"{self.encoder_name} is not a ResNet and has no stages")
        parameters = layers.Parameters(self._values_by_name(weights), **self._options)
        return resnet.feature_maps(parameters, images, spec, self._has_small_stem)

    @property
    def first_stride(self) -> int:
        """Stride of a ResNet's first stage."""
        return 1 if self._has_small_stem else 4

    @property
    def _has_small_stem(self) -> bool:
        return self.image_shape[0] < resnet.SMALL_IMAGE

    def reconstruct(self, weights: Any, images: tf.Tensor, visible: tf.Tensor) -> Reconstruction:
        """Applies a model with a decoder as a masked autoencoder; see `apply`.

        `visible` has the indices of the patches that the encoder sees, int32 [batch, visible].
        """
        parameters = layers.Parameters(self._values_by_name(weights), **self._options)
        return self._autoencoder(parameters, images, visible)

    @functools.cached_property
    def target_model(self) -> "DualEncoder":
        """The model of a target network: the encoder and the projector."""
        return dataclasses.replace(self, predictor=(), classes=0, decoder=False)

    def without_heads(self, weights: Any) -> tuple["DualEncoder", Weights]:
        """The encoder alone, whose z, p and logits are h, and its weights.

        It is float32 whatever the precision of the training, so that encodings are computed fast,
        and to the same values, on machines without bfloat16 instructions.
        """
        encoder = dataclasses.replace(
            self, projector=(), predictor=(), classes=0, decoder=False,
            projector_output_batch_norm=False, precision="float32", frozen_stages=0,
        )  # fmt: skip
        return encoder, encoder._ordered(self._values_by_name(weights))

    def part_of(self, weights: Any) -> Weights:
        """This model's weights, taken from those of a model with more heads."""
        # The heads come after the encoder in the order of the weights.
        return Weights(
            tuple(weights.trainable[: len(self.trainable_specs)]),
            tuple(weights.non_trainable[: len(self.non_trainable_specs)]),
        )

    @property
    def _own(self) -> EncoderNetwork | None:
        return None if isinstance(self.encoder, str) else self.encoder

    @functools.cached_property
    def _own_specs(self) -> tuple[layers.ParameterSpec, ...]:
        """The weights of an encoder of one's own, named `encoder/...`."""
        assert self._own
        return tuple(
            spec._replace(name=f"encoder/{spec.name}", initializer=_OF_OWN)
            for spec in self._own.specs(self.image_shape)
        )

    @property
    def _groups(self) -> int:
        """Number of groups of group norm."""
        return _GROUPS_OF_OWN if self._own else self._spec.groups

    @property
    def _spec(self) -> Any:
        """The specification of the encoder; None if it is one's own."""
        if not isinstance(self.encoder, str):
            return None
        spec = _SPECS[self.encoder]
        if self.depth and isinstance(spec, vit.ViTSpec):
            return dataclasses.replace(spec, encoder=spec.encoder._replace(depth=self.depth))
        return spec

    @property
    def _options(self) -> dict[str, Any]:
        """Keyword arguments of `layers.Parameters` that all networks share."""
        return {"norm": self.norm, "groups": self._groups, "precision": self.precision}

    def _values_by_name(self, weights: Any) -> dict[str, tf.Tensor]:
        specs = (*self.trainable_specs, *self.non_trainable_specs)
        tensors = (*weights.trainable, *weights.non_trainable)
        return {s.name: tf.convert_to_tensor(t) for s, t in zip(specs, tensors, strict=True)}

    def _forward(self, parameters, images):
        """h, z, p and logits of a batch of images."""
        spec = self._spec
        if self._own:
            h = self._encode_with_own(parameters, images)
        elif isinstance(spec, vit.ViTSpec):
            h = vit.pool(vit.encode(parameters, images, spec))
        elif isinstance(spec, efficientnet.EfficientNetSpec):
            h = efficientnet.efficientnet(parameters, images, spec)
        else:
            h = resnet.resnet(parameters, images, spec, images.shape[1] < resnet.SMALL_IMAGE)
        if self.norm == "frozen":
            parameters.norm = "group"
        z = h
        if self.projector:
            z = heads.mlp(
                parameters, "projector", h, self.projector, self.projector_output_batch_norm
            )
        p = heads.mlp(parameters, "predictor", z, self.predictor) if self.predictor else z
        logits = heads.classifier(parameters, h, self.classes) if self.classes else h
        return h, z, p, logits

    def _encode_with_own(self, parameters, images):
        """h of an encoder of one's own."""
        values = {s: parameters.get(*s) for s in self._own_specs}
        if parameters.values is None:  # Only the weights are asked for.
            return tf.zeros([images.shape[0], self.features])
        weights = Weights(
            tuple(value for spec, value in values.items() if spec.trainable),
            tuple(value for spec, value in values.items() if not spec.trainable),
        )
        assert self._own
        h, new = self._own.apply(weights, images, parameters.training)
        statistics = (spec.name for spec in self._own_specs if not spec.trainable)
        parameters.updates.update(zip(statistics, new, strict=True))
        return h

    def _autoencoder(self, parameters, images, visible):
        """The `Reconstruction` of a batch of images."""
        spec = self._spec
        assert isinstance(spec, vit.ViTSpec)
        tokens = vit.encode(parameters, images, spec, visible)
        return Reconstruction(
            vit.pool(tokens), vit.decode(parameters, tokens, images, spec, visible)
        )


@functools.lru_cache(maxsize=64)
def _specs(model: DualEncoder) -> tuple[layers.ParameterSpec, ...]:
    """The weights of a network, traced once for all models that are equal."""
    network = model._forward
    if model.decoder:
        network = functools.partial(model._autoencoder, visible=np.zeros([1, 1], np.int32))
    return layers.collect(network, model.image_shape, **model._options)
