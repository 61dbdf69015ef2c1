"""A folder of images with a `metadata.csv`: one case, one client.

    file_name,case_id,label,split
    images/0001.jpg,case_17,nevus,train

`label` may be empty (an example for pretraining only) or missing as a column; without a `split`
column everything is `train`. Splits are `train`, `test` and `validation` (or `val`). Everything
is checked before anything is returned, and what is wrong is named by file and row; row 1 is the
header.
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

from datasets.errors import DatasetError
from datasets.image_dataset import NO_LABEL, ImageDataset, Split

METADATA = "metadata.csv"
_REQUIRED = ("file_name", "case_id")
_SPLITS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
_THREADS = 4  # decoding and reading release the GIL


@dataclasses.dataclass(frozen=True)
class _Row:
    number: int  # line in the file; the header is line 1
    file_name: str
    case_id: str
    label: str
    split: str


class _Problems:
    """What is wrong with which row, reported together and in the order of the rows."""

    def __init__(self, csv_path: pathlib.Path) -> None:
        self._csv_path = csv_path
        self._by_row: dict[int, str] = {}

    def add(self, row: int, message: str) -> None:
        self._by_row.setdefault(row, message)

    def raise_if_any(self) -> None:
        """Raises DatasetError on the first bad row, with the count of the others."""
        if not self._by_row:
            return
        first, others = min(self._by_row), len(self._by_row) - 1
        plural = "s" if others > 1 else ""
        more = f" (and {others} more bad row{plural})" if others else ""
        raise DatasetError(f"{self._csv_path} row {first}: {self._by_row[first]}{more}")


def load(data_dir: str | os.PathLike[str] | None, image_size: int | None = None) -> ImageDataset:
    """Reads and checks the whole folder.

    Args:
      data_dir: The folder with `metadata.csv`; file names are relative to it.
      image_size: Side in pixels to resize to (bilinear, antialiased). None takes the images as
        they are, which must then be of one size.

    Returns:
      RGB images; `example_ids` count the rows of the file from 0; `case_ids` as in the file;
      `class_names` are the sorted labels of the train split. A split without rows is empty,
      validation is then None.

    Raises:
      DatasetError: Missing folder or CSV; unreadable CSV; and, named by row: a wrong number of
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
            found = ", ".join(header) or "nothing"
            raise DatasetError(f"{csv_path} row 1: no column {column}; the columns are {found}")
    repeated = sorted({column for column in header if header.count(column) > 1})
    if repeated:
        raise DatasetError(f"{csv_path} row 1: the column {repeated[0]} occurs twice")


def _check_rows(rows: list[_Row], problems: _Problems) -> None:
    """Checks what the table alone shows; rewrites `split` to its full name in place."""
    first_of_file: dict[str, int] = {}
    first_of_case: dict[str, _Row] = {}
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
        if first_of_file.setdefault(file, row.number) != row.number:
            problems.add(row.number, f"{row.file_name}: also in row {first_of_file[file]}")
        case = first_of_case.setdefault(row.case_id, row)
        if case.split != row.split:
            problems.add(
                row.number,
                f"{row.file_name}: case {row.case_id} is in split {row.split}, but in "
                f"{case.split} in row {case.number}",
            )
    known = {row.label for row in rows if row.split == "train"} | {""}
    for row in rows:
        if row.label not in known:
            problems.add(
                row.number,
                f"{row.file_name}: unknown label {row.label!r}: no train row has it",
            )


def _image_sizes(
    root: pathlib.Path, rows: Sequence[_Row], problems: _Problems
) -> list[tuple[int, int] | None]:
    """(width, height) of each row's image, from its header; None where that is a problem."""

    def size(row: _Row) -> tuple[int, int]:
        name = os.path.normpath(row.file_name)
        if not row.file_name or os.path.isabs(name) or name.split(os.sep)[0] == os.pardir:
            raise DatasetError("file_name must be a path inside the folder")
        with Image.open(root / name) as image:
            if image.mode.startswith(("I", "F")):
                raise DatasetError(f"{image.mode} pixels; only 8-bit images can be read")
            return image.size

    return _for_each_image(size, rows, problems)


def _for_each_image(
    function: Callable[[_Row], tuple[int, int]], rows: Sequence[_Row], problems: _Problems
) -> list[tuple[int, int] | None]:
    """Runs `function` on every row in a few threads; its exceptions become problems."""

    def guarded(row: _Row) -> tuple[int, int] | str:
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
        for row, result in zip(rows, pool.map(guarded, rows, chunksize=64), strict=True):
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
    """(height, width) of the arrays to fill."""
    if image_size is not None:
        return image_size, image_size
    assert sizes[0] is not None  # problems have been raised
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
        with Image.open(root / os.path.normpath(row.file_name)) as image:
            rgb = image.convert("RGB")
        if rgb.size != size:
            rgb = rgb.resize(size, Image.Resampling.BILINEAR)
        images[index[row.number]] = np.asarray(rgb)
        return size

    _for_each_image(decode, rows, problems)
    return images


def _assemble(rows: Sequence[_Row], images: npt.NDArray[np.uint8]) -> ImageDataset:
    class_names = tuple(sorted({row.label for row in rows if row.split == "train"} - {""}))
    label_of = {"": NO_LABEL} | {name: i for i, name in enumerate(class_names)}
    everything = Split(
        images=images,
        labels=np.array([label_of[row.label] for row in rows], np.int32),
        example_ids=np.arange(len(rows), dtype=np.int64),
        case_ids=np.array([row.case_id for row in rows], dtype=object),
    )
    split_of = np.array([row.split for row in rows])
    train, test, validation = (
        everything.take(np.flatnonzero(split_of == name))
        for name in ("train", "test", "validation")
    )
    return ImageDataset(
        "case_folder", train, test, class_names, validation if len(validation) else None
    )
