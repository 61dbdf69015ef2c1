"""The file `partition.json` of a run: how its clients divide the training images."""

import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from datasets import describe
from datasets.image_dataset import Split
from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting import checked_files

SHOWN_CLIENTS = 24  # Clients whose classes are recorded, evenly chosen.
_COUNTED_CLIENTS = 5000  # Clients whose classes are counted; it bounds memory and time.
_SPREAD = {"min": int, "max": int}
_FORM = {
    "clients": int, "examples": int, "examples_left_out": int, "emd": (float, None),
    "client_sizes": _SPREAD, "classes_per_client": _SPREAD, "class_names": [str],
    "shown": [{"client": int, "size": int, "counts": {str: int}}],
}  # fmt: skip


def describe_clients(
    train: Split, clients: Sequence[np.ndarray], class_names: Sequence[str]
) -> dict[str, Any]:
    """Describes a partition by figures that do not grow with the number of clients.

    Returns:
      The entries of `describe.summary`, as `launch.partition_report` writes them; of more than 5000
      clients, `unlabelled`, `classes_per_client` and `emd` are those of 5000, evenly chosen. Also
      `class_names`, and `shown`: number, size and class counts of 24 clients.
    """
    counted = _evenly(len(clients), _COUNTED_CLIENTS)
    counts = describe.histograms(train.labels, [clients[k] for k in counted], len(class_names))
    of_counted = describe.summary(counts, [clients[k] for k in counted], len(train))
    sizes = np.array([len(indices) for indices in clients], np.int64)
    shown = _evenly(len(counted), SHOWN_CLIENTS)
    return of_counted | {
        "clients": len(clients),
        "examples": int(sizes.sum()),
        "examples_left_out": len(train) - int(sizes.sum()),
        "client_sizes": describe.spread(sizes),
        "clients_counted": len(counted),
        "class_names": list(class_names),
        "shown": [
            {
                "client": int(counted[row]),
                "size": len(clients[counted[row]]),
                "counts": {
                    int(label): int(counts[row, label]) for label in np.flatnonzero(counts[row])
                },
            }
            for row in shown
        ],
    }


def read(path: pathlib.Path) -> dict[str, Any]:
    """Reads a `partition.json`.

    Raises:
      ConfigurationError: If it is damaged.
    """
    record = checked_files.read_json(path, _FORM)
    classes = set(map(str, range(len(record["class_names"]))))
    if not all(client["counts"].keys() <= classes for client in record["shown"]):
        raise ConfigurationError(
            f"{path} counts images of a class that it does not name: put back a whole one, or "
            "delete the run's folder"
        )
    return record


def digest(train: Split, clients: Sequence[np.ndarray], server_images: np.ndarray | None) -> str:
    """A hexadecimal hash of the images and of their division between clients and server."""
    content = hashlib.blake2b(digest_size=16)
    sizes = np.array([len(indices) for indices in clients], np.int64)
    arrays: list[np.ndarray] = [train.images, np.asarray(train.example_ids), sizes, *clients]
    if server_images is not None:
        arrays.append(server_images)
    for array in arrays:
        content.update(str(array.shape).encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


def _evenly(total: int, count: int) -> np.ndarray:
    """At most `count` numbers below `total`, at even distances, int64."""
    return np.linspace(0, total - 1, min(total, count)).astype(np.int64)
