"""The encoder as a SavedModel, which maps images to encodings without this package.

Encoders are read from the `weights.npz` beside it (`encoder_weights`): a SavedModel is a program of
whoever wrote it, and runs only at the caller's request.
"""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_ssl import whole_files
from tff_ssl.deployment import encoder_weights
from tff_ssl.deployment.encoder_weights import StoredEncoder
from tff_ssl.errors import ConfigurationError
from tff_ssl.models import layers
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.views import augmentation

Encode = Callable[[tf.Tensor], tf.Tensor]


def encoder_function(model: Model, view_size: int | None) -> tf.types.experimental.GenericFunction:
    """(the model's `Weights`, images uint8 [b, h, w, c]) -> h float32 [b, features], for inference.

    The `tf.function` is traced once for all weights. For `view_size`, see `StoredEncoder`.
    """

    def encode(weights, images):
        encoder, encoder_weights = model.without_heads(weights)
        x = augmentation.to_float(images, output_size=view_size)
        return encoder.apply(encoder_weights, x, training=False).h

    return tf.function(encode, autograph=False)


class EncoderModule(tf.Module):
    """The encoder with its weights as variables, which tools can read by name."""

    def __init__(self, model: Model, weights: Weights, image_shape, view_size: int | None):
        super().__init__()
        encoder, kept = model.without_heads(weights)
        # Two attributes, as a SavedModel keeps neither a NamedTuple's field names nor empty fields.
        self.trainable_weights = _variables(kept.trainable, encoder.trainable_specs)
        self.non_trainable_weights = _variables(kept.non_trainable, encoder.non_trainable_specs)

        def encode(images):
            x = augmentation.to_float(images, output_size=view_size)
            weights = Weights(tuple(self.trainable_weights), tuple(self.non_trainable_weights))
            return {"h": encoder.apply(weights, x, training=False).h}

        signature = [tf.TensorSpec([None, *image_shape], tf.uint8, "images")]
        self.encode = tf.function(encode, signature, autograph=False)


def _variables(weights, specs) -> list[tf.Variable]:
    return [tf.Variable(w, name=spec.name) for w, spec in zip(weights, specs, strict=True)]


def save_encoder(
    path: str | os.PathLike[str],
    model: Model,
    weights: Weights,
    image_shape: tuple[int, int, int],
    view_size: int | None,
) -> None:
    """Writes the encoder as a SavedModel, which plain TensorFlow and TensorFlow Serving load.

    It has one signature under two names, `serving_default` and `encode`:

        images: uint8 [batch, height, width, channels] -> {"h": float32 [batch, features]}

    for images of `image_shape`, with values from 0 to 255 and any batch size. The folder also holds
    `weights.npz`, and replaces an old one when it is complete. The model may have heads; for
    `image_shape` and `view_size`, see `StoredEncoder`.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    module = EncoderModule(model, weights, image_shape, view_size)
    signatures = {"serving_default": module.encode, "encode": module.encode}
    encoder, kept = model.without_heads(weights)
    with whole_files.replacing_folder(path) as new:
        tf.saved_model.save(module, str(new), signatures=signatures)
        stored = StoredEncoder(encoder, kept, image_shape, view_size)
        encoder_weights.write(new / encoder_weights.FILE_NAME, stored)


class LoadedEncoder:
    """A loaded encoder: images uint8 [b, *image_shape] -> h float32 [b, features]."""

    def __init__(self, module: Any, image_shape: tuple[int, int, int]):
        self._module = module
        self.image_shape = image_shape

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        return self._module.encode(images)["h"]

    @property
    def weights(self) -> Weights:
        """The weights as arrays; the non-trainable ones are moving averages of batch norm."""
        return Weights(
            tuple(w.numpy() for w in self._module.trainable_weights),
            tuple(w.numpy() for w in self._non_trainable),
        )

    @property
    def weight_names(self) -> Weights:
        """The names of the weights, unique among the trainable and among the non-trainable ones.

        Repeated names are numbered: those of two towers, and `Variable`, the name of all weights in
        SavedModels that were written without names.
        """
        return Weights(
            _unique_names(self._module.trainable_weights), _unique_names(self._non_trainable)
        )

    @property
    def _non_trainable(self) -> Sequence[tf.Variable]:
        return getattr(self._module, "non_trainable_weights", ())


def _unique_names(variables: Sequence[tf.Variable]) -> tuple[str, ...]:
    return layers.number_repeated([v.name.removesuffix(":0") for v in variables])


def load_encoder(path: str | os.PathLike[str], run_graph: bool = False) -> LoadedEncoder:
    """Reads an encoder that `save_encoder` wrote, from `weights.npz`, without running a program.

    Args:
      path: Folder of the encoder.
      run_graph: Whether to load and run the SavedModel's graph if there is no `weights.npz`. The
        graph can do whatever its writer wants, such as read and write files.

    Raises:
      ConfigurationError: If the folder holds no such encoder or a damaged one, or if it lacks
        `weights.npz` and `run_graph` is False.
    """
    path = pathlib.Path(path)
    if (path / encoder_weights.FILE_NAME).exists():
        stored = encoder_weights.read(path)
        return LoadedEncoder(EncoderModule(*stored), stored.image_shape)
    if not (path / "saved_model.pb").exists():
        raise ConfigurationError(
            f"{path} holds no encoder that `pretrain` wrote{encoder_weights.advice(path)}"
        )
    if not run_graph:
        raise ConfigurationError(
            f"{path} holds a SavedModel without {encoder_weights.FILE_NAME}; a SavedModel is a "
            "program of whoever wrote it, which evaluate and visualize run only with "
            "--run_saved_model_graph"
        )
    try:
        module = tf.saved_model.load(str(path))
        signature = module.signatures["encode"].structured_input_signature[1]
        height, width, channels = signature["images"].shape[1:]
        return LoadedEncoder(module, (height, width, channels))
    except (OSError, LookupError, AttributeError, ValueError, tf.errors.OpError) as error:
        raise ConfigurationError(
            f"{path} holds no encoder that `pretrain` wrote, or a damaged one"
        ) from error
