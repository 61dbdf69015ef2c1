"""The app on a node: computes the work of the node's clients, and replies with their sum.

The node's configuration names `package`, the folder of the client package; `folder`, which has
`images.npz` with `images` uint8 [n, h, w, c], `example_ids` int64 [n] and `clients` int64 [n], and
in which the clients' memories are kept; and perhaps `worker`, the socket of `package_worker.py`.

Flower starts a process for every message. A worker keeps TensorFlow and the package loaded between
them; without one, each process loads both.
"""

import functools
import pathlib
from multiprocessing import connection
from typing import Any

import memories
import numpy as np
import records
import secure_sums
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from memories import Arrays

app = ClientApp(mods=[secure_sums.secure_mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Computes one stage of a round.

    The message has the broadcast arrays `down` and the record `task`: `stage`, `round`, `first`
    (whether the stage is the round's first one), `counted` (the last round in which the server
    counted this node), `seed`, `clients` and `node_sums`. The reply has the arrays `up`: the sums
    over these clients or, without `node_sums`, an array with a row for each client. The package
    sends zeros for a client whose values are not finite.
    """
    task = message.content.config_records["task"]
    down = records.arrays(message.content.array_records["down"])
    number = task["round"]
    folder = pathlib.Path(context.node_config["folder"])
    memories.forget_after(folder / "memory", task["counted"], number)
    limit = task["counted"] if task["first"] else number
    work, initial = _worker(context.node_config)
    ups: list[Arrays] = []
    with np.load(folder / "images.npz") as data:
        images, example_ids, owners = (data[n] for n in ("images", "example_ids", "clients"))
    for client in task["clients"]:
        memory = memories.latest(folder / "memory", client, limit, initial)
        own = owners == client
        up, memory = work(task["stage"], down, memory, images[own], example_ids[own], task["seed"])
        ups.append(up)
        if memory:
            memories.keep(folder / "memory", client, number, memory)
    rows = {name: np.stack([up[name] for up in ups]) for name in ups[0]}
    if task["node_sums"]:
        rows = {name: functools.reduce(np.add, list(of_name)) for name, of_name in rows.items()}
    return Message(RecordDict({"up": records.record(rows)}), reply_to=message)


def _worker(node: dict[str, Any]) -> tuple[Any, Arrays]:
    """The function `work` of the package, and a client's memory before its first round."""
    if "worker" not in node:
        from tff_ssl import client

        package = client.load(node["package"], optimize_graphs=False)
        return package.work, package.initial_memory()
    key = pathlib.Path(node["worker"] + ".key").read_bytes()

    def call(*arguments: Any) -> Any:
        with connection.Client(node["worker"], "AF_UNIX", authkey=key) as line:
            line.send(arguments)
            answer = line.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    return lambda *arguments: call("work", *arguments), call("initial_memory")
