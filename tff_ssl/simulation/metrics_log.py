"""Metrics of rounds: the files `metrics.csv` and `client_metrics.csv`, and nested metrics."""

import csv
import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow_federated as tff

from tff_ssl import whole_files
from tff_ssl.errors import TrainingError
from tff_ssl.simulation.cohort import Cohort

# The remedy for a damaged file of a run.
PUT_BACK = "put back a whole one, or start the run anew in another --output_dir"


class RoundLog(tff.program.ReleaseManager[Mapping[str, float], int]):
    """The file `metrics.csv`: one row per round, and another column for a metric that is new.

    TFF's `CSVFileReleaseManager` reads and writes the whole file in every round, because it looks
    for rows of later rounds. A run removes those when it starts.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._path = path
        rows = read_table(path) if os.path.exists(path) else []
        self._header = rows[0] if rows else []

    async def release(self, value: Mapping[str, float], key: int) -> None:
        """Adds the row of a round, which is counted from 1."""
        row = {"round": key, **{name: np.asarray(v).item() for name, v in value.items()}}
        new = [name for name in row if name not in self._header]
        if new:
            rows = read_table(self._path)[1:] if self._header else []
            self._header = [*self._header, *new]
            replace_table(self._path, [self._header, *([*old, *[""] * len(new)] for old in rows)])
        with whole_files.append(self._path) as file:
            csv.DictWriter(file, self._header).writerow(row)


class ClientLog:
    """The file `client_metrics.csv`: one row per round and client that took part in it."""

    def __init__(self, path: pathlib.Path):
        self._path = path

    def trim(self, done: int) -> None:
        """Deletes the rows of rounds after the first `done`, and an incomplete row.

        Without any row left, the file goes, too: its header may be incomplete.
        """
        if not self._path.exists():
            return
        rows = read_table(self._path)
        kept = [
            row
            for row in rows[1:]
            if len(row) == len(rows[0]) and row[0].isdecimal() and 1 <= int(row[0]) <= done
        ]
        if kept:
            replace_table(self._path, [*rows[:1], *kept])
        else:
            self._path.unlink()

    def write(
        self, round_number: int, clients: Cohort, metrics: Sequence[Mapping[str, np.ndarray]]
    ) -> None:
        """Adds the rows of a round, with scalars by name for each of these clients.

        The argument counts rounds from 0; the file counts them from 1, as `metrics.csv` does.
        """
        with whole_files.append(self._path) as file:
            writer = csv.writer(file)
            if not file.tell():
                writer.writerow(["round", "client", *metrics[0]])
            for client, values in zip(clients.tolist(), metrics, strict=True):
                scalars = (np.asarray(value).item() for value in values.values())
                writer.writerow([round_number + 1, client, *scalars])


class TableDigest:
    """A hash of the rows of a run's CSV file, which is read on as the file grows."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._header: list[str] = []
        self._end = 0  # Bytes of the file that are hashed.
        self._hash = hashlib.blake2b(digest_size=16)

    def up_to(self, last_round: int) -> str:
        """The hash, in hexadecimal, of the whole rows of rounds up to one not before the last call.

        Empty cells do not count, because a later round may add a column. The file is then on the
        disk.
        """
        if not self._path.exists():
            return self._hash.hexdigest()
        whole_files.sync(self._path)
        with open(self._path, "rb") as file:
            header = _cells(file.readline())
            if header != self._header:
                self._header, self._end = header, file.tell()
                self._hash = hashlib.blake2b(digest_size=16)
            file.seek(self._end)
            for line in file:
                cells = _cells(line)
                if cells and len(cells) == len(header) and cells[0].isdecimal():
                    if int(cells[0]) > last_round:
                        break
                    named = [cell for cell in zip(header, cells, strict=True) if cell[1]]
                    self._hash.update(repr(named).encode(errors="surrogateescape"))
                self._end += len(line)
        return self._hash.hexdigest()


def _cells(line: bytes) -> list[str]:
    """The cells of a row; none if it is damaged."""
    try:
        return next(csv.reader([line.decode(errors="surrogateescape")]), [])
    except csv.Error:
        return []


def read_table(path: str | os.PathLike[str]) -> list[list[str]]:
    """The rows of a run's CSV file, including the header; a TrainingError if it is not text."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise TrainingError(f"{path} is damaged ({error}): {PUT_BACK}") from error


def replace_table(path: str | os.PathLike[str], rows: Sequence[Sequence[str]]) -> None:
    """Replaces a run's CSV file when the new one is complete."""
    with whole_files.replacing(path) as new, open(new, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def trim_metrics(path: str | os.PathLike[str], last_round: int) -> None:
    """Deletes the rows after a round, and an incomplete last row that a killed run left.

    Raises:
      TrainingError: As `whole_rows`.
    """
    rows = whole_rows(path, last_round)
    if rows:
        replace_table(path, rows)


def whole_rows(path: str | os.PathLike[str], last_round: int) -> list[list[str]]:
    """The header and the rows up to a round of `metrics.csv`; none without a file.

    Raises:
      TrainingError: If the file, its column `round` or rows of earlier rounds are missing, or it is
        not text.
    """
    if not os.path.exists(path):
        if last_round:
            raise TrainingError(
                f"{path} is missing, and the checkpoint is of round {last_round}: {PUT_BACK}"
            )
        return []
    rows = read_table(path)
    if rows and rows[0][:1] != ["round"]:
        raise TrainingError(f"{path} lacks its first column, round: {PUT_BACK}")
    kept = rows[1 : last_round + 1]
    for number in range(1, last_round + 1):
        row = kept[number - 1] if number <= len(kept) else []
        if not row or len(row) != len(rows[0]) or row[0] != str(number):
            raise TrainingError(
                f"{path} lacks the row of round {number}, and the checkpoint is of round "
                f"{last_round}: {PUT_BACK}"
            )
    return [*rows[:1], *kept]


def trained_rounds(path: pathlib.Path, num_clients: int) -> npt.NDArray[np.int64]:
    """Counts the rounds in which each client trained, int64 [num_clients].

    A round counts once even if the client trained several models in it, and not at all if its
    result was dropped as not finite. The file is missing if no client ever took part.
    """
    counts = np.zeros(num_clients, np.int64)
    if path.exists():
        with open(path, newline="") as file:
            rows = [row for row in csv.DictReader(file) if int(row["dropped"]) == 0]
        for _, client in {(row["round"], row["client"]) for row in rows}:
            counts[int(client)] += 1
    return counts


def last_values(path: pathlib.Path, column: str) -> dict[int, float]:
    """The last value of a metric by client; empty if there is none, or no file."""
    if not path.exists():
        return {}
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get(column)]
    return {int(row["client"]): float(row[column]) for row in rows}


def flatten_metrics(metrics: Any) -> dict[str, float]:
    """The scalars of nested metrics by their own names; other values are left out."""
    leaves: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            leaves.update(flatten_metrics(value))
        elif np.ndim(value) == 0 and not isinstance(value, tuple):
            leaves[name] = np.asarray(value).item()
    return leaves
