"""A temporary folder for each process, which a later process removes if this one is killed.

TensorFlow, TFF's worker and Ray leave temporary files behind after SIGKILL. Here, the folder's name
has the process's id and start time, so the next process sees that its owner has ended.
"""

import atexit
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import tempfile

_PREFIX = "tff_ssl_"
_NAME = re.compile(re.escape(_PREFIX) + r"(\d+)_(\d+)_\w+")
_own: dict[pathlib.Path, int] = {}  # Folder of this process -> descriptor with its lock.


def use() -> pathlib.Path:
    """Makes a private folder for this process's temporary files; removes those of dead processes.

    The folder (mode 700) is this process's `tempfile.gettempdir()` until its end, when it is
    removed. Child processes are not affected. Further calls return the same folder.

    Raises:
      OSError: If the folder cannot be made; the message names TMPDIR.
    """
    if _own:
        return next(iter(_own))
    try:
        parent = pathlib.Path(tempfile.gettempdir()).absolute()
        prefix = f"{_PREFIX}{os.getpid()}_{_start_time(os.getpid())}_"
        folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    except OSError as error:
        raise OSError(
            error.errno, f"no folder for temporary files ({error.strerror}): set TMPDIR to one"
        ) from error
    _own[folder] = _lock(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tempfile.tempdir = str(folder)
    remove_dead(parent)
    return folder


def remove_dead(parent: pathlib.Path) -> None:
    """Removes the folders in `parent` that killed processes of this user have left."""
    for folder in parent.glob(f"{_PREFIX}*"):
        name = _NAME.fullmatch(folder.name)
        with contextlib.suppress(OSError):
            if not name or folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            if _start_time(int(name[1])) == int(name[2]):
                continue
            # A process in another container holds the lock, even if its id is unknown here.
            descriptor = _lock(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _lock(folder: pathlib.Path) -> int:
    """Locks the folder until the descriptor is closed; an OSError if it is locked already."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _start_time(pid: int) -> int | None:
    """A process's start, in ticks since that of the system; None if there is no such process."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[19])
