"""Files and folders that appear whole or not at all: the way in which this project writes them.

What is written has a new, random name in the same folder until it is complete and synced to the
disk, and then takes the place of what had its name. `tempfile` makes that name exclusively, and a
renaming replaces a link instead of following it, so that a link that somebody left in the folder,
under whatever name, leads no content elsewhere.
"""

import contextlib
import os
import pathlib
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import IO

_SUFFIX = ".new"
_LONGEST = 100  # Characters of a name that its temporary name repeats.
_UNFINISHED = re.compile(r"\..*\.[a-z0-9_]{8}\.new", re.DOTALL)


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], private: bool = False, durable: bool = True
) -> Iterator[pathlib.Path]:
    """Yields the path of an empty file, which replaces `path` when the block has filled it.

    Args:
      path: The file, which need not exist; its folder must.
      private: Whether only this user may read the file, as checkpoints and images of a data set.
      durable: Whether to wait until the content is on the disk.
    """
    path = pathlib.Path(path)
    descriptor, name = tempfile.mkstemp(_SUFFIX, _prefix(path), path.parent)
    temporary = pathlib.Path(name)
    try:
        os.close(descriptor)
        yield temporary
        if durable:
            sync(temporary)
        if not private:
            temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # A full disk does not say where.
        raise


def write(
    path: str | os.PathLike[str], content: bytes | memoryview | str, private: bool = False
) -> pathlib.Path:
    """Writes a file, with a text in UTF-8, as `replacing` does; returns its path."""
    with replacing(path, private) as temporary:
        # Names of files need not be UTF-8.
        encoded = content.encode(errors="surrogateescape") if isinstance(content, str) else content
        temporary.write_bytes(encoded)
    return pathlib.Path(path)


@contextlib.contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields the path of an empty folder, which replaces `path` when the block has filled it."""
    path = pathlib.Path(path)
    temporary = pathlib.Path(tempfile.mkdtemp(_SUFFIX, _prefix(path), path.parent))
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        # To delete a folder takes a while, to rename it does not.
        with tempfile.TemporaryDirectory(_SUFFIX, _prefix(path), path.parent) as aside:
            old = pathlib.Path(aside, path.name)
            if path.is_symlink() or path.exists():
                path.rename(old)
            try:
                temporary.rename(path)
            except BaseException:
                if old.is_symlink() or old.exists():
                    old.rename(path)
                raise
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def append(path: str | os.PathLike[str]) -> IO[str]:
    """Opens a text file to which lines are added; an OSError if it is a link.

    Names of files in it need not be UTF-8.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o666)

    return open(path, "a", newline="", encoding="utf-8", errors="surrogateescape", opener=opener)


def remove(path: pathlib.Path) -> None:
    """Deletes a file, a link or a folder with its content, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_unfinished(folder: pathlib.Path) -> None:
    """Deletes what a killed process has left unfinished in a folder, which no other one uses."""
    for inside, folders, files in os.walk(folder):
        for name in filter(_UNFINISHED.fullmatch, [*folders, *files]):
            remove(pathlib.Path(inside, name))
        folders[:] = [name for name in folders if not _UNFINISHED.fullmatch(name)]


def first_odd(folder: pathlib.Path) -> pathlib.Path | None:
    """A symbolic link, a pipe or a device in a folder or its subfolders; None if there is none."""
    for inside, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            mode = os.lstat(os.path.join(inside, name)).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                return pathlib.Path(inside, name)
    return None


def is_odd(path: str) -> bool:
    """Whether something is at a path that is neither a file nor a folder, nor a link to one.

    To read a pipe or a device may take forever.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def sync(path: str | os.PathLike[str]) -> None:
    """Waits until a file is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prefix(path: pathlib.Path) -> str:
    return f".{path.name[:_LONGEST]}."


def _umask() -> int:
    """The permissions that this process takes away from new files."""
    mask = os.umask(0o077)  # It can only be read by setting it.
    os.umask(mask)
    return mask
