"""What a node's clients keep between rounds, in files `memory/CLIENT/ROUND.npz` of the node.

The state of Flower's context would be lost when the SuperNode ends, and with every new run, also
one that resumes from a checkpoint. The server names, with each message, the last round in which it
counted the node's reply. What clients learned in later rounds is then forgotten: these rounds were
lost, or the server has resumed from an earlier checkpoint.
"""

import pathlib

import numpy as np

from tff_ssl import whole_files

Arrays = dict[str, np.ndarray]


def forget_after(folder: pathlib.Path, counted: int, current: int) -> None:
    """Removes what clients learned after round `counted`, other than in the round `current`."""
    for path in folder.glob("*/*.npz"):
        if counted < int(path.stem) != current:
            path.unlink()


def latest(folder: pathlib.Path, client: int, limit: int, initial: Arrays) -> Arrays:
    """A client's memory after its last round up to `limit`, or its initial one."""
    numbers = [number for number in _rounds(folder, client) if number <= limit]
    if not numbers:
        return initial
    with np.load(_path(folder, client, max(numbers))) as stored:
        return dict(stored)


def keep(folder: pathlib.Path, client: int, number: int, memory: Arrays) -> None:
    """Keeps a client's memory after a round, beside that of the round before it."""
    path = _path(folder, client, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_files.replacing(path, private=True) as new, new.open("wb") as file:
        np.savez(file, **memory)
    for old in _rounds(folder, client)[:-2]:
        _path(folder, client, old).unlink()


def _rounds(folder: pathlib.Path, client: int) -> list[int]:
    return sorted(int(path.stem) for path in (folder / str(client)).glob("*.npz"))


def _path(folder: pathlib.Path, client: int, number: int) -> pathlib.Path:
    return folder / str(client) / f"{number}.npz"
