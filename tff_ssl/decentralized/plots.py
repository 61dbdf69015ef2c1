"""Pictures of a network of clients, of models' routes through it, and of their visits."""

import collections
import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt

from tff_ssl import whole_files
from tff_ssl.decentralized import topology

Positions = Mapping[int, npt.NDArray[np.float64]]

_MAX_NUMBERED_CLIENTS = 120  # The numbers of more clients would overlap.
_MAX_LARGE_NUMBERS = 60  # The numbers of more clients are written small.
_MAX_ARROWS_CLIENTS = 40  # With more clients, a route's arrows would hide each other.
_MAX_ROUTES = 10  # Routes of further models are in client_metrics.csv only.
_SLOW_LAYOUT_CLIENTS = 200  # From here on, the better layout takes more than a second.
_LARGEST_AREA = 420.0  # Area of the largest client in points^2; others are in proportion.
_SMALLEST_AREA = 12.0  # Area of clients that would be too small to see.


class Clients(NamedTuple):
    """The properties of clients that the pictures show."""

    volumes: Sequence[int]  #: Number of examples of each client.
    ranks: Sequence[int]  #: Computing rank of each client, 1 (slow) or more.


def layout(graph: nx.Graph) -> Positions:
    """The position of each client in a picture, float64 [2]; the same in every call.

    Pass that of the whole network to the functions that draw what remains after events, so that all
    pictures of a run agree.
    """
    if len(graph) < _SLOW_LAYOUT_CLIENTS and len(topology.components(graph)) == 1:
        return nx.kamada_kawai_layout(graph)
    return nx.spring_layout(graph, seed=0)


def draw_network(
    graph: nx.Graph,
    path: str | os.PathLike[str],
    title: str,
    clients: Clients,
    positions: Positions | None = None,
) -> None:
    """Draws clients and links; area is a client's volume, and colour its computing rank.

    The title gets the numbers of clients and links. `clients` includes those that have left.
    """
    # Training should not wait for this import, which takes a second.
    from matplotlib.figure import Figure

    positions = layout(graph) if positions is None else positions
    figure = Figure(figsize=(9.5, 8), layout="constrained")
    axes = figure.add_subplot()
    _draw_links(axes, graph, positions)
    shown = sorted(graph)
    largest = max(clients.volumes)
    x, y = np.array([positions[k] for k in shown]).T
    points = axes.scatter(
        x, y, s=[_area(clients.volumes[k], largest) for k in shown],
        c=[clients.ranks[k] for k in shown], cmap="viridis", vmin=1, vmax=max(2, *clients.ranks),
        edgecolors="white", linewidths=0.8, zorder=2,
    )  # fmt: skip
    if len(shown) <= _MAX_NUMBERED_CLIENTS:
        _draw_numbers(axes, shown, positions)
    figure.colorbar(points, ax=axes, label="computing rank (1: slowest)", shrink=0.6)
    _draw_legend(axes, clients.volumes)
    _finish(axes, graph, title)
    _save(figure, path)


def draw_route(
    graph: nx.Graph,
    path: str | os.PathLike[str],
    title: str,
    route: Sequence[int],
    positions: Positions | None = None,
) -> None:
    """Draws the route of a model on the map of the network, and over its steps.

    On the map, a link has the colour of the first step in which the model took it, from dark
    (early) to light, and a client's area grows with its visits. The route's first client has a
    black rim. In small networks, arrows show the direction, and are thicker if the model took the
    link again. The panel beside the map has a point for each step; its rows are the visited clients
    in the order of their first visit, so that new clients form the upper edge, and steps on the
    same client a line. `positions`, a result of `layout`, is needed if visited clients have left.
    """
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    positions = layout(graph) if positions is None else positions
    figure = Figure(figsize=(16, 8), layout="constrained")
    axes, over_time = figure.subplots(1, 2, width_ratios=(1.1, 1))
    scale = ScalarMappable(Normalize(1, max(len(route), 2)), matplotlib.colormaps["plasma"])
    if len(graph) <= _MAX_ARROWS_CLIENTS:  # More links would be a grey area.
        _draw_links(axes, graph, positions)
    _draw_visited(axes, graph, route, positions)
    _draw_hops(axes, route, positions, scale, arrows=len(graph) <= _MAX_ARROWS_CLIENTS)
    _finish(axes, graph, f"{title}\n{len(route)} steps on {len(set(route))} clients")
    _draw_steps(over_time, route, scale)
    figure.colorbar(scale, ax=over_time, label="step", shrink=0.6)
    _save(figure, path)


def draw_visits(
    path: str | os.PathLike[str], title: str, routes: Sequence[Sequence[int]], clients: Clients
) -> None:
    """Draws all models' visits at each client against its volume, and against its rank."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    counts = collections.Counter(itertools.chain.from_iterable(routes))
    visits = [counts[k] for k in range(len(clients.volumes))]
    figure = Figure(figsize=(11, 5), layout="constrained")
    by_volume, by_rank = figure.subplots(1, 2, sharey=True)
    volumes, ranks = clients
    for axes, x, name, colours, label, colour_map in (
        (by_volume, volumes, "images", ranks, "computing rank", "viridis"),
        (by_rank, ranks, "computing rank (1: slowest)", volumes, "images", "cividis"),
    ):
        points = axes.scatter(x, visits, c=colours, cmap=colour_map, s=28, alpha=0.85)
        figure.colorbar(points, ax=axes, label=label)
        axes.set_xlabel(f"{name} of a client")
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
    by_rank.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_volume.yaxis.set_major_locator(MaxNLocator(integer=True))
    by_volume.set_ylabel("visits (steps of all models)")
    visited = sum(count > 0 for count in visits)
    figure.suptitle(f"{title}: {visited} of {len(visits)} clients visited", fontsize=10)
    _save(figure, path)


def _area(volume: int, largest: int) -> float:
    """Area of a client in points^2, proportional to its volume where that can be seen."""
    return max(_SMALLEST_AREA, _LARGEST_AREA * volume / largest)


def _draw_links(axes, graph: nx.Graph, positions: Positions) -> None:
    width = 0.8 if len(graph) <= _MAX_ARROWS_CLIENTS else 0.4
    for a, b in graph.edges:
        ends = zip(positions[a], positions[b], strict=True)
        axes.plot(*ends, color="0.85", linewidth=width, zorder=1)


def _draw_numbers(axes, clients: Sequence[int], positions: Positions) -> None:
    from matplotlib.patheffects import withStroke

    size = 7 if len(clients) <= _MAX_LARGE_NUMBERS else 5
    for k in clients:
        axes.annotate(
            str(k), positions[k], ha="center", va="center", fontsize=size, zorder=4,
            path_effects=[withStroke(linewidth=1.5, foreground="white")],
        )  # fmt: skip


def _draw_legend(axes, volumes: Sequence[int]) -> None:
    """Explains the areas: the smallest, the median and the largest volume."""
    largest = max(volumes)
    for volume in sorted({min(volumes), int(np.median(volumes)), largest}):
        axes.scatter([], [], s=_area(volume, largest), color="0.6", label=f"{volume:,}")
    axes.legend(
        title="images of a client", loc="upper left", bbox_to_anchor=(0, 0), ncols=3,
        frameon=False, labelspacing=1.4, columnspacing=2.5,
    )  # fmt: skip


def _finish(axes, graph: nx.Graph, title: str) -> None:
    """Writes the title of a map, and removes its axes."""
    links = graph.number_of_edges()
    axes.set_title(f"{title}\n{len(graph)} clients, {links} links", loc="left", fontsize=10)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _draw_visited(axes, graph: nx.Graph, route: Sequence[int], positions: Positions) -> None:
    """Draws visited clients blue, clients that have left white, and all others grey."""
    visits = collections.Counter(route)
    clients = sorted(set(graph) | set(route))
    colours = [("tab:blue" if visits[k] else "0.75") if k in graph else "white" for k in clients]
    rims = ["black" if k in route[:1] else "tab:blue" if visits[k] else "0.75" for k in clients]
    centres = np.array([positions[k] for k in clients])
    unit = 40 if len(clients) <= _MAX_LARGE_NUMBERS else 20
    sizes = [unit * (1 + min(visits[k], 10)) for k in clients]
    axes.scatter(*centres.T, s=sizes, c=colours, edgecolors=rims, linewidths=1.5, zorder=2)
    if len(clients) <= _MAX_NUMBERED_CLIENTS:
        _draw_numbers(axes, clients, positions)


def _draw_hops(axes, route: Sequence[int], positions: Positions, scale, arrows: bool) -> None:
    """Draws each link that the model took, as an arrow or as a thin line below the clients."""
    hops = [(step, (a, b)) for step, (a, b) in enumerate(itertools.pairwise(route), 1) if a != b]
    counts = collections.Counter(link for _, link in hops)
    first_steps = {link: step for step, link in reversed(hops)}
    for (a, b), step in first_steps.items():
        colour = scale.to_rgba(step)
        if not arrows:
            ends = zip(positions[a], positions[b], strict=True)
            axes.plot(*ends, color=colour, linewidth=0.9, zorder=1)
            continue
        arrow = {
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": min(0.8 + 0.6 * counts[a, b], 4),
            # Arrows are bent, so that the two directions of a link do not overlap.
            "connectionstyle": "arc3,rad=0.12",
            "shrinkA": 5,
            "shrinkB": 5,
        }
        axes.annotate("", xy=positions[b], xytext=positions[a], arrowprops=arrow, zorder=3)


def _draw_steps(axes, route: Sequence[int], scale) -> None:
    """Draws a point for each step; the rows are clients in the order of their first visit."""
    rows = {client: row for row, client in enumerate(dict.fromkeys(route))}
    steps = np.arange(1, len(route) + 1)
    heights = [rows[client] for client in route]
    axes.plot(steps, heights, color="0.85", linewidth=0.6, zorder=1)
    axes.scatter(steps, heights, c=scale.to_rgba(steps), s=14, zorder=2)
    axes.set_xlabel("step")
    axes.set_ylabel("client, in the order of the first visit")
    size = 8 if len(rows) <= _MAX_LARGE_NUMBERS else 5
    axes.set_yticks(range(len(rows)), list(map(str, rows)), fontsize=size)
    axes.set_title("where the model was trained", loc="left", fontsize=10)


def draw_run(
    first: nx.Graph,
    last: nx.Graph,
    routes: Sequence[Sequence[int]],
    folder: pathlib.Path,
    title: str,
    clients: Clients,
) -> list[str]:
    """Draws a run's final network, the routes of the first travelling models, and all visits.

    All pictures have the layout of the first round's network. Returns their names.
    """
    positions = layout(first)
    names = ["network.png"]
    draw_network(last, folder / names[0], title, clients, positions)
    for model, route in enumerate(routes[:_MAX_ROUTES]):
        names.append(f"route_{model}.png")
        draw_route(last, folder / names[-1], f"{title}: model {model}", route, positions)
    if routes:
        names.append("visits.png")
        draw_visits(folder / names[-1], title, routes, clients)
    return names


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    with whole_files.replacing(path) as new:
        figure.savefig(new, dpi=120, format="png")
