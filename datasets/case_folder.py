"""Loader for a folder of images, with a table of cases or with a folder for each class.

With a `metadata.csv` (see `case_table`), each image belongs to a case, and the partition `per_case`
makes each case a client. Without it, images lie in folders of their classes (see `class_folders`).
"""

import os
import pathlib
from collections.abc import Sequence

from PIL import Image

from datasets import case_table, class_folders, image_file, listing
from datasets.case_table import METADATA, Problems, Row
from datasets.errors import DatasetError
from datasets.image_dataset import ImageDataset
from datasets.listing import Layout, Listing


def layout(root: pathlib.Path) -> Layout:
    """The layout of a folder; that of cases if there is no such folder."""
    if not root.is_dir() or (root / METADATA).exists():
        return Layout.CASES
    return Layout.CLASSES if class_folders.has_classes(root) else Layout.IMAGES


def check(data_dir: str | os.PathLike[str]) -> Listing:
    """Lists and checks the images of a folder without decoding them; they become RGB.

    Raises:
      DatasetError: Missing folder, or one without images; unreadable table; and, with the row: a
        wrong number of fields, a repeated file, an unknown split, a case in two splits, a label
        that train does not have, a file outside the folder, a missing or broken image.
    """
    root = pathlib.Path(data_dir)
    if not root.is_dir():
        raise DatasetError(f"data_dir: {root} is not a folder")
    is_table = layout(root) is Layout.CASES
    source = root / METADATA if is_table else root
    own_split = f"the column split of {METADATA}" if is_table else "train/CLASS/ and test/CLASS/"
    problems, notes = Problems(source), list[str]()
    if is_table:
        rows = case_table.read(source, problems)
    else:
        rows, left_out = class_folders.read(root)
        notes += _describe(root, rows, left_out)

    def open_row(row: Row) -> Image.Image:
        name = os.path.normpath(row.file_name)
        if not row.file_name or os.path.isabs(name) or name.split(os.sep)[0] == os.pardir:
            raise DatasetError(
                "file_name must be a path inside the folder: move the image there, and write its "
                "path relative to the folder"
            )
        return image_file.open_image(root / name)

    return listing.of_files("case_folder", source, rows, open_row, problems, notes, own_split)


def load(data_dir: str | os.PathLike[str], image_size: int | None = None) -> ImageDataset:
    """Reads the whole folder, see `listing.load`; the errors are those of `check`, too."""
    return listing.load(check(data_dir), image_size)


def _describe(root: pathlib.Path, rows: Sequence[Row], left_out: int) -> list[str]:
    """Notes on a folder without a table."""
    classes = len({row.label for row in rows} - {""})
    what = f"in {classes} folders, one a class" if classes else "without labels"
    if not classes and any(os.sep in row.file_name for row in rows):
        what += f", because {root} does not have two folders of classes with images"
    notes = [f"no {METADATA}: {len(rows):,} images {what}"]
    if left_out:
        notes.append(f"{left_out:,} files are left out: not images, or in no class folder")
    return notes
