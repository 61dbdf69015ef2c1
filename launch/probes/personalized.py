"""Results of several clients' own models as one entry, and comparisons of clients' models."""

import collections
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_ssl.analysis import weight_distances
from tff_ssl.evaluation import linear_probe


class EvaluatedClients(NamedTuple):
    """Clients whose own models are evaluated."""

    clients: Sequence[int]  # Indices of the clients.
    trained_rounds: Sequence[int]  # Number of rounds in which each of them trained.
    # Classes of each one's training images; None if one of its images has no label.
    classes: Sequence[Collection[int] | None]

    def take(self, positions: Sequence[int]) -> "EvaluatedClients":
        """The clients at some positions."""
        columns: Any = ([column[i] for i in positions] for column in self)
        return EvaluatedClients(*columns)


def over_clients(
    results: Sequence[list[dict[str, Any]]], evaluated: EvaluatedClients
) -> list[dict[str, Any]]:
    """Mean and deviation over clients of the scores of their personalized models.

    Args:
      results: Results of each client, with the same entries in the same order.

    Returns:
      The entries with the protocol `..._personalized`, the clients, their accuracies and their
      rounds of training, and baselines that are means over the clients' own untrained models. If
      each client has training images of some of the test classes but not of others, entries and
      baselines also have `seen_accuracy` and `unseen_accuracy`, the mean accuracies of these and of
      those classes.
    """
    entries = []
    for client_entries in zip(*results, strict=True):
        left_out = {"client", "class_accuracies"}
        first = {key: value for key, value in client_entries[0].items() if key not in left_out}
        baselines = [entry["baselines"] for entry in client_entries]
        entries.append(
            first
            | _mean_scores(client_entries, evaluated.classes)
            | {
                "protocol": f"{first['protocol']}_personalized",
                "clients_evaluated": len(evaluated.clients),
                "evaluated_clients": list(evaluated.clients),
                "accuracy_of_clients": [entry["accuracy"] for entry in client_entries],
                "trained_rounds": sum(evaluated.trained_rounds) / len(evaluated.trained_rounds),
                "trained_rounds_of_clients": list(evaluated.trained_rounds),
                "baselines": {
                    name: _mean_scores([b[name] for b in baselines], evaluated.classes)
                    for name in baselines[0]
                },
            }
        )
    return entries


def _mean_scores(
    entries: Sequence[Mapping[str, Any]], classes: Sequence[Collection[int] | None]
) -> dict[str, float]:
    scores: dict[str, float] = {}
    for name in linear_probe.SCORES:
        scores |= linear_probe.mean_and_std(name, [entry[name] for entry in entries])
    parted = [
        _seen_and_unseen(entry.get("class_accuracies", {}), seen)
        for entry, seen in zip(entries, classes, strict=True)
    ]
    if all(seen and unseen for seen, unseen in parted):
        for i, name in enumerate(("seen_accuracy", "unseen_accuracy")):
            means = [float(np.mean(of_client[i])) for of_client in parted]
            scores |= linear_probe.mean_and_std(name, means)
    return scores


def _seen_and_unseen(
    class_accuracies: Mapping[str, float], seen: Collection[int] | None
) -> tuple[list[float], list[float]]:
    """The accuracies of the classes that a client has seen, and of the others."""
    if seen is None:
        return [], []
    parted: tuple[list[float], list[float]] = ([], [])
    for label, accuracy in class_accuracies.items():
        parted[int(label) not in seen].append(accuracy)
    return parted


def over_architectures(
    results: Sequence[list[dict[str, Any]]], evaluated: EvaluatedClients, encoders: Sequence[str]
) -> list[dict[str, Any]]:
    """`over_clients` of the clients of each encoder: protocols `..._personalized_<encoder>`."""
    entries = []
    for encoder in dict.fromkeys(encoders):
        same = [i for i, name in enumerate(encoders) if name == encoder]
        for entry in over_clients([results[i] for i in same], evaluated.take(same)):
            protocol = f"{entry['protocol']}_{encoder}"
            entries.append(entry | {"protocol": protocol, "encoder": encoder})
    return entries


def compare_local(
    name: str, measure: Callable[[Any, Any], float], shared: Any, local: Sequence[Any]
) -> dict[str, float]:
    """Compares the clients' models after local training, as in Dec-SSL's appendix B.3.

    Args:
      name: What `measure` measures of two models.
      measure: Distance or similarity of two models.
      shared: The global encoder, as `measure` takes it.
      local: Each client's encoder after its last local training.

    Returns:
      `local_<name>_to_global`, the mean over the clients if there are any, and
      `local_<name>_between`, the mean over all pairs of clients if there are any.
    """
    pairs = {
        "to_global": [(shared, own) for own in local],
        "between": list(itertools.combinations(local, 2)),
    }
    return {
        f"local_{name}_{key}": float(np.mean([measure(*pair) for pair in of_key]))
        for key, of_key in pairs.items()
        if of_key
    }


def weight_distance(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    """The sum over the layers of the l2 norm of two networks' difference, d_w of the appendix."""
    return float(weight_distances.layer_distances(a, b).sum())


def purity(clients: Sequence[tuple[float, int | None]]) -> float:
    """The share of clients (cluster, kind) that have their cluster's most frequent kind."""
    largest: dict[float, int] = {}
    for (cluster, _), count in collections.Counter(clients).items():
        largest[cluster] = max(count, largest.get(cluster, 0))
    return sum(largest.values()) / len(clients)
