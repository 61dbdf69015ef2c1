"""The files of a run: images of the nodes, the plan of the rounds, and what the server wrote."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from datasets.image_dataset import Split
from tff_ssl import whole_files

# For which the server waits for nodes that are not online: at least, and for each node.
_START_SECONDS, _NODE_SECONDS = 300, 20


def deal(num_clients: int, num_nodes: int) -> list[list[int]]:
    """The clients of each node: client k goes to node k modulo the number of nodes."""
    return [list(range(node, num_clients, num_nodes)) for node in range(num_nodes)]


def write_node(
    folder: pathlib.Path,
    split: Split,
    partition: Sequence[npt.NDArray[np.int64]],
    clients: Sequence[int],
) -> None:
    """Writes the images of a node's clients, as `client_app.py` reads them.

    The examples of a client are in the order of their ids, as in the simulation.
    """
    folder.mkdir(parents=True, exist_ok=True)
    owned = [np.sort(partition[client]) for client in clients]
    owned = [own[np.argsort(split.example_ids[own], kind="stable")] for own in owned]
    rows = np.concatenate(owned)
    owners = np.repeat(np.array(clients, np.int64), [len(own) for own in owned])
    path = folder / "images.npz"
    with whole_files.replacing(path, private=True) as new, new.open("wb") as file:
        ids = split.example_ids[rows].astype(np.int64)
        np.savez(file, images=split.images[rows], example_ids=ids, clients=owners)


def write_plan(
    folder: pathlib.Path,
    node_ids: Sequence[str],
    clients: Sequence[Sequence[int]],
    cohorts: Sequence[Sequence[int]],
    *,
    seed: int = 0,
    timeout: float | None = None,
    max_dropped: float = 0.5,
    node_sums: bool = False,
    secure: bool = False,
) -> None:
    """Writes `plan.json`, as `server_app.py` reads it.

    Args:
      node_ids: Flower's id of each node.
      clients: The clients of each node.
      cohorts: The clients that are invited to each round.
      timeout: Seconds that a stage waits for the nodes; None for no limit.
      max_dropped: Largest fraction of a cohort that a round may lose.
      node_sums: Whether a node sends the sum over its clients instead of a row for each.
      secure: Whether the nodes' sums are added by SecAgg+, which needs `node_sums`.
    """
    plan = {
        "nodes": [{"id": i, "clients": list(c)} for i, c in zip(node_ids, clients, strict=True)],
        "cohorts": [[int(client) for client in cohort] for cohort in cohorts],
        "seed": seed,
        "timeout": timeout,
        "start_seconds": max(_START_SECONDS, _NODE_SECONDS * len(node_ids)),
        "max_dropped": max_dropped,
        "node_sums": node_sums or secure,
        "secure": secure,
    }
    whole_files.write(folder / "plan.json", json.dumps(plan))


class Progress(NamedTuple):
    """What the server has written."""

    state: dict[str, np.ndarray]  # The server's state after the last round.
    rounds: list[dict[str, Any]]  # The metrics of each round.


def progress(folder: pathlib.Path) -> Progress | None:
    """The server's last checkpoint; None if there is none."""
    if not (folder / "state.npz").exists():
        return None
    with np.load(folder / "state.npz") as stored:
        prefix = "state/"
        state = {k.removeprefix(prefix): stored[k] for k in stored if k.startswith(prefix)}
        done = int(stored["round"])
    return Progress(state, json.loads((folder / "rounds.json").read_text())[:done])
