"""Lists the files of a folder, without what other programs and earlier runs have put into it.

Hidden files and folders are left out, those of other programs such as `@eaDir`, and the folders of
runs. Links to files inside the folder are files. All other links, to folders or out of the folder,
are left out, or followed on request. A folder is read once, even if several links lead to it.
"""

import collections
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from datasets import image_file
from datasets.errors import DatasetError

# Folders that are left out as hidden ones are, in small letters.
_HIDDEN = ("__macosx", "__pycache__")
# Folders of other programs and systems, in small letters.
_OTHERS = {
    "@eadir", "@recycle", "#recycle", "#snapshot", "$recycle.bin", "system volume information",
    "lost+found", "thumbs", "thumbnails", "found.000",
}  # fmt: skip
# Any of them, beside config.json, makes a folder that of a run.
_OF_RUN = ("encoder", "checkpoints", "metrics.csv", "partition.json", "tensorboard", "run.html")

# What other scripts write: numbers, and their picture.
_PICTURES = (
    ("partition.json", "partition.png"), ("sweep.json", "sweep.png"),
    ("visualize.json", "features.png"),
)  # fmt: skip


class Found(NamedTuple):
    """What a folder holds, as paths inside it."""

    #: Images by their names or, without an ending, by their content; those of a folder before those
    #: of its subfolders, sorted.
    images: list[str]
    no_images: list[str]  #: Other files.
    links: list[str]  #: Links that are left out.
    runs: list[str]  #: Folders of runs, which are left out.
    others: list[str]  #: Folders of other programs, pipes and devices, which are left out.

    def notes(self, follow_links: bool) -> list[str]:
        """Notes on what is left out."""
        links = (
            "they lead to folders that are read already, or nowhere"
            if follow_links
            else "--follow_links also reads links to folders and out of the folder"
        )
        kinds = (
            ("links", self.links, links),
            ("folders of runs", self.runs, "their pictures are no data"),
            ("files and folders of other programs", self.others, "such as thumbnails and pipes"),
        )
        notes = [
            f"{what} left out: {len(paths):,} ({why}): {shortened(paths)}"
            for what, paths, why in kinds
            if paths
        ]
        return [*notes, *([self._no_images()] if self.no_images else [])]

    def _no_images(self) -> str:
        """A note that counts the other files by their endings."""
        endings = collections.Counter(os.path.splitext(n)[1].lower() for n in self.no_images)
        counts = [f"{count:,} {end or 'without'}" for end, count in endings.most_common()]
        unread = sorted({image_file.UNREAD[end] for end in endings if end in image_file.UNREAD})
        advice = f" ({image_file.how_to_convert(unread)})" if unread else ""
        return (
            f"{len(self.no_images):,} files are left out, because they are no images by their "
            f"endings: {shortened(counts, 8)}{advice}"
        )


def shortened(names: Sequence[str], most: int = 3) -> str:
    """Names with commas; of many, the first ones and the number of the others."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def walk(root: pathlib.Path, follow_links: bool = False) -> Found:
    """Lists the files of a folder.

    Raises:
      DatasetError: A folder cannot be read, or the folder itself is that of a run.
    """
    if _is_run(str(root)):
        raise DatasetError(
            f"data_dir: {root} is the folder of a run: name the folder of the images"
        )
    inside = os.path.realpath(root)
    found = Found([], [], [], [], [])
    visited: set[str] = set()  # Folders that only links lead to.
    waiting = [("", inside)]
    while waiting:
        folder, real = waiting.pop()
        if real in visited:
            found.links.append(folder)
            continue
        if not _is_walked(real, inside):
            visited.add(real)
        subfolders = []
        for entry in _entries(root / folder):
            if entry.name.startswith("."):
                continue
            path, is_link = os.path.join(folder, entry.name), entry.is_symlink()
            target = os.path.realpath(entry.path) if is_link else os.path.join(real, entry.name)
            # Unlike that of an entry, the function of the path takes links in a circle.
            if os.path.isdir(entry.path) if is_link else entry.is_dir():
                if entry.name.lower() in _OTHERS:
                    found.others.append(path)
                elif is_link and not (
                    # Not to what is read anyway, and not to a folder around it, in a circle.
                    follow_links
                    and not _is_walked(target, inside)
                    and not is_inside(inside, target)
                ):
                    found.links.append(path)
                elif _is_run(entry.path):
                    found.runs.append(path)
                elif not _is_hidden(entry.name):
                    subfolders.append((path, target))
            elif is_link and not (
                os.path.isfile(entry.path) and (follow_links or is_inside(target, inside))
            ):
                found.links.append(path)
            elif not entry.is_file():
                found.others.append(path)
            elif image_file.is_image(entry.path):
                found.images.append(path)
            else:
                found.no_images.append(path)
        waiting += reversed(subfolders)
    return found


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or inside it; both are absolute and without links."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_walked(path: str, root: str) -> bool:
    """Whether a folder is inside the root and not hidden, so that it is read without links."""
    names = os.path.relpath(path, root).split(os.sep)
    return is_inside(path, root) and not any(_is_hidden(n) for n in names if n != ".")


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in _HIDDEN


def _entries(folder: pathlib.Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise DatasetError(f"data_dir: {folder} cannot be read: {error.strerror}") from error


def _is_run(folder: str | pathlib.Path) -> bool:
    """Whether a folder holds the results of a script."""
    if os.path.exists(os.path.join(folder, "config.json")):
        return any(os.path.exists(os.path.join(folder, name)) for name in _OF_RUN)
    return any(
        all(os.path.exists(os.path.join(folder, name)) for name in pair) for pair in _PICTURES
    )
