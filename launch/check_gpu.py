"""Says whether rounds run on a GPU here, and if not, what is missing and how to get it.

    python -m launch.check_gpu

Looks for NVIDIA's driver, the libraries of CUDA 11.8 (the extra `gpu`) and the GPU as TensorFlow
sees it, and times a convolution there. The exit code is 1 if there is a GPU that cannot be used.
"""

import ctypes
import dataclasses
import importlib.metadata
import os
import sys
import time

from launch.options import app, settings
from launch.outputs import commands

_DRIVER = "libcuda.so.1"
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg")  # of Linux, and of Windows's subsystem for it


@dataclasses.dataclass(frozen=True)
class CheckGpuConfig(settings.Settings):
    """The script has no settings."""


def main(config: CheckGpuConfig) -> None:
    print("looking for a GPU; TensorFlow's first use of a new one takes up to a minute", flush=True)
    driver, missing = _driver_loads(), missing_wheels()
    device = any(map(os.path.exists, _DEVICE_FILES))
    import tensorflow as tf

    from tff_ssl.runtime import devices

    gpu = devices.find_gpu()
    rows = [
        ("GPU of NVIDIA", "yes" if device else "none found"),
        ("NVIDIA's driver", f"{_DRIVER} {'loads' if driver else 'cannot be loaded'}"),
        ("extra gpu", f"lacks {len(missing)} packages, {missing[0]}" if missing else "installed"),
        (f"TensorFlow {tf.__version__}", f"uses {gpu}" if gpu else "sees no GPU"),
    ]
    if gpu is not None:
        first, later = _seconds_of_convolutions()
        rows.append(("a convolution", f"{first:.1f} s the first time, then {later * 1e3:.2f} ms"))
    width = max(len(name) for name, _ in rows)
    print("\n" + "\n".join(f"{name:{width}}  {text}" for name, text in rows) + "\n")
    print(advice(device, driver, missing, gpu is not None))
    if device and gpu is None:
        sys.exit(1)


def advice(device: bool, driver: bool, missing: list[str], usable: bool) -> str:
    """What a user can do.

    Args:
      device: Whether the system has a GPU of NVIDIA.
      driver: Whether its driver can be loaded.
      missing: Packages of the extra `gpu` that are not installed.
      usable: Whether TensorFlow uses the GPU.
    """
    if usable:
        return "Rounds run on the GPU; --runtime=worker keeps them on the CPU."
    if not device:
        return (
            "Rounds run on the CPU. If there is a GPU of NVIDIA, the system hides it: a container "
            "needs `docker run --gpus=all`."
        )
    if not driver:
        return f"Rounds run on the CPU. Install NVIDIA's driver, 450.80 or later, for {_DRIVER}."
    if missing:
        return f"Rounds run on the CPU. Install the extra: {commands.with_extra('gpu')}"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return "Rounds run on the CPU, since CUDA_VISIBLE_DEVICES hides the GPU: unset it."
    return (
        "Rounds run on the CPU. TensorFlow says why it leaves out the GPU if the environment has "
        "TF_CPP_MIN_LOG_LEVEL=0."
    )


def missing_wheels() -> list[str]:
    """The packages of the extra `gpu` that are not installed."""
    missing = []
    for requirement in importlib.metadata.requires("tff_ssl") or []:
        package, _, marker = requirement.partition(";")
        if "gpu" in marker:
            name, _, version = package.strip().partition("==")
            try:
                installed = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                installed = ""
            if installed != version:
                missing.append(f"{name}=={version}")
    return missing


def _driver_loads() -> bool:
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return False
    return True


def _seconds_of_convolutions() -> tuple[float, float]:
    """Seconds of the first convolution, which the driver may compile for, and of a later one."""
    import tensorflow as tf

    images, kernel = tf.ones([512, 32, 32, 64]), tf.ones([3, 3, 64, 64])

    def convolve() -> float:
        start = time.perf_counter()
        float(tf.reduce_sum(tf.nn.conv2d(images, kernel, 1, "SAME")))
        return time.perf_counter() - start

    return convolve(), min(convolve() for _ in range(5))


SCRIPT = app.Script("check_gpu", main, CheckGpuConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
