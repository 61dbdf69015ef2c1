"""Where the rounds of a run are computed: `--runtime`."""

import contextlib
from typing import Literal, NamedTuple

from launch.options.run_config import RuntimeConfig
from tff_ssl.errors import ConfigurationError
from tff_ssl.runtime import devices


class Chosen(NamedTuple):
    """A runtime."""

    name: Literal["worker", "in_process"]  # As `tff_ssl.runtime.start` takes it.
    description: str  # What it computes on, one line.
    gpu: devices.Gpu | None = None  # The GPU that it uses; None on a CPU.


def choose(config: RuntimeConfig, round_timeout: float | None) -> Chosen:
    """The runtime of a run, for which TensorFlow is prepared before it computes anything.

    Raises:
      ConfigurationError: If the runtime cannot do what other flags ask for.
    """
    if config.runtime == "in_process" and round_timeout is not None:
        raise ConfigurationError(
            "--runtime=in_process cannot stop a computation of its own process: leave out "
            "--round_timeout, or use --runtime=worker"
        )
    if config.runtime == "worker":
        chosen = Chosen("worker", "TFF's worker, on the CPU")
    elif round_timeout is not None:
        chosen = Chosen("worker", "TFF's worker, on the CPU: --round_timeout needs it")
    else:
        chosen = this_process(config)
        if chosen.gpu is None:
            devices.start_unoptimized()
    if config.ray is not None:  # What the nodes send is merged as in a run without them.
        chosen = chosen._replace(description="the processes of Ray's nodes")
    if not config.xla:
        return chosen
    if chosen.name == "worker" or config.ray is not None:
        raise ConfigurationError(
            f"--xla compiles rounds in this process, and these would run in {chosen.description}: "
            "add --runtime=in_process, without --ray and --round_timeout"
        )
    return chosen._replace(description=f"{chosen.description}; XLA compiles views and model")


def this_process(config: RuntimeConfig) -> Chosen:
    """TensorFlow in this process, whose GPUs are prepared before it computes anything."""
    gpu = devices.find_gpu()
    if config.deterministic:
        devices.use_deterministic_algorithms()
    if gpu is None:
        return Chosen("in_process", "this process, on the CPU")
    cache = devices.kernel_cache()
    if cache is not None and not cache.exists():
        with contextlib.suppress(OSError):  # The driver then keeps nothing.
            cache.mkdir(parents=True)
        print(
            "note: the first round takes half a minute longer on new GPUs, whose driver compiles "
            f"kernels and keeps them in {cache}/"
        )
    repeats = "repeatable" if config.deterministic else "repeatable only with --deterministic"
    arithmetic = f"{devices.products(gpu)} products, {repeats}"
    return Chosen("in_process", f"this process, on {gpu}; {arithmetic}", gpu)
