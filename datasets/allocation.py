"""Steps of allocating examples to clients: client sizes, grouping by class, whole classes."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from datasets.errors import DatasetError

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[np.integer]
Partition = list[Indices]  # indices of each client's examples


def client_sizes(
    total: int,
    num_clients: int | None,
    samples_per_client: int | None,
    rng: np.random.Generator | None = None,
    smallest: int = 1,
) -> Indices:
    """Sizes of clients, int64 [clients], for partitions that are free to choose them.

    With `num_clients` alone, sizes differ by at most one, or are random and at least `smallest` if
    there is a generator (`random_sizes`). With `samples_per_client`, the last of all possible
    clients gets the remainder.

    Raises:
      DatasetError: Neither number is given, one is below 1, there are not enough examples, or
        random sizes are not given `num_clients` alone.
    """
    if rng is not None:
        if num_clients is None or samples_per_client is not None:
            raise DatasetError("random_sizes needs num_clients, and no samples_per_client")
        return random_sizes(total, num_clients, rng, smallest)
    check_at_least_one("num_clients", num_clients)
    check_at_least_one("samples_per_client", samples_per_client)
    if samples_per_client is None:
        if num_clients is None:
            raise DatasetError("num_clients or samples_per_client must be given")
        _check_at_most_total(num_clients, total)
        return total // num_clients + (np.arange(num_clients) < total % num_clients)
    if samples_per_client > total:
        raise DatasetError(
            f"samples_per_client must be at most {total}, the number of examples, "
            f"not {samples_per_client}"
        )
    sizes = np.full(-(-total // samples_per_client), samples_per_client, np.int64)
    sizes[-1] = total - samples_per_client * (len(sizes) - 1)
    return sizes[: checked_num_clients(num_clients, len(sizes), samples_per_client)]


def random_sizes(
    total: int, num_clients: int, rng: np.random.Generator, smallest: int = 1
) -> Indices:
    """Draws sizes that sum to `total`, int64 [num_clients].

    What exceeds the smallest size of each client is divided in proportion to uniform draws.

    Raises:
      DatasetError: `num_clients` below 1 or above `total`, or too few examples for `smallest`.
    """
    check_at_least_one("num_clients", num_clients)
    _check_at_most_total(num_clients, total)
    check_smallest_size(total, num_clients, smallest)
    shares = rng.random(num_clients)
    rest = total - smallest * num_clients
    bounds = np.rint(np.cumsum(shares) / shares.sum() * rest).astype(np.int64)
    return smallest + np.diff(bounds, prepend=0)


def check_smallest_size(total: int, num_clients: int, smallest: int) -> None:
    """Raises DatasetError unless the examples suffice for clients of the smallest size."""
    check_at_least_one("min_client_size", smallest)
    if smallest * num_clients > total:
        raise DatasetError(
            f"min_client_size: {num_clients} clients of at least {smallest} examples need "
            f"{smallest * num_clients}, and there are {total}"
        )


def checked_num_clients(num_clients: int | None, possible: int, samples_per_client: int) -> int:
    """`num_clients`, or `possible` if it is None; more than `possible` is a DatasetError."""
    if num_clients is None:
        return possible
    if num_clients > possible:
        raise DatasetError(
            f"num_clients must be at most {possible}, which the examples suffice for at "
            f"samples_per_client={samples_per_client}, not {num_clients}"
        )
    return num_clients


def check_at_least_one(flag: str, value: int | None) -> None:
    """Raises DatasetError if `value` is below 1; None is allowed."""
    if value is not None and value < 1:
        raise DatasetError(f"{flag} must be at least 1, not {value}")


def _check_at_most_total(num_clients: int, total: int) -> None:
    if num_clients > total:
        raise DatasetError(
            f"num_clients must be at most {total}, the number of examples, not {num_clients}"
        )


def group_by_class(
    labels: Labels, rng: np.random.Generator, name: str
) -> tuple[Labels, list[Indices]]:
    """Groups examples by their labels, int [n]; errors name the partition.

    Returns:
      The classes that occur, sorted, int [classes]; and for each, the indices of its examples in
      random order.

    Raises:
      DatasetError: No examples, or examples without a label.
    """
    if len(labels) == 0:
        raise DatasetError(f"partition {name} needs examples, but there are none")
    if np.min(labels) < 0:
        raise DatasetError(
            f"partition {name} needs labels, but {np.count_nonzero(labels < 0)} of {len(labels)} "
            "examples have none: use iid or per_case"
        )
    classes, counts = np.unique(labels, return_counts=True)
    order = np.argsort(labels, kind="stable").astype(np.int64)
    members = np.split(order, np.cumsum(counts)[:-1])
    return classes, [rng.permutation(indices) for indices in members]


def split_into_clients(order: Indices, sizes: Indices) -> Partition:
    """Splits the first `sizes.sum()` indices of `order` into clients of these sizes."""
    bounds = np.cumsum(sizes)
    return np.split(order[: bounds[-1]].astype(np.int64), bounds[:-1])


def allocate_whole_classes(
    members: Sequence[Indices], num_clients: int, rng: np.random.Generator
) -> Partition:
    """Allocates whole classes to clients, or one class to each if clients outnumber classes.

    With N classes that are not empty and K <= N clients, each client gets floor(N/K) or ceil(N/K)
    classes. With K > N, the clients of a class share it evenly; some are empty if it has fewer
    examples than clients.
    """
    members = [indices for indices in members if len(indices)]
    if not members:
        return [np.empty(0, np.int64)] * num_clients
    order = rng.permutation(len(members))
    if num_clients <= len(members):
        groups = np.array_split(order, num_clients)
        return [np.concatenate([members[i] for i in group]) for group in groups]
    # At least one client for each class, and the others in proportion (D'Hondt).
    class_sizes = np.array([len(members[i]) for i in order])
    clients_per_class = np.ones(len(order), np.int64)
    for _ in range(num_clients - len(order)):
        clients_per_class[np.argmax(class_sizes / clients_per_class)] += 1
    clients: Partition = []
    for i, count in zip(order, clients_per_class, strict=True):
        clients.extend(np.array_split(members[i], count))
    return clients
