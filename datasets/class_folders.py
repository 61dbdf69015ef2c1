"""Images in folders that are named after their classes, without a table.

    cat/0001.jpg
    dog/0001.jpg

An image may lie deeper in the folder of its class. If the folders at the top are named after
splits (`train/cat/0001.jpg`, in letters of any case), the classes are one level below. Images that
all lie in one folder have no labels.
"""

import os
import pathlib
from collections.abc import Iterator, Sequence

from datasets import image_file
from datasets.case_table import NO_SPLIT, SPLITS, Row
from datasets.errors import DatasetError


def has_classes(root: pathlib.Path) -> bool:
    """Whether two or more classes, in any split, have images."""
    tops = _subfolders(root)
    folders = [sub for top in tops for sub in _subfolders(top)] if _are_splits(tops) else tops
    return len({folder.name for folder in folders if any(map(_is_image, _files(folder)))}) > 1


def _are_splits(folders: Sequence[pathlib.Path]) -> bool:
    return bool(folders) and {folder.name.lower() for folder in folders} <= set(SPLITS)


def _subfolders(root: pathlib.Path) -> list[pathlib.Path]:
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if _visible(path) and path.is_dir()]


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in image_file.SUFFIXES


def read(root: pathlib.Path) -> tuple[list[Row], int]:
    """Lists the images of a folder in the order of their names, and counts the files left out.

    Left out are hidden files and folders, files without an image's suffix and, if there are folders
    of classes, images outside of them.

    Raises:
      DatasetError: If there are no images, or a split has a class that train does not have.
    """
    classes = has_classes(root)
    splits = _are_splits(_subfolders(root))
    depth = 2 if splits else 1
    rows: list[Row] = []
    left_out = 0
    for name in _files(root):
        parts = name.split(os.sep)
        if not _is_image(name) or (classes and len(parts) <= depth):
            left_out += 1
            continue
        label = parts[depth - 1] if classes else ""
        split = SPLITS[parts[0].lower()] if splits and len(parts) > 1 else NO_SPLIT
        rows.append(Row(len(rows) + 1, name, "", label, split))
    if not rows:
        raise DatasetError(
            f"data_dir: {root} has no images: put them in a folder for each class, or beside a "
            "metadata.csv with the columns file_name and case_id; names end with "
            f"{', '.join(image_file.SUFFIXES)}"
        )
    known = {row.label for row in rows if row.split == "train"}
    for row in rows:
        if known and row.label not in known:
            raise DatasetError(
                f"{root / row.file_name}: the class {row.label!r} has no images in "
                f"{root / 'train'}: move some of them there, or remove the folder"
            )
    return rows, left_out


def _files(root: pathlib.Path) -> Iterator[str]:
    """The paths of all visible files inside a folder, sorted."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if _visible(pathlib.Path(name)))
        for name in sorted(names):
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(folder, name), root)


def _visible(path: pathlib.Path) -> bool:
    """Whether a name is neither hidden nor an archiver's (`__MACOSX`)."""
    return not path.name.startswith((".", "__"))
