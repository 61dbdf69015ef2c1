"""A run's checkpoints: arrays in a NumPy archive, and nothing that could run.

`tff.program.FileProgramStateManager` writes SavedModels, and loading one runs the TensorFlow graph
in it, which may write files: a stranger's checkpoint would be a stranger's program. Here a file
holds named arrays with a CRC each (a zip archive, which NumPy reads without pickle): a file that
was cut short, or in which bits were flipped, is noticed. It appears complete or not at all.
"""

import contextlib
import io
import os
import pathlib
import re
import tempfile
from typing import Any

import numpy as np
import tensorflow_federated as tff

PREFIX = "round_"
_SUFFIX = ".npz"
_UNFINISHED = ".new"
_DAMAGED = ".damaged"


class CheckpointManager(tff.program.ProgramStateManager):
    """The checkpoints in a folder; a state is a dict of arrays, such as `packing.pack` gives."""

    def __init__(self, folder: str | os.PathLike[str], keep: int = 2):
        """Reads no file yet.

        Args:
          folder: Made by the first `save`.
          keep: How many of the newest versions stay.
        """
        self._folder = pathlib.Path(folder)
        self._keep = keep

    async def get_versions(self) -> list[int] | None:
        """The rounds of the checkpoints, ascending; None if there is none."""
        pattern = re.compile(re.escape(PREFIX) + r"(\d+)" + re.escape(_SUFFIX))
        matches = (pattern.fullmatch(path.name) for path in self._folder.glob("*"))
        return sorted(int(match[1]) for match in matches if match) or None

    async def load(self, version: int, structure: Any = None) -> dict[str, np.ndarray]:
        """The state of a version.

        Raises:
          ProgramStateNotFoundError: If there is none.
          Exception: Of many kinds, if the file is not one that `save` wrote, whole.
        """
        del structure  # The names and shapes are in the file.
        path = self.path(version)
        if not path.exists():
            raise tff.program.ProgramStateNotFoundError(version)
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    async def save(self, program_state: dict[str, np.ndarray], version: int) -> None:
        """Writes a version, in the place of one of that number, and deletes old ones.

        Raises:
          OSError: If it cannot be written; the other versions are then as they were.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        # Not straight into the file: NumPy leaves an archive open that could not be written.
        content = io.BytesIO()
        np.savez(content, **program_state)
        descriptor, name = tempfile.mkstemp(_UNFINISHED, PREFIX, self._folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path(version))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        for old in (await self.get_versions() or [])[: -self._keep]:
            self.path(old).unlink()

    def path(self, version: int) -> pathlib.Path:
        """The file of a version."""
        return self._folder / f"{PREFIX}{version}{_SUFFIX}"

    def set_aside(self, version: int) -> pathlib.Path:
        """Renames a version that cannot be read, so that it is none any more; its new path."""
        path = self.path(version)
        return path.rename(path.with_name(f"{path.name}{_DAMAGED}"))

    def clean_up(self) -> None:
        """Deletes what a killed run was writing."""
        for path in self._folder.glob(f"{PREFIX}*{_UNFINISHED}"):
            path.unlink()
