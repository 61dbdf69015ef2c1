"""The temporary folder of a process, and what is left of it after SIGKILL."""

import errno
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest

from tff_ssl.runtime import temporary_folder

PROGRAM = """
import pathlib, tempfile
from tff_ssl.runtime import temporary_folder
folder = temporary_folder.use()
assert temporary_folder.use() == folder == pathlib.Path(tempfile.gettempdir())
assert folder.stat().st_mode & 0o777 == 0o700
tempfile.NamedTemporaryFile(prefix="__autograph_generated_file", delete=False).close()
print(folder, flush=True)
input()
"""


@pytest.fixture
def start(project_root, tmp_path):
    """Starts a program that waits with a file in its folder; returns the process and the folder."""
    started = []

    def start_one():
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=project_root,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, pathlib.Path(process.stdout.readline().strip())

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def test_a_later_start_removes_what_killed_processes_left_and_nothing_else(start, tmp_path):
    (tmp_path / "tff_ssl_of_somebody").mkdir()
    (tmp_path / "tff_ssl_1_1_link").symlink_to(tmp_path / "tff_ssl_of_somebody")
    others = set(tmp_path.iterdir())
    (killed, left), (_, alive) = start(), start()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(list(left.iterdir())) == 1
    _, last = start()
    assert set(tmp_path.iterdir()) == others | {alive, last}
    assert len(list(alive.iterdir())) == 1


def test_a_process_that_ends_removes_its_folder(start, tmp_path):
    process, folder = start()
    assert folder.parent == tmp_path
    process.communicate("\n", timeout=600)
    assert process.returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_folder_of_an_unknown_process_is_kept_while_it_is_locked(start, tmp_path):
    """As of a process in another container, which shares the folder but not the process ids."""
    process, folder = start()
    renamed = folder.rename(tmp_path / "tff_ssl_999999999_1_other")
    start()
    assert renamed.exists()
    process.kill()
    process.wait()
    start()
    assert not renamed.exists()


def test_a_folder_that_cannot_be_made_is_one_line_that_names_tmpdir(monkeypatch):
    def fail(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(temporary_folder, "_own", {})
    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    with pytest.raises(OSError, match=r"No space left on device.*TMPDIR"):
        temporary_folder.use()
