"""Loader for a folder of images with a `metadata.csv`, which assigns each image to a case.

    file_name,case_id,label,split
    images/0001.jpg,case_17,nevus,train

The partition `per_case` makes each case a client. `label` may be empty (an example for pretraining
only), and its column may be missing. Without a `split` column, every example belongs to `train`.
Splits are `train`, `test` and `validation` (or `val`). The whole folder is checked before anything
is returned, and errors name the file and the row; row 1 is the header.
"""

import concurrent.futures
import csv
import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TextIO

import numpy as np
import numpy.typing as npt
from PIL import Image

from datasets import image_file
from datasets.errors import DatasetError
from datasets.image_dataset import NO_LABEL, ImageDataset, Split

METADATA = "metadata.csv"
_REQUIRED = ("file_name", "case_id")
_SPLITS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
_THREADS = 4  # useful because reading and decoding images release the GIL


@dataclasses.dataclass(frozen=True)
class _Row:
    number: int  # line in the file; the header is line 1
    file_name: str
    case_id: str
    label: str
    split: str


class _Problems:
    """The first problem of each bad row, collected so that one error can report them together."""

    def __init__(self, csv_path: pathlib.Path) -> None:
        self._csv_path = csv_path
        self._by_row: dict[int, str] = {}

    def add(self, row: int, message: str) -> None:
        self._by_row.setdefault(row, message)

    def raise_if_any(self) -> None:
        """Raises DatasetError with the first bad row and the number of others, if there are any."""
        if not self._by_row:
            return
        first, others = min(self._by_row), len(self._by_row) - 1
        plural = "s" if others > 1 else ""
        more = f" (and {others} more bad row{plural})" if others else ""
        raise DatasetError(f"{self._csv_path} row {first}: {self._by_row[first]}{more}")


def load(data_dir: str | os.PathLike[str] | None, image_size: int | None = None) -> ImageDataset:
    """Reads and checks the whole folder.

    Args:
      data_dir: Folder with `metadata.csv`, to which file names are relative.
      image_size: Side in pixels of the square to which images are resized (bilinear,
        antialiased). None keeps their size, which must then be the same for all.

    Returns:
      The data set, with RGB images. `example_ids` number the rows of the file from 0; `case_ids`
      are those of the file; `class_names` are the sorted labels of the train split. A test split
      without rows is empty, and a validation split without rows is None.

    Raises:
      DatasetError: Missing folder or CSV; unreadable CSV; and, with the row: a wrong number of
        fields, a repeated file, an unknown split, a case in two splits, a label that train does
        not have, a file outside the folder, a missing or broken image, images of several sizes.
    """
    if data_dir is None:
        raise DatasetError(
            f"data_dir is needed for dataset case_folder: a folder of images with a {METADATA}"
        )
    root = pathlib.Path(data_dir)
    csv_path = root / METADATA
    problems = _Problems(csv_path)
    rows = _read_rows(csv_path, problems)
    _check_rows(rows, problems)
    sizes = _image_sizes(root, rows, problems)
    problems.raise_if_any()
    if not any(row.split == "train" for row in rows):
        raise DatasetError(f"{csv_path}: no row has split train")
    height, width = _target_size(csv_path, rows, sizes, image_size)
    images = _decode(root, rows, (width, height), problems)
    problems.raise_if_any()
    return _assemble(rows, images)


def _read_rows(csv_path: pathlib.Path, problems: _Problems) -> list[_Row]:
    if not csv_path.parent.is_dir():
        raise DatasetError(f"data_dir: {csv_path.parent} is not a folder")
    try:
        with open(csv_path, encoding="utf-8-sig", newline="") as file:
            return _parse(csv_path, file, problems)
    except FileNotFoundError as error:
        raise DatasetError(
            f"data_dir: {csv_path} does not exist; it needs the columns file_name, case_id and "
            "may have label, split"
        ) from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{csv_path} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise DatasetError(f"{csv_path} cannot be read: {error.strerror}") from error


def _parse(csv_path: pathlib.Path, file: TextIO, problems: _Problems) -> list[_Row]:
    """Parses the table; rows with a wrong number of fields become problems."""
    reader = csv.reader(file, strict=True)
    rows = []
    try:
        header = [field.strip() for field in next(reader, [])]
        _check_header(csv_path, header)
        for fields in reader:
            if not fields:  # a blank line
                continue
            if len(fields) != len(header):
                problems.add(
                    reader.line_num, f"{len(fields)} fields, but the header has {len(header)}"
                )
                continue
            values = {key: field.strip() for key, field in zip(header, fields, strict=True)}
            rows.append(
                _Row(
                    number=reader.line_num,
                    file_name=values["file_name"],
                    case_id=values["case_id"],
                    label=values.get("label", ""),
                    split=values.get("split", "train"),
                )
            )
    except csv.Error as error:
        raise DatasetError(f"{csv_path} row {reader.line_num}: not CSV: {error}") from error
    if not rows:
        problems.raise_if_any()
        raise DatasetError(f"{csv_path} has no rows below its header")
    return rows


def _check_header(csv_path: pathlib.Path, header: Sequence[str]) -> None:
    for column in _REQUIRED:
        if column not in header:
            columns = ", ".join(header) or "nothing"
            raise DatasetError(f"{csv_path} row 1: no column {column}; the columns are {columns}")
    repeated = sorted({column for column in header if header.count(column) > 1})
    if repeated:
        raise DatasetError(f"{csv_path} row 1: the column {repeated[0]} occurs twice")


def _check_rows(rows: list[_Row], problems: _Problems) -> None:
    """Checks rows without opening images; replaces each `split` by its full name, in place."""
    first_row_of_file: dict[str, int] = {}
    first_row_of_case: dict[str, _Row] = {}
    for i, row in enumerate(rows):
        if not row.case_id:
            problems.add(row.number, f"{row.file_name}: case_id is empty")
        if row.split not in _SPLITS:
            problems.add(
                row.number,
                f"{row.file_name}: unknown split {row.split!r}; use train, validation or test",
            )
            continue
        row = rows[i] = dataclasses.replace(row, split=_SPLITS[row.split])
        file = os.path.normpath(row.file_name)
        if first_row_of_file.setdefault(file, row.number) != row.number:
            problems.add(row.number, f"{row.file_name}: also in row {first_row_of_file[file]}")
        first_row = first_row_of_case.setdefault(row.case_id, row)
        if first_row.split != row.split:
            problems.add(
                row.number,
                f"{row.file_name}: case {row.case_id} is in split {row.split}, but in "
                f"{first_row.split} in row {first_row.number}",
            )
    train_labels = {row.label for row in rows if row.split == "train"} | {""}
    for row in rows:
        if row.label not in train_labels:
            problems.add(
                row.number,
                f"{row.file_name}: unknown label {row.label!r}: no train row has it",
            )


def _image_sizes(
    root: pathlib.Path, rows: Sequence[_Row], problems: _Problems
) -> list[tuple[int, int] | None]:
    """Reads (width, height) of each row's image from its header; None for rows with a problem."""

    def read_size(row: _Row) -> tuple[int, int]:
        name = os.path.normpath(row.file_name)
        if not row.file_name or os.path.isabs(name) or name.split(os.sep)[0] == os.pardir:
            raise DatasetError("file_name must be a path inside the folder")
        with image_file.open_image(root / name) as image:
            if image.mode.startswith(("I", "F")):
                raise DatasetError(f"{image.mode} pixels; only 8-bit images can be read")
            return image.size

    return _for_each_image(read_size, rows, problems)


def _for_each_image(
    function: Callable[[_Row], tuple[int, int]], rows: Sequence[_Row], problems: _Problems
) -> list[tuple[int, int] | None]:
    """Runs `function` on every row in a few threads.

    Returns:
      The result for each row; None where `function` raised, which becomes a problem of the row.
    """

    def result_or_problem(row: _Row) -> tuple[int, int] | str:
        try:
            return function(row)
        except DatasetError as error:
            return str(error)
        except FileNotFoundError:
            return "no such file"
        except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
            # Pillow's decoders raise all of these on broken files.
            return f"broken image ({' '.join(str(error).split())})"

    results: list[tuple[int, int] | None] = []
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        for row, result in zip(rows, pool.map(result_or_problem, rows, chunksize=64), strict=True):
            if isinstance(result, str):
                problems.add(row.number, f"{row.file_name}: {result}")
            results.append(None if isinstance(result, str) else result)
    return results


def _target_size(
    csv_path: pathlib.Path,
    rows: Sequence[_Row],
    sizes: Sequence[tuple[int, int] | None],
    image_size: int | None,
) -> tuple[int, int]:
    """Returns (height, width) of the images of the data set."""
    if image_size is not None:
        return image_size, image_size
    assert sizes[0] is not None  # rows without a size were problems, which have been raised
    for row, size in zip(rows, sizes, strict=True):
        if size is not None and size != sizes[0]:
            raise DatasetError(
                f"{csv_path} row {row.number}: {row.file_name} is {size[0]}x{size[1]} pixels, "
                f"{rows[0].file_name} is {sizes[0][0]}x{sizes[0][1]}: pass --image_size"
            )
    width, height = sizes[0]
    return height, width


def _decode(
    root: pathlib.Path, rows: Sequence[_Row], size: tuple[int, int], problems: _Problems
) -> npt.NDArray[np.uint8]:
    """Decodes every row's image as RGB at `size` = (width, height)."""
    images = np.empty((len(rows), size[1], size[0], 3), np.uint8)
    index = {row.number: i for i, row in enumerate(rows)}

    def decode(row: _Row) -> tuple[int, int]:
        with image_file.open_image(root / os.path.normpath(row.file_name)) as image:
            rgb = image.convert("RGB")
        if rgb.size != size:
            rgb = rgb.resize(size, Image.Resampling.BILINEAR)
        images[index[row.number]] = np.asarray(rgb)
        return size

    _for_each_image(decode, rows, problems)
    return images


def _assemble(rows: Sequence[_Row], images: npt.NDArray[np.uint8]) -> ImageDataset:
    class_names = tuple(sorted({row.label for row in rows if row.split == "train"} - {""}))
    label_indices = {"": NO_LABEL} | {name: i for i, name in enumerate(class_names)}
    examples = Split(
        images=images,
        labels=np.array([label_indices[row.label] for row in rows], np.int32),
        example_ids=np.arange(len(rows), dtype=np.int64),
        case_ids=np.array([row.case_id for row in rows], dtype=object),
    )
    split_names = np.array([row.split for row in rows])
    train, test, validation = (
        examples.take(np.flatnonzero(split_names == name))
        for name in ("train", "test", "validation")
    )
    return ImageDataset(
        "case_folder", train, test, class_names, validation if len(validation) else None
    )
