"""The process of Flower's rounds, which `benchmark` drives; its program is in `flower_side`."""

import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import psutil

from launch.benchmarks import processes
from tff_ssl.errors import ConfigurationError, TrainingError

PYTHON = ".venv_flower/bin/python"
_FOLDER = pathlib.Path(__file__).parent / "flower_side"
REQUIREMENTS = "launch/benchmarks/flower_side/flower_requirements.txt"
PACKAGES = ("torch", "flwr", "ray")
_CLOSE_SECONDS = 10
_MEGABYTE = 1e6


def check(python: str) -> None:
    """Complains if `python` is not an interpreter with what Flower's rounds need.

    Raises:
      ConfigurationError: See there.
    """
    environment = pathlib.Path(python).parent.parent
    remedy = (
        f"make the environment: python3 -m venv {environment} && {environment}/bin/pip install "
        f"-r {REQUIREMENTS}"
    )
    look = (
        "import importlib.util as u\n"
        f"print(*(name for name in {PACKAGES} if u.find_spec(name) is None))"
    )
    try:
        found = subprocess.run([python, "-c", look], capture_output=True, text=True)
    except OSError as error:
        raise ConfigurationError(
            f"--peer_python={python}: no interpreter there ({error.strerror}); {remedy}"
        ) from error
    if found.returncode or found.stdout.split():
        lacks = f"lacks {', '.join(found.stdout.split())}"
        what = "is no Python interpreter" if found.returncode else lacks
        raise ConfigurationError(f"--peer_python={python} {what}; {remedy}")


class FlowerProcess:
    """As `measure.Child`, for Flower's rounds in another interpreter.

    Attributes:
      facts: Of `flower_round`.
      first_seconds: From the start of the process to the end of its first round.
      pid: Its own.
    """

    def __init__(self, python: str, told: dict[str, Any]):
        environment = os.environ | {
            # Neither reports what it runs, and nobody else gets into this Ray.
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        self._log = pathlib.Path(told["temp_dir"] + ".log")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, str(_FOLDER / "flower_round.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,  # Ctrl-C is for us: it ends when we close it.
            )
        assert self._process.stdin
        assert self._process.stdout
        self._asks, self._answers = self._process.stdin, self._process.stdout
        self.pid = self._process.pid
        self._watch = processes.MemoryWatch(self.pid)
        try:
            start = time.monotonic()
            self.facts = self._ask(json.dumps(told))
            self.first_seconds = time.monotonic() - start
        except BaseException:
            self.close()
            raise

    def step(self) -> float:
        """Has a round done; its seconds."""
        return self._ask("step")["seconds"]

    def peak_rss_mb(self) -> float:
        """Most memory held at once by all of its processes so far."""
        return self._watch.peak / _MEGABYTE

    def close(self) -> None:
        """Ends it and all of Ray's processes."""
        self._watch.stop()
        tree = list(process_tree(self.pid))
        with contextlib.suppress(BrokenPipeError):
            self._asks.close()
        _, alive = psutil.wait_procs(tree, timeout=_CLOSE_SECONDS)
        for process in alive:
            process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # Those that a process left when it ended.
        self._process.wait()
        self._answers.close()

    def _ask(self, line: str) -> dict[str, Any]:
        try:
            print(line, file=self._asks, flush=True)
        except BrokenPipeError:
            answer = ""
        else:
            answer = self._answers.readline()
        if not answer:
            errors = [line for line in self._log.read_text().splitlines() if "Error" in line]
            raise TrainingError(f"Flower's rounds ended: {(errors or ['no error given'])[-1]}")
        return json.loads(answer)


def process_tree(pid: int) -> Iterator[psutil.Process]:
    """A process, and those that it and they have started; none if it has ended."""
    try:
        process = psutil.Process(pid)
        yield process
        yield from process.children(recursive=True)
    except psutil.NoSuchProcess:
        pass
