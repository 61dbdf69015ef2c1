"""Which client holds which example: labels and a generator -> indices per client.

Every function returns a list of int64 arrays, one per client, none of them empty, with no index
in two of them. `iid`, `dirichlet`, `skew`, `by_class` and `per_case` give away every example; only
`num_clients` together with `samples_per_client` leaves some out, because it asks for fewer.

Labels may be any integers >= 0: clusters of features are partitioned as classes are.
"""

import dataclasses
import heapq
import math
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from datasets.errors import DatasetError
from datasets.image_dataset import Split

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[np.integer]
Partition = list[Indices]

DEFAULT_SAMPLES_PER_CLIENT = 4  # CIFAR-100 with 12,500 clients, DCCO Table 1
_MIXTURES_AT_ONCE = 512  # clients whose class mixtures are drawn together


def iid(
    labels: Labels,
    rng: np.random.Generator,
    num_clients: int | None = None,
    samples_per_client: int | None = None,
) -> Partition:
    """Deals the examples out at random.

    Args:
      labels: [n]; only the length is used, so -1 is allowed.
      rng: Source of all randomness.
      num_clients: Alone: that many clients, whose sizes differ by at most one.
      samples_per_client: Alone: clients of that size; the remainder makes one smaller client.
        With `num_clients`: that many such clients, and the rest of the examples is left out.

    Raises:
      DatasetError: Neither is given, one is below 1, or there are not enough examples.
    """
    sizes = _client_sizes(len(labels), num_clients, samples_per_client)
    return _cut(rng.permutation(len(labels)), sizes)


def dirichlet(
    labels: Labels,
    rng: np.random.Generator,
    alpha: float,
    samples_per_client: int | None,
    num_clients: int | None = None,
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

    Papers that draw Dir(alpha) with the same alpha for each of C classes (Dec-SSL, appendix C.2)
    mean alpha * C here: with that, 5 clients of CIFAR-10 have the distances of its Figure 17.

    Args:
      labels: int [n], all >= 0.
      rng: Source of all randomness.
      alpha: Concentration, 0 <= alpha <= infinity.
      samples_per_client: Size of a client. None takes all examples for `num_clients` clients
        of sizes that differ by at most one (at alpha = 0: that share their class evenly).
      num_clients: None gives away every example; a number leaves the rest out.

    Raises:
      DatasetError: alpha < 0 or NaN, sizes below 1, more clients than can be filled, no labels.
    """
    if not alpha >= 0:
        raise DatasetError(f"alpha must be a number from 0 to inf, not {alpha}")
    if math.isinf(alpha):
        return iid(labels, rng, num_clients, samples_per_client)
    classes, members = _by_label(labels, rng, "dirichlet")
    if alpha == 0:
        return _one_class_each(members, rng, num_clients, samples_per_client)
    sizes = _client_sizes(len(labels), num_clients, samples_per_client)
    counts = np.array([len(indices) for indices in members])
    drawn = np.concatenate(list(_draw_classes(rng, counts, alpha, sizes)))
    chosen = np.empty(len(drawn), np.int64)
    for i in range(len(classes)):
        places = np.flatnonzero(drawn == i)
        chosen[places] = members[i][: len(places)]
    return _cut(chosen, sizes)


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
    _at_least_one("num_clients", num_clients)
    _at_least_one("classes_per_client", classes_per_client)
    classes, members = _by_label(labels, rng, "by_class")
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
    _client_sizes(len(labels), num_clients, None)
    _, members = _by_label(labels, rng, "skew")
    shared = [indices[: round(beta * len(indices))] for indices in members]
    exclusive = [indices[len(even) :] for indices, even in zip(members, shared, strict=True)]
    clients = [[part] for part in _share_out(exclusive, num_clients, rng)]
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
    return _not_empty([np.concatenate(parts) for parts in clients])


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


@dataclasses.dataclass(frozen=True)
class PartitionSpec:
    """An entry of `PARTITIONS`: the function, what it does, and the flags that it reads."""

    function: Callable[..., Partition]
    description: str
    flags: tuple[str, ...]


PARTITIONS = {
    "iid": PartitionSpec(
        iid, "examples dealt out at random", ("num_clients", "samples_per_client")
    ),
    "dirichlet": PartitionSpec(
        dirichlet,
        "class mixtures from Dir(alpha * p), Hsu et al. 2019; alpha 0: one class per client",
        ("alpha", "samples_per_client", "num_clients"),
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
}


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
) -> Partition:
    """Partitions `split` by the name of a partition; a pure function of its arguments.

    Settings that the partition does not use are ignored. `iid` and `dirichlet` take clients of
    `DEFAULT_SAMPLES_PER_CLIENT` where neither size nor number is given.

    Args:
      name: A key of `PARTITIONS`.
      split: The examples.
      seed: Not negative; with the name it seeds the generator.
      alpha: Of `dirichlet`.
      beta: Of `skew`.
      num_clients: Of all but `per_case`.
      samples_per_client: Of `iid` and `dirichlet`.
      classes_per_client: Of `by_class`.

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
    }
    arguments = {flag: settings[flag] for flag in PARTITIONS[name].flags}
    if "samples_per_client" in arguments:
        if num_clients is None and samples_per_client is None:
            arguments["samples_per_client"] = DEFAULT_SAMPLES_PER_CLIENT
    else:
        for flag, value in arguments.items():
            if value is None:
                raise DatasetError(f"partition {name} needs --{flag}")
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return PARTITIONS[name].function(split.labels, rng, **arguments)


def _at_least_one(flag: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise DatasetError(f"{flag} must be at least 1, not {value}")


def _client_sizes(total: int, num_clients: int | None, samples_per_client: int | None) -> Indices:
    """Sizes of the clients, int64 [clients], for partitions that are free to choose them."""
    _at_least_one("num_clients", num_clients)
    _at_least_one("samples_per_client", samples_per_client)
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
    return sizes[: _checked_count(num_clients, len(sizes), samples_per_client)]


def _checked_count(num_clients: int | None, possible: int, samples_per_client: int) -> int:
    """`num_clients`, or all that are possible; raises where it asks for more."""
    if num_clients is None:
        return possible
    if num_clients > possible:
        raise DatasetError(
            f"num_clients must be at most {possible}, which the examples suffice for at "
            f"samples_per_client={samples_per_client}, not {num_clients}"
        )
    return num_clients


def _by_label(labels: Labels, rng: np.random.Generator, name: str) -> tuple[Labels, list[Indices]]:
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


def _cut(order: Indices, sizes: Indices) -> Partition:
    """Cuts the first sum(sizes) of `order` into clients."""
    bounds = np.cumsum(sizes)
    return np.split(order[: bounds[-1]].astype(np.int64), bounds[:-1])


def _not_empty(clients: Partition) -> Partition:
    empty = sum(len(indices) == 0 for indices in clients)
    if empty:
        raise DatasetError(f"num_clients={len(clients)} leaves {empty} clients without examples")
    return clients


def _one_class_each(
    members: list[Indices],
    rng: np.random.Generator,
    num_clients: int | None,
    samples_per_client: int | None,
) -> Partition:
    """The limit alpha = 0 of `dirichlet`: each client holds one class."""
    _client_sizes(sum(map(len, members)), num_clients, samples_per_client)
    if samples_per_client is None:
        assert num_clients is not None
        if num_clients < len(members):
            raise DatasetError(
                f"num_clients must be at least {len(members)}, the number of classes, at alpha=0 "
                f"without samples_per_client, not {num_clients}"
            )
        return _share_out(members, num_clients, rng)
    full: Partition = []
    smaller: Partition = []
    for indices in members:
        chunks = np.split(indices, range(samples_per_client, len(indices), samples_per_client))
        (full if len(chunks[-1]) == samples_per_client else smaller).append(chunks.pop())
        full.extend(chunks)
    clients = [full[i] for i in rng.permutation(len(full))]
    clients += [smaller[i] for i in rng.permutation(len(smaller))]
    return clients[: _checked_count(num_clients, len(clients), samples_per_client)]


def _share_out(members: Sequence[Indices], num_clients: int, rng: np.random.Generator) -> Partition:
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


def _mixtures(
    rng: np.random.Generator, prior: npt.NDArray[np.float64], alpha: float, count: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Draws `count` times from Dir(alpha * prior), in a form that keeps any alpha > 0 exact.

    A Gamma(a) variable is a Gamma(a + 1) variable times U^(1/a), and the logarithm of the second
    factor is -E / a with E exponential. So the logarithm of an unnormalized draw is
    `log_gammas - waiting / alpha`, with the E / prior as `waiting`. At very small alpha, where
    `Generator.dirichlet` gives zeros or NaN, the class with the shortest waiting time wins.

    Returns:
      `log_gammas` and `waiting`, float64 [count, classes].
    """
    shape = (count, len(prior))
    log_gammas = np.log(rng.standard_gamma(np.broadcast_to(alpha * prior + 1, shape)))
    return log_gammas, rng.standard_exponential(shape) / prior


def _weights(
    log_gammas: npt.NDArray[np.float64],
    waiting: npt.NDArray[np.float64],
    alpha: float,
    available: npt.NDArray[np.bool_],
) -> npt.NDArray[np.float64]:
    """One of `_mixtures`, [classes], normalized over the available classes."""
    with np.errstate(over="ignore"):  # of 1 / alpha: a weight of 0
        later = (waiting - waiting[available].min()) / alpha
    logs = np.where(available, log_gammas - later, -np.inf)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def _draw_classes(
    rng: np.random.Generator, counts: npt.NDArray[np.int64], alpha: float, sizes: Indices
) -> Iterator[Indices]:
    """Yields each client's classes, int64 [size], as positions in `counts`.

    Draws of a class beyond what is left of it are drawn again from the classes that have some
    left. That is the same process as drawing one by one and renormalizing when a class runs out.
    """
    left = counts.copy()
    positions = np.arange(len(counts))
    for client, size in enumerate(sizes):
        row = client % _MIXTURES_AT_ONCE
        if row == 0:
            log_gammas, waiting = _mixtures(rng, counts / counts.sum(), alpha, _MIXTURES_AT_ONCE)
        taken = np.zeros(len(counts), np.int64)
        missing = int(size)
        while missing:
            weights = _weights(log_gammas[row], waiting[row], alpha, taken < left)
            taken += np.minimum(rng.multinomial(missing, weights), left - taken)
            missing = int(size - taken.sum())
        left -= taken
        yield np.repeat(positions, taken)
