"""The content of a run's files, for comparisons of runs."""

import pathlib

import numpy as np

_OF_TIMES = "digest of metrics.csv"  # The file has the seconds of each round.


def content(path: pathlib.Path) -> bytes | dict[str, bytes]:
    """The bytes of a file; of a checkpoint, those of each array that does not depend on times."""
    if path.parent.name != "checkpoints" or path.suffix != ".npz":
        return path.read_bytes()
    with np.load(path) as archive:
        assert _OF_TIMES in archive.files
        return {name: archive[name].tobytes() for name in archive.files if name != _OF_TIMES}
