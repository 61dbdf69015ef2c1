"""The terminal of the tutorials, which starts scripts of `launch`."""

import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).parent.parent.parent


def run(command):
    """Runs a script of `launch` from the clone's root, and prints its output.

    Raises:
      RuntimeError: If the script failed or printed a warning.
    """
    print(f"$ uv run python -m {command}")
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=_ROOT, capture_output=True, text=True
    )
    print(done.stdout)
    if done.returncode or done.stderr:
        raise RuntimeError(done.stderr)
