"""Pictures of a network of clients, and of a model's route through it."""

import collections
import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence

import networkx as nx
import numpy as np
import numpy.typing as npt

from tff_ssl.decentralized import topology

Positions = Mapping[int, npt.NDArray[np.float64]]

_MAX_NUMBERED_CLIENTS = 60  # The numbers of more clients would overlap.
_MAX_ROUTES = 10  # Routes of further models are in client_metrics.csv only.
_SLOW_LAYOUT_CLIENTS = 200  # From here on, the better layout takes more than a second.


def layout(graph: nx.Graph) -> Positions:
    """The position of each client in a picture, float64 [2]; the same in every call.

    Compute it once for the whole network and pass it to `draw` for the networks that remain after
    events, so that all pictures of a run have the same layout.
    """
    if len(graph) < _SLOW_LAYOUT_CLIENTS and len(topology.components(graph)) == 1:
        return nx.kamada_kawai_layout(graph)
    return nx.spring_layout(graph, seed=0)


def draw(
    graph: nx.Graph,
    path: str | os.PathLike[str],
    title: str,
    route: Sequence[int] = (),
    positions: Positions | None = None,
) -> None:
    """Draws clients and links, and the route of a model as arrows from dark (early) to light.

    An arrow has the colour of the first time that the model took this link; it is thicker if the
    model took it again. A client's size grows with its number of visits; the first client of the
    route has a black rim.

    Args:
      graph: The network.
      path: Path of the file to write; its ending chooses the format.
      title: The title; the numbers of clients and links are added.
      route: The clients in the order in which they trained the model. The same client may occur
        several times in a row.
      positions: The result of `layout`; needed if clients of `route` have left the network.
    """
    # The import takes a second, and training should not wait for it.
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
    """Draws visited clients blue, clients that have left white, and all others grey."""
    visits = collections.Counter(route)
    clients = sorted(set(graph) | set(route))
    colours = [("tab:blue" if visits[k] else "0.6") if k in graph else "white" for k in clients]
    rims = ["black" if k in route[:1] else "tab:blue" if visits[k] else "0.6" for k in clients]
    centres = np.array([positions[k] for k in clients])
    sizes = [60 + 40 * min(visits[k], 10) for k in clients]
    axes.scatter(*centres.T, s=sizes, c=colours, edgecolors=rims, linewidths=1.5, zorder=2)
    if len(clients) <= _MAX_NUMBERED_CLIENTS:
        for k, (x, y) in zip(clients, centres, strict=True):
            colour = "white" if k in graph else "black"
            axes.text(x, y, str(k), color=colour, fontsize=6, ha="center", va="center", zorder=4)


def _draw_route(figure, axes, route: Sequence[int], positions: Positions) -> None:
    """Draws an arrow for each link that the model took, and the colour bar of the steps."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    hops = [(step, (a, b)) for step, (a, b) in enumerate(itertools.pairwise(route), 1) if a != b]
    counts = collections.Counter(link for _, link in hops)
    first_steps = {link: step for step, link in reversed(hops)}
    steps = Normalize(1, max(len(route) - 1, 2))
    colours = matplotlib.colormaps["plasma"]
    for (a, b), step in first_steps.items():
        axes.annotate(
            "",
            xy=positions[b],
            xytext=positions[a],
            arrowprops={
                "arrowstyle": "-|>",
                "color": colours(steps(step)),
                "linewidth": min(0.8 + 0.6 * counts[a, b], 4),
                # Arrows are bent, so that the two directions of a link do not overlap.
                "connectionstyle": "arc3,rad=0.12",
                "shrinkA": 5,
                "shrinkB": 5,
            },
            zorder=3,
        )
    scale = ScalarMappable(steps, colours)
    figure.colorbar(scale, ax=axes, label="step after which the model went", shrink=0.6)


def draw_run(
    first: nx.Graph,
    last: nx.Graph,
    routes: Sequence[Sequence[int]],
    folder: pathlib.Path,
    title: str,
) -> list[str]:
    """Draws a run's network at its end, and the routes of the first models that travel.

    Args:
      first: Network of the first round, whose layout all pictures have.
      last: Network of the last round.
      routes: Clients that train each travelling model, in order.
      folder: Folder for `network.png` and the `route_*.png`.
      title: Title of the pictures.

    Returns:
      Names of the files.
    """
    positions = layout(first)
    pictures: dict[str, tuple[str, Sequence[int]]] = {"network.png": (title, ())}
    for model, route in enumerate(routes[:_MAX_ROUTES]):
        pictures[f"route_{model}.png"] = (f"{title}: model {model}", route)
    for name, (picture_title, route) in pictures.items():
        temporary = folder / f".{name}"
        draw(last, temporary, picture_title, route, positions)
        os.replace(temporary, folder / name)
    return list(pictures)
