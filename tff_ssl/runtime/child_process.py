"""Child processes that end with their parent, however it ends.

A parent that is killed by SIGKILL cannot end its children; Linux ends those that have requested it
(PR_SET_PDEATHSIG). `start` runs this module as a script, which makes the request and then becomes
the command; the request survives that. It imports only the standard library:

    python child_process.py PARENT_PID COMMAND [ARGUMENT ...]

Linux sends the signal when the thread that started the child ends, so a thread must outlive its
children.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1


def start(command: Sequence[str], **options: Any) -> subprocess.Popen:
    """Starts a command that is killed (SIGKILL) when the calling thread or process ends."""
    wrapper = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid())]
    return subprocess.Popen([*wrapper, *command], **options)


def end_with_parent(parent: int) -> None:
    """Has the system kill this process when the thread that started it ends, or already has."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"error: {sys.argv[2]} cannot be started: {error.strerror}")
