"""The images of a data set of your own: listed first, decoded on request.

The whole data set is checked first, and errors name the file and the row. Decisions of the loader,
such as a test split, are in `ImageDataset.notes`.
"""

import collections
import dataclasses
import enum
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from datasets import case_split, copies, folder_images
from datasets.case_table import Problems, Row
from datasets.errors import DatasetError
from datasets.folder_images import LARGEST, Header, Open
from datasets.image_dataset import NO_LABEL, ImageDataset, Split

_SPLITS = ("train", "test", "validation")
_SKIP = "; --skip_broken leaves missing and broken images out"
_BLOCK = 4096  # Images that are compared at a time.


class Layout(enum.Enum):
    """How images are sorted: by the case or client they belong to, by classes, or not at all."""

    CASES = "cases"
    CLASSES = "classes"
    IMAGES = "images"


class Listing(NamedTuple):
    """The images of a data set, which were listed and whose headers were checked."""

    name: str  #: Name of the data set in the catalog.
    source: pathlib.Path  #: The table, file or folder, which error messages name.
    rows: Sequence[Row]  #: A row for each image.
    open: Open  #: Opens the image of a row.
    headers: Sequence[Header]  #: Headers of the images.
    bits: int | None  #: Number of bits of the images of more than 8 bits; None if there are none.
    notes: tuple[str, ...]  #: Decisions of the loader.
    own_split: str  #: What sets a split of the user's own, for notes.
    #: Names of the classes in their order; sorted labels if empty.
    class_names: tuple[str, ...] = ()
    channels: int = 3  #: Number of channels of the decoded images: 1 (grey), 3 (RGB) or 4 (RGBA).
    #: Numbers of the rows whose files are equal, for each content that occurs repeatedly.
    copies: Sequence[Sequence[int]] = ()

    def classes_of(self, labels: Iterable[str]) -> tuple[str, ...]:
        """The different labels without the empty one, in the order of the classes."""
        given = set(labels) - {""}
        return tuple(name for name in self.class_names or sorted(given) if name in given)


def of_files(
    name: str,
    source: pathlib.Path,
    rows: Sequence[Row],
    open_row: Open,
    problems: Problems,
    notes: Sequence[str],
    own_split: str,
    class_names: tuple[str, ...] = (),
    skip_broken: bool = False,
) -> Listing:
    """The listing of encoded images, whose headers are read; the other arguments are its fields.

    If a header is broken, or if broken images are to be skipped, all pixels are decoded once to
    find all broken images.

    Raises:
      DatasetError: Images are missing or broken and not skipped, or there are other problems.
    """
    broken = Problems(source)
    rows = [row for row in rows if row not in problems]
    headers = folder_images.read_headers(open_row, rows, broken)
    if broken or skip_broken:
        whole = [row for row in rows if row not in broken]
        folder_images.find_broken(open_row, whole, broken)
    if broken and not skip_broken:
        problems.update(broken)
        problems.raise_if_any(_SKIP)
    problems.raise_if_any()
    pairs = [pair for pair in zip(rows, headers, strict=True) if pair[0] not in broken]
    rows = [row for row, _ in pairs]
    if not rows:
        raise DatasetError(f"{source}: all of its {len(broken):,} images are missing or broken")
    known = [header for _, header in pairs if header is not None]
    bits = folder_images.bits_of(known)
    notes = [*notes, *_bits_notes(bits, known), *_label_notes(rows)]
    if broken:
        notes.append(f"{len(broken):,} missing or broken images are left out: {broken.described()}")
    pages = sum(header.has_pages for header in known)
    if pages:
        notes.append(f"{pages:,} files have several pages or frames: only the first one is used")
    return Listing(name, source, rows, open_row, known, bits, tuple(notes), own_split, class_names)


def _label_notes(rows: Sequence[Row]) -> list[str]:
    """A note on labels that differ in nothing but capital letters, if there are any."""
    alike: dict[str, set[str]] = collections.defaultdict(set)
    for row in rows:
        alike[row.label.casefold()].add(row.label)
    return [
        f"the labels {' and '.join(sorted(labels))} are different classes, and differ only in "
        "capital letters: write them alike if they are one"
        for labels in alike.values()
        if len(labels) > 1
    ]


def validation_as_test(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows with the validation split as the test split if there is no other; and a note."""
    splits = {row.split for row in rows}
    if "test" in splits or "validation" not in splits:
        return list(rows), []
    renamed = [dataclasses.replace(r, split="test") if r.split == "validation" else r for r in rows]
    return renamed, ["there is no test split: the validation split is the test split"]


def sorted_classes(labels: Iterable[str]) -> tuple[str, ...]:
    """The different labels without the empty one, sorted; whole numbers by their values."""
    names = sorted(set(labels) - {""})
    if all(name.isascii() and name.isdecimal() for name in names):
        digits = max(map(len, names), default=0)  # int() refuses numbers of thousands of digits.
        names.sort(key=lambda name: name.zfill(digits))
    return tuple(names)


def read_in_batches(
    listing: Listing, size: tuple[int, int], batch_size: int
) -> Iterator[npt.NDArray[np.uint8]]:
    """Decodes the listed images in their order, uint8 [<= batch_size, height, width, channels].

    Images get the `size`, width and height in pixels, and are as those of `load`. Only one batch is
    in memory.

    Raises:
      DatasetError: An image of the batch is broken.
    """
    problems = Problems(listing.source)
    for start in range(0, len(listing.rows), batch_size):
        rows = listing.rows[start : start + batch_size]
        images = _decode(listing, rows, size, problems, title="")
        problems.raise_if_any(_SKIP)
        yield images


def load(listing: Listing, image_size: int | None = None, largest: int = LARGEST) -> ImageDataset:
    """Decodes all images.

    They become squares of `image_size` pixels (bilinear, antialiased), or have the size that
    `folder_images.choose_size` chooses; those of more than 8 bits are scaled to 8, all by one
    factor. `example_ids` number the rows from 0, `case_ids` are those of the rows, or None, and
    `class_names` are the labels of the train split; images with other labels lose them. If no test
    image has a label, test cases are drawn (`case_split`). A validation split without rows is None.

    Raises:
      DatasetError: No image for training, or broken images.
    """
    original = {row.number: i for i, row in enumerate(listing.rows)}
    rows, split_notes = case_split.complete(listing.rows, listing.own_split)
    train = [row for row in rows if row.split == "train"]
    if not train:
        raise DatasetError(
            f"{listing.source}: no image has split train: give it to the cases to train on"
        )
    split_notes += copies.notes(listing.copies, rows)
    known = {row.label for row in train} | {""}
    other = collections.Counter(row.label for row in rows if row.label not in known)
    if other:
        split_notes.append(
            f"{other.total():,} images are not scored, because no training image has their label: "
            f"{', '.join(sorted(other)[:12])}"
        )
    rows = [r if r.label in known else dataclasses.replace(r, label="") for r in rows]
    size, size_note = folder_images.choose_size(listing.headers, image_size, largest)
    rows.sort(key=lambda row: _SPLITS.index(row.split))  # Each split is a slice.
    problems = Problems(listing.source)
    images = _decode(listing, rows, size, problems, "reading images")
    problems.raise_if_any(_SKIP)
    size_notes = [size_note] if size_note else []
    notes = (*listing.notes, *split_notes, *size_notes, *_constant_notes(images, rows))
    example_ids = np.array([original[row.number] for row in rows], np.int64)
    return _assemble(listing, rows, images, example_ids, listing.classes_of(known), notes)


def _constant_notes(images: npt.NDArray[np.uint8], rows: Sequence[Row]) -> list[str]:
    """A note if all images are equal, or if some have a single colour."""
    blocks = [images[start : start + _BLOCK] for start in range(0, len(images), _BLOCK)]
    if len(images) > 1 and all((block == images[0]).all() for block in blocks):
        return [
            f"warning: all {len(images):,} images are equal, so nothing can be learned from them: "
            "look at their files"
        ]
    is_constant = np.concatenate(
        [(block == block[:, :1, :1]).all(axis=(1, 2, 3)) for block in blocks]
    )
    if not is_constant.any():
        return []
    first = rows[int(np.argmax(is_constant))].file_name
    return [
        f"warning: {int(is_constant.sum()):,} images have the same colour everywhere, such as "
        f"{first}: remove them if they show nothing"
    ]


def _decode(
    listing: Listing, rows: Sequence[Row], size: tuple[int, int], problems: Problems, title: str
) -> npt.NDArray[np.uint8]:
    return folder_images.decode(
        listing.open, rows, size, listing.channels, listing.bits, problems, title
    )


def _bits_notes(bits: int | None, headers: Sequence[Header]) -> list[str]:
    """A note on images of more than 8 bits, if there are any."""
    if bits is None:
        return []
    deep = sum(header.largest is not None for header in headers)
    return [
        f"{deep:,} images have more than 8 bits a pixel: values from 0 to {2**bits - 1:,} are "
        "scaled to 0 to 255; scale them alike before you give them to the encoder"
    ]


def _assemble(
    listing: Listing,
    rows: Sequence[Row],
    images: npt.NDArray[np.uint8],
    example_ids: npt.NDArray[np.int64],
    class_names: tuple[str, ...],
    notes: tuple[str, ...],
) -> ImageDataset:
    """The data set, from rows that are sorted by split."""
    label_indices = {"": NO_LABEL} | {name: i for i, name in enumerate(class_names)}
    labels = np.array([label_indices[row.label] for row in rows], np.int32)
    has_cases = bool(rows[0].case_id)
    cases = np.array([row.case_id for row in rows], dtype=object) if has_cases else None
    places = np.array([_SPLITS.index(row.split) for row in rows])
    bounds = np.searchsorted(places, range(len(_SPLITS) + 1))
    whole = Split(images, labels, example_ids, cases)
    train, test, validation = (whole.take(slice(*ends)) for ends in itertools.pairwise(bounds))
    known = validation if len(validation) else None
    file_names = tuple(row.file_name for row in listing.rows)
    return ImageDataset(listing.name, train, test, class_names, known, notes, file_names)
