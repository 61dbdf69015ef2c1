"""The app on the server: runs the rounds of `plan.json`, with a checkpoint after each.

The run's folder has `client/`, the client package, and `plan.json`: `nodes` (`id` and `clients` of
each node), `cohorts` (the clients of each round), `seed`, `timeout`, `start_seconds`,
`max_dropped`, `node_sums` and `secure`. The app writes `state.npz`, the server's state, and
`rounds.json`, the metrics of each round. If they are there, it continues after their last round.
"""

import json
import pathlib
import time
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log
from memories import Arrays
from server_round import Nodes, run_round

from tff_ssl import client, whole_files

app = ServerApp()
_INFO = 20
_STATE = "state/"  # Begins the names of its arrays in `state.npz`.


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs the rounds that are left."""
    folder = pathlib.Path(str(context.run_config["run"]))
    plan = json.loads((folder / "plan.json").read_text())
    package = client.load(folder / "client", optimize_graphs=False)
    clients = {int(node["id"]): node["clients"] for node in plan["nodes"]}
    nodes = Nodes(grid, context, clients, dict.fromkeys(clients, -1), plan["timeout"])
    state, metrics = _restore(folder, package, nodes)
    for number in range(len(metrics), len(plan["cohorts"])):
        start = time.monotonic()
        state, of_round = run_round(nodes, package, state, number, plan["cohorts"][number], plan)
        seconds = time.monotonic() - start
        metrics.append({"round": number + 1, "seconds": seconds, **of_round})
        _save(folder, state, nodes, metrics)
        log(_INFO, "round %s: %.1f s, %s", number + 1, seconds, of_round)


def _restore(folder: pathlib.Path, package: Any, nodes: Nodes) -> tuple[Arrays, list[Any]]:
    """The state and metrics of the last checkpoint, or the initial state; fills `nodes.counted`."""
    if not (folder / "state.npz").exists():
        return package.initial_state(), []
    with np.load(folder / "state.npz") as stored:
        state = {k.removeprefix(_STATE): stored[k] for k in stored if k.startswith(_STATE)}
        # A new SuperLink gives the nodes other ids, in the same order.
        nodes.counted |= zip(nodes.clients, stored["counted"].tolist(), strict=True)
        done = int(stored["round"])
    return state, json.loads((folder / "rounds.json").read_text())[:done]


def _save(folder: pathlib.Path, state: Arrays, nodes: Nodes, metrics: list[Any]) -> None:
    """Writes the metrics, and then the checkpoint that counts them."""
    whole_files.write(folder / "rounds.json", json.dumps(metrics))
    named = {f"{_STATE}{name}": value for name, value in state.items()}
    counted = [nodes.counted[node] for node in nodes.clients]
    with whole_files.replacing(folder / "state.npz", private=True) as new, new.open("wb") as file:
        np.savez(file, round=len(metrics), counted=counted, **named)
