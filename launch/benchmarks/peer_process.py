"""The process of another framework's program, which `benchmark` starts."""

import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import time
from typing import Any, NamedTuple

import psutil

from launch.benchmarks import processes
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.runtime import child_process, process_memory

FOLDER = "launch/benchmarks/peer_side"
_FOLDER = pathlib.Path(__file__).parent / "peer_side"
_CLOSE_SECONDS = 10


class Peer(NamedTuple):
    """A framework with which tff_ssl is compared."""

    name: str  # Name in --peer.
    title: str  # Name in texts.
    packages: tuple[str, ...]  # Packages of its environment, its own first.
    program: str  # Its program, a file in `peer_side`.
    # What trains one client at a time, in the singular and in the plural.
    units: tuple[str, str] = ("", "")

    @property
    def python(self) -> str:
        """The default interpreter, of an environment with its packages."""
        return f".venv_{self.name}/bin/python"

    @property
    def requirements(self) -> str:
        """The file that pins its packages."""
        return f"{FOLDER}/{self.name}_requirements.txt"


PEERS = {
    peer.name: peer
    for peer in (
        Peer("flower", "Flower", ("flwr", "torch", "ray"), "flower_round.py", ("actor", "actors")),
        Peer("pfl", "pfl", ("pfl", "torch"), "pfl_round.py", ("process", "processes")),
        Peer("torch", "PyTorch", ("torch", "numpy"), "torch_step.py"),
    )
}


def check(peer: Peer, python: str) -> None:
    """Checks that `python` is an interpreter with the peer's packages."""
    environment = pathlib.Path(python).parent.parent
    if environment.exists() and not (environment / "pyvenv.cfg").exists():  # The system's own.
        environment = pathlib.Path(peer.python).parent.parent
    remedy = (
        f"make the environment: python3 -m venv {environment} && {environment}/bin/pip install "
        f"-r {peer.requirements}"
    )
    print_missing = (
        "import importlib.util as u\n"
        f"print(*(name for name in {peer.packages} if u.find_spec(name) is None))"
    )
    try:
        done = _run(python, print_missing)
    except OSError as error:
        raise ConfigurationError(
            f"--peer_python={python}: no interpreter there ({error.strerror}); {remedy}"
        ) from error
    missing = done.stdout.split()
    if done.returncode or missing:
        fault = "is no Python interpreter" if done.returncode else f"lacks {', '.join(missing)}"
        raise ConfigurationError(f"--peer_python={python} {fault}; {remedy}")


def check_gpu(peer: Peer, python: str) -> None:
    """Checks that the peer's PyTorch can use a GPU, as TensorFlow does on this machine."""
    has_cuda = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    if _run(python, has_cuda).returncode:
        raise ConfigurationError(
            f"--peer_python={python}: its PyTorch has no GPU, but TensorFlow has; install "
            f"PyTorch's build with CUDA there ({peer.requirements} names the version), or hide the "
            "GPU from both with CUDA_VISIBLE_DEVICES=-1"
        )


def _run(python: str, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", program], capture_output=True, text=True, env=_environment()
    )


def _environment() -> dict[str, str]:
    """This process's environment without what points to this project's own packages."""
    ours = ("PYTHONHOME", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in ours}


class PeerProcess(processes.Measured):
    """A peer's steps in another interpreter.

    `facts` is the program's first line: `parameters`, `loss`, `gradient_norm` and the packages'
    `versions`.
    """

    def __init__(self, peer: Peer, python: str, settings: dict[str, Any]):
        """Starts the process and waits for its first step.

        Args:
          settings: `peer_settings.of_program` and the paths `images`, `labels`, `reference` and
            `temp_dir`.

        Raises:
          TrainingError: If the process ends.
        """
        environment = _environment() | {
            # No usage reports from Flower and Ray; the token keeps other users out of the cluster.
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            # What PyTorch compiles goes when the benchmark ends.
            "TORCHINDUCTOR_CACHE_DIR": settings["temp_dir"] + ".inductor",
            "TRITON_CACHE_DIR": settings["temp_dir"] + ".triton",
        }
        self._title = peer.title
        self._log = pathlib.Path(settings["temp_dir"] + ".log")
        with self._log.open("w") as log:
            self._process = child_process.start(
                [python, str(_FOLDER / peer.program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,  # Ctrl-C must not reach it; `close` ends it.
            )
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout
        super().__init__(self._process.pid)
        try:
            start = time.monotonic()
            self.facts = self._ask(json.dumps(settings))
            self.first_seconds = time.monotonic() - start
        except BaseException:
            self.close()
            raise

    def _step(self) -> float:
        return self._ask("step")["seconds"]

    def close(self) -> None:
        """Ends the process and everything it started."""
        self._watch.stop()
        tree = list(process_memory.process_tree(self.pid))
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        _, alive = psutil.wait_procs(tree, timeout=_CLOSE_SECONDS)
        for process in alive:
            process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # Those whose parent has ended.
        self._process.wait()
        self._answers.close()

    def _ask(self, line: str) -> dict[str, Any]:
        try:
            print(line, file=self._requests, flush=True)
        except BrokenPipeError:
            answer = ""
        else:
            answer = self._answers.readline()
        if not answer:
            errors = [line for line in self._log.read_text().splitlines() if "Error" in line]
            raise TrainingError(
                f"{self._title}'s program ended: {(errors or ['no error given'])[-1]}"
            )
        return json.loads(answer)
