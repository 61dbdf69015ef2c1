"""Children end with their parent, also when it is killed by SIGKILL."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tff_ssl.runtime import child_process

PARENTS = {
    "start": """
import sys
from tff_ssl.runtime import child_process
child = child_process.start([sys.executable, "-c", "import time; time.sleep(3600)"])
print(child.pid, flush=True)
child.wait()
""",
    "measured program": """
import time
from launch.benchmarks import processes
from tests.runtime.test_child_process import sleeping
child = processes.Child(sleeping)
print(child.pid, flush=True)
child.step()
""",
}


def sleeping():
    """A program of `benchmark` whose second step does not end."""
    yield
    time.sleep(3600)


def ends(pid):
    """Waits until a process has ended; a zombie has, whose parent in a container may not reap."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("parent", PARENTS)
def test_a_child_ends_with_a_parent_that_is_killed(project_root, parent):
    process = subprocess.Popen(
        [sys.executable, "-c", f"if __name__ == '__main__':\n    exec({PARENTS[parent]!r})"],
        cwd=project_root,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        child = int(process.stdout.readline())
        assert psutil.pid_exists(child)
        process.send_signal(signal.SIGKILL)
    assert ends(child)


def test_the_command_gets_its_arguments_and_gives_its_code():
    code = "import sys; print(sys.argv[1:]); sys.exit(3)"
    process = child_process.start(
        [sys.executable, "-c", code, "a b", "--flag=é"], stdout=subprocess.PIPE, text=True
    )
    output, _ = process.communicate(timeout=600)
    assert (process.returncode, output) == (3, "['a b', '--flag=é']\n")


def test_a_child_whose_parent_ended_before_does_not_start():
    nobody = max(psutil.pids()) + 100_000
    done = subprocess.run(
        [sys.executable, child_process.__file__, str(nobody), "echo", "started"],
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def test_a_missing_program_is_one_line():
    process = child_process.start(["/nonexistent/program"], stderr=subprocess.PIPE, text=True)
    _, error = process.communicate(timeout=600)
    assert process.returncode == 1
    assert error == "error: /nonexistent/program cannot be started: No such file or directory\n"


def test_signals_reach_the_command_itself():
    process = child_process.start(
        [sys.executable, "-c", "print(0, flush=True); import time; time.sleep(3600)"],
        stdout=subprocess.PIPE,
    )
    with process:
        process.stdout.readline()
        os.kill(process.pid, signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
