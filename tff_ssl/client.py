"""Loads a client package, which `launch.export --format=client` writes, without TFF.

This module needs NumPy and TensorFlow only, and may be copied. A SavedModel is a program: load the
packages of people whom you trust.

    package = client.load("package")
    state, memory = package.initial_state(), package.initial_memory()
    for stage in package.stages:
        down = package.broadcast(stage, state)                      # at the server
        up, memory = package.work(stage, down, memory, images, example_ids, seed)  # at a client
        sums = {name: sum(values) over the clients' `up`}           # at the server
        state, metrics = package.finish(stage, state, sums)
    features = package.encode(state, images)                        # with the trained encoder

All values are dictionaries of arrays by name, whose shapes and dtypes are in `manifest.json`.
"""

import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

FORMAT, VERSION = "tff_ssl client package", 1
MANIFEST, ARRAYS, LITE = "manifest.json", "arrays.npz", "client.tflite"
ENCODE = "encode"  # Signature of the server's part.
METRIC = "metric_"  # Before the names of metrics in the server's results.

Arrays = dict[str, npt.NDArray[Any]]
Call = Callable[[str, Mapping[str, Any]], Arrays]  # (name of a signature, values) -> results.


class Package:
    """A loaded package.

    Attributes:
      manifest: Content of `manifest.json`.
      stages: Names of the stages of a round, in order.
    """

    def __init__(self, folder: pathlib.Path, manifest: Mapping[str, Any], lite: bool):
        """Loads signatures and arrays; `load` checks them first."""
        self.manifest = manifest
        self.stages = [stage["name"] for stage in manifest["stages"]]
        self._weights = {
            stage["name"]: {value["name"]: value["weight"] for value in stage["up"]}
            for stage in manifest["stages"]
        }
        self._of_client = _lite(folder / LITE) if lite else _saved_model(folder)
        self._of_server = _saved_model(folder / "server")
        with np.load(folder / ARRAYS) as arrays:
            self._arrays = {name: arrays[name] for name in arrays.files}

    def initial_state(self) -> Arrays:
        """The server's state with which the package starts."""
        return self._stored("server/")

    def initial_memory(self) -> Arrays:
        """The state of a client before its first round; empty if clients keep none."""
        return self._stored("client/")

    def broadcast(self, stage: str, state: Arrays) -> Arrays:
        """What the server sends to each client of a stage, from its state."""
        return self._of_server(f"broadcast_{stage}", state)

    def work(
        self, stage: str, down: Arrays, memory: Arrays, images: npt.NDArray[np.uint8],
        example_ids: npt.NDArray[np.int64], seed: int,
    ) -> tuple[Arrays, Arrays]:  # fmt: skip
        """What a client sends in a stage, and its new memory.

        Args:
          stage: Name of the stage.
          down: What the server has sent.
          memory: The client's memory, its own result of its last stage.
          images: The client's images, uint8 [n, height, width, channels].
          example_ids: A number for each image, which stays the same, int64 [n]; views depend on it.
          seed: Seed of views and of the order of examples, from 0 to 2^31 - 1.

        Returns:
          Contributions to sums over the clients: values of means are already times their weights.

        Raises:
          ValueError: If images, ids or seed are not as described.
        """
        images, example_ids = self._images(images), np.asarray(example_ids)
        if example_ids.shape != (len(images),) or example_ids.dtype.kind not in "iu":
            raise ValueError(
                f"example_ids must be an integer for each of the {len(images)} images; they are "
                f"{example_ids.dtype} {list(example_ids.shape)}"
            )
        if not 0 <= seed < 2**31:
            raise ValueError(f"seed must be from 0 to 2^31 - 1; it is {seed}")
        of_client = {
            "images": images,
            "example_ids": example_ids.astype(np.int64),
            "seed": np.int64(seed),
        }
        results = self._of_client(stage, {**down, **memory, **of_client})
        weights = self._weights[stage]
        sent = {
            name: results[name] if weight is None else results[name] * results[weight]
            for name, weight in weights.items()
        }
        return sent, {name: value for name, value in results.items() if name not in weights}

    def finish(self, stage: str, state: Arrays, sums: Arrays) -> tuple[Arrays, dict[str, float]]:
        """The server's state after a stage, and metrics, from sums of what the clients sent."""
        means = self._of_server(f"aggregate_{stage}", sums)
        results = self._of_server(f"server_{stage}", {**state, **means})
        metrics = {
            name.removeprefix(METRIC): value.item()
            for name, value in results.items()
            if name.startswith(METRIC)
        }
        return {name: results[name] for name in state}, metrics

    def encode(self, state: Arrays, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Features of images by the global encoder in the server's state, float32 [n, features].

        Args:
          state: The server's state.
          images: uint8 [n, height, width, channels].

        Raises:
          ValueError: If the package has none, because its clients train alone; or if the images are
            not as described.
        """
        return self._of_server(ENCODE, {**state, "images": self._images(images)})["features"]

    def _images(self, images: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """The images, checked, because TensorFlow would cast and resize others without a word."""
        shape, images = self.manifest["image_shape"], np.asarray(images)
        if images.dtype != np.uint8 or list(images.shape[1:]) != shape or images.ndim != 4:
            raise ValueError(
                f"images must be uint8 [n, {', '.join(map(str, shape))}], with values from 0 to "
                f"255; they are {images.dtype} {list(images.shape)}"
            )
        return images

    def _stored(self, prefix: str) -> Arrays:
        names = [name for name in self._arrays if name.startswith(prefix)]
        return {name.removeprefix(prefix): self._arrays[name] for name in names}


def _saved_model(folder: pathlib.Path) -> Call:
    with tempfile.TemporaryDirectory(prefix="tff_ssl_client_") as without_brackets:
        # TensorFlow takes the `[` of a path for the beginning of a pattern.
        link = pathlib.Path(without_brackets) / "model"
        link.symlink_to(folder.absolute())
        model = tf.saved_model.load(str(link))

    def call(name: str, values: Mapping[str, Any]) -> Arrays:
        if name not in model.signatures:
            raise ValueError(f"the package has no signature {name}")
        signature = model.signatures[name]  # `model` keeps what its signatures need.
        specs = signature.structured_input_signature[1]
        given = {key: tf.constant(_value(values, key), spec.dtype) for key, spec in specs.items()}
        return {key: value.numpy() for key, value in signature(**given).items()}

    return call


def _lite(path: pathlib.Path) -> Call:
    interpreter = tf.lite.Interpreter(str(path))

    def call(name: str, values: Mapping[str, Any]) -> Arrays:
        runner = interpreter.get_signature_runner(name)
        details = runner.get_input_details()
        return dict(runner(**{key: np.asarray(_value(values, key), of["dtype"])
                              for key, of in details.items()}))  # fmt: skip

    return call


def _value(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise ValueError(f"there is no value {name}: the package needs it")
    return values[name]


def load(
    folder: str | os.PathLike[str], lite: bool = False, optimize_graphs: bool = True
) -> Package:
    """Loads a package, whose files must be those that its manifest has digests of.

    Args:
      folder: Folder of the package.
      lite: Whether `work` runs the LiteRT model `client.tflite`, as a phone does.
      optimize_graphs: Whether TensorFlow optimizes the graphs of this process. That takes 2 to 3 s
        at the first call, and changes the last digits; without it, results on a CPU are those of
        the simulation to the last bit.

    Raises:
      ValueError: The folder holds no package, one of another version, or a damaged one.
    """
    folder = pathlib.Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            raise ValueError(f"{folder} is no client package of version {VERSION}")
        for name, digest in manifest["sha256"].items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                raise ValueError(f"{folder / name} has changed since the package was written")
    except (OSError, KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder} holds no client package, or a damaged one: {error}") from error
    if not optimize_graphs:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    return Package(folder, manifest, lite)
