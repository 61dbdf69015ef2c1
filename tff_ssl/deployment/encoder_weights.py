"""The encoder as a file of arrays, `weights.npz`, which is read without running anything in it.

A SavedModel is a program: whoever loads it runs its graph, which may read and write files. This
file holds numbers only. It has

- `description`: a text (NumPy unicode scalar), a JSON object with
  - `format`: the text "tff_ssl encoder"; `version`: 1;
  - `encoder`, `norm`, `depth`: fields of `DualEncoder`;
  - `towers`: `one`, or the pair of two towers (`two_towers.MODALITIES`);
  - `image_shape`: height, width and channels of the uint8 images;
  - `view_size`: side in pixels to which images are resized for the encoder; null for their own;
- `graph`, if the encoder is one's own (version 2): bytes of a graph of TensorFlow, whose names the
  description has in `own`; only operations that compute are read (`pure_graphs`);
- `weights/NAME` for each weight of the encoder, float32, in the model's shape. NAME is that of
  `DualEncoder.specs`; in two towers, NAME is followed by ` #1` or ` #2`.

`read` builds the network from the description, and reads only the arrays that the network has. It
needs plain TensorFlow, and not TFF.
"""

import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tff_ssl import whole_files
from tff_ssl.errors import ConfigurationError
from tff_ssl.models import layers, pure_graphs
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.layers import ParameterSpec
from tff_ssl.models.pure_graphs import GraphNetwork, PureGraph
from tff_ssl.models.two_towers import Model, TwoTowers

FILE_NAME = "weights.npz"
_FORMAT, _VERSION, _VERSION_OF_OWN = "tff_ssl encoder", 1, 2
# Bounds of what a description may ask for.
_LARGEST_SIDE = 2048  # Pixels.
_LARGEST_CHANNELS = 64
_LARGEST_DEPTH = 256
_LARGEST_FEATURES = 2**20
_LARGEST_DESCRIPTION = 2**22  # Bytes.
_LARGEST_GRAPH = 2**26  # Bytes.
_DAMAGE_ERRORS = (
    OSError, ValueError, LookupError, EOFError, RuntimeError, TypeError, SyntaxError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class StoredEncoder(NamedTuple):
    """The content of a file."""

    model: Model  #: Model without heads.
    weights: Weights  #: Weights of the model, float32 arrays.
    #: Height, width and channels of the uint8 images that it encodes.
    image_shape: tuple[int, int, int]
    #: Side in pixels to which images are resized for the model; None for their own.
    view_size: int | None


def advice(folder: pathlib.Path) -> str:
    """The end of a message that a folder has no encoder; empty unless it is of a stopped run."""
    run = folder.parent if folder.name == "encoder" else folder
    if not (run / "checkpoints").is_dir():
        return ""
    return (
        "; its run was stopped: continue it with --resume, or write the encoder of its last "
        "checkpoint with launch.export"
    )


def write(path: str | os.PathLike[str], stored: StoredEncoder) -> None:
    """Writes an encoder.

    Raises:
      ValueError: If the model does not take the images that `image_shape` and `view_size` give.
    """
    model, weights, image_shape, view_size = stored
    if model.image_shape != _model_shape(image_shape, view_size):
        raise ValueError(
            f"images of {image_shape} with view_size={view_size} are not those of a model for "
            f"{model.image_shape}"
        )
    tower = model.tower if isinstance(model, TwoTowers) else model
    description = {
        "format": _FORMAT,
        "version": _VERSION,
        "encoder": tower.encoder_name,
        "norm": tower.norm,
        "depth": tower.depth,
        "towers": model.pair if isinstance(model, TwoTowers) else "one",
        "image_shape": image_shape,
        "view_size": view_size,
    }
    extra = {}
    if not isinstance(tower.encoder, str):
        if isinstance(model, TwoTowers):
            raise ValueError("two towers of an encoder of one's own have no file of weights")
        graph = pure_graphs.of_inference(tower.encoder, tower.image_shape)
        description |= {"version": _VERSION_OF_OWN, "own": _describe_own(tower, graph)}
        extra["graph"] = np.frombuffer(graph.graph_def.SerializeToString(), np.uint8)
    names = unique_names(model.trainable_specs) + unique_names(model.non_trainable_specs)
    values = (*weights.trainable, *weights.non_trainable)
    arrays = extra | {f"weights/{n}": np.asarray(v) for n, v in zip(names, values, strict=True)}
    with whole_files.replacing(path) as new, open(new, "wb") as file:
        np.savez(file, description=np.array(json.dumps(description)), **arrays)


def read(path: str | os.PathLike[str]) -> StoredEncoder:
    """Reads an encoder from a file, or from its folder. No code in the file is run.

    Memory and time are bounded by those of this package's largest network.

    Raises:
      ConfigurationError: If there is no such file, or it is damaged or was not made by `write`.
    """
    path = pathlib.Path(path)
    path = path / FILE_NAME if path.is_dir() else path
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive)
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path} is missing") from error
    except _DAMAGE_ERRORS as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"{path} is damaged, or not a file of weights that this package wrote: {reason}"
        ) from error


def _describe_own(model: DualEncoder, graph: PureGraph) -> dict[str, Any]:
    """Names in the graph of an encoder of one's own, and its weights."""
    prefix = "encoder/"
    specs = (*model.trainable_specs, *model.non_trainable_specs)
    return {
        "image": graph.image,
        "weights": graph.weights,
        "output": graph.output,
        "features": graph.features,
        "specs": [[s.name.removeprefix(prefix), s.shape, s.trainable] for s in specs],
    }


def _read_own(
    archive: zipfile.ZipFile, description: Mapping[str, Any], image_shape: tuple[int, int, int]
) -> GraphNetwork:
    """An encoder of one's own for images of this shape."""
    own = description["own"]
    with archive.open("graph.npy") as file:
        content = _array(file, "graph", "|u1", (None,), _LARGEST_GRAPH)
    graph_def = tf.compat.v1.GraphDef.FromString(content.tobytes())
    pure_graphs.check_operations(graph_def)
    specs = [
        ParameterSpec(str(name), tuple(int(n) for n in shape), "", bool(trainable))
        for name, shape, trainable in own["specs"]
    ]
    weights = {str(name): int(index) for name, index in own["weights"].items()}
    features = _whole(own["features"], 1, _LARGEST_FEATURES)
    graph = PureGraph(graph_def, str(own["image"]), weights, str(own["output"]), (), (), features)
    return pure_graphs.stored_network(str(description["encoder"]), graph, specs, image_shape)


def unique_names(specs: Sequence[ParameterSpec]) -> tuple[str, ...]:
    """The names of weights; those of two towers are numbered."""
    return layers.number_repeated([spec.name for spec in specs])


def _model_shape(image_shape: tuple[int, int, int], view_size: int | None) -> tuple[int, int, int]:
    """Height, width and channels of the images that the model takes."""
    height, width, channels = image_shape
    return (view_size, view_size, channels) if view_size else (height, width, channels)


def _read(archive: zipfile.ZipFile) -> StoredEncoder:
    with archive.open("description.npy") as file:
        text = str(_array(file, "description", "U", (), _LARGEST_DESCRIPTION))
    description = json.loads(text)
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        raise ValueError(f"its description is not that of a {_FORMAT}")
    if description["version"] not in (_VERSION, _VERSION_OF_OWN):
        raise ValueError(
            f"version {description['version']!r} of the format; known are 1 to {_VERSION_OF_OWN}"
        )
    image_shape, view_size = _sizes(description)
    model: Model
    if description["version"] == _VERSION_OF_OWN:
        shape = _model_shape(image_shape, view_size)
        model = DualEncoder(_read_own(archive, description, shape), shape)
    else:
        model = _model(description, _model_shape(image_shape, view_size))
    kinds = (
        _arrays(archive, specs) for specs in (model.trainable_specs, model.non_trainable_specs)
    )
    return StoredEncoder(model, Weights(*kinds), image_shape, view_size)


def _sizes(description: Mapping[str, Any]) -> tuple[tuple[int, int, int], int | None]:
    height, width, channels = (_whole(n, 1, _LARGEST_SIDE) for n in description["image_shape"])
    view_size = description["view_size"]
    if view_size is not None:
        view_size = _whole(view_size, 1, _LARGEST_SIDE)
    return (height, width, _whole(channels, 1, _LARGEST_CHANNELS)), view_size


def _model(description: Mapping[str, Any], image_shape: tuple[int, int, int]) -> Model:
    """The network that the description names, for images of this shape."""
    depth = _whole(description["depth"], 0, _LARGEST_DEPTH)
    encoder, norm = str(description["encoder"]), str(description["norm"])
    model = DualEncoder(encoder, image_shape, norm=norm, depth=depth)
    towers = str(description["towers"])
    return model if towers == "one" else TwoTowers(model, towers)


def _whole(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{value!r} is not a whole number from {low} to {high}")
    return value


def _arrays(
    archive: zipfile.ZipFile, specs: Sequence[ParameterSpec]
) -> tuple[npt.NDArray[np.float32], ...]:
    arrays = []
    for name, spec in zip(unique_names(specs), specs, strict=True):
        with archive.open(f"weights/{name}.npy") as file:
            arrays.append(_array(file, name, "<f4", spec.shape))
    return tuple(arrays)


def _array(
    file: IO[bytes], name: str, kind: str, shape: tuple[int | None, ...], largest: int | None = None
) -> npt.NDArray[Any]:
    """Reads an array, after a check of its header.

    Its type is `kind`, such as `<f4`, or `U` for a text; a shape of (None,) is any number of
    values. It has at most the largest number of bytes, if there is one.
    """
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name}: another version of NumPy's format than 1.0")
    # NumPy refuses headers above 10,000 bytes.
    actual, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    count = int(np.prod(actual, dtype=np.int64))
    size = count * dtype.itemsize
    fits = len(actual) == 1 if shape == (None,) else actual == shape
    if kind not in (dtype.str, dtype.kind) or not fits or (largest and size > largest):
        raise ValueError(f"{name}: {dtype} {actual}, not {kind} {shape} of bounded length")
    values = file.read(size)
    if file.read(1):  # The checksum is compared at the end of the member.
        raise ValueError(f"{name}: more bytes than its shape has")
    return np.frombuffer(values, dtype, count).reshape(actual, order="F" if fortran_order else "C")
