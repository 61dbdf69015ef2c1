"""The GPUs that TensorFlow uses in this process."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

_CACHE_MIB = 4096


class Gpu(NamedTuple):
    """A GPU that TensorFlow can use."""

    name: str  #: Product name, such as "NVIDIA H200".
    compute_capability: tuple[int, int]  #: Version of its instructions, such as (9, 0).
    memory_mib: int  #: Memory in MiB; 0 if unknown.

    def __str__(self) -> str:
        memory = f", {self.memory_mib / 1024:.0f} GiB" if self.memory_mib else ""
        return f"{self.name}{memory}"


def prepare_gpus() -> None:
    """Prepares TensorFlow's GPUs, if there are any; to be called before they are used.

    TensorFlow then takes memory as it needs it instead of all at once, and the driver keeps what it
    compiles, since new GPUs compile for 30 s at first use. The arithmetic optimization of graphs is
    switched off, because it makes sums of integers for which GPUs have no kernel.
    """
    if cache := kernel_cache():
        os.environ["CUDA_CACHE_PATH"] = str(cache)
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(_CACHE_MIB << 20))
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return
    with contextlib.suppress(RuntimeError):  # The GPUs are in use already.
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    options = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options(options | {"arithmetic_optimization": False})


def kernel_cache() -> pathlib.Path | None:
    """The folder in which the driver keeps compiled kernels; None for a user without a home."""
    if "CUDA_CACHE_PATH" in os.environ:
        return pathlib.Path(os.environ["CUDA_CACHE_PATH"])
    try:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    except RuntimeError:
        return None
    return cache / "tff_ssl" / "cuda"


@contextlib.contextmanager
def unoptimized_graphs() -> Iterator[None]:
    """Within it, TensorFlow runs graphs as they are."""
    disabled = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": disabled})


def start_unoptimized() -> None:
    """Starts TensorFlow so that functions of data sets run on the CPU as they are.

    It would optimize them anew in every call. To be called before TensorFlow computes anything;
    later, or with a GPU, it has no effect.
    """
    if tf.config.list_physical_devices("GPU"):
        return
    with unoptimized_graphs():
        tf.config.list_logical_devices()


def find_gpu() -> Gpu | None:
    """The first GPU of TensorFlow, prepared for use; None if it has none."""
    prepare_gpus()
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return None
    details = tf.config.experimental.get_device_details(gpus[0])
    return Gpu(
        details.get("device_name", "GPU"), details.get("compute_capability", (0, 0)), _memory_mib()
    )


def use_deterministic_algorithms() -> None:
    """Makes computations on a GPU repeat bit for bit in this process; those on a CPU do anyway."""
    if tf.config.list_physical_devices("GPU"):
        tf.config.experimental.enable_op_determinism()


def products(gpu: Gpu) -> str:
    """How the GPU multiplies float32 matrices."""
    fast = (
        gpu.compute_capability >= (8, 0)
        and tf.config.experimental.tensor_float_32_execution_enabled()
    )
    return "TF32" if fast else "float32"


def _memory_mib() -> int:
    """Memory of the first GPU, from NVIDIA's driver; TensorFlow does not tell it."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return int(done.stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return 0
