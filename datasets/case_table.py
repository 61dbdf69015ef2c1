"""The table `metadata.csv` of a folder of images: a row for each image, checked without opening it.

    file_name,case_id,label,split
    images/0001.jpg,case_17,nevus,train

`label` may be empty (an example for pretraining only), and its column and that of `split` may be
missing. Splits are `train`, `test` and `validation` (or `val`).
"""

import csv
import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import TextIO

from datasets.errors import DatasetError

METADATA = "metadata.csv"
NO_SPLIT = ""  # The split of the rows of a table without splits.
SPLITS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
_REQUIRED = ("file_name", "case_id")
_SHOWN_LABELS = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """An image of the folder.

    Attributes:
      number: Line in the table, whose header is line 1; or number of the image, counted from 1.
      file_name: Path of the image inside the folder.
      case_id: Name of its case; empty in a folder without a table.
      label: Name of its class; empty if unknown.
      split: `train`, `test`, `validation`, or `NO_SPLIT`.
    """

    number: int
    file_name: str
    case_id: str
    label: str
    split: str


class Problems:
    """The first problem of each bad row of a table, or of each bad image of a folder."""

    def __init__(self, source: pathlib.Path) -> None:
        self._source = source
        self._by_row: dict[int, str] = {}

    def add(self, row: Row, message: str) -> None:
        self.add_line(row.number, f"{row.file_name}: {message}")

    def add_line(self, number: int, message: str) -> None:
        self._by_row.setdefault(number, message)

    def raise_if_any(self) -> None:
        """Raises DatasetError with the first bad row and the number of others, if there are any."""
        if not self._by_row:
            return
        is_table = self._source.name == METADATA
        first, others = min(self._by_row), len(self._by_row) - 1
        what = ("row" if is_table else "image") + ("s" if others > 1 else "")
        more = f" (and {others} more bad {what})" if others else ""
        place = f"{self._source} row {first}" if is_table else f"{self._source}"
        raise DatasetError(f"{place}: {self._by_row[first]}{more}")


def read(csv_path: pathlib.Path, problems: Problems) -> list[Row]:
    """Reads and checks the table; bad rows are added to `problems`.

    Raises:
      DatasetError: If the table cannot be read, lacks a column, or has no rows.
    """
    try:
        with open(csv_path, encoding="utf-8-sig", newline="") as file:
            rows = _parse(csv_path, file, problems)
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{csv_path} is not UTF-8 text (byte {error.start}): save it as CSV in UTF-8"
        ) from error
    except OSError as error:
        raise DatasetError(f"{csv_path} cannot be read: {error.strerror}") from error
    return _check(rows, problems)


def _parse(csv_path: pathlib.Path, file: TextIO, problems: Problems) -> list[Row]:
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
                problems.add_line(
                    reader.line_num,
                    f"{len(fields)} fields, but the header has {len(header)}: put a field that "
                    "contains a comma in quotes",
                )
                continue
            values = {key: field.strip() for key, field in zip(header, fields, strict=True)}
            label, split = values.get("label", ""), values.get("split", NO_SPLIT)
            rows.append(Row(reader.line_num, values["file_name"], values["case_id"], label, split))
    except csv.Error as error:
        raise DatasetError(f"{csv_path} row {reader.line_num}: not CSV: {error}") from error
    if not rows:
        problems.raise_if_any()
        raise DatasetError(f"{csv_path} has no rows below its header: add one for each image")
    return rows


def _check_header(csv_path: pathlib.Path, header: Sequence[str]) -> None:
    for column in _REQUIRED:
        if column not in header:
            columns = ", ".join(header) or "nothing"
            commas = ", with commas" if len(header) == 1 else ""  # Spreadsheets like semicolons.
            raise DatasetError(
                f"{csv_path} row 1: no column {column}; the columns are {columns}: the first line "
                f"must be file_name,case_id and may continue with label,split{commas}"
            )
    repeated = sorted({column for column in header if header.count(column) > 1})
    if repeated:
        raise DatasetError(
            f"{csv_path} row 1: the column {repeated[0]} occurs twice: rename one of them"
        )


def _check(rows: Sequence[Row], problems: Problems) -> list[Row]:
    """Checks rows, and returns them with the full names of the splits."""
    has_splits = any(row.split != NO_SPLIT for row in rows)
    first_row_of_file: dict[str, int] = {}
    first_row_of_case: dict[str, Row] = {}
    checked = []
    for row in rows:
        if not row.case_id:
            problems.add(row, "case_id is empty: write whose image it is, or the file's name")
        if has_splits and row.split not in SPLITS:
            problems.add(
                row,
                f"unknown split {row.split!r}; use train, validation or test, or remove the column "
                "split to have a split drawn",
            )
            continue
        row = dataclasses.replace(row, split=SPLITS.get(row.split, NO_SPLIT))
        checked.append(row)
        first = first_row_of_file.setdefault(os.path.normpath(row.file_name), row.number)
        if first != row.number:
            problems.add(row, f"also in row {first}: remove one of them")
        other = first_row_of_case.setdefault(row.case_id, row)
        if other.split != row.split:
            problems.add(
                row,
                f"case {row.case_id} is in split {row.split}, but in {other.split} in row "
                f"{other.number}: give a case one split",
            )
    train_labels = {row.label for row in checked if row.split in ("train", NO_SPLIT)} | {""}
    for row in checked:
        if row.label not in train_labels:
            problems.add(
                row,
                f"unknown label {row.label!r}: no train row has it; {_known(train_labels)}: "
                "correct it, leave it empty, or move a case of it to train",
            )
    return checked


def _known(labels: set[str]) -> str:
    """The labels of the train split in words, shortened if there are many."""
    names = sorted(labels - {""})
    if not names:
        return "train has no labels"
    more = f" and {len(names) - _SHOWN_LABELS} more" if len(names) > _SHOWN_LABELS else ""
    return f"train has {', '.join(names[:_SHOWN_LABELS])}{more}"
