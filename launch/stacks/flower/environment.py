"""The Python environment of the Flower app, which is made once and reused."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from tff_ssl import whole_files
from tff_ssl.errors import ConfigurationError

APP = pathlib.Path(__file__).parent / "app"
REQUIREMENTS = pathlib.Path(__file__).parent / "requirements.txt"
_PYTHON = "3.11"  # For which TensorFlow 2.14.1 and Flower 1.42 both have wheels.


def folder() -> pathlib.Path:
    """The environment's folder in the user's cache; its name changes with the pins."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    return pathlib.Path(cache) / "tff_ssl" / f"flower-{digest}"


def make() -> pathlib.Path:
    """Makes the environment if there is none; returns the folder of its programs.

    Raises:
      ConfigurationError: If the packages cannot be downloaded; in one line.
    """
    target = folder()
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        print(f"making Flower's environment in {target}", flush=True)
        with (
            tempfile.TemporaryDirectory(prefix="tff_ssl_uv_") as scratch,
            whole_files.replacing_folder(target) as new,
        ):
            uv = [os.environ.get("UV") or shutil.which("uv") or _uv_of_pip(scratch), "--quiet"]
            _run(scratch, *uv, "venv", "--clear", "--relocatable", "--python", _PYTHON, str(new))
            install = ("pip", "install", "--no-deps", "--require-hashes", "--compile-bytecode")
            _run(scratch, *uv, *install, "--python", str(new), "-r", str(REQUIREMENTS))
    return target / "bin"


def _uv_of_pip(folder: str) -> str:
    """The path of a uv that pip installs in a folder, for a machine without uv."""
    _run(folder, sys.executable, "-m", "venv", f"{folder}/venv")
    _run(folder, f"{folder}/venv/bin/pip", "--quiet", "install", "uv")
    return f"{folder}/venv/bin/uv"


def _run(folder: str, *command: str) -> None:
    """Runs a command outside the project, whose settings are for its own environment."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ConfigurationError(
            f"Flower's environment cannot be made: {' '.join(lines[-2:]) or command[0]} "
            "(it needs uv or pip, and a package registry, once)"
        )
