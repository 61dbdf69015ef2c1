"""Checkpoints of a run as NumPy archives, which contain no executable code.

`tff.program.FileProgramStateManager` writes SavedModels. Loading one runs a TensorFlow graph, which
may write files: this is unsafe if its source is untrusted. Here a file is a zip archive of named
arrays, which NumPy reads without pickle. A CRC of each array reveals truncated files and flipped
bits, and the number of the round reveals a renamed file. A file appears complete or not at all.
"""

import io
import os
import pathlib
import re
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tff_ssl import whole_files

PREFIX = "round_"
_SUFFIX = ".npz"
_DAMAGED = ".damaged"
_KEPT = 2  # Newest versions.
_VERSION = "version"  # Name of the array with the number of the round.
_DIGEST_OF = "digest of "  # Start of the names of digests.


class Checkpoints:
    """The checkpoints in a folder; a state is a dict of arrays, such as the result of `pack`."""

    def __init__(self, folder: str | os.PathLike[str]):
        """Sets the folder, which `save` makes."""
        self.folder = pathlib.Path(folder)

    def versions(self) -> list[int]:
        """The rounds of the checkpoints, ascending."""
        pattern = re.compile(re.escape(PREFIX) + r"(\d+)" + re.escape(_SUFFIX))
        matches = (pattern.fullmatch(path.name) for path in self.folder.glob("*"))
        return sorted(int(match[1]) for match in matches if match)

    def load(self, version: int) -> dict[str, np.ndarray]:
        """The state of a version.

        Raises:
          Exception: Of any type, if the file is missing, damaged, renamed or not from `save`.
        """
        with np.load(self.path(version), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        state = {name: array for name, array in arrays.items() if not name.startswith(_DIGEST_OF)}
        # Checkpoints of earlier releases have no number.
        inside = state.pop(_VERSION, np.int64(version))
        if inside.shape or inside != version:
            raise ValueError(f"it is that of round {inside}, and was renamed")
        return state

    def digests(self, version: int) -> dict[str, str]:
        """What `save` got; empty for checkpoints of earlier releases."""
        with np.load(self.path(version), allow_pickle=False) as archive:
            names = [name for name in archive.files if name.startswith(_DIGEST_OF)]
            return {name.removeprefix(_DIGEST_OF): str(archive[name]) for name in names}

    def save(
        self,
        state: dict[str, np.ndarray],
        version: int,
        digests: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Writes or replaces a version, and deletes all but the two newest.

        Args:
          digests: Hashes of other files of the run at this moment, by what they are of.

        Raises:
          OSError: If the file cannot be written; the other versions are then unchanged.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # The archive is made in memory, as NumPy leaves a file open that could not be written.
        content = io.BytesIO()
        of_files = {f"{_DIGEST_OF}{name}": np.array(text) for name, text in digests.items()}
        np.savez(content, **state, **of_files, **{_VERSION: np.int64(version)})
        whole_files.write(self.path(version), content.getbuffer(), private=True)
        for old in self.versions()[:-_KEPT]:
            self.path(old).unlink()

    def path(self, version: int) -> pathlib.Path:
        return self.folder / f"{PREFIX}{version}{_SUFFIX}"

    def set_aside(self, version: int) -> pathlib.Path:
        """Renames a damaged version's file, so that it is ignored; returns the new path."""
        path = self.path(version)
        return path.rename(path.with_name(f"{path.name}{_DAMAGED}"))
