"""Images in folders that are named after their classes, without a table.

    cat/0001.jpg
    dog/0001.jpg

An image may lie deeper in the folder of its class. If the folders at the top are named after
splits (`train/cat/0001.jpg`, see `split_words`), the classes are one level below. Images that all
lie in one folder have no labels.
"""

import collections
import os
import pathlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from datasets import case_table, folder_walk, image_file, split_words
from datasets.case_table import METADATA, NO_SPLIT, Row
from datasets.errors import DatasetError
from datasets.listing import Layout


def layout(root: pathlib.Path, follow_links: bool) -> Layout:
    """Whether the images of a folder have classes; a DatasetError as of `read`."""
    has_labels = any(row.label for row in read(root, follow_links)[0])
    return Layout.CLASSES if has_labels else Layout.IMAGES


def read(root: pathlib.Path, follow_links: bool) -> tuple[list[Row], list[str]]:
    """Lists the images of a folder in the order of their names; with notes for the user.

    Left out are files without an image's ending and, if there are folders of classes or of splits,
    images outside of them.

    Raises:
      DatasetError: There are no images, it is not clear which folders are splits, or a split has a
        class that train does not have.
    """
    found = folder_walk.walk(root, follow_links)
    images = {name: tuple(name.split(os.sep)) for name in found.images}
    tops = {parts[0] for parts in images.values() if len(parts) > 1}
    notes = found.notes(follow_links)
    try:
        split_of = split_words.of_folders(str(root), tops)
    except DatasetError as error:  # A folder that is not there may be a link that is left out.
        raise DatasetError("; ".join([str(error), *(notes if found.links else [])])) from error
    _check_deeper(root, images.values(), split_of)
    depth = 2 if split_of else 1  # Number of folders around the image of a class.
    labels = {_label(parts, depth) for parts in images.values()} - {""}
    has_classes = len(labels) > 1
    least = depth if has_classes else depth - 1
    rows: list[Row] = []
    for name, parts in images.items():
        if len(parts) > least:
            label = _label(parts, depth) if has_classes else ""
            rows.append(Row(len(rows) + 1, name, "", label, split_of.get(parts[0], NO_SPLIT)))
    tables = [n for n in found.no_images if os.path.basename(n).lower() == METADATA]
    if tables:
        notes.append(
            f"{folder_walk.shortened(tables)} is not read: a table of all images lies in {root} "
            "itself, with paths from there"
        )
    if not rows:
        raise DatasetError(
            f"data_dir: {root} has no images: put them in a folder for each class, or beside a "
            "metadata.csv with the columns file_name and case_id; names end with "
            f"{', '.join(image_file.SUFFIXES)}{''.join(f'; {note}' for note in notes)}"
        )
    rows = case_table.without_missing(rows, notes)
    _check_classes(root, rows)
    what = f"in {len(labels)} folders, one a class" if has_classes else "without labels"
    if not has_classes and tops:
        of_train = next((name for name, split in split_of.items() if split == "train"), "")
        what += f", because {root / of_train} does not have two folders of classes with images"
    if len(rows) < len(images):
        notes.append(
            f"{len(images) - len(rows):,} images are left out: they are in no class folder"
        )
    return rows, [f"no {METADATA}: {len(rows):,} images {what}", *notes]


def _label(parts: Sequence[str], depth: int) -> str:
    """The class of an image; empty outside of classes.

    Its letters have one of Unicode's forms, and bytes that are no UTF-8 are escaped (`K\\xe4fer`).
    """
    if len(parts) <= depth:
        return ""
    return unicodedata.normalize(
        "NFC", os.fsencode(parts[depth - 1]).decode(errors="backslashreplace")
    )


def _check_deeper(
    root: pathlib.Path, images: Iterable[Sequence[str]], split_of: Mapping[str, str]
) -> None:
    """Raises a DatasetError if folders of different splits are deeper than at the top."""
    children: dict[Sequence[str], set[str]] = collections.defaultdict(set)
    for parts in images:
        for depth in range(1, len(parts) - 1):
            children[parts[:depth]].add(parts[depth])
    for parent, names in children.items():
        splits = {name: split_words.meanings(name) for name in names}
        # In the only folder of a split, classes may be called so, among others.
        are_classes = split_of and len(parent) == 1 and not all(splits.values())
        several = sum(map(bool, splits.values())) > 1
        if are_classes or not several or len(frozenset().union(*splits.values())) < 2:
            continue
        place = os.path.join(root, *parent)
        named = split_words.shown(sorted(name for name in names if splits[name]))
        raise DatasetError(
            f"data_dir: {place} has folders of splits, {named}: give --data_dir={place}, or put "
            "folders of classes into those of splits (train/cat), not the other way round"
        )


def _check_classes(root: pathlib.Path, rows: Sequence[Row]) -> None:
    """Raises a DatasetError if there are splits, and train lacks a class of another one."""
    known = {row.label for row in rows if row.split == "train"} | {""}
    for row in rows:
        if len(known) > 1 and row.label not in known:
            raise DatasetError(
                f"{root / row.file_name}: the class {row.label!r} has no images in the split "
                "train: move some of them there, or remove the folder"
            )
