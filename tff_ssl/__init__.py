"""Federated and decentralized self-supervised learning of visual representations on TFF.

The names below are the public interface. They are imported when they are first used, so that
`import tff_ssl` is quick, and `load_encoder` needs only TensorFlow, not TFF.
"""

import atexit
import importlib
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launch.api import Run, embed, evaluate, load_run, partition, train
    from tff_ssl.algorithms.registry import build_algorithm
    from tff_ssl.deployment.encoder import Encoder, load_encoder
    from tff_ssl.errors import ConfigurationError
    from tff_ssl.models.dual_encoder import DualEncoder
    from tff_ssl.templates.task import Task
    from tff_ssl.views.augmentation import two_views

__all__ = [
    "ConfigurationError",
    "DualEncoder",
    "Encoder",
    "Run",
    "Task",
    "__version__",
    "build_algorithm",
    "embed",
    "evaluate",
    "load_encoder",
    "load_run",
    "partition",
    "train",
    "two_views",
]
__version__ = "0.3.0"

# Before anything heavy is imported: TFF 0.87 has one wheel, and pip's message does not say which.
if not (
    sys.platform == "linux"
    and platform.machine() == "x86_64"
    and (3, 10) <= sys.version_info[:2] <= (3, 11)
):
    raise ImportError(
        "tff_ssl runs on Linux x86-64 with Python 3.10 or 3.11, as TensorFlow Federated 0.87 does; "
        f"this is {sys.platform} {platform.machine()} with Python {platform.python_version()}"
    )

# By default, TensorFlow uses oneDNN's convolutions only on processors with AVX-512's instructions
# for neural networks. They are faster on older ones, too. A TensorFlow that is imported already
# stays as it is.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

_PACKAGES = ("models", "runtime")
_MODULES = {
    **dict.fromkeys(("Run", "embed", "evaluate", "load_run", "partition", "train"), "launch.api"),
    "ConfigurationError": "tff_ssl.errors",
    "DualEncoder": "tff_ssl.models.dual_encoder",
    "Encoder": "tff_ssl.deployment.encoder",
    "Task": "tff_ssl.templates.task",
    "build_algorithm": "tff_ssl.algorithms.registry",
    "load_encoder": "tff_ssl.deployment.encoder",
    "two_views": "tff_ssl.views.augmentation",
}


def __getattr__(name: str) -> Any:
    """Imports a name of the public interface when it is first used."""
    if name in _PACKAGES:
        return importlib.import_module(f"tff_ssl.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'tff_ssl' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "launch":
            raise
        raise ImportError(
            f"tff_ssl.{name} needs launch/, which the wheel does not have: start Python in the "
            "folder of the project, or add it to PYTHONPATH"
        ) from error


def _end_quietly() -> None:
    """Replaces TFF's default context, which prints an error when Python collects it at exit."""
    if "tensorflow_federated" in sys.modules:
        importlib.import_module("tff_ssl.runtime.compiling")


atexit.register(_end_quietly)
