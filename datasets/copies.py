"""Finds image files with the same content."""

import collections
import hashlib
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from datasets.case_table import Row

_END = 4096  # Bytes at the end of a file, in which almost all different images differ.


def find(paths: Mapping[Row, pathlib.Path]) -> list[list[int]]:
    """Numbers of the rows whose files are equal, a list for each content that occurs twice or more.

    Only files of one size are read, and wholly read only if their ends are equal, too.
    """
    groups = [list(paths)]
    for key in (os.path.getsize, _end, _digest):
        groups = [same for group in groups for same in _split(group, paths, key)]
    return [[row.number for row in group] for group in groups]


def _split(
    rows: Sequence[Row], paths: Mapping[Row, pathlib.Path], key: Callable[[pathlib.Path], Any]
) -> list[list[Row]]:
    """The rows in groups of one key, without groups of one row."""
    groups: dict[Any, list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[key(paths[row])].append(row)
    return [group for group in groups.values() if len(group) > 1]


def _end(path: pathlib.Path) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - _END))
        return file.read()


def _digest(path: pathlib.Path) -> bytes:
    digest = hashlib.blake2b()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.digest()


def notes(groups: Sequence[Sequence[int]], rows: Sequence[Row]) -> list[str]:
    """Notes on copies among rows that have their final splits and labels."""
    of_number = {row.number: row for row in rows}
    same = [[of_number[number] for number in group if number in of_number] for group in groups]
    same = [group for group in same if len(group) > 1]
    found = []
    if same:
        count = sum(len(group) - 1 for group in same)
        found.append(f"{count:,} images are copies of others, such as {_pair(same[0])}")
    leaks = [group for group in same if len({row.split for row in group}) > 1]
    if leaks:
        tested = sum(row.split != "train" for group in leaks for row in group)
        found.append(
            f"{tested:,} images of the test or validation split are also in another split, which "
            f"makes results too good: remove such copies as {_pair(leaks[0])}"
        )
    unlike = [group for group in same if len({row.label for row in group} - {""}) > 1]
    if unlike:
        found.append(
            f"{len(unlike):,} images have copies with other labels, such as {_pair(unlike[0])}"
        )
    return found


def _pair(group: Sequence[Row]) -> str:
    """Two copies, in different splits or with different labels if there are such."""
    first, *others = group
    other = max(others, key=lambda row: (row.split != first.split, row.label != first.label))
    return f"{other.file_name} of {first.file_name}"
