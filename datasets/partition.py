"""Partitions of the examples among the clients, by name; their functions are in `partitioners`."""

import dataclasses
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from datasets import partitioners
from datasets.allocation import Labels, Partition
from datasets.errors import DatasetError
from datasets.image_dataset import Split

DEFAULT_SAMPLES_PER_CLIENT = 4  # as for CIFAR-100 with 12,500 clients in DCCO, Table 1


def keep_fraction(clients: Partition, fraction: float, seed: int) -> Partition:
    """Keeps a random share of each client's examples (Dec-SSL, appendix B.7).

    A client keeps the share of its size, rounded, and at least one example; clients and examples
    keep their order. With the same seed, a larger fraction keeps all that a smaller one keeps.

    Raises:
      DatasetError: The fraction is not above 0 and at most 1, or the seed is negative.
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
    """Size of the smallest client of which `keep_fraction` leaves at least `size` examples.

    Fractions that `keep_fraction` rejects count as 1.
    """
    if not 0 < fraction < 1 or size <= 1:
        return size
    before = int((size - 0.5) / fraction)
    while round(fraction * before) < size:
        before += 1
    return before


@dataclasses.dataclass(frozen=True)
class PartitionSpec:
    """An entry of `PARTITIONS`."""

    #: A function of labels, a generator and the settings named in `flags`.
    function: Callable[..., Partition]
    description: str  #: One line for listings.
    flags: tuple[str, ...]  #: Names of the flags that the partition reads.
    sets_smallest: bool = False  #: Whether `function` takes `min_client_size`.


PARTITIONS = {
    "iid": PartitionSpec(
        partitioners.iid, "examples dealt out at random",
        ("num_clients", "samples_per_client", "random_sizes"), sets_smallest=True,
    ),
    "dirichlet": PartitionSpec(
        partitioners.dirichlet,
        "class mixtures from Dir(alpha * p), Hsu et al. 2019; alpha 0: one class per client",
        ("alpha", "samples_per_client", "num_clients", "random_sizes"), sets_smallest=True,
    ),
    "dirichlet_per_class": PartitionSpec(
        partitioners.dirichlet_per_class,
        "each class dealt out by portions from Dir(alpha), Yurochkin et al. 2019, as in Dec-SSL",
        ("num_clients", "alpha", "balance_sizes"), sets_smallest=True,
    ),
    "skew": PartitionSpec(
        partitioners.skew, "a fraction beta IID, the rest by exclusive classes, as in Dec-SSL",
        ("num_clients", "beta"),
    ),
    "by_class": PartitionSpec(
        partitioners.by_class, "classes_per_client classes on each client, as in FedU",
        ("num_clients", "classes_per_client"),
    ),
    "per_case": PartitionSpec(partitioners.per_case, "one client per case of a case folder", ()),
    "feature_clusters": PartitionSpec(
        partitioners.dirichlet_per_class,
        "clusters of features dealt out as classes are (--cluster_partition), as in Dec-SSL",
        ("cluster_encoder", "clusters", "cluster_partition"),
    ),
}  # fmt: skip
# Partitions that `feature_clusters` can use to allocate its clusters.
CLUSTER_PARTITIONS = ("dirichlet_per_class", "dirichlet", "skew")


def flags_of(name: str, cluster_partition: str) -> tuple[str, ...]:
    """Names of the flags that a partition reads; `feature_clusters` also reads another one's."""
    flags = PARTITIONS[name].flags
    return flags + (PARTITIONS[cluster_partition].flags if name == "feature_clusters" else ())


def unread_flags(name: str, cluster_partition: str) -> set[str]:
    """Names of the flags that other partitions read, and this one does not."""
    every = {flag for spec in PARTITIONS.values() for flag in spec.flags}
    return every.difference(flags_of(name, cluster_partition))


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
    """Indices into `split` of each client's examples; a pure function of the arguments.

    Settings that the partition does not use are ignored. `iid` and `dirichlet` make clients of
    `DEFAULT_SAMPLES_PER_CLIENT` examples if neither the size nor the number is given.

    Args:
      name: A key of `PARTITIONS`.
      split: The examples.
      seed: Seed, not negative.
      alpha: Concentration for `dirichlet` and `dirichlet_per_class`.
      beta: Fraction that `skew` splits evenly.
      num_clients: Number of clients; `per_case` ignores it.
      samples_per_client: Size of a client for `iid` and `dirichlet`.
      classes_per_client: Number of classes of each client for `by_class`.
      balance_sizes: Whether `dirichlet_per_class` balances sizes.
      random_sizes: Whether `iid` and `dirichlet` draw random sizes.
      min_client_size: Smallest number of examples of a client. `dirichlet_per_class` fills smaller
        clients up, and random sizes start from it; other partitions reject smaller clients.
      cluster_ids: Clusters for `feature_clusters`, int [n], from `feature_clusters.cluster`.
      cluster_partition: The one of `CLUSTER_PARTITIONS` that allocates them as if they were labels.

    Raises:
      DatasetError: Unknown name, missing or impossible settings, no labels or cases, clients that
        are smaller than `min_client_size`.
    """
    if name not in PARTITIONS:
        raise DatasetError(f"unknown partition {name!r}: give one of {', '.join(PARTITIONS)}")
    rng = _generator(seed, name)
    if name == "per_case":
        if split.case_ids is None:
            raise DatasetError(
                "--partition=per_case needs cases or clients, and the data names none: the column "
                "case_id of a metadata.csv or of Parquet files names them, or an array clients in "
                "an .npz"
            )
        cases = partitioners.per_case(split.case_ids)
        _check_smallest(cases, min_client_size, name)
        return cases
    settings: dict[str, float | int | None] = {
        "alpha": alpha, "beta": beta, "num_clients": num_clients,
        "samples_per_client": samples_per_client, "classes_per_client": classes_per_client,
        "balance_sizes": balance_sizes, "random_sizes": random_sizes,
    }  # fmt: skip
    labels: Labels = split.labels
    if name == "feature_clusters":
        name, labels = cluster_partition, _checked_clusters(cluster_ids, len(split))
    arguments = _arguments(name, settings, len(split))
    if PARTITIONS[name].sets_smallest:
        arguments["min_client_size"] = min_client_size
    clients = PARTITIONS[name].function(labels, rng, **arguments)
    _check_smallest(clients, min_client_size, name)
    return clients


def _check_smallest(clients: Partition, smallest: int, name: str) -> None:
    """Raises a DatasetError if a client has fewer than `smallest` examples."""
    small = sum(len(indices) < smallest for indices in clients)
    if small:
        raise DatasetError(
            f"min_client_size: {small} of {len(clients)} clients of partition {name} have fewer "
            f"than {smallest} examples (before data_fraction); only dirichlet_per_class and "
            "random_sizes make clients of a smallest size"
        )


def _generator(seed: int, stream: str) -> np.random.Generator:
    """A generator for one of several random streams of the same seed."""
    if seed < 0:
        raise DatasetError(f"seed must not be negative, not {seed}")
    return np.random.default_rng([seed, zlib.crc32(stream.encode())])


def _arguments(
    name: str, settings: dict[str, float | int | None], num_examples: int
) -> dict[str, float | int | None]:
    """The settings that a partition takes; a DatasetError if one that it needs is None."""
    arguments = {flag: settings[flag] for flag in PARTITIONS[name].flags}
    if "samples_per_client" in arguments:
        if settings["num_clients"] is None and settings["samples_per_client"] is None:
            arguments["samples_per_client"] = DEFAULT_SAMPLES_PER_CLIENT
            if num_examples < DEFAULT_SAMPLES_PER_CLIENT:
                raise DatasetError(
                    f"the data set has {num_examples} images to train on, fewer than the "
                    f"{DEFAULT_SAMPLES_PER_CLIENT} of one client: add images, or give "
                    "--samples_per_client"
                )
        return arguments
    for flag, value in arguments.items():
        if value is None:
            raise DatasetError(f"partition {name} needs --{flag}")
    return arguments


def _checked_clusters(cluster_ids: Labels | None, num_examples: int) -> Labels:
    if cluster_ids is None:
        raise DatasetError("partition feature_clusters needs --cluster_encoder")
    if cluster_ids.shape != (num_examples,):
        raise DatasetError(
            f"cluster_ids must have shape [{num_examples}], not {list(cluster_ids.shape)}"
        )
    return cluster_ids
