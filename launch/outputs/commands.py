"""Commands that a user can paste into the shell in which the script was started."""

import os
import pathlib
import shlex
import shutil
import sys

CONTINUE = "continue with: "  # Precedes the command that continues a script that was stopped.


def module(name: str, *arguments: str) -> str:
    """The command that runs a Python module, with quoted arguments, in this process's environment.

    It begins with `uv run python` under `uv run`, otherwise with `python`; with the program's path
    if the shell does not find it.
    """
    uv = _uv()
    python = [uv, "run", "python"] if uv else [_shown(sys.executable, "python", "python3")]
    return shlex.join([*python, "-m", name, *arguments])


def with_extra(extra: str) -> str:
    """The command that restarts this script with an extra of the package, or installs all extras.

    It keeps installed extras; `uv sync --extra` would remove them.
    """
    uv, spec = _uv(), sys.modules["__main__"].__spec__
    if uv and spec:
        return shlex.join([uv, "run", "--extra", extra, "python", "-m", spec.name, *sys.argv[1:]])
    return module("pip", "install", "--no-deps", "-r", "requirements_extras.txt")


def in_text(text: str) -> str:
    """The text with each `python -m launch` as a command that can be pasted."""
    return text.replace("python -m launch", module("launch"))


def _uv() -> str:
    """The uv that runs this process, as `_shown`; empty if none does."""
    environment = os.environ.get("VIRTUAL_ENV")  # `uv run` sets both variables.
    uv = os.environ.get("UV", "")
    if not environment or not os.path.isfile(uv):
        return ""
    return _shown(uv, "uv") if os.path.realpath(environment) == os.path.realpath(sys.prefix) else ""


def _shown(program: str, *names: str) -> str:
    """The first name under which the shell finds a program, otherwise its shortest path."""
    for name in names:
        if shutil.which(name) == program:
            return name
    path, here = pathlib.Path(program), pathlib.Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
