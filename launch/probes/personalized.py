"""Results of several clients' own models as one entry, and distances of clients' models."""

import collections
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_ssl.analysis import weight_distances
from tff_ssl.evaluation import labels, linear_probe


def over_clients(
    results: Sequence[list[dict[str, Any]]], clients: Sequence[int], trained_rounds: Sequence[int]
) -> list[dict[str, Any]]:
    """Mean and deviation over clients of the scores of their personalized models.

    Args:
      results: Results of each client, with the same entries in the same order.
      clients: Indices of the clients.
      trained_rounds: Number of rounds in which each of them trained.

    Returns:
      The entries with the protocol `..._personalized`, the clients, their accuracies and their
      rounds of training, and baselines that are means over the clients' own untrained models.
    """
    entries = []
    for client_entries in zip(*results, strict=True):
        first = {key: value for key, value in client_entries[0].items() if key != "client"}
        baselines = [entry["baselines"] for entry in client_entries]
        entries.append(
            first
            | _mean_scores(client_entries)
            | {
                "protocol": f"{first['protocol']}_personalized",
                "clients_evaluated": len(clients),
                "evaluated_clients": list(clients),
                "accuracy_of_clients": [entry["accuracy"] for entry in client_entries],
                "trained_rounds": sum(trained_rounds) / len(trained_rounds),
                "trained_rounds_of_clients": list(trained_rounds),
                "baselines": {
                    name: _mean_scores([baseline[name] for baseline in baselines])
                    for name in baselines[0]
                },
            }
        )
    return entries


def _mean_scores(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean and deviation of the scores of several entries."""
    fields = labels.Scores._fields
    return linear_probe.summarize([labels.Scores(*(e[name] for name in fields)) for e in entries])


def over_architectures(
    results: Sequence[list[dict[str, Any]]],
    clients: Sequence[int],
    trained_rounds: Sequence[int],
    encoders: Sequence[str],
) -> list[dict[str, Any]]:
    """`over_clients` of the clients of each encoder separately.

    Args:
      results: Results of each client.
      clients: Indices of the clients.
      trained_rounds: Number of rounds in which each of them trained.
      encoders: Name of each one's encoder.

    Returns:
      The entries with the protocol `..._personalized_<encoder>`.
    """
    entries = []
    for encoder in dict.fromkeys(encoders):
        same = [i for i, name in enumerate(encoders) if name == encoder]
        of_encoder = over_clients(
            [results[i] for i in same], [clients[i] for i in same],
            [trained_rounds[i] for i in same],
        )  # fmt: skip
        entries += [
            entry | {"protocol": f"{entry['protocol']}_{encoder}", "encoder": encoder}
            for entry in of_encoder
        ]
    return entries


def local_distances(
    shared: Sequence[np.ndarray], local: Sequence[Sequence[np.ndarray]]
) -> dict[str, float]:
    """Distances of the clients' models after local training, as in Dec-SSL's appendix B.3.

    The distance of two models is the sum over their layers of the l2 norm of the difference.

    Args:
      shared: Trainable weights of the global encoder.
      local: Trainable weights of each client's encoder after its last local training.

    Returns:
      `local_distance_to_global`, the mean over the clients, and `local_distance_between`, the mean
      over all pairs of clients, which a single client has not; nothing if there are no clients.
    """

    def mean_distance(pairs) -> float:
        return float(np.mean([weight_distances.layer_distances(*pair).sum() for pair in pairs]))

    distances = {}
    if local:
        distances["local_distance_to_global"] = mean_distance((shared, own) for own in local)
    if len(local) > 1:
        distances["local_distance_between"] = mean_distance(itertools.combinations(local, 2))
    return distances


def purity(clients: Sequence[tuple[float, int | None]]) -> float:
    """The share of clients that are of the most frequent kind of their cluster.

    Args:
      clients: Cluster and kind of each client.
    """
    largest: dict[float, int] = {}
    for (cluster, _), count in collections.Counter(clients).items():
        largest[cluster] = max(count, largest.get(cluster, 0))
    return sum(largest.values()) / len(clients)
