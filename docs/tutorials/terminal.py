"""What the tutorials share: a script of `launch` is started as in a terminal."""

import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).parent.parent.parent


def run(command):
    """Runs a script of `launch` from the root of the clone, and prints what it prints.

    Raises:
      RuntimeError: The script failed, or printed a warning.
    """
    print(f"$ uv run python -m {command}")
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=_ROOT, capture_output=True, text=True
    )
    print(done.stdout)
    if done.returncode or done.stderr:
        raise RuntimeError(done.stderr)
