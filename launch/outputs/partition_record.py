"""The file `partition.json` of a run: how its clients divide the training images."""

import hashlib
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from datasets import describe
from datasets.image_dataset import ImageDataset, Split
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
                "counts": {int(k): int(counts[row, k]) for k in np.flatnonzero(counts[row])},
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


def data_digests(
    dataset: ImageDataset, clients: Sequence[np.ndarray] = (), taken: np.ndarray | None = None
) -> dict[str, str]:
    """Hexadecimal hashes of the parts of a data set, by their names in messages.

    Args:
      clients: Indices of each client's training images.
      taken: Images that the server has instead of the clients; None if there are none.
    """
    train, tests = dataset.train, [dataset.test]
    if dataset.validation is not None:
        tests.append(dataset.validation)
    names = np.array(dataset.class_names, np.str_)
    sizes = np.array([len(indices) for indices in clients], np.int64)
    parts: dict[str, list[np.ndarray]] = {
        "the images": [train.images, train.example_ids],
        "the labels": [train.labels, names],
        "the cases": [] if train.case_ids is None else [train.case_ids.astype(np.str_)],
        "the test images": [s.images for s in tests] + [s.labels for s in tests],
        "the clients": [sizes, *clients, *([] if taken is None else [taken])],
    }
    return {name: _hash(arrays) for name, arrays in parts.items()}


def has_digests(dataset: ImageDataset, digests: Mapping[str, str]) -> bool:
    """Whether a data set has these hashes of `data_digests`, apart from those of the clients."""
    now = data_digests(dataset)
    return all(digests.get(part) == now[part] for part in now if part != "the clients")


def _hash(arrays: Iterable[np.ndarray]) -> str:
    content = hashlib.blake2b(digest_size=16)
    for array in arrays:
        content.update(str(array.shape).encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


def _evenly(total: int, count: int) -> np.ndarray:
    """At most `count` numbers below `total`, at even distances, int64."""
    return np.linspace(0, total - 1, min(total, count)).astype(np.int64)
