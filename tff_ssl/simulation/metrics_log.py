"""`client_metrics.csv`: a row per round and client that took part in it."""

import csv
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from tff_ssl.simulation.cohort import Cohort


class ClientLog:
    """The file."""

    def __init__(self, path: pathlib.Path):
        self._path = path

    def trim(self, done: int) -> None:
        """Takes back the rows of rounds after the first `done`, and one that was cut short."""
        if not self._path.exists():
            return
        with open(self._path, newline="") as file:
            rows = list(csv.reader(file))
        kept = [row for row in rows[1:] if len(row) == len(rows[0]) and 1 <= int(row[0]) <= done]
        temporary = self._path.with_name(f"{self._path.name}.new")
        with open(temporary, "w", newline="") as file:
            csv.writer(file).writerows([*rows[:1], *kept])
        os.replace(temporary, self._path)

    def write(
        self, round_number: int, clients: Cohort, metrics: Sequence[Mapping[str, np.ndarray]]
    ) -> None:
        """Adds a round's rows; rounds are counted from 1, as in `metrics.csv`."""
        is_new = not self._path.exists()
        with open(self._path, "a", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(["round", "client", *metrics[0]])
            for client, values in zip(clients.tolist(), metrics, strict=True):
                writer.writerow(
                    [round_number + 1, client, *(np.asarray(v).item() for v in values.values())]
                )
