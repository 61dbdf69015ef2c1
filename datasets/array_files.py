"""Images as arrays of numbers: a file of NumPy (`.npz`), and LEAF's FEMNIST in JSON.

The arrays of an `.npz` have the names that Keras (`x_train`, `y_train`, `x_test`, `y_test`) and
MedMNIST (`train_images`, `train_labels`, `val_images`, ...) give them, or are `images` and `labels`
(or `x` and `y`) of one split. These names may be mixed, and capital letters do not matter. Labels
may be missing, and so may the owners of the images: `clients_train` or `train_clients`, or
`clients` for the images to train on.

LEAF (Caldas et al. 2018) writes `train/*.json` and `test/*.json`, whose users are the clients.
"""

import contextlib
import json
import pathlib
import string
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from datasets import case_table, listing, pixel_store, split_words
from datasets.case_table import NO_SPLIT, Row
from datasets.errors import DatasetError
from datasets.folder_images import Header
from datasets.folder_walk import shortened
from datasets.listing import Layout, Listing

# Names of images without a split, and of their labels, the likelier one first.
_STEMS = {"images": ("labels", "y"), "x": ("y", "labels")}
_SHOWN = 12  # Arrays that a message names.
_BLOCK = 2**24  # Bytes of an array that are read at a time.
_LEAF_SHAPE = (28, 28, 1)
_LEAF_CLASSES = (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase)


class _Arrays(NamedTuple):
    """Names of the arrays of a split: images, and labels and clients if there are any."""

    split: str
    images: str
    labels: str | None
    clients: str | None


def npz_layout(path: pathlib.Path) -> Layout:
    """The layout of an `.npz` of images; a DatasetError if it cannot be read."""
    with _opened(path) as file:
        first = _find(file.files)[0]
    return Layout.CASES if first.clients else Layout.CLASSES if first.labels else Layout.IMAGES


def check_npz(path: pathlib.Path) -> Listing:
    """Reads the arrays of an `.npz`; images keep their channels.

    Images are [n, height, width] or [n, height, width, channels] with 1, 3 or 4 channels, whole
    numbers from 0 to 255 or fractions from 0 to 1. Labels and clients are whole numbers or text,
    [n] or [n, 1]. Unknown are empty text, negative clients, and negative labels if there are two
    other labels.

    Raises:
      DatasetError: No such file, no images, or arrays of other shapes or values.
    """
    rows: list[Row] = []
    with _opened(path) as file:
        found = _find(file.files)
        shapes = [_image_shape(file, arrays.images) for arrays in found]
        if len({shape[1:] for shape in shapes}) > 1:
            raise ValueError(f"the splits have images of different shapes: {shapes}")
        images = pixel_store.empty((sum(shape[0] for shape in shapes), *shapes[0][1:]))
        for arrays, shape in zip(found, shapes, strict=True):
            start, end = len(rows), len(rows) + shape[0]
            _read_pixels(file, arrays.images, images[start:end])
            labels = _names(file, arrays.labels, shape[0])
            clients = _names(file, arrays.clients, shape[0], has_negative=False)
            for i, (client, label) in enumerate(zip(clients, labels, strict=True)):
                name = f"{arrays.images}[{i}]"
                case = client or (name if found[0].clients else "")  # Its own, if unknown.
                rows.append(Row(start + i + 1, name, case, label, arrays.split))
        unread = [name for name in file.files if not any(name in arrays for arrays in found)]
    notes = [f"arrays that are not read: {shortened(unread, _SHOWN)}"] if unread else []
    rows = case_table.without_missing(rows, notes, every_negative=True)
    rows, more = listing.validation_as_test(rows)
    notes += more
    classes = listing.sorted_classes(row.label for row in rows)
    return _listing("npz", path, rows, images, classes, notes, "an array x_test")


def check_leaf(root: pathlib.Path) -> Listing:
    """Reads LEAF's FEMNIST: grey images of 28x28 pixels, whose writers are the clients.

    Raises:
      DatasetError: No such files, or others than LEAF writes; with the file, the user and the row.
    """
    rows: list[Row] = []
    pixels: list[npt.NDArray[np.uint8]] = []
    for split in ("train", "test"):
        for path in sorted((root / split).glob("*.json")):
            with _reading(path):
                content = json.loads(path.read_text())
                for user in content["users"]:
                    x, labels = _leaf_images(user, content["user_data"][user])
                    pixels.append(x)
                    for i, label in enumerate(labels):
                        name = f"{split}/{path.name} {user}[{i}]"
                        rows.append(Row(len(rows) + 1, name, str(user), label, split))
    if not any(row.split == "train" for row in rows):
        raise DatasetError(
            f"data_dir: {root} has no images in train/*.json: name the folder data of LEAF's "
            "femnist, after its preprocess.sh"
        )
    images = pixel_store.empty((len(rows), *_LEAF_SHAPE))
    np.concatenate(pixels, out=images)
    return _listing("leaf", root, rows, images, _LEAF_CLASSES, [], "a file test/*.json")


def _listing(
    name: str,
    source: pathlib.Path,
    rows: Sequence[Row],
    images: npt.NDArray[np.uint8],
    classes: tuple[str, ...],
    notes: Sequence[str],
    own_split: str,
) -> Listing:
    height, width, channels = images.shape[1:]

    def open_row(row: Row) -> Image.Image:
        pixels = images[row.number - 1]
        return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)

    headers = [Header((width, height), None)] * len(rows)
    return Listing(
        name, source, rows, open_row, headers, None, tuple(notes), own_split, classes, channels
    )


# What NumPy and JSON raise for files that are damaged, or of another kind.
_DAMAGED = (
    OSError, ValueError, TypeError, AttributeError, EOFError, RecursionError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
    """Turns errors of reading a file into DatasetErrors that name it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DatasetError(f"data_dir: {path} does not exist") from error
    except IsADirectoryError as error:
        raise DatasetError(f"data_dir: {path} is a folder: name the .npz file itself") from error
    except KeyError as error:
        raise DatasetError(f"{path} has no {error.args[0]}") from error
    except _DAMAGED as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[Any]:
    """An open `.npz`; a DatasetError if it cannot be read, also in the block."""
    with _reading(path):
        file = np.load(path, mmap_mode="r")  # A large array is not read to be refused.
        if isinstance(file, np.ndarray):
            raise ValueError(
                "it is a single array: write numpy.savez(FILE, images=..., labels=...)"
            )
        with file:
            yield file


def _find(names: Sequence[str]) -> list[_Arrays]:
    """The arrays of each split, by their names."""
    own = {name.lower(): name for name in names}

    def first(stems: Sequence[str], words: Sequence[str]) -> str | None:
        """The first array that is named after one of the stems with one of the words."""
        pairs = [(stem, word) for word in words for stem in stems]
        forms = (f"{a}_{b}".strip("_") for pair in pairs for a, b in (pair, pair[::-1]))
        return next((own[form] for form in forms if form in own), None)

    found: dict[str, _Arrays] = {}
    for split in (NO_SPLIT, "train", "test", "validation"):
        words = [word for word, of in split_words.WORDS.items() if of == split] or [""]
        for stem, labels in _STEMS.items():
            if (images := first([stem], words)) and split not in found:
                # Without images of no split, `clients` are those of the images to train on.
                more = [""] if split == "train" and not found else []
                clients = first(["clients"], [*words, *more])
                found[split] = _Arrays(split, images, first(labels, words), clients)
    if "train" in found:
        found.pop(NO_SPLIT, None)
    elif NO_SPLIT not in found:
        raise ValueError(
            f"no images to train on among its arrays {shortened(names, _SHOWN)}: name them images "
            "and labels, or x_train, y_train, x_test and y_test"
        )
    return list(found.values())


def _open_array(file: Any, name: str) -> tuple[Any, tuple[int, ...], np.dtype]:
    """An array of the file, opened after its header; its shape and dtype."""
    member = file.zip.open(f"{name}.npy")
    is_first = np.lib.format.read_magic(member) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(member)
    if is_fortran and len(shape) > 1:
        raise ValueError(f"{name} is in Fortran's order: save numpy.ascontiguousarray of it")
    return member, shape, dtype


def _image_shape(file: Any, name: str) -> tuple[int, ...]:
    """The shape [n, height, width, channels] of an array of images, which is not read."""
    _, shape, dtype = _open_array(file, name)
    full = (*shape, 1) if len(shape) == 3 else shape
    if len(full) != 4 or full[3] not in (1, 3, 4) or 0 in full or dtype.kind not in "uif":
        raise ValueError(
            f"{name} is {dtype} {list(shape)}: images are numbers [n, height, width] or "
            "[n, height, width, channels] with 1, 3 or 4 channels"
        )
    return full


def _read_pixels(file: Any, name: str, images: npt.NDArray[np.uint8]) -> None:
    """Reads an array of images in blocks into `images`, uint8 [n, height, width, channels]."""
    member, _, dtype = _open_array(file, name)
    row_bytes = dtype.itemsize * images[0].size
    step = max(1, _BLOCK // row_bytes)
    for start in range(0, len(images), step):
        part = images[start : start + step]
        values = np.frombuffer(member.read(len(part) * row_bytes), dtype).reshape(part.shape)
        part[:] = _to_uint8(values, name, start)


def _to_uint8(values: np.ndarray, name: str, start: int = 0) -> npt.NDArray[np.uint8]:
    """Images [n, h, w, c], whole numbers to 255 or fractions to 1, as uint8.

    An error names the array, and the number of the image from `start` on.
    """
    is_fraction = values.dtype.kind == "f"
    largest = 1 if is_fraction else 255
    bad = ~((values >= 0) & (values <= largest)).all(axis=(1, 2, 3))
    if bad.any():
        raise ValueError(
            f"{name}[{start + int(bad.argmax())}] has values outside of 0 to {largest}: images "
            "are whole numbers from 0 to 255, or fractions from 0 to 1"
        )
    return (np.rint(values * 255.0) if is_fraction else values).astype(np.uint8)


def _names(file: Any, name: str | None, count: int, has_negative: bool = True) -> list[str]:
    """Labels or clients as text; empty if there is no such array.

    Negative numbers are empty, too, unless the names may have them.
    """
    if name is None:
        return [""] * count
    values = file[name]
    if values.shape not in ((count,), (count, 1)) or values.dtype.kind not in "uiU":
        raise ValueError(
            f"{name} is {values.dtype} {list(values.shape)}: it must have a whole number or a text "
            f"for each of {count:,} images"
        )
    is_kept = has_negative or values.dtype.kind == "U"
    return [str(v) if is_kept or v >= 0 else "" for v in values.reshape(-1).tolist()]


def _leaf_images(user: str, own: Any) -> tuple[npt.NDArray[np.uint8], list[str]]:
    """The images of a user, uint8 [n, 28, 28, 1], and the names of their classes."""
    pixels = np.prod(_LEAF_SHAPE)
    for i, (row, label) in enumerate(zip(own["x"], own["y"], strict=True)):
        if len(row) != pixels or label not in range(len(_LEAF_CLASSES)):
            raise ValueError(
                f"row {i} of user {user} has {len(row)} pixels and the label {label}; FEMNIST has "
                f"{pixels} pixels, and labels from 0 to {len(_LEAF_CLASSES) - 1}"
            )
    x = np.array(own["x"], np.float64).reshape(-1, *_LEAF_SHAPE)
    return _to_uint8(x, f"user {user} row "), [_LEAF_CLASSES[int(label)] for label in own["y"]]
