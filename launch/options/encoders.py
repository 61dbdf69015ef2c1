"""Finds the encoder of a name: one of this package, of Keras Applications, or of one's own."""

import contextlib
import difflib
import functools
import importlib
import itertools
import pathlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from keras.src import backend
from tensorflow.python.eager import context

from tff_ssl.algorithms import named_code
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.models import from_keras
from tff_ssl.models.dual_encoder import ENCODERS, EncoderNetwork
from tff_ssl.models.keras_encoder import BatchNorm

IMAGENET = "imagenet"
_OF_KERAS = "keras:"
registered: dict[str, EncoderNetwork] = {}  # What `register` has given a name.
_numbers = itertools.count()


def register(network: EncoderNetwork, name: str | None = None) -> str:
    """Gives an encoder of a program or of a file a name for `--encoder` in this process."""
    name = name or f"own{next(_numbers)}:{network.name}"
    registered[name] = network
    return name


def find(name: str, norm: str, seed: int = 0, init_from: str | None = None) -> str | EncoderNetwork:
    """The encoder, for `DualEncoder`.

    Args:
      name: A name of `ENCODERS`, `keras:NAME` of Keras Applications, `MODULE:FUNCTION` of a
        function that returns a Keras model or an encoder of one's own, or of `register`.
      norm: `--norm`. Batch norms of Keras use the batch's statistics with `batch`, and are frozen
        otherwise.
      seed: Seed of the random weights of a Keras model.
      init_from: `imagenet` for Keras Applications, or a file of weights for a Keras model, which
        replace its random weights; None to keep these.

    Raises:
      ConfigurationError: If there is no such encoder.
    """
    if name in ENCODERS:
        return name
    if name in registered:
        return registered[name]
    if ":" in name:
        if not name.startswith(_OF_KERAS):
            named_code.check("encoder", name)
        return _build(name, norm, seed, init_from)
    message = f"--encoder={name}: choose one of {', '.join(ENCODERS)}, keras:NAME, MODULE:FUNCTION"
    nearest = difflib.get_close_matches(name, ENCODERS, 1)
    raise ConfigurationError(message + (f" (did you mean {nearest[0]}?)" if nearest else ""))


@functools.lru_cache(maxsize=8)
def _build(name: str, norm: str, seed: int, init_from: str | None) -> EncoderNetwork:
    with _seeded(seed):
        return _build_here(name, norm, init_from)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the random numbers of the block, and restores the global seeds after it.

    Otherwise, all that the program draws later would follow from `seed`.
    """
    of_python, of_tf = random.getstate(), context.global_seed()
    of_numpy = np.random.get_state()  # noqa: NPY002  # Keras seeds this one.
    of_keras = getattr(backend._SEED_GENERATOR, "generator", None)
    tf.keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
        tf.random.set_seed(of_tf)
        backend._SEED_GENERATOR.generator = of_keras


def _build_here(name: str, norm: str, init_from: str | None) -> EncoderNetwork:
    batch_norm: BatchNorm = "local" if norm == "batch" else "frozen"
    if name.startswith(_OF_KERAS):
        constructor, module = _find_application(name)
        model, preprocess = _application(constructor, init_from), module.preprocess_input
        network = from_keras(model, batch_norm, lambda x: preprocess((x + 1.0) * 127.5))
        network.brings_weights = False
        return network
    module_name, _, function = name.rpartition(":")
    try:
        build = getattr(importlib.import_module(module_name), function)
    except ImportError as error:
        raise ConfigurationError(f"--encoder={name}: {error}") from error
    except AttributeError as error:
        raise ConfigurationError(
            f"--encoder={name}: module {module_name} has no function {function}"
        ) from error
    try:
        built = build()
    except TypeError as error:
        raise ConfigurationError(
            f"--encoder={name} must be a function without arguments: {error}"
        ) from error
    if isinstance(built, tf.keras.Model):
        if init_from:
            _load(built, init_from)
        with naming(f"--encoder={name}"):
            return from_keras(built, batch_norm)
    if not all(hasattr(built, member) for member in ("specs", "init", "apply", "features")):
        raise ConfigurationError(
            f"--encoder={name} returns an object of {type(built).__name__}, and neither a Keras "
            "model nor an encoder with the methods specs, features, init and apply"
        )
    if init_from:
        raise ConfigurationError(
            f"--init_from={init_from} is for a Keras model, and --encoder={name} returns an "
            f"object of {type(built).__name__}"
        )
    return built


def _find_application(name: str) -> tuple[Any, Any]:
    """The constructor of Keras Applications, and the module with its `preprocess_input`."""
    wanted, applications = name.removeprefix(_OF_KERAS), tf.keras.applications
    known = [member for member in dir(applications) if member[0].isupper()]
    if wanted not in known:
        nearest = difflib.get_close_matches(wanted, known, 1, 0.4)
        raise ConfigurationError(
            f"--encoder={name}: Keras Applications has {', '.join(known)}"
            + (f" (did you mean {nearest[0]}?)" if nearest else "")
        )
    constructor = getattr(applications, wanted)
    # Its own module, such as keras.src.applications.mobilenet_v3, is exported under the last name.
    return constructor, getattr(applications, constructor.__module__.rpartition(".")[2])


def _application(constructor: Any, init_from: str | None) -> tf.keras.Model:
    """A model of Keras Applications without its classifier."""
    if init_from != IMAGENET:
        model = constructor(include_top=False, weights=None)
        if init_from:
            _load(model, init_from)
        return model
    try:
        return constructor(include_top=False, weights=IMAGENET)
    except Exception as error:  # Keras raises plain exceptions without a network.
        raise ConfigurationError(
            f"--init_from={IMAGENET}: {_one_line(error)}; Keras downloads the weights, and needs a "
            "network for that once"
        ) from error


def _load(model: tf.keras.Model, path: str) -> None:
    """Loads a file of weights into a Keras model."""
    if not pathlib.Path(path).exists() and not pathlib.Path(f"{path}.index").exists():
        raise ConfigurationError(f"--init_from={path}: there is no such file")
    try:
        model.load_weights(path)
    except (OSError, ValueError, LookupError) as error:
        raise ConfigurationError(
            f"--init_from={path}: {_one_line(error)}; the file must hold the weights of "
            f"{model.name} without a classifier"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
