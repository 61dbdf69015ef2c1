"""What partitions are made of: sizes of clients, the members of classes, whole classes."""

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from datasets.errors import DatasetError

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[np.integer]
Partition = list[Indices]


def client_sizes(
    total: int,
    num_clients: int | None,
    samples_per_client: int | None,
    rng: np.random.Generator | None = None,
) -> Indices:
    """Sizes of the clients, int64 [clients], for partitions that are free to choose them.

    Args:
      total: Number of examples.
      num_clients: How many clients.
      samples_per_client: Their size.
      rng: Where it is given, sizes are random, see `random_sizes`; needs `num_clients` alone.
    """
    if rng is not None:
        if num_clients is None or samples_per_client is not None:
            raise DatasetError("random_sizes needs num_clients, and no samples_per_client")
        return random_sizes(total, num_clients, rng)
    at_least_one("num_clients", num_clients)
    at_least_one("samples_per_client", samples_per_client)
    if num_clients is None and samples_per_client is None:
        raise DatasetError("num_clients or samples_per_client must be given")
    if samples_per_client is None:
        assert num_clients is not None
        if num_clients > total:
            raise DatasetError(
                f"num_clients must be at most {total}, the number of examples, not {num_clients}"
            )
        return np.array(
            [total // num_clients + (k < total % num_clients) for k in range(num_clients)], np.int64
        )
    if samples_per_client > total:
        raise DatasetError(
            f"samples_per_client must be at most {total}, the number of examples, "
            f"not {samples_per_client}"
        )
    sizes = np.full(-(-total // samples_per_client), samples_per_client, np.int64)
    sizes[-1] = total - samples_per_client * (len(sizes) - 1)
    return sizes[: checked_count(num_clients, len(sizes), samples_per_client)]


def random_sizes(total: int, num_clients: int, rng: np.random.Generator) -> Indices:
    """Shares of all examples in proportion to uniform draws from 0 to 1, at least one example."""
    at_least_one("num_clients", num_clients)
    if num_clients > total:
        raise DatasetError(
            f"num_clients must be at most {total}, the number of examples, not {num_clients}"
        )
    shares = rng.random(num_clients)
    bounds = np.rint(np.cumsum(shares) / shares.sum() * (total - num_clients)).astype(np.int64)
    return 1 + np.diff(bounds, prepend=0)


def checked_count(num_clients: int | None, possible: int, samples_per_client: int) -> int:
    """`num_clients`, or all that are possible; raises where it asks for more."""
    if num_clients is None:
        return possible
    if num_clients > possible:
        raise DatasetError(
            f"num_clients must be at most {possible}, which the examples suffice for at "
            f"samples_per_client={samples_per_client}, not {num_clients}"
        )
    return num_clients


def at_least_one(flag: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise DatasetError(f"{flag} must be at least 1, not {value}")


def by_label(labels: Labels, rng: np.random.Generator, name: str) -> tuple[Labels, list[Indices]]:
    """The classes present, sorted, and for each its indices in random order."""
    if len(labels) == 0:
        raise DatasetError(f"partition {name} needs examples, but there are none")
    if np.min(labels) < 0:
        raise DatasetError(
            f"partition {name} needs labels, but {np.count_nonzero(labels < 0)} of {len(labels)} "
            "examples have none: use iid or per_case"
        )
    classes, counts = np.unique(labels, return_counts=True)
    ordered = np.argsort(labels, kind="stable").astype(np.int64)
    members = np.split(ordered, np.cumsum(counts)[:-1])
    return classes, [rng.permutation(indices) for indices in members]


def cut(order: Indices, sizes: Indices) -> Partition:
    """Cuts the first sum(sizes) of `order` into clients."""
    bounds = np.cumsum(sizes)
    return np.split(order[: bounds[-1]].astype(np.int64), bounds[:-1])


def not_empty(clients: Partition) -> Partition:
    empty = sum(len(indices) == 0 for indices in clients)
    if empty:
        raise DatasetError(f"num_clients={len(clients)} leaves {empty} clients without examples")
    return clients


def share_out(members: Sequence[Indices], num_clients: int, rng: np.random.Generator) -> Partition:
    """Gives whole classes to clients, or, where classes are fewer, one class to each client."""
    members = [indices for indices in members if len(indices)]
    if not members:
        return [np.empty(0, np.int64)] * num_clients
    order = rng.permutation(len(members))
    if num_clients <= len(members):
        groups = np.array_split(order, num_clients)
        return [np.concatenate([members[i] for i in group]) for group in groups]
    holders = _holders([len(members[i]) for i in order], num_clients)
    clients: Partition = []
    for i, count in zip(order, holders, strict=True):
        clients.extend(np.array_split(members[i], count))
    return clients


def _holders(sizes: Sequence[int], num_clients: int) -> list[int]:
    """How many clients share each class: one each, the others in proportion (D'Hondt)."""
    holders = [1] * len(sizes)
    heap = [(-float(size), i) for i, size in enumerate(sizes)]
    heapq.heapify(heap)
    for _ in range(num_clients - len(sizes)):
        _, i = heap[0]
        holders[i] += 1
        heapq.heapreplace(heap, (-sizes[i] / holders[i], i))
    return holders
