"""Compares DeNAV's routes on many networks, without training: its navigator and each ablation.

    python -m launch.studies.routes --networks=1000

Draws random networks with clients of random sizes and computing ranks, and plans a model's route
through each by every formula of the paper's Table 4. Prints by how much a route's simulated time
exceeds that of the whole formula on the same network, the mean volume of a step beside that of a
client, the share of clients visited, and how often the model was sent, each with its 95 percent
interval. Writes `routes.json` and `routes.png`. The defaults are the paper's numbers of clients,
steps and links (Table 6), and take two to three minutes.
"""

import dataclasses
import pathlib
import time
from typing import Any

from launch.options import app, settings
from launch.options.settings import Settings, flag
from launch.outputs import output_folder, run_folder, tables
from tff_ssl.errors import ConfigurationError


@dataclasses.dataclass(frozen=True)
class RoutesConfig(Settings):
    """The networks and their routes.

    Attributes:
      networks: Number of networks.
      num_clients: Number of clients of a network.
      images: Number of images of all clients together, in random shares.
      connectivity: Probability of a link.
      steps: Number of steps of a route.
      selection_limit: Number of selections after which a client has the lowest score. Default: 1.5
        times the number of steps per client, rounded up: 3, as in the paper, for 200 steps on 100
        clients.
      seed: Seed of the first network; the others count up.
      output_dir: Folder for the results. Default: a new one in results/.
    """

    networks: int = flag(1000, 2)
    num_clients: int = flag(100, 1)
    images: int = flag(50_000, 1)
    connectivity: float = flag(0.15, 0.0, 1.0)
    steps: int = flag(200, 1)
    selection_limit: int | None = flag(None, 1)
    seed: int = flag(0, 0)
    output_dir: str | None = None


_SECONDS_BETWEEN_LINES = 10.0
# Name of a cost -> title of its column, unit, and factor to the unit.
_COLUMNS = {
    "time": ("time beside ours", "%", 1),
    "volume": ("volume of a step", "x", 1),
    "coverage": ("clients visited", "%", 100),
    "moves": ("models sent", "", 1),
}


def main(args: RoutesConfig) -> None:
    from tff_ssl.algorithms.denav import navigator
    from tff_ssl.analysis import route_costs

    if args.images < args.num_clients:
        raise ConfigurationError(
            f"--images={args.images} is less than an image for each of --num_clients="
            f"{args.num_clients}"
        )
    if args.selection_limit is None:
        limit = navigator.papers_limit(args.steps, args.num_clients)
        args = dataclasses.replace(args, selection_limit=limit)
    folder = output_folder.choose(args.output_dir, "routes")
    run_folder.make(folder)
    print(
        f"Plans the routes of {args.steps} steps by {len(navigator.FORMULAS)} formulas through "
        f"{args.networks:,} networks of {args.num_clients} clients,\nwhich are selected at most "
        f"{args.selection_limit} times; writes routes.json and routes.png to {folder}/\n",
        flush=True,
    )
    summary = route_costs.summarize(_plan(args))
    report = {
        "flags": settings.to_json(args),
        "formulas": {
            formula: {name: found._asdict() for name, found in costs.items()}
            for formula, costs in summary.items()
        },
    }
    run_folder.write_json(folder / "routes.json", report)
    _draw(summary, folder / "routes.png")
    header = ["mean (95 percent interval)", *(title for title, _, _ in _COLUMNS.values())]
    rows = [
        [formula, *(_cell(costs[name], *_COLUMNS[name][1:]) for name in _COLUMNS)]
        for formula, costs in summary.items()
    ]
    print(tables.aligned([header, *rows]))
    print(f"\nwrote {folder / 'routes.json'}\nwrote {folder / 'routes.png'}")


def _plan(args: RoutesConfig) -> list[dict[str, Any]]:
    """The costs of all formulas on each network."""
    import numpy as np

    from datasets import allocation
    from tff_ssl.analysis import route_costs
    from tff_ssl.decentralized import topology

    networks, began, said = [], time.monotonic(), time.monotonic()
    for seed in range(args.seed, args.seed + args.networks):
        rng = np.random.default_rng([seed, 1])
        sizes = allocation.random_sizes(args.images, args.num_clients, rng).tolist()
        links = topology.erdos_renyi(args.num_clients, args.connectivity, seed)
        limit = args.selection_limit or 1
        networks.append(route_costs.of_all_formulas(links, sizes, seed, args.steps, limit))
        if time.monotonic() - said > _SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            left = (said - began) / len(networks) * (args.networks - len(networks))
            print(f"network {len(networks)}/{args.networks}  {left:.0f} s left", flush=True)
    return networks


def _cell(found, unit: str, factor: float) -> str:
    """A mean and its interval in a unit; the whole formula's time beside itself has none."""
    if found.low == found.high == 0:
        return "0"
    digits = 2 if unit == "x" else 1
    mean, low, high = (f"{factor * value:.{digits}f}" for value in found)
    return f"{mean}{unit} ({low} to {high})"


def _draw(summary: dict[str, Any], path: pathlib.Path) -> None:
    """Draws a panel for each cost, with its means and intervals."""
    from matplotlib.figure import Figure

    from launch.outputs import plots

    figure = Figure(figsize=(13, 3), layout="constrained")
    panels = figure.subplots(1, len(_COLUMNS), sharey=True)
    for axes, (name, (title, unit, factor)) in zip(panels, _COLUMNS.items(), strict=True):
        for row, costs in enumerate(summary.values()):
            mean, low, high = (factor * value for value in costs[name])
            ends = [[mean - low], [high - mean]]
            axes.errorbar(mean, row, xerr=ends, fmt="o", color="#1f5f99", capsize=3)
        axes.set_xlabel(f"{title} ({unit})" if unit else title)
        axes.grid(alpha=0.3)
    panels[0].set_yticks(range(len(summary)), list(summary))
    panels[0].invert_yaxis()
    plots.save(figure, path)


SCRIPT = app.Script("routes", main, RoutesConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
