"""Which client holds which example: labels and a generator -> indices per client.

Every function returns a list of int64 arrays, one per client, none of them empty, with no index
in two of them. All give away every example; only `num_clients` together with `samples_per_client`
leaves some out, because it asks for fewer, and `keep_fraction`, which takes examples away.

Labels may be any integers >= 0: clusters of features are partitioned as classes are.
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

DEFAULT_SAMPLES_PER_CLIENT = 4  # CIFAR-100 with 12,500 clients, DCCO Table 1


def iid(
    labels: Labels,
    rng: np.random.Generator,
    num_clients: int | None = None,
    samples_per_client: int | None = None,
    random_sizes: bool = False,
) -> Partition:
    """Deals the examples out at random.

    Args:
      labels: [n]; only the length is used, so -1 is allowed.
      rng: Source of all randomness.
      num_clients: Alone: that many clients, whose sizes differ by at most one.
      samples_per_client: Alone: clients of that size; the remainder makes one smaller client.
        With `num_clients`: that many such clients, and the rest of the examples is left out.
      random_sizes: `num_clients` clients whose sizes are random, see `dealing.random_sizes`.

    Raises:
      DatasetError: Neither is given, one is below 1, or there are not enough examples.
    """
    chance = rng if random_sizes else None
    sizes = allocation.client_sizes(len(labels), num_clients, samples_per_client, chance)
    return allocation.cut(rng.permutation(len(labels)), sizes)


def dirichlet(
    labels: Labels,
    rng: np.random.Generator,
    alpha: float,
    samples_per_client: int | None,
    num_clients: int | None = None,
    random_sizes: bool = False,
) -> Partition:
    """Draws each client's classes from its own Dirichlet mixture (Hsu et al. 2019, section 3).

    Each client draws q ~ Dir(alpha * p), p the class distribution of `labels`, and then its
    examples one by one: a class from q, an example of that class. No example is drawn twice; when
    a class runs out, q is renormalized over the others.

    alpha = infinity is `iid`. alpha = 0 gives each client examples of ONE class, exactly: full
    clients come first, in random order (so a client's class has the probability of the share of
    full clients that it can still fill), then one smaller client per class for what is left of
    it when `samples_per_client` does not divide its size. For alpha > 0 there is at most one
    smaller client, the last.

    Papers that draw Dir(alpha) with the same alpha for each of C classes mean alpha * C here.
    Dec-SSL's is `dirichlet_per_class`.

    Args:
      labels: int [n], all >= 0.
      rng: Source of all randomness.
      alpha: Concentration, 0 <= alpha <= infinity.
      samples_per_client: Size of a client. None takes all examples for `num_clients` clients
        of sizes that differ by at most one (at alpha = 0: that share their class evenly).
      num_clients: None gives away every example; a number leaves the rest out.
      random_sizes: `num_clients` clients whose sizes are random; not with alpha = 0.

    Raises:
      DatasetError: alpha < 0 or NaN, sizes below 1, more clients than can be filled, no labels.
    """
    _check_alpha(alpha)
    if math.isinf(alpha):
        return iid(labels, rng, num_clients, samples_per_client, random_sizes)
    classes, members = allocation.by_label(labels, rng, "dirichlet")
    if alpha == 0:
        if random_sizes:
            raise DatasetError("random_sizes needs alpha above 0")
        return _one_class_each(members, rng, num_clients, samples_per_client)
    chance = rng if random_sizes else None
    sizes = allocation.client_sizes(len(labels), num_clients, samples_per_client, chance)
    counts = np.array([len(indices) for indices in members])
    drawn = np.concatenate(list(dirichlet_draws.draw_classes(rng, counts, alpha, sizes)))
    chosen = np.empty(len(drawn), np.int64)
    for i in range(len(classes)):
        places = np.flatnonzero(drawn == i)
        chosen[places] = members[i][: len(places)]
    return allocation.cut(chosen, sizes)


def dirichlet_per_class(
    labels: Labels,
    rng: np.random.Generator,
    num_clients: int,
    alpha: float,
    balance_sizes: bool = True,
) -> Partition:
    """Deals each class out by its own portions from Dir_K(alpha) (Yurochkin et al. 2019).

    Dec-SSL's partition (appendix C.2): for each class j, p_j ~ Dir_K(alpha) over the K clients,
    and client k gets the portion p_jk of the class. Clients differ in size. The paper does not
    say how much; the authors' released code keeps clients near their even share of n/K examples,
    as Yurochkin et al.'s does, and so does `balance_sizes`: a client that has its even share gets
    nothing of the classes that follow, the portions of the others are renormalized, and all is
    drawn again until every client has half to one and a half even shares (at most 1000 times).

    With it, 5 clients of CIFAR-10 have the distances of the paper's Figure 17 to within about
    one standard deviation between seeds (`tests/datasets/test_describe.py`).

    A client that gets nothing at all (many clients, small alpha) takes half of the largest
    client's largest class, so that none is empty.

    Args:
      labels: int [n], all >= 0.
      rng: Source of all randomness.
      num_clients: K, at most n.
      alpha: 0 (each class on one client) to infinity (every client the same).
      balance_sizes: False takes the portions as they are drawn.

    Raises:
      DatasetError: alpha < 0 or NaN, num_clients below 1 or above n, no labels.
    """
    _check_alpha(alpha)
    allocation.client_sizes(len(labels), num_clients, None)
    _, members = allocation.by_label(labels, rng, "dirichlet_per_class")
    sizes = np.array([len(indices) for indices in members], np.int64)
    shares = dirichlet_draws.deal_classes(rng, sizes, alpha, num_clients, balance_sizes)
    owners = np.concatenate([np.repeat(np.arange(num_clients), row) for row in shares])
    order = np.concatenate(members)[np.argsort(owners, kind="stable")]
    return allocation.cut(order, shares.sum(axis=0))


def by_class(
    labels: Labels, rng: np.random.Generator, num_clients: int, classes_per_client: int
) -> Partition:
    """Gives each client a fixed number of classes (FedU, section 5.1).

    Each client takes the classes that the fewest clients hold so far, ties broken at random; a
    class's examples are shared evenly among its clients. With `num_clients *
    classes_per_client` equal to the number of classes, as in FedU, classes are exclusive.

    Args:
      labels: int [n], all >= 0.
      rng: Source of all randomness.
      num_clients: Number of clients.
      classes_per_client: Classes that each client holds.

    Raises:
      DatasetError: More classes per client than there are, classes that no client would hold,
        a class with fewer examples than clients that hold it, no labels.
    """
    allocation.at_least_one("num_clients", num_clients)
    allocation.at_least_one("classes_per_client", classes_per_client)
    classes, members = allocation.by_label(labels, rng, "by_class")
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
    holders: list[list[int]] = [[] for _ in classes]
    held = np.zeros(len(classes), np.int64)
    for client in range(num_clients):
        order = np.lexsort((rng.random(len(classes)), held))
        for i in order[:classes_per_client]:
            holders[i].append(client)
        held[order[:classes_per_client]] += 1
    clients: list[list[Indices]] = [[] for _ in range(num_clients)]
    for label, indices, owners in zip(classes, members, holders, strict=True):
        if len(indices) < len(owners):
            raise DatasetError(
                f"num_clients: class {label} has {len(indices)} examples for {len(owners)} clients;"
                " lower num_clients or classes_per_client"
            )
        shares = np.array_split(indices, len(owners))
        for owner, share in zip(rng.permutation(owners), shares, strict=True):
            clients[owner].append(share)
    return [np.concatenate(parts) for parts in clients]


def skew(labels: Labels, rng: np.random.Generator, num_clients: int, beta: float) -> Partition:
    """Splits a fraction beta evenly and the rest by class (Dec-SSL, appendix C.2).

    A fraction beta of each class is dealt evenly to all clients. The rest goes by class: with N
    classes and K <= N clients, each client exclusively holds floor(N/K) or ceil(N/K) of them;
    with K > N, each client has one class, and a class's clients, as many as its size deserves,
    share it evenly. Every example goes to exactly one client (the authors' released code drops
    some).

    beta = 1 is IID with even class counts: the paper's Figure 17 has a distance of 0.002 there,
    where a plain random deal of CIFAR-10 to 5 clients has 0.02.

    Args:
      labels: int [n], all >= 0.
      rng: Source of all randomness.
      num_clients: K, at most n.
      beta: 0 (exclusive classes) to 1 (IID).

    Raises:
      DatasetError: beta outside [0, 1], num_clients below 1 or above n, no labels.
    """
    if not 0 <= beta <= 1:
        raise DatasetError(f"beta must be from 0 (exclusive classes) to 1 (IID), not {beta}")
    allocation.client_sizes(len(labels), num_clients, None)
    _, members = allocation.by_label(labels, rng, "skew")
    shared = [indices[: round(beta * len(indices))] for indices in members]
    exclusive = [indices[len(even) :] for indices, even in zip(members, shared, strict=True)]
    clients = [[part] for part in allocation.share_out(exclusive, num_clients, rng)]
    remainders = []
    for indices in shared:
        even = len(indices) // num_clients
        for k in range(num_clients if even else 0):
            clients[k].append(indices[k * even : (k + 1) * even])
        remainders.append(indices[even * num_clients :])
    # What does not divide goes to the smallest clients, one each per turn.
    rest = rng.permutation(np.concatenate(remainders))
    sizes = [sum(map(len, parts)) for parts in clients]
    order = np.lexsort((rng.random(num_clients), np.array(sizes)))
    for place, share in enumerate(np.array_split(rest, num_clients)):
        clients[order[place]].append(share)
    return allocation.not_empty([np.concatenate(parts) for parts in clients])


def per_case(case_ids: npt.NDArray[np.object_]) -> Partition:
    """One client per case (DCCO, section 4.1, DERM).

    Args:
      case_ids: str [n].

    Returns:
      Indices per case, cases sorted by their id, examples in the order of the data.
    """
    _, case_of = np.unique(case_ids.astype(str), return_inverse=True)
    order = np.argsort(case_of, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(case_of))[:-1])


def keep_fraction(clients: Partition, fraction: float, seed: int) -> Partition:
    """Keeps a random share of each client's examples (Dec-SSL, appendix B.7).

    With the same seed, what a smaller fraction keeps is part of what a larger one keeps.

    Args:
      clients: A partition.
      fraction: Above 0 and at most 1; a client keeps that share of its size, rounded, and at
        least one example.
      seed: Not negative.

    Returns:
      Indices per client, in the order of `clients`.

    Raises:
      DatasetError: fraction outside (0, 1].
    """
    if not 0 < fraction <= 1:
        raise DatasetError(f"data_fraction must be above 0 and at most 1, not {fraction}")
    if fraction == 1:
        return clients
    rng = np.random.default_rng([seed, zlib.crc32(b"data_fraction")])
    kept = []
    for indices in clients:
        order = rng.permutation(len(indices))
        kept.append(indices[np.sort(order[: max(1, round(fraction * len(indices)))])])
    return kept


@dataclasses.dataclass(frozen=True)
class PartitionSpec:
    """An entry of `PARTITIONS`: the function, what it does, and the flags that it reads."""

    function: Callable[..., Partition]
    description: str
    flags: tuple[str, ...]


PARTITIONS = {
    "iid": PartitionSpec(
        iid, "examples dealt out at random", ("num_clients", "samples_per_client", "random_sizes")
    ),
    "dirichlet": PartitionSpec(
        dirichlet,
        "class mixtures from Dir(alpha * p), Hsu et al. 2019; alpha 0: one class per client",
        ("alpha", "samples_per_client", "num_clients", "random_sizes"),
    ),
    "dirichlet_per_class": PartitionSpec(
        dirichlet_per_class,
        "each class dealt out by portions from Dir(alpha), Yurochkin et al. 2019, as in Dec-SSL",
        ("num_clients", "alpha", "balance_sizes"),
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
# How the clusters of `feature_clusters` can be dealt out.
CLUSTER_PARTITIONS = ("dirichlet_per_class", "dirichlet", "skew")


def flags_of(name: str, cluster_partition: str) -> tuple[str, ...]:
    """The flags that a partition reads; `feature_clusters` has those of `cluster_partition` too."""
    own = PARTITIONS[name].flags
    return own + (PARTITIONS[cluster_partition].flags if name == "feature_clusters" else ())


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
    cluster_ids: npt.NDArray[np.integer] | None = None,
    cluster_partition: str = "dirichlet_per_class",
) -> Partition:
    """Partitions `split` by the name of a partition; a pure function of its arguments.

    Settings that the partition does not use are ignored. `iid` and `dirichlet` take clients of
    `DEFAULT_SAMPLES_PER_CLIENT` where neither size nor number is given.

    Args:
      name: A key of `PARTITIONS`.
      split: The examples.
      seed: Not negative; with the name it seeds the generator.
      alpha: Of `dirichlet` and `dirichlet_per_class`.
      beta: Of `skew`.
      num_clients: Of all but `per_case`.
      samples_per_client: Of `iid` and `dirichlet`.
      classes_per_client: Of `by_class`.
      balance_sizes: Of `dirichlet_per_class`.
      random_sizes: Of `iid` and `dirichlet`.
      cluster_ids: Of `feature_clusters`: int [n], as `feature_clusters.cluster` gives them.
      cluster_partition: Of `feature_clusters`: one of `CLUSTER_PARTITIONS`, which gets the clusters
        as labels.

    Returns:
      Indices into `split` per client.

    Raises:
      DatasetError: Unknown name, missing or impossible settings, no labels or cases.
    """
    if name not in PARTITIONS:
        raise DatasetError(f"unknown partition {name!r}: give one of {', '.join(PARTITIONS)}")
    if seed < 0:
        raise DatasetError(f"seed must not be negative, not {seed}")
    if name == "per_case":
        if split.case_ids is None:
            raise DatasetError("partition per_case needs cases: use --dataset=case_folder")
        return per_case(split.case_ids)
    settings: dict[str, float | int | None] = {
        "alpha": alpha,
        "beta": beta,
        "num_clients": num_clients,
        "samples_per_client": samples_per_client,
        "classes_per_client": classes_per_client,
        "balance_sizes": balance_sizes,
        "random_sizes": random_sizes,
    }
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    labels: Labels = split.labels
    if name == "feature_clusters":
        name, labels = cluster_partition, _checked_clusters(cluster_ids, len(split))
    arguments = _arguments(name, settings)
    return PARTITIONS[name].function(labels, rng, **arguments)


def _arguments(name: str, settings: dict[str, float | int | None]) -> dict[str, float | int | None]:
    """The settings that a partition takes; raises where it needs one that is None."""
    arguments = {flag: settings[flag] for flag in PARTITIONS[name].flags}
    if "samples_per_client" in arguments:
        if settings["num_clients"] is None and settings["samples_per_client"] is None:
            arguments["samples_per_client"] = DEFAULT_SAMPLES_PER_CLIENT
        return arguments
    for flag, value in arguments.items():
        if value is None:
            raise DatasetError(f"partition {name} needs --{flag}")
    return arguments


def _checked_clusters(cluster_ids: Labels | None, examples: int) -> Labels:
    if cluster_ids is None:
        raise DatasetError("partition feature_clusters needs --cluster_encoder")
    if cluster_ids.shape != (examples,):
        raise DatasetError(
            f"cluster_ids must have shape [{examples}], not {list(cluster_ids.shape)}"
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
    """The limit alpha = 0 of `dirichlet`: each client holds one class."""
    allocation.client_sizes(sum(map(len, members)), num_clients, samples_per_client)
    if samples_per_client is None:
        assert num_clients is not None
        if num_clients < len(members):
            raise DatasetError(
                f"num_clients must be at least {len(members)}, the number of classes, at alpha=0 "
                f"without samples_per_client, not {num_clients}"
            )
        return allocation.share_out(members, num_clients, rng)
    full: Partition = []
    smaller: Partition = []
    for indices in members:
        chunks = np.split(indices, range(samples_per_client, len(indices), samples_per_client))
        (full if len(chunks[-1]) == samples_per_client else smaller).append(chunks.pop())
        full.extend(chunks)
    clients = [full[i] for i in rng.permutation(len(full))]
    clients += [smaller[i] for i in rng.permutation(len(smaller))]
    return clients[: allocation.checked_count(num_clients, len(clients), samples_per_client)]
