"""Pictures of a network of clients, and of a model's route through it."""

import collections
import itertools
import os
from collections.abc import Mapping, Sequence

import networkx as nx
import numpy as np
import numpy.typing as npt

from tff_ssl.decentralized import topology

Positions = Mapping[int, npt.NDArray[np.float64]]

_MAX_NUMBERED = 60  # Clients; more numbers run into each other.
_SLOW_FROM = 200  # Clients from which the better layout takes more than a second.


def layout(graph: nx.Graph) -> Positions:
    """Where to draw each client, the same in every call.

    Take it from the whole network, and give it to the pictures of what is left of it.
    """
    if len(graph) < _SLOW_FROM and len(topology.components(graph)) == 1:
        return nx.kamada_kawai_layout(graph)
    return nx.spring_layout(graph, seed=0)


def draw(
    graph: nx.Graph,
    path: str | os.PathLike[str],
    title: str,
    route: Sequence[int] = (),
    positions: Positions | None = None,
) -> None:
    """Draws clients and links; and the route of a model as arrows, from dark (early) to light.

    An arrow that the model took more than once has the colour of the first time and is thicker. A
    client's size grows with its number of visits; the first one has a black rim.

    Args:
      graph: The network.
      path: The file; its ending chooses the format.
      title: The title; the numbers of clients and links are added.
      route: Clients in the order in which they trained the model; it may stay where it is.
      positions: From `layout`; needed where `route` has clients that have left since.
    """
    # Takes a second to import, which training should not wait for.
    from matplotlib.figure import Figure

    positions = layout(graph) if positions is None else positions
    figure = Figure(figsize=(9, 8), layout="constrained")
    axes = figure.add_subplot()
    for a, b in graph.edges:
        (x1, y1), (x2, y2) = positions[a], positions[b]
        axes.plot([x1, x2], [y1, y2], color="0.85", linewidth=0.8, zorder=1)
    _draw_clients(axes, graph, route, positions)
    if route:
        _draw_route(figure, axes, route, positions)
        title += f"\n{len(route)} steps on {len(set(route))} clients"
    links = graph.number_of_edges()
    axes.set_title(f"{title}\n{len(graph)} clients, {links} links", loc="left", fontsize=10)
    axes.set_aspect("equal")
    axes.set_axis_off()
    figure.savefig(path, dpi=120)


def _draw_clients(axes, graph: nx.Graph, route: Sequence[int], positions: Positions) -> None:
    """Visited clients blue, others grey, visited ones that have left white."""
    visits = collections.Counter(route)
    clients = sorted(set(graph) | set(route))
    colours = [("tab:blue" if visits[k] else "0.6") if k in graph else "white" for k in clients]
    rims = ["black" if k in route[:1] else "tab:blue" if visits[k] else "0.6" for k in clients]
    spots = np.array([positions[k] for k in clients])
    sizes = [60 + 40 * min(visits[k], 10) for k in clients]
    axes.scatter(*spots.T, s=sizes, c=colours, edgecolors=rims, linewidths=1.5, zorder=2)
    if len(clients) <= _MAX_NUMBERED:
        for k, (x, y) in zip(clients, spots, strict=True):
            colour = "white" if k in graph else "black"
            axes.text(x, y, str(k), color=colour, fontsize=6, ha="center", va="center", zorder=4)


def _draw_route(figure, axes, route: Sequence[int], positions: Positions) -> None:
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    hops = enumerate(itertools.pairwise(route), 1)
    moves = [(step, (a, b)) for step, (a, b) in hops if a != b]
    taken = collections.Counter(hop for _, hop in moves)
    first = {hop: step for step, hop in reversed(moves)}
    steps = Normalize(1, max(len(route) - 1, 2))
    colours = matplotlib.colormaps["plasma"]
    for (a, b), step in first.items():
        axes.annotate(
            "",
            xy=positions[b],
            xytext=positions[a],
            arrowprops={
                "arrowstyle": "-|>",
                "color": colours(steps(step)),
                "linewidth": min(0.8 + 0.6 * taken[a, b], 4),
                # Bent, so that the way back is told from the way there.
                "connectionstyle": "arc3,rad=0.12",
                "shrinkA": 5,
                "shrinkB": 5,
            },
            zorder=3,
        )
    scale = ScalarMappable(steps, colours)
    figure.colorbar(scale, ax=axes, label="step after which the model went", shrink=0.6)
