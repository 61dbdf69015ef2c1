"""The table `metadata.csv` of a folder of images: a row for each image, checked without opening it.

    file_name,case_id,label,split
    images/0001.jpg,case_17,nevus,train

`label` may be empty (an example for pretraining only), and its column and that of `split` may be
missing. Splits are `train`, `test` and `validation`, or other words for them (`split_words`).
"""

import collections
import csv
import dataclasses
import os
import pathlib
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from datasets import split_words
from datasets.errors import DatasetError
from datasets.folder_walk import shortened

METADATA = "metadata.csv"
NO_SPLIT = ""  # The split of the rows of a table without splits.
_REQUIRED = ("file_name", "case_id")
_OPTIONAL = ("label", "split")
_SHOWN_LABELS = 12
_SHOWN_BAD = 20  # Bad rows or images that a message names.
# What programs write for a value that is not there.
_NO_LABEL = ("nan", "<na>", "-1", "-1.0")
_PERHAPS_NO_LABEL = ("none", "null", "na", "n/a", "unknown", "?")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """An image of the folder."""

    #: Line in the table, whose header is line 1; or number of the image, counted from 1.
    number: int
    file_name: str  #: Path of the image inside the folder.
    case_id: str  #: Name of its case; empty in a folder without a table.
    label: str  #: Name of its class; empty if unknown.
    split: str  #: `train`, `test`, `validation`, or `NO_SPLIT`.


class Problems:
    """The first problem of each bad row of a table, or of each bad image of a folder."""

    def __init__(self, source: pathlib.Path) -> None:
        self._source = source
        self._by_row: dict[int, tuple[str, str]] = {}  # Name of the file, and message.

    def __contains__(self, row: Row) -> bool:
        return row.number in self._by_row

    def __len__(self) -> int:
        return len(self._by_row)

    def add(self, row: Row, message: str) -> None:
        self._by_row.setdefault(row.number, (row.file_name, message))

    def add_line(self, number: int, message: str) -> None:
        self._by_row.setdefault(number, ("", message))

    def update(self, other: "Problems") -> None:
        """Adds those of rows that have none."""
        self._by_row = {**other._by_row, **self._by_row}

    def described(self, start: int = 0) -> str:
        """The names of the first bad files or rows from a number of them on, in words."""
        names = [
            f"row {number} {file}".rstrip() if self._is_table() else file
            for number, (file, _) in sorted(self._by_row.items())
        ]
        return shortened(names[start:], _SHOWN_BAD)

    def raise_if_any(self, advice: str = "") -> None:
        """Raises DatasetError with the first problem, the names of the others, and advice."""
        if not self._by_row:
            return
        first, others = min(self._by_row), len(self._by_row) - 1
        file, message = self._by_row[first]
        what = ("row" if self._is_table() else "image") + ("s" if others > 1 else "")
        more = f" (and {others} more bad {what}: {self.described(1)})" if others else ""
        place = f"{self._source} row {first}" if self._is_table() else f"{self._source}"
        named = f"{file}: " if file else ""
        raise DatasetError(f"{place}: {named}{message}{more}{advice}")

    def _is_table(self) -> bool:
        return self._source.name.lower() == METADATA


def find(root: pathlib.Path) -> pathlib.Path | None:
    """The table of a folder, whose name may have capital letters; None if there is none."""
    try:
        names = sorted(name for name in os.listdir(root) if name.lower() == METADATA)
    except OSError:
        return None
    return root / (METADATA if METADATA in names else names[0]) if names else None


def read(csv_path: pathlib.Path, problems: Problems, notes: list[str]) -> list[Row]:
    """Reads and checks the table; bad rows are added to `problems`, and `notes` to the user.

    Raises:
      DatasetError: If the table cannot be read, lacks a column, or has no rows.
    """
    try:
        with open(csv_path, encoding="utf-8-sig", newline="") as file:
            rows = _parse(csv_path, file, problems, notes)
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{csv_path} is not UTF-8 text (byte {error.start}): save it as CSV in UTF-8"
        ) from error
    except OSError as error:
        raise DatasetError(f"{csv_path} cannot be read: {error.strerror}") from error
    return _check(without_missing(rows, notes), problems)


def _parse(csv_path: pathlib.Path, file: TextIO, problems: Problems, notes: list[str]) -> list[Row]:
    """Parses the table; rows with a wrong number of fields become problems."""
    reader = csv.reader(file, strict=True)
    rows = []
    try:
        header = [_column(field) for field in next(reader, [])]
        while header and not header[-1]:  # Spreadsheets write empty columns at the right.
            header.pop()
        _check_header(csv_path, header)
        notes += _header_notes(csv_path, header)
        for fields in reader:
            while len(fields) > len(header) and not fields[-1].strip():
                fields.pop()
            if not any(field.strip() for field in fields):  # a blank line
                continue
            if len(fields) != len(header):
                advice = (
                    "put a field that contains a comma in quotes, and name all columns"
                    if len(fields) > len(header)
                    else "fields are missing; one without a value still needs its comma"
                )
                problems.add_line(
                    reader.line_num,
                    f"{len(fields)} fields, but the header has {len(header)}: {advice}",
                )
                continue
            values = {key: field.strip() for key, field in zip(header, fields, strict=True)}
            case_id, label = (
                unicodedata.normalize("NFC", values.get(key, "")) for key in ("case_id", "label")
            )
            split = values.get("split", NO_SPLIT)
            rows.append(Row(reader.line_num, values["file_name"], case_id, label, split))
    except csv.Error as error:
        raise DatasetError(f"{csv_path} row {reader.line_num}: not CSV: {error}") from error
    if not rows:
        problems.raise_if_any()
        raise DatasetError(f"{csv_path} has no rows below its header: add one for each image")
    return rows


def _column(field: str) -> str:
    """The name of a column; in small letters if it is then one that is read."""
    name = field.strip()
    return name.lower() if name.lower() in (*_REQUIRED, *_OPTIONAL) else name


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
    if "" in header:
        raise DatasetError(
            f"{csv_path} row 1: column {header.index('') + 1} has no name: name it or remove it"
        )
    if repeated:
        raise DatasetError(
            f"{csv_path} row 1: the column {repeated[0]} occurs twice: rename one of them"
        )


def _header_notes(csv_path: pathlib.Path, header: Sequence[str]) -> list[str]:
    """A note on the columns that are not read, if labels or splits might be meant by them."""
    missing = [column for column in _OPTIONAL if column not in header]
    others = [column for column in header if column not in (*_REQUIRED, *_OPTIONAL)]
    if not missing or not others:
        return []
    return [
        f"{csv_path.name} has no column {' and no column '.join(missing)}; these columns are not "
        f"read: {', '.join(others)}"
    ]


def _check(rows: Sequence[Row], problems: Problems) -> list[Row]:
    """Checks rows, and returns them with the full names of the splits."""
    has_splits = any(row.split != NO_SPLIT for row in rows)
    first_row_of_file: dict[str, int] = {}
    first_row_of_case: dict[str, Row] = {}
    checked = []
    for row in rows:
        if not row.case_id:
            problems.add(row, "case_id is empty: write whose image it is, or the file's name")
        splits = split_words.meanings(row.split)
        if has_splits and len(splits) != 1:
            problems.add(
                row,
                f"unknown split {row.split!r}; use train, validation or test, or remove the column "
                "split to have a split drawn",
            )
            continue
        row = dataclasses.replace(row, split=next(iter(splits), NO_SPLIT))
        checked.append(row)
        first = first_row_of_file.setdefault(normal(row.file_name), row.number)
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
    known = shortened(sorted(train_labels - {""}), _SHOWN_LABELS) or "no labels"
    for row in checked:
        if row.label not in train_labels:
            problems.add(
                row,
                f"unknown label {row.label!r}: no train row has it; train has {known}: "
                "correct it, leave it empty, or move a case of it to train",
            )
    return checked


def normal(path: str) -> str:
    """A path in a form in which equal ones are the same text, whatever wrote them."""
    return unicodedata.normalize("NFC", os.path.normpath(path))


def without_missing(
    rows: Sequence[Row], notes: list[str], every_negative: bool = False
) -> list[Row]:
    """The rows with empty labels where a program wrote that there is none; adds notes on it.

    `every_negative` is whether other negative whole numbers mean the same as -1.
    """
    counts = collections.Counter(row.label for row in rows if row.label)
    lower = {label: label.lower() for label in counts}
    missing = {label for label in counts if lower[label] in _NO_LABEL}
    if every_negative:
        missing |= {label for label in counts if label[0] == "-" and label[1:].isdecimal()}
    if len(counts) - len(missing) < 2:  # Such as the two classes -1 and 1.
        missing -= {label for label in missing if label.startswith("-")}
    if missing:
        images = sum(counts[label] for label in missing)
        notes.append(
            f"{images:,} images have the label {' or '.join(sorted(missing))}, which is read as no "
            "label: give it a name if it is a class"
        )
    for label in sorted(counts):
        if label not in missing and lower[label] in (*_NO_LABEL, *_PERHAPS_NO_LABEL):
            notes.append(
                f"{label} is a class of {counts[label]:,} images: leave the label empty if it "
                "means that there is none"
            )
    return [dataclasses.replace(row, label="") if row.label in missing else row for row in rows]
