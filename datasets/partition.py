"""Partitions of the examples among the clients.

Every function returns the indices of each client's examples, a list of int64 arrays. No array is
empty, and no index is in two of them. Every example is allocated, with two exceptions:
`num_clients` together with `samples_per_client` may ask for fewer, and `keep_fraction` removes
examples.

Labels may be any integers >= 0, so clusters of features are partitioned as classes are.
"""

import dataclasses
import math
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from datasets import allocation, dirichlet_draws
from datasets.allocation import Indices, Labels, Partition
from datasets.errors import DatasetError
from datasets.image_dataset import Split

DEFAULT_SAMPLES_PER_CLIENT = 4  # as for CIFAR-100 with 12,500 clients in DCCO, Table 1


def iid(
    labels: Labels,
    rng: np.random.Generator,
    num_clients: int | None = None,
    samples_per_client: int | None = None,
    random_sizes: bool = False,
    min_client_size: int = 1,
) -> Partition:
    """Allocates the examples to clients at random.

    Args:
      labels: Class labels, int [n]. Only their number is used, so -1 is allowed.
      rng: Source of all randomness.
      num_clients: Number of clients. Without `samples_per_client`, their sizes differ by at most
        one; with it, the rest of the examples is left out.
      samples_per_client: Size of a client. Without `num_clients`, the remainder makes one smaller
        client.
      random_sizes: Whether sizes are random, see `allocation.random_sizes`; needs `num_clients`
        alone.
      min_client_size: Smallest random size.

    Raises:
      DatasetError: Neither number is given, one is below 1, or there are not enough examples.
    """
    size_rng = rng if random_sizes else None
    sizes = allocation.client_sizes(
        len(labels), num_clients, samples_per_client, size_rng, min_client_size
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
    draws its examples one by one: a class from q, and an example of that class. No example is
    drawn twice; when a class runs out, q is renormalized over the others.

    alpha = infinity is `iid`. At alpha = 0, each client has examples of exactly one class. Full
    clients come first, in random order, so the probability of a class is its share of the full
    clients that remain. Then comes, for each class whose size `samples_per_client` does not
    divide, one smaller client with the remainder. For alpha > 0, only the last client may be
    smaller.

    The alpha of papers that draw Dir(alpha), with the same alpha for each of C classes, is
    alpha * C here. Dec-SSL's partition is `dirichlet_per_class`.

    Args:
      labels: Class labels, int [n], all >= 0.
      rng: Source of all randomness.
      alpha: Concentration, 0 <= alpha <= infinity.
      samples_per_client: Size of a client. None allocates all examples to `num_clients` clients,
        whose sizes differ by at most one (at alpha = 0, the clients of a class share it evenly).
      num_clients: Number of clients, which with `samples_per_client` leaves the other examples
        out. None allocates every example.
      random_sizes: Whether the sizes of `num_clients` clients are random; not at alpha = 0.
      min_client_size: Smallest random size.

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
    size_rng = rng if random_sizes else None
    sizes = allocation.client_sizes(
        len(labels), num_clients, samples_per_client, size_rng, min_client_size
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
    clients, and client k gets the portion p_jk of the class. Clients differ in size. The paper
    does not say by how much; the authors' released code keeps clients near their even share of
    n/K examples, as Yurochkin et al.'s does, and so does `balance_sizes`: a client that has its
    even share gets nothing of the classes that follow, the portions of the others are
    renormalized, and the whole is drawn again until every client has half to one and a half even
    shares (at most 1000 times).

    With balanced sizes, 5 clients of CIFAR-10 have the distances of the paper's Figure 17 to
    within about one standard deviation between seeds (`tests/datasets/test_describe.py`).

    A client that gets nothing at all (many clients, small alpha) takes half of the largest
    client's largest class, so that no client is empty. A client that has fewer than
    `min_client_size` examples after that is filled up to this size with examples of the largest
    client's largest class. The authors draw again until the sizes are right, which may never end at
    small alpha with more clients than classes.

    Args:
      labels: Class labels, int [n], all >= 0.
      rng: Source of all randomness.
      num_clients: Number of clients K, at most n.
      alpha: Concentration, 0 (each class on one client) to infinity (every client the same).
      balance_sizes: Whether sizes are balanced; otherwise, portions stay as they are drawn.
      min_client_size: Number of examples that each client has at least.

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
    the clients of a class share its examples evenly. With `num_clients * classes_per_client`
    equal to the number of classes, as in FedU, no class is on two clients.

    Args:
      labels: Class labels, int [n], all >= 0.
      rng: Source of all randomness.
      num_clients: Number of clients.
      classes_per_client: Number of classes of each client.

    Raises:
      DatasetError: More classes per client than there are, classes that no client would hold,
        a class with fewer examples than clients that hold it, no labels.
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

    A fraction beta of each class is split evenly among all clients. The rest is allocated by
    class: with N classes and K <= N clients, each client exclusively holds floor(N/K) or
    ceil(N/K) of them; with K > N, each client has one class, the number of a class's clients is
    in proportion to its size, and they share it evenly. Every example goes to exactly one client
    (the authors' released code drops some).

    beta = 1 is IID with even class counts: the paper's Figure 17 has a distance of 0.002 there,
    whereas CIFAR-10, allocated to 5 clients at random, has 0.02.

    Args:
      labels: Class labels, int [n], all >= 0.
      rng: Source of all randomness.
      num_clients: Number of clients K, at most n.
      beta: Fraction that is split evenly, 0 (exclusive classes) to 1 (IID).

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
    allocation.check_no_client_empty(clients)
    return clients


def per_case(case_ids: npt.NDArray[np.object_]) -> Partition:
    """Allocates each case to a client of its own (DCCO, section 4.1, DERM).

    Args:
      case_ids: Case of each example, str [n].

    Returns:
      Indices of each case's examples, in ascending order; cases are sorted by their id.
    """
    _, clients = np.unique(case_ids.astype(str), return_inverse=True)
    order = np.argsort(clients, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(clients))[:-1])


def keep_fraction(clients: Partition, fraction: float, seed: int) -> Partition:
    """Keeps a random share of each client's examples (Dec-SSL, appendix B.7).

    With the same seed, the examples that a smaller fraction keeps are among those that a larger
    one keeps.

    Args:
      clients: A partition.
      fraction: Share of its size that each client keeps, rounded, and at least one example; above
        0 and at most 1.
      seed: Seed of the random choice, not negative.

    Returns:
      Indices of each client's remaining examples; clients and examples keep their order.

    Raises:
      DatasetError: fraction outside (0, 1].
    """
    if not 0 < fraction <= 1:
        raise DatasetError(f"data_fraction must be above 0 and at most 1, not {fraction}")
    if fraction == 1:
        return clients
    rng = _generator(seed, "data_fraction")
    kept = []
    for indices in clients:
        order = rng.permutation(len(indices))
        kept.append(indices[np.sort(order[: max(1, round(fraction * len(indices)))])])
    return kept


def size_before_fraction(size: int, fraction: float) -> int:
    """The smallest client of which `keep_fraction` leaves at least so many examples.

    Args:
      size: Number of examples that a client keeps at least; 1 or more.
      fraction: Argument of `keep_fraction`; impossible ones, which it rejects, count as 1.
    """
    if not 0 < fraction < 1 or size <= 1:
        return size
    before = int((size - 0.5) / fraction)
    while round(fraction * before) < size:
        before += 1
    return before


@dataclasses.dataclass(frozen=True)
class PartitionSpec:
    """An entry of `PARTITIONS`.

    Attributes:
      function: A function of labels, a generator and the settings named in `flags`.
      description: One line on the partition, for listings.
      flags: Names of the flags that the partition reads.
      sets_smallest: Whether `function` takes `min_client_size`; the sizes of other partitions
        follow from their flags alone.
    """

    function: Callable[..., Partition]
    description: str
    flags: tuple[str, ...]
    sets_smallest: bool = False


PARTITIONS = {
    "iid": PartitionSpec(
        iid,
        "examples dealt out at random",
        ("num_clients", "samples_per_client", "random_sizes"),
        sets_smallest=True,
    ),
    "dirichlet": PartitionSpec(
        dirichlet,
        "class mixtures from Dir(alpha * p), Hsu et al. 2019; alpha 0: one class per client",
        ("alpha", "samples_per_client", "num_clients", "random_sizes"),
        sets_smallest=True,
    ),
    "dirichlet_per_class": PartitionSpec(
        dirichlet_per_class,
        "each class dealt out by portions from Dir(alpha), Yurochkin et al. 2019, as in Dec-SSL",
        ("num_clients", "alpha", "balance_sizes"),
        sets_smallest=True,
    ),
    "skew": PartitionSpec(
        skew,
        "a fraction beta IID, the rest by exclusive classes, as in Dec-SSL",
        ("num_clients", "beta"),
    ),
    "by_class": PartitionSpec(
        by_class,
        "classes_per_client classes on each client, as in FedU",
        ("num_clients", "classes_per_client"),
    ),
    "per_case": PartitionSpec(per_case, "one client per case of a case folder", ()),
    "feature_clusters": PartitionSpec(
        dirichlet_per_class,
        "clusters of features dealt out as classes are (--cluster_partition), as in Dec-SSL",
        ("cluster_encoder", "clusters", "cluster_partition"),
    ),
}
# Partitions that `feature_clusters` can use to allocate its clusters.
CLUSTER_PARTITIONS = ("dirichlet_per_class", "dirichlet", "skew")


def flags_of(name: str, cluster_partition: str) -> tuple[str, ...]:
    """Names of the flags that a partition reads.

    Args:
      name: A key of `PARTITIONS`.
      cluster_partition: The partition whose flags `feature_clusters` reads beside its own.
    """
    flags = PARTITIONS[name].flags
    return flags + (PARTITIONS[cluster_partition].flags if name == "feature_clusters" else ())


def make(
    name: str,
    split: Split,
    seed: int,
    *,
    alpha: float = 0.0,
    beta: float | None = None,
    num_clients: int | None = None,
    samples_per_client: int | None = None,
    classes_per_client: int | None = None,
    balance_sizes: bool = True,
    random_sizes: bool = False,
    min_client_size: int = 1,
    cluster_ids: npt.NDArray[np.integer] | None = None,
    cluster_partition: str = "dirichlet_per_class",
) -> Partition:
    """Partitions `split` with the partition of a given name; a pure function of its arguments.

    Settings that the partition does not use are ignored. `iid` and `dirichlet` make clients of
    `DEFAULT_SAMPLES_PER_CLIENT` examples if neither the size nor the number is given.

    Args:
      name: A key of `PARTITIONS`.
      split: The examples.
      seed: Seed of the generator, together with the name; not negative.
      alpha: Concentration for `dirichlet` and `dirichlet_per_class`.
      beta: Fraction that `skew` splits evenly.
      num_clients: Number of clients; `per_case` ignores it.
      samples_per_client: Size of a client for `iid` and `dirichlet`.
      classes_per_client: Number of classes of each client for `by_class`.
      balance_sizes: Whether `dirichlet_per_class` balances sizes.
      random_sizes: Whether `iid` and `dirichlet` draw random sizes.
      min_client_size: Number of examples that each client has at least. `dirichlet_per_class` fills
        smaller clients up, and random sizes start from it; the sizes of other partitions do not
        depend on it, and smaller ones are an error.
      cluster_ids: Clusters for `feature_clusters`, int [n], from `feature_clusters.cluster`.
      cluster_partition: The one of `CLUSTER_PARTITIONS` to which `feature_clusters` gives the
        clusters as labels.

    Returns:
      Indices into `split` of each client's examples.

    Raises:
      DatasetError: Unknown name, missing or impossible settings, no labels or cases, clients that
        are smaller than `min_client_size`.
    """
    if name not in PARTITIONS:
        raise DatasetError(f"unknown partition {name!r}: give one of {', '.join(PARTITIONS)}")
    rng = _generator(seed, name)
    if name == "per_case":
        cases = per_case(_checked_cases(split.case_ids))
        _check_smallest(cases, min_client_size, name)
        return cases
    settings: dict[str, float | int | None] = {
        "alpha": alpha,
        "beta": beta,
        "num_clients": num_clients,
        "samples_per_client": samples_per_client,
        "classes_per_client": classes_per_client,
        "balance_sizes": balance_sizes,
        "random_sizes": random_sizes,
    }
    labels: Labels = split.labels
    if name == "feature_clusters":
        name, labels = cluster_partition, _checked_clusters(cluster_ids, len(split))
    arguments = _arguments(name, settings)
    if PARTITIONS[name].sets_smallest:
        arguments["min_client_size"] = min_client_size
    clients = PARTITIONS[name].function(labels, rng, **arguments)
    _check_smallest(clients, min_client_size, name)
    return clients


def _check_smallest(clients: Partition, smallest: int, name: str) -> None:
    """Raises DatasetError if a client has fewer examples than the smallest may have."""
    small = sum(len(indices) < smallest for indices in clients)
    if small:
        raise DatasetError(
            f"min_client_size: {small} of {len(clients)} clients of partition {name} have fewer "
            f"than {smallest} examples (before data_fraction); only dirichlet_per_class and "
            "random_sizes make clients of a smallest size"
        )


def _generator(seed: int, stream: str) -> np.random.Generator:
    """A generator for one of several random streams of the same seed.

    Raises:
      DatasetError: A negative seed.
    """
    if seed < 0:
        raise DatasetError(f"seed must not be negative, not {seed}")
    return np.random.default_rng([seed, zlib.crc32(stream.encode())])


def _arguments(name: str, settings: dict[str, float | int | None]) -> dict[str, float | int | None]:
    """Selects the settings that a partition takes.

    Raises:
      DatasetError: A setting is None that the partition needs.
    """
    arguments = {flag: settings[flag] for flag in PARTITIONS[name].flags}
    if "samples_per_client" in arguments:
        if settings["num_clients"] is None and settings["samples_per_client"] is None:
            arguments["samples_per_client"] = DEFAULT_SAMPLES_PER_CLIENT
        return arguments
    for flag, value in arguments.items():
        if value is None:
            raise DatasetError(f"partition {name} needs --{flag}")
    return arguments


def _checked_cases(case_ids: npt.NDArray[np.object_] | None) -> npt.NDArray[np.object_]:
    if case_ids is None:
        raise DatasetError("partition per_case needs cases: use --dataset=case_folder")
    return case_ids


def _checked_clusters(cluster_ids: Labels | None, num_examples: int) -> Labels:
    if cluster_ids is None:
        raise DatasetError("partition feature_clusters needs --cluster_encoder")
    if cluster_ids.shape != (num_examples,):
        raise DatasetError(
            f"cluster_ids must have shape [{num_examples}], not {list(cluster_ids.shape)}"
        )
    return cluster_ids


def _check_alpha(alpha: float) -> None:
    if not alpha >= 0:
        raise DatasetError(f"alpha must be a number from 0 to inf, not {alpha}")


def _one_class_each(
    members: list[Indices],
    rng: np.random.Generator,
    num_clients: int | None,
    samples_per_client: int | None,
) -> Partition:
    """`dirichlet` in the limit alpha = 0, where each client holds one class.

    Args:
      members: Indices of each class's examples, in random order.
      rng: Source of all randomness.
      num_clients: Number of clients, see `dirichlet`.
      samples_per_client: Size of a client, see `dirichlet`.
    """
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
