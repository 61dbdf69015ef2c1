"""One round with the nodes: each stage of the package, from the broadcast to the next state."""

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import records
import secure_sums
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log
from memories import Arrays

_POLL_SECONDS = 0.5
_WARNING = 30


class RoundLost(Exception):
    """More clients of a round were lost than the plan allows."""


@dataclasses.dataclass
class Nodes:
    """The nodes of a run.

    Attributes:
      clients: Node id -> the indices of its clients.
      counted: Node id -> the last round whose every stage counted the node, from 0; -1 for none.
      timeout: Seconds that a stage waits for replies; None to wait until Flower reports a node
        as gone.
      lost: The nodes that have not finished the last round to which they were asked.
    """

    grid: Grid
    context: Context
    clients: Mapping[int, list[int]]
    counted: dict[int, int]
    timeout: float | None
    lost: set[int] = dataclasses.field(default_factory=set)

    def wait(self, wanted: set[int], seconds: float) -> set[int]:
        """The nodes that are online, after so many seconds at most for wanted ones.

        A node whose machine is busy seems offline for a while. One that was lost before is not
        waited for.
        """
        end = time.monotonic() + seconds
        while (missing := wanted - self.lost - (online := set(self.grid.get_node_ids()))) and (
            time.monotonic() < end
        ):
            time.sleep(_POLL_SECONDS)
        if missing:
            log(_WARNING, "nodes %s are offline", sorted(missing))
        return online

    def contents(
        self, down: Arrays, task: dict[str, Any], cohort: Mapping[int, list[int]]
    ) -> dict[int, RecordDict]:
        """The content of a message for each node with clients in the cohort."""
        arrays = records.record(down)  # One object, which the SuperLink stores once.
        contents = {}
        for node, clients in cohort.items():
            own = ConfigRecord({**task, "clients": clients, "counted": self.counted[node]})
            contents[node] = RecordDict({"down": arrays, "task": own})
        return contents

    def ask(self, contents: Mapping[int, RecordDict], number: int) -> dict[int, Message]:
        """The nodes' replies; errors, and replies that come too late, are left out."""
        messages = [
            Message(content, node, MessageType.TRAIN, group_id=str(number))
            for node, content in contents.items()
        ]
        waiting = {name for name in self.grid.push_messages(messages) if name}
        end = time.monotonic() + (float("inf") if self.timeout is None else self.timeout)
        replies = {}
        while waiting and time.monotonic() < end:
            for reply in self.grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    log(_WARNING, "round %s: %s", number + 1, reply.error.reason)
                else:
                    replies[reply.metadata.src_node_id] = reply
            time.sleep(_POLL_SECONDS if waiting else 0)
        return replies


def run_round(
    nodes: Nodes, package: Any, state: Arrays, number: int, cohort: list[int], plan: Any
) -> tuple[Arrays, dict[str, float]]:
    """Runs a round of a cohort of clients; returns the next state and the metrics.

    A node that is away, does not reply in time, or whose arrays have other names, shapes or types
    than the package's or are not finite, is left out of the rest of the round. Poisson sampling may
    invite nobody; the server then finishes the round with sums of zeros, as in the simulation.

    Raises:
      RoundLost: If more than the fraction `max_dropped` of the cohort is lost, or all of it.
    """
    invited = set(cohort)
    by_node = {n: [c for c in clients if c in invited] for n, clients in nodes.clients.items()}
    asked = {node: clients for node, clients in by_node.items() if clients}
    online = nodes.wait(set(asked), plan["start_seconds"])
    nodes.lost |= asked.keys()  # Until they are counted.
    asked = {node: asked[node] for node in asked if node in online}
    metrics: dict[str, float] = {}
    for stage in package.stages:
        down = package.broadcast(stage, state)
        task = {"stage": stage, "first": stage == package.stages[0], "round": number}
        task |= {"seed": plan["seed"], "node_sums": plan["node_sums"]}
        contents = nodes.contents(down, task, asked)
        (entry,) = (entry for entry in package.manifest["stages"] if entry["name"] == stage)
        expected = {value["name"]: value for value in entry["up"]}
        if not invited:
            counted: set[int] = set()
            sums = {name: np.zeros(v["shape"], v["dtype"]) for name, v in expected.items()}
        elif plan["secure"]:
            own = nodes.grid, nodes.context
            sums, counted = secure_sums.ask(*own, contents, number, expected, nodes.timeout)
        else:
            replies = nodes.ask(contents, number)
            sums, counted = _sum(replies, asked, expected, None if plan["node_sums"] else cohort)
        clients = sum(len(asked[node]) for node in counted)
        missing = len(invited) - clients
        if missing > plan["max_dropped"] * len(invited) or (invited and not clients):
            raise RoundLost(
                f"round {number + 1}, {stage}: {missing} of {len(invited)} clients were "
                f"dropped, more than --max_dropped={plan['max_dropped']:g}"
            )
        asked = {node: asked[node] for node in asked if node in counted}
        state, metrics = package.finish(stage, state, sums)
    nodes.counted |= dict.fromkeys(asked, number)
    nodes.lost -= asked.keys()
    metrics = {name: float(value) for name, value in metrics.items()}
    dropped = missing + metrics.get("dropped_clients", 0.0)
    return state, metrics | {"clients": len(invited), "dropped_clients": dropped}


def _sum(
    replies: Mapping[int, Message],
    asked: Mapping[int, list[int]],
    expected: Mapping[str, Any],
    order: Iterable[int] | None,
) -> tuple[Arrays, set[int]]:
    """The sums of the replies, and the nodes in them.

    Nodes are added in their order. If they have sent a row for each client, clients are added in
    the given order, as the simulation adds them.
    """
    rows, counted = {}, set()
    for node, clients in asked.items():
        if node not in replies:
            continue
        up, fault = _read(replies[node], expected, [] if order is None else [len(clients)])
        if fault:
            log(_WARNING, "node %s is left out: %s", node, fault)
            continue
        counted.add(node)
        if order is None:
            rows[node] = up
        else:
            rows |= {c: {name: up[name][i] for name in up} for i, c in enumerate(clients)}
    sums: Arrays = {}
    for key in asked if order is None else order:
        for name, value in rows.get(key, {}).items():
            sums[name] = sums[name] + value if name in sums else value
    return sums, counted


def _read(reply: Message, expected: Mapping[str, Any], rows: list[int]) -> tuple[Arrays, str]:
    """A node's arrays, and what is wrong with them; empty if nothing is."""
    try:
        up = records.arrays(reply.content.array_records["up"])
    except Exception as error:  # The bytes are the node's.
        return {}, f"its arrays cannot be read ({type(error).__name__})"
    if up.keys() != expected.keys():
        return {}, f"arrays {', '.join(sorted(up))} instead of {', '.join(sorted(expected))}"
    for name, value in up.items():
        right = expected[name]["dtype"], [*rows, *expected[name]["shape"]]
        if (form := (value.dtype.name, list(value.shape))) != right:
            return {}, f"{name} is {form} instead of {right}"
        if not np.all(np.isfinite(value)):
            return {}, f"{name} is not finite"
    return up, ""
