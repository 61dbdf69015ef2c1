"""Arrays of pixels, of which large ones lie in a temporary file instead of memory.

The operating system keeps as much of the file in memory as is free, and reads the rest on request.
The file has no name, so that nothing is left of it when the program ends, even if it is killed.
"""

import math
import os
import tempfile

import numpy as np
import numpy.typing as npt

from datasets.errors import DatasetError

LARGEST_IN_MEMORY = 2**30  # Bytes.
_BLOCK = 1024  # Images that are copied at a time.


def empty(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """A new array, uint8; above `LARGEST_IN_MEMORY` a file in `TMPDIR`, by default `/var/tmp`.

    Raises:
      DatasetError: The folder does not exist, cannot be written, or is full.
    """
    size = math.prod(shape)
    if size <= LARGEST_IN_MEMORY:
        return np.empty(shape, np.uint8)
    folder = os.environ.get("TMPDIR", "/var/tmp")  # /tmp often is memory itself.
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # A write to a mapped page kills the program if the disk is full: take the space now.
            os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, np.uint8, "r+", shape=shape).view(np.ndarray)
    except OSError as error:
        raise DatasetError(
            f"TMPDIR={folder}: no file of {size / 1e9:.1f} GB for the pixels ({error.strerror}): "
            "set TMPDIR to a folder on a disk with as much space, or choose a smaller --image_size"
        ) from error


def take(
    images: npt.NDArray[np.uint8], indices: npt.NDArray[np.int64] | slice
) -> npt.NDArray[np.uint8]:
    """The images at `indices`, in that order; or those of a slice, not copied."""
    if isinstance(indices, slice):
        return images[indices]
    taken = empty((len(indices), *images.shape[1:]))
    for start in range(0, len(indices), _BLOCK):
        taken[start : start + _BLOCK] = images[indices[start : start + _BLOCK]]
    return taken
