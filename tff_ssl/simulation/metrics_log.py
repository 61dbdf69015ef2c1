"""Metrics of rounds: the file `client_metrics.csv`, and the flattening of nested metrics."""

import csv
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tff_ssl import whole_files
from tff_ssl.errors import TrainingError
from tff_ssl.simulation.cohort import Cohort

# The remedy for a damaged file of a run.
PUT_BACK = "put back a whole one, or start the run anew in another --output_dir"


class ClientLog:
    """The file `client_metrics.csv`: one row per round and client that took part in it."""

    def __init__(self, path: pathlib.Path):
        self._path = path

    def trim(self, done: int) -> None:
        """Deletes the rows of rounds after the first `done`, and an incomplete row."""
        if not self._path.exists():
            return
        rows = read_table(self._path)
        kept = [
            row
            for row in rows[1:]
            if len(row) == len(rows[0]) and row[0].isdecimal() and 1 <= int(row[0]) <= done
        ]
        replace_table(self._path, [*rows[:1], *kept])

    def write(
        self, round_number: int, clients: Cohort, metrics: Sequence[Mapping[str, np.ndarray]]
    ) -> None:
        """Adds the rows of a round, with scalars by name for each of these clients.

        The argument counts rounds from 0; the file counts them from 1, as `metrics.csv` does.
        """
        is_new = not self._path.exists()
        with whole_files.append(self._path) as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(["round", "client", *metrics[0]])
            for client, values in zip(clients.tolist(), metrics, strict=True):
                scalars = (np.asarray(value).item() for value in values.values())
                writer.writerow([round_number + 1, client, *scalars])


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
