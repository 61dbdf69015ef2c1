"""Loader for a folder of images, with a table of cases or with a folder for each class.

With a `metadata.csv` (see `case_table`), each image belongs to a case, and the partition `per_case`
makes each case a client. Without it, images lie in folders of their classes (see `class_folders`).
"""

import functools
import os
import pathlib
from collections.abc import Sequence

from PIL import Image

from datasets import (
    case_table,
    class_folders,
    copies,
    folder_walk,
    image_file,
    listing,
    split_words,
)
from datasets.case_table import METADATA, NO_SPLIT, Problems, Row, normal
from datasets.errors import DatasetError
from datasets.folder_walk import Found
from datasets.image_dataset import ImageDataset
from datasets.listing import Layout, Listing


def layout(root: pathlib.Path, follow_links: bool = False) -> Layout:
    """The layout of a folder; that of cases if there is no such folder."""
    if not root.is_dir() or case_table.find(root):
        return Layout.CASES
    return class_folders.layout(root, follow_links)


def check(
    data_dir: str | os.PathLike[str], follow_links: bool = False, skip_broken: bool = False
) -> Listing:
    """Lists and checks the images of a folder; they become RGB.

    Args:
      data_dir: The folder.
      follow_links: Whether links to folders and links that lead out of the folder are followed.
      skip_broken: Whether missing and broken images are left out. All pixels are decoded for it.

    Raises:
      DatasetError: Missing folder, or one without images; folders of splits that are not clear;
        unreadable table; and, with the row: a wrong number of fields, a repeated file, an unknown
        split, a case in two splits, a label that train does not have, a file outside the folder, a
        missing or broken image.
    """
    root = pathlib.Path(data_dir)
    if not root.is_dir():
        raise DatasetError(f"data_dir: {root} is not a folder")
    table = case_table.find(root)
    source = table or root
    own_split = f"the column split of {METADATA}" if table else "train/CLASS/ and test/CLASS/"
    problems = Problems(source)
    if table:
        found = folder_walk.walk(root, follow_links)
        rows, notes, paths = _read_table(table, found, problems, follow_links)
        alike = {normal(name).casefold(): name for name in found.images}
    else:
        rows, notes = class_folders.read(root, follow_links)
        paths, alike = {row.number: root / row.file_name for row in rows}, {}

    def open_row(row: Row) -> Image.Image:
        try:
            return image_file.open_image(paths[row.number])
        except FileNotFoundError as error:
            if "\\" in row.file_name:
                raise DatasetError("no such file: write / instead of \\ between folders") from error
            if other := alike.get(normal(row.file_name).casefold()):
                raise DatasetError(f"no such file: its name in the folder is {other}") from error
            raise

    listed = listing.of_files(
        "case_folder", source, rows, open_row, problems, notes, own_split, skip_broken=skip_broken
    )
    return listed._replace(copies=copies.find({row: paths[row.number] for row in listed.rows}))


def load(
    data_dir: str | os.PathLike[str],
    image_size: int | None = None,
    follow_links: bool = False,
    skip_broken: bool = False,
) -> ImageDataset:
    """Reads the whole folder, see `listing.load`; the errors are those of `check`, too."""
    return listing.load(check(data_dir, follow_links, skip_broken), image_size)


def _read_table(
    table: pathlib.Path, found: Found, problems: Problems, follow_links: bool
) -> tuple[list[Row], list[str], dict[int, pathlib.Path]]:
    """The rows of a table, notes for the user, and the path of each row's image."""
    root, notes = table.parent, list[str]()
    rows = case_table.read(table, problems, notes)
    _check_split_folders(table, rows)
    # Letters such as u-umlaut may be written otherwise in the folder than in the table.
    names = {normal(name): name for name in (*found.images, *found.no_images)}
    inside = os.path.realpath(root)
    real_folder = functools.cache(os.path.realpath)
    paths = {}
    for row in rows:
        name = os.path.normpath(row.file_name)
        is_outside = os.path.isabs(name) or name.split(os.sep)[0] == os.pardir
        if not row.file_name or "\0" in row.file_name or is_outside:
            name = name.replace("\0", "")
            problems.add(
                row,
                "file_name must be a path inside the folder: move the image there, and write its "
                "path relative to the folder",
            )
        path = root / names.get(normal(row.file_name), name)
        paths[row.number] = path
        if name == os.curdir:  # The folder itself, which `open_row` refuses, is no link.
            continue
        real = os.path.realpath(path) if os.path.islink(path) else str(real_folder(path.parent))
        if not follow_links and not folder_walk.is_inside(real, inside):
            problems.add(
                row,
                "it is a link, or in a linked folder, that leads out of the folder: "
                "--follow_links reads it, or copy the image into the folder",
            )
    listed = {normal(row.file_name) for row in rows}
    unlisted = [name for name in found.images if normal(name) not in listed]
    if unlisted:
        notes.append(
            f"{len(unlisted):,} images have no row in {table.name}, and are left out: "
            f"{folder_walk.shortened(unlisted)}"
        )
    # What else is in the folder, or behind links, is nothing that a table asks for.
    return rows, [*notes, *found._replace(no_images=[], links=[]).notes(follow_links)], paths


def _check_split_folders(table: pathlib.Path, rows: Sequence[Row]) -> None:
    """Raises a DatasetError if images lie in folders of splits that the table does not mention."""
    if any(row.split != NO_SPLIT for row in rows):
        return
    folders = {os.path.dirname(normal(row.file_name)).split("/")[0] for row in rows}
    named = {name: splits for name in sorted(folders) if (splits := split_words.meanings(name))}
    if len(frozenset().union(*named.values())) > 1:
        raise DatasetError(
            f"{table}: its images are in folders of splits, {split_words.shown(named)}, and no row "
            "has a split: write them into the column split"
        )
