"""The Python environment of the Flower app, which uv makes once and which is reused."""

import hashlib
import os
import pathlib
import shutil
import subprocess

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
      ConfigurationError: If uv is missing or cannot download the packages; in one line.
    """
    target = folder()
    if not target.exists():
        uv = os.environ.get("UV") or shutil.which("uv")
        if uv is None:
            raise ConfigurationError(
                "Flower's environment is made by uv, which is not on the PATH: "
                "python3 -m pip install uv"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        print(f"making Flower's environment in {target}", flush=True)
        with whole_files.replacing_folder(target) as new:
            _run(uv, new.parent, "venv", "--clear", "--relocatable", "--python", _PYTHON, new)
            install = ("pip", "install", "--no-deps", "--require-hashes", "--compile-bytecode")
            _run(uv, new.parent, *install, "--python", new, "-r", REQUIREMENTS)
    return target / "bin"


def _run(uv: str, folder: pathlib.Path, *arguments: str | os.PathLike[str]) -> None:
    """Runs uv outside the project, whose settings are for the project's own environment."""
    command = [uv, "--quiet", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise ConfigurationError(
            f"Flower's environment cannot be made: {' '.join(lines[-2:]) or 'uv ended'} "
            "(it needs a package registry, once)"
        )
