"""What DeNAV's routes cost on many networks, without training (DeNAV, Table 4).

Volumes, simulated times and links are known before training, and so are the routes. Their times,
volumes and coverage can thus be compared on many networks; a table of trainings has only one.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np
from scipy import stats

from tff_ssl.algorithms.denav import route
from tff_ssl.algorithms.denav.navigator import FORMULAS, OURS, NavigatorHyperparameters
from tff_ssl.decentralized import simulated_time


class RouteCosts(NamedTuple):
    """The costs of one route."""

    time: float  #: Sum of the simulated times of its trainings, in examples of a client of rank 1.
    volume: float  #: Mean number of examples of a step, divided by that of a client.
    coverage: float  #: Share of the clients that were visited, 0 to 1.
    moves: float  #: Number of times that the model was sent to another client.


def costs_of(
    graph: nx.Graph,
    volumes: Sequence[int],
    ranks: Sequence[int],
    hyperparameters: NavigatorHyperparameters,
    seed: int,
) -> RouteCosts:
    """The costs of the route of one model through a network that does not change.

    The seed determines the first client and the navigator's random choices.
    """
    times = [
        simulated_time.training_time(volume, rank, hyperparameters.computing_ranks)
        for volume, rank in zip(volumes, ranks, strict=True)
    ]
    start = int(np.random.default_rng(seed).integers(len(volumes)))
    sizes = dict(enumerate(volumes))
    steps = list(
        route.travel(lambda step: graph, sizes, times.__getitem__, start, hyperparameters, seed)
    )
    visited = [step.client for step in steps]
    return RouteCosts(
        sum(times[client] for client in visited),
        float(np.mean([volumes[client] for client in visited]) / np.mean(volumes)),
        len(set(visited)) / len(volumes),
        sum(step.sender not in (None, step.client) for step in steps),
    )


def of_all_formulas(
    graph: nx.Graph, volumes: Sequence[int], seed: int, steps: int, selection_limit: int
) -> dict[str, RouteCosts]:
    """The costs of each row of Table 4 on one network, with the same ranks and first client."""
    ours = NavigatorHyperparameters(steps=steps, selection_limit=selection_limit)
    ranks = simulated_time.draw_ranks(len(volumes), ours.computing_ranks, seed)
    costs = {}
    for formula, options in FORMULAS.items():
        values = dataclasses.replace(ours, **options)  # type: ignore[arg-type]
        costs[formula] = costs_of(graph, volumes, ranks, values, seed)
    return costs


class Interval(NamedTuple):
    """A mean and its 95 percent confidence interval, by Student's t."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The mean of independent values, at least two, and its interval."""
    mean, error = float(np.mean(values)), float(stats.sem(values))
    half = error * float(stats.t.ppf(0.975, len(values) - 1))
    return Interval(mean, mean - half, mean + half)


def summarize(networks: Sequence[Mapping[str, RouteCosts]]) -> dict[str, dict[str, Interval]]:
    """For each formula and cost, the interval over at least two networks.

    `time` is relative to `OURS` on the same network, in percent above it.
    """
    summary = {}
    for formula in FORMULAS:
        costs = [network[formula] for network in networks]
        above = [100 * (network[formula].time / network[OURS].time - 1) for network in networks]
        summary[formula] = {
            "time": interval(above),
            **{name: interval([getattr(cost, name) for cost in costs])
               for name in ("volume", "coverage", "moves")},
        }  # fmt: skip
    return summary
