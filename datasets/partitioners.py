"""The ways in which examples are partitioned among the clients.

Every function returns the indices of each client's examples, a list of int64 arrays. No array is
empty, and no index is in two of them. Every example is allocated, unless `num_clients` together
with `samples_per_client` asks for fewer. Labels are any integers >= 0, also clusters of features.
"""

import math

import numpy as np
import numpy.typing as npt

from datasets import allocation, dirichlet_draws
from datasets.allocation import Indices, Labels, Partition
from datasets.errors import DatasetError


def iid(
    labels: Labels,
    rng: np.random.Generator,
    num_clients: int | None = None,
    samples_per_client: int | None = None,
    random_sizes: bool = False,
    min_client_size: int = 1,
) -> Partition:
    """Allocates the examples to clients at random; only the number of labels is used.

    For `num_clients` alone, sizes differ by at most one, or are random (`allocation.random_sizes`).
    With `samples_per_client` alone, the remainder makes one smaller client; with both, the rest of
    the examples is left out.

    Raises:
      DatasetError: Neither number is given, one is below 1, or there are not enough examples.
    """
    sizes = allocation.client_sizes(
        len(labels), num_clients, samples_per_client, rng if random_sizes else None, min_client_size
    )
    return allocation.split_into_clients(rng.permutation(len(labels)), sizes)


def dirichlet(
    labels: Labels,
    rng: np.random.Generator,
    alpha: float,
    samples_per_client: int | None,
    num_clients: int | None = None,
    random_sizes: bool = False,
    min_client_size: int = 1,
) -> Partition:
    """Draws each client's classes from its own Dirichlet mixture (Hsu et al. 2019, section 3).

    Each client draws q ~ Dir(alpha * p), where p is the class distribution of `labels`. It then
    draws its examples one by one: a class from q, and an example of that class. No example is drawn
    twice; when a class runs out, q is renormalized over the others. Sizes are those of `iid`.

    alpha = infinity is `iid`. At alpha = 0, each client has examples of exactly one class, and
    sizes cannot be random. With `num_clients` alone, the clients of a class share it evenly.
    Otherwise, full clients come first, in random order, so the probability of a class is its share
    of the full clients that remain; then comes, for each class whose size `samples_per_client` does
    not divide, one smaller client with the remainder.

    The alpha of papers that draw Dir(alpha), with the same alpha for each of C classes, is alpha
    times C here. Dec-SSL's partition is `dirichlet_per_class`.

    Raises:
      DatasetError: alpha < 0 or NaN, sizes below 1, more clients than can be filled, no labels.
    """
    _check_alpha(alpha)
    if math.isinf(alpha):
        return iid(labels, rng, num_clients, samples_per_client, random_sizes, min_client_size)
    _, members = allocation.group_by_class(labels, rng, "dirichlet")
    if alpha == 0:
        if random_sizes:
            raise DatasetError("random_sizes needs alpha above 0")
        return _one_class_each(members, rng, num_clients, samples_per_client)
    sizes = allocation.client_sizes(
        len(labels), num_clients, samples_per_client, rng if random_sizes else None, min_client_size
    )
    counts = np.array([len(indices) for indices in members])
    classes = np.concatenate(list(dirichlet_draws.draw_classes(rng, counts, alpha, sizes)))
    order = np.empty(len(classes), np.int64)
    for i, indices in enumerate(members):
        places = np.flatnonzero(classes == i)
        order[places] = indices[: len(places)]
    return allocation.split_into_clients(order, sizes)


def dirichlet_per_class(
    labels: Labels,
    rng: np.random.Generator,
    num_clients: int,
    alpha: float,
    balance_sizes: bool = True,
    min_client_size: int = 1,
) -> Partition:
    """Allocates each class by its own portions from Dir_K(alpha) (Yurochkin et al. 2019).

    This is Dec-SSL's partition (appendix C.2): for each class j, p_j ~ Dir_K(alpha) over the K
    clients, and client k gets the portion p_jk of the class. alpha is from 0 (each class on one
    client) to infinity (every client the same).

    The paper does not say by how much clients differ in size. The authors' released code keeps them
    near their even share of n/K examples, as Yurochkin et al.'s does, and so does `balance_sizes`:
    a client that has its even share gets nothing of the classes that follow, the portions of the
    others are renormalized, and everything is drawn again until every client has half to one and a
    half even shares (at most 1000 times). Then 5 clients of CIFAR-10 have the distances of the
    paper's Figure 17 to within about one standard deviation between seeds
    (`tests/datasets/test_describe.py`).

    A client that gets nothing at all (many clients, small alpha) takes half of the largest client's
    largest class. Clients below `min_client_size` are then filled up with examples of the largest
    client's largest class. The authors draw again until the sizes are right, which may never end at
    small alpha with more clients than classes.

    Raises:
      DatasetError: alpha < 0 or NaN, num_clients below 1 or above n, too few examples for
        `min_client_size`, no labels.
    """
    _check_alpha(alpha)
    allocation.client_sizes(len(labels), num_clients, None)
    allocation.check_smallest_size(len(labels), num_clients, min_client_size)
    _, members = allocation.group_by_class(labels, rng, "dirichlet_per_class")
    class_sizes = np.array([len(indices) for indices in members], np.int64)
    counts = dirichlet_draws.allocate_classes(
        rng, class_sizes, alpha, num_clients, balance_sizes, min_client_size
    )
    clients = np.concatenate([np.repeat(np.arange(num_clients), row) for row in counts])
    order = np.concatenate(members)[np.argsort(clients, kind="stable")]
    return allocation.split_into_clients(order, counts.sum(axis=0))


def by_class(
    labels: Labels, rng: np.random.Generator, num_clients: int, classes_per_client: int
) -> Partition:
    """Allocates a fixed number of classes to each client (FedU, section 5.1).

    Each client takes the classes that the fewest clients hold so far, with ties broken at random;
    the clients of a class share its examples evenly. If `num_clients * classes_per_client` is the
    number of classes, as in FedU, no class is on two clients.

    Raises:
      DatasetError: More classes per client than there are, classes that no client would hold, a
        class with fewer examples than clients that hold it, no labels.
    """
    allocation.check_at_least_one("num_clients", num_clients)
    allocation.check_at_least_one("classes_per_client", classes_per_client)
    classes, members = allocation.group_by_class(labels, rng, "by_class")
    if classes_per_client > len(classes):
        raise DatasetError(
            f"classes_per_client must be at most {len(classes)}, the number of classes, "
            f"not {classes_per_client}"
        )
    if num_clients * classes_per_client < len(classes):
        raise DatasetError(
            f"num_clients * classes_per_client must be at least {len(classes)}, the number of "
            f"classes, not {num_clients} * {classes_per_client}: some classes would be left out"
        )
    holders: list[list[int]] = [[] for _ in classes]  # the clients of each class
    num_holders = np.zeros(len(classes), np.int64)
    for client in range(num_clients):
        order = np.lexsort((rng.random(len(classes)), num_holders))
        for i in order[:classes_per_client]:
            holders[i].append(client)
        num_holders[order[:classes_per_client]] += 1
    parts: list[list[Indices]] = [[] for _ in range(num_clients)]
    for label, indices, class_holders in zip(classes, members, holders, strict=True):
        count = len(class_holders)
        if len(indices) < count:
            raise DatasetError(
                f"num_clients: class {label} has {len(indices)} examples for {count} clients;"
                " lower num_clients or classes_per_client"
            )
        shares = np.array_split(indices, count)
        for client, share in zip(rng.permutation(class_holders), shares, strict=True):
            parts[client].append(share)
    return [np.concatenate(client_parts) for client_parts in parts]


def skew(labels: Labels, rng: np.random.Generator, num_clients: int, beta: float) -> Partition:
    """Allocates a fraction beta evenly and the rest by class (Dec-SSL, appendix C.2).

    A fraction beta of each class is split evenly among all clients. The rest is allocated by class:
    with N classes and K <= N clients, each client exclusively holds floor(N/K) or ceil(N/K) of
    them; with K > N, each client has one class, the number of a class's clients is in proportion to
    its size, and they share it evenly. Every example has a client (the authors' released code drops
    some).

    beta = 0 is exclusive classes. beta = 1 is IID with even class counts: the paper's Figure 17 has
    a distance of 0.002 there, whereas a random allocation of CIFAR-10 to 5 clients has 0.02.

    Raises:
      DatasetError: beta outside [0, 1], num_clients below 1 or above n, no labels.
    """
    if not 0 <= beta <= 1:
        raise DatasetError(f"beta must be from 0 (exclusive classes) to 1 (IID), not {beta}")
    allocation.client_sizes(len(labels), num_clients, None)
    _, members = allocation.group_by_class(labels, rng, "skew")
    shared = [indices[: round(beta * len(indices))] for indices in members]
    exclusive = [indices[len(even) :] for indices, even in zip(members, shared, strict=True)]
    parts = [[part] for part in allocation.allocate_whole_classes(exclusive, num_clients, rng)]
    remainders = []
    for indices in shared:
        even_share = len(indices) // num_clients
        for k in range(num_clients if even_share else 0):
            parts[k].append(indices[k * even_share : (k + 1) * even_share])
        remainders.append(indices[even_share * num_clients :])
    # The remainders are split evenly; where that does not divide, smaller clients get one more.
    rest = rng.permutation(np.concatenate(remainders))
    sizes = [sum(map(len, client_parts)) for client_parts in parts]
    order = np.lexsort((rng.random(num_clients), np.array(sizes)))
    for k, share in zip(order, np.array_split(rest, num_clients), strict=True):
        parts[k].append(share)
    clients = [np.concatenate(client_parts) for client_parts in parts]
    empty = sum(len(indices) == 0 for indices in clients)
    if empty:
        raise DatasetError(f"num_clients={num_clients} leaves {empty} clients without examples")
    return clients


def per_case(case_ids: npt.NDArray[np.object_]) -> Partition:
    """Allocates each case, str [n], to a client of its own (DCCO, section 4.1, DERM).

    Examples of a case are in ascending order, and cases are sorted by their id.
    """
    _, clients = np.unique(case_ids.astype(str), return_inverse=True)
    order = np.argsort(clients, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(clients))[:-1])


def _check_alpha(alpha: float) -> None:
    if not alpha >= 0:
        raise DatasetError(f"alpha must be a number from 0 to inf, not {alpha}")


def _one_class_each(
    members: list[Indices],
    rng: np.random.Generator,
    num_clients: int | None,
    samples_per_client: int | None,
) -> Partition:
    """`dirichlet` in the limit alpha = 0, where each client holds one class."""
    allocation.client_sizes(sum(map(len, members)), num_clients, samples_per_client)
    if samples_per_client is None:
        assert num_clients is not None
        if num_clients < len(members):
            raise DatasetError(
                f"num_clients must be at least {len(members)}, the number of classes, at alpha=0 "
                f"without samples_per_client, not {num_clients}"
            )
        return allocation.allocate_whole_classes(members, num_clients, rng)
    full: Partition = []
    smaller: Partition = []
    for indices in members:
        chunks = np.split(indices, range(samples_per_client, len(indices), samples_per_client))
        (full if len(chunks[-1]) == samples_per_client else smaller).append(chunks.pop())
        full.extend(chunks)
    clients = [full[i] for i in rng.permutation(len(full))]
    clients += [smaller[i] for i in rng.permutation(len(smaller))]
    return clients[: allocation.checked_num_clients(num_clients, len(clients), samples_per_client)]
