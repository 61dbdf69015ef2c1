"""Loader for a folder of images, with a table of cases or with a folder for each class.

With a `metadata.csv` (see `case_table`), each image belongs to a case, and the partition `per_case`
makes each case a client. Without it, images lie in folders of their classes (see `class_folders`).
The whole folder is checked first, and errors name the file and the row. Decisions of the loader,
such as a test split, are in `ImageDataset.notes`.
"""

import enum
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from datasets import case_split, case_table, class_folders, folder_images
from datasets.case_table import METADATA, Problems, Row
from datasets.errors import DatasetError
from datasets.image_dataset import NO_LABEL, ImageDataset, Split

_SPLITS = ("train", "test", "validation")


class Layout(enum.Enum):
    """How a folder sorts its images: by a `metadata.csv`, by folders of classes, or not at all."""

    TABLE = "table"
    CLASSES = "classes"
    IMAGES = "images"


def layout(data_dir: str | os.PathLike[str] | None) -> Layout:
    """The layout of a folder; that of a table if there is no such folder."""
    root = pathlib.Path(data_dir or "")
    if not data_dir or not root.is_dir() or (root / METADATA).exists():
        return Layout.TABLE
    return Layout.CLASSES if class_folders.has_classes(root) else Layout.IMAGES


def has_cases(data_dir: str | os.PathLike[str] | None) -> bool:
    """Whether the images of a folder belong to cases."""
    return layout(data_dir) is Layout.TABLE


class Listing(NamedTuple):
    """The images of a folder, which were listed and whose headers were checked.

    Attributes:
      root: The folder.
      source: The table, or the folder, which error messages name.
      rows: A row for each image.
      headers: Headers of the images.
      bits: Number of bits of the images of more than 8 bits; None if there are none.
      notes: Decisions of the loader.
    """

    root: pathlib.Path
    source: pathlib.Path
    rows: Sequence[Row]
    headers: Sequence[folder_images.Header]
    bits: int | None
    notes: tuple[str, ...]


def check(data_dir: str | os.PathLike[str] | None) -> Listing:
    """Lists and checks the images of a folder without decoding them.

    Raises:
      DatasetError: As `load`, except for images whose pixels are broken.
    """
    if data_dir is None:
        raise DatasetError(
            f"--data_dir is needed for --dataset=case_folder: a folder of images with a {METADATA} "
            "or with a folder for each class"
        )
    root = pathlib.Path(data_dir)
    if not root.is_dir():
        raise DatasetError(f"data_dir: {root} is not a folder")
    is_table = layout(root) is Layout.TABLE
    source = root / METADATA if is_table else root
    problems, notes = Problems(source), list[str]()
    if is_table:
        rows = case_table.read(source, problems)
    else:
        rows, left_out = class_folders.read(root)
        notes += _describe(root, rows, left_out)
    headers = folder_images.read_headers(root, rows, problems)
    problems.raise_if_any()
    known = [header for header in headers if header is not None]
    bits = folder_images.bits_of(known)
    return Listing(root, source, rows, known, bits, (*notes, *_bits_notes(bits, known)))


def read_in_batches(
    listing: Listing, size: tuple[int, int], batch_size: int
) -> Iterator[npt.NDArray[np.uint8]]:
    """Decodes the listed images in their order, uint8 [<= batch_size, height, width, 3].

    Images become RGB of `size`, width and height in pixels, as those of `load`. Only one batch is
    in memory.

    Raises:
      DatasetError: An image of the batch is broken.
    """
    problems = Problems(listing.source)
    for start in range(0, len(listing.rows), batch_size):
        rows = listing.rows[start : start + batch_size]
        images = folder_images.decode(listing.root, rows, size, listing.bits, problems, title="")
        problems.raise_if_any()
        yield images


def load(data_dir: str | os.PathLike[str] | None, image_size: int | None = None) -> ImageDataset:
    """Reads and checks the whole folder.

    Images become RGB squares of `image_size` pixels (bilinear, antialiased), or of the size that
    `folder_images.choose_size` chooses; those of more than 8 bits are scaled to 8, all by one
    factor. `example_ids` number the rows from 0, `case_ids` are those of the table, or None, and
    `class_names` are the sorted labels of the train split. If no test image has a label, test cases
    are drawn (`case_split`). A validation split without rows is None.

    Raises:
      DatasetError: Missing folder, or one without images; unreadable table; and, with the row: a
        wrong number of fields, a repeated file, an unknown split, a case in two splits, a label
        that train does not have, a file outside the folder, a missing or broken image.
    """
    listing = check(data_dir)
    root, rows, is_table = listing.root, listing.rows, listing.source.name == METADATA
    own_split = f"the column split of {METADATA}" if is_table else "train/CLASS/ and test/CLASS/"
    original = {row.number: i for i, row in enumerate(rows)}
    file_names = tuple(row.file_name for row in rows)
    rows, split_notes = case_split.complete(rows, own_split)
    if not any(row.split == "train" for row in rows):
        raise DatasetError(f"{root}: no image has split train: give it to the cases to train on")
    size, size_note = folder_images.choose_size(listing.headers, image_size)
    notes = [*listing.notes, *split_notes, *([size_note] if size_note else [])]
    rows = sorted(rows, key=lambda row: _SPLITS.index(row.split))  # Each split is a slice.
    problems = Problems(listing.source)
    images = folder_images.decode(root, rows, size, listing.bits, problems)
    problems.raise_if_any()
    example_ids = np.array([original[row.number] for row in rows], np.int64)
    return _assemble(rows, images, example_ids, is_table, tuple(notes), file_names)


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


def _bits_notes(bits: int | None, headers: Sequence[folder_images.Header]) -> list[str]:
    """A note on images of more than 8 bits, if there are any."""
    if bits is None:
        return []
    deep = sum(header.largest is not None for header in headers)
    return [
        f"{deep:,} images have more than 8 bits a pixel: values from 0 to {2**bits - 1:,} are "
        "scaled to 0 to 255; scale them alike before you give them to the encoder"
    ]


def _assemble(
    rows: Sequence[Row],
    images: npt.NDArray[np.uint8],
    example_ids: npt.NDArray[np.int64],
    has_cases: bool,
    notes: tuple[str, ...],
    file_names: tuple[str, ...],
) -> ImageDataset:
    """The data set, from rows that are sorted by split."""
    class_names = tuple(sorted({row.label for row in rows if row.split == "train"} - {""}))
    label_indices = {"": NO_LABEL} | {name: i for i, name in enumerate(class_names)}
    labels = np.array([label_indices[row.label] for row in rows], np.int32)
    cases = np.array([row.case_id for row in rows], dtype=object) if has_cases else None
    places = np.array([_SPLITS.index(row.split) for row in rows])
    bounds = np.searchsorted(places, range(len(_SPLITS) + 1))
    whole = Split(images, labels, example_ids, cases)
    train, test, validation = (whole.take(slice(*ends)) for ends in itertools.pairwise(bounds))
    known = validation if len(validation) else None
    return ImageDataset("case_folder", train, test, class_names, known, notes, file_names)
