"""Finds the encoder of a name: one of this package, of Keras Applications, or of one's own."""

import difflib
import functools
import importlib
import itertools
from typing import Any

import tensorflow as tf

from tff_ssl import named_code
from tff_ssl.errors import ConfigurationError
from tff_ssl.models import from_keras
from tff_ssl.models.dual_encoder import ENCODERS, EncoderNetwork
from tff_ssl.models.keras_encoder import BatchNorm

_OF_KERAS = "keras:"
_registered: dict[str, EncoderNetwork] = {}
_numbers = itertools.count()


def register(network: EncoderNetwork) -> str:
    """Gives an encoder of a program a name for `--encoder` in this process."""
    name = f"own{next(_numbers)}:{network.name}"
    _registered[name] = network
    return name


def find(name: str, norm: str, init_from: str | None = None) -> str | EncoderNetwork:
    """The encoder, for `DualEncoder`.

    Args:
      name: A name of `ENCODERS`, `keras:NAME` of Keras Applications, `MODULE:FUNCTION` of a
        function that returns a Keras model or an encoder of one's own, or of `register`.
      norm: `--norm`. Batch norms of Keras use the batch's statistics with `batch`, and are frozen
        otherwise.
      init_from: For Keras Applications, `imagenet` or a file of weights; None for random ones.

    Raises:
      ConfigurationError: If there is no such encoder.
    """
    if name in ENCODERS:
        return name
    if name in _registered:
        return _registered[name]
    if ":" in name:
        if not name.startswith(_OF_KERAS):
            named_code.check("encoder", name)
        return _build(name, norm, init_from)
    message = f"--encoder={name}: choose one of {', '.join(ENCODERS)}, keras:NAME, MODULE:FUNCTION"
    nearest = difflib.get_close_matches(name, ENCODERS, 1)
    raise ConfigurationError(message + (f" (did you mean {nearest[0]}?)" if nearest else ""))


@functools.lru_cache(maxsize=8)
def _build(name: str, norm: str, init_from: str | None) -> EncoderNetwork:
    batch_norm: BatchNorm = "local" if norm == "batch" else "frozen"
    tf.keras.utils.set_random_seed(0)  # Of random initial weights.
    if name.startswith(_OF_KERAS):
        constructor, module = _find_application(name)
        model = _with_weights(constructor, init_from)
        preprocess = module.preprocess_input
        return from_keras(model, batch_norm, lambda x: preprocess((x + 1.0) * 127.5))
    module_name, _, function = name.rpartition(":")
    try:
        built = getattr(importlib.import_module(module_name), function)()
    except ImportError as error:
        raise ConfigurationError(f"--encoder={name}: {error}") from error
    except AttributeError as error:
        raise ConfigurationError(
            f"--encoder={name}: module {module_name} has no function {function}"
        ) from error
    if isinstance(built, tf.keras.Model):
        return from_keras(built, batch_norm)
    if not all(hasattr(built, member) for member in ("specs", "init", "apply", "features")):
        raise ConfigurationError(
            f"--encoder={name} returns a {type(built).__name__}, and neither a Keras model nor an "
            "encoder with the methods specs, features, init and apply"
        )
    return built


def _find_application(name: str) -> tuple[Any, Any]:
    """The constructor of Keras Applications, and the module with its `preprocess_input`."""
    wanted = name.removeprefix(_OF_KERAS)
    known: dict[str, Any] = {}
    for module in map(
        functools.partial(getattr, tf.keras.applications), dir(tf.keras.applications)
    ):
        if hasattr(module, "preprocess_input"):
            known |= {found: module for found in dir(module) if found[0].isupper()}
    if wanted not in known:
        nearest = difflib.get_close_matches(wanted, known, 1, 0.4)
        raise ConfigurationError(
            f"--encoder={name}: Keras Applications has {', '.join(sorted(known))}"
            + (f" (did you mean {nearest[0]}?)" if nearest else "")
        )
    return getattr(known[wanted], wanted), known[wanted]


def _with_weights(constructor: Any, init_from: str | None) -> tf.keras.Model:
    """A model of Keras Applications without its classifier."""
    try:
        if init_from == "imagenet":
            return constructor(include_top=False, weights="imagenet")
        model = constructor(include_top=False, weights=None)
        if init_from:
            model.load_weights(init_from)
    except Exception as error:  # Keras raises plain exceptions without a network.
        reason = " ".join(str(error).split())
        advice = "; Keras downloads the weights, and needs a network for that once"
        raise ConfigurationError(
            f"--init_from={init_from}: {reason}{advice if init_from == 'imagenet' else ''}"
        ) from error
    return model
